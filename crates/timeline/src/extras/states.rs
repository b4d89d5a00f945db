//! State points: where a recording has all of a program's memory.

use crate::{Kind, Position, Result, ThreadId, Timeline};

/// An instant at which the recording has all memory and registers of a program with one thread. The recorder restates memory now
/// and then, and where the program asks for it (`hindsight_state_point` in `hindsight.h`). The beginning of a program is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatePoint {
    /// The thread. Its program has no other one.
    pub thread: ThreadId,
    /// Its program image.
    pub image: u32,
    /// The instant.
    pub position: Position,
    /// Instructions that the thread has completed.
    pub count: u64,
    /// The name that the program gave: that of the mark right before it.
    pub name: Option<String>,
    /// Bytes of memory that it restates, without those of files.
    pub bytes: u64,
    /// It restates only what has changed since an earlier state point.
    pub is_change: bool,
    /// All files are recorded that the program had mapped. Otherwise what it had of them is known only where it is read.
    pub is_whole: bool,
}

impl Timeline {
    /// The state points of a program image, or of the whole recording, in their order. Without those at which memory may have
    /// changed in ways that the recording does not tell.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn state_points(&self, image: Option<u32>) -> Result<Vec<StatePoint>> {
        let mut out = Vec::new();
        for (thread, scan) in self.0.scans()? {
            let its = self.0.image(*thread);
            if image.is_some_and(|i| i != its) {
                continue;
            }
            for frame in scan.frames.all() {
                let Some(told) = scan.told_at(frame.at).filter(|t| t.at == frame.at) else {
                    continue;
                };
                // The recorder makes no other key frame right behind a mark.
                let until = scan.notes.partition_point(|n| n.0 < frame.at);
                let before = scan.notes[..until].iter().rev();
                let mut before = before.take_while(|n| n.0.checked_add(1) == Some(frame.at));
                let mark = before.find_map(|(_, kind)| match kind {
                    Kind::Mark { name, .. } => Some(name.clone()),
                    _ => None,
                });
                out.push(StatePoint {
                    thread: *thread,
                    image: its,
                    position: self.position(*thread, frame.at)?,
                    count: frame.at,
                    name: mark,
                    bytes: frame.bytes(),
                    is_change: frame.is_change(),
                    is_whole: told.is_whole(),
                });
            }
        }
        out.sort_by_key(|s| s.position);
        Ok(out)
    }
}
