//! Places in a program image, or a thread, that is not the one whose turn it is there.

use crate::{Cursor, Error, Position, Result, ThreadId};

impl Cursor {
    /// Goes to a position, and there to a thread or to a program image: to where that thread, or the thread of the image
    /// that did something last, then was. An error where there was none yet.
    pub fn seek_within(
        &mut self,
        position: Position,
        image: Option<u32>,
        thread: Option<ThreadId>,
    ) -> Result<()> {
        let timeline = self.timeline().clone();
        if let Some(t) = thread {
            let its = timeline.thread(t)?.image;
            if image.is_some_and(|i| i != its) {
                return Err(Error::Unsupported(format!(
                    "thread {t} is one of program image {its}"
                )));
            }
        } else if let Some(i) = image
            && timeline.0.threads_of(i).is_empty()
        {
            return Err(Error::NoImage(i));
        }
        self.seek(position)?;
        let own = timeline.0.image(self.thread());
        let is = |t: ThreadId| match (thread, image) {
            (Some(wanted), _) => t == wanted,
            (None, Some(i)) => timeline.0.image(t) == i,
            (None, None) => true,
        };
        if is(self.thread()) {
            return Ok(());
        }
        let mut last: Option<(Position, ThreadId, u64)> = None;
        for t in timeline.0.threads.iter().copied().filter(|t| is(*t)) {
            if let Some(count) = timeline.count_at(t, position)? {
                let at = (timeline.position(t, count)?, t, count);
                last = last.max(Some(at));
            }
        }
        let Some((_, t, count)) = last else {
            let what = match (thread, image) {
                (Some(t), _) => format!("thread {t}"),
                (None, i) => format!("program image {}", i.unwrap_or(own)),
            };
            return Err(Error::Unsupported(format!(
                "{what} has not begun at {position}"
            )));
        };
        self.seek_count(t, count)
    }
}
