//! Goes to a thread or program image at a position at which another one runs.

use crate::{Cursor, Error, Position, Result, ThreadId};

impl Cursor {
    /// Goes to a position, and there to a thread or a program image. With a program image, it goes to the thread of it
    /// that did something last.
    ///
    /// # Errors
    /// If the thread or the image had not begun there, or does not exist, or the thread is not of that image.
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
