//! What is accessed from a place on, without forgetting what was accessed before it.

use super::Player;
use hindsight_isa::observe::{MARK, UNKNOWN};
use hindsight_replay::AccessKind;

/// Marks of what was accessed before, and what they were: whatever looks at them takes them for those, and they lose what
/// those lose. What is left then is taken for new, which only has somebody look in vain.
const AGED: [(u8, u8); 2] = [(0x7f, MARK), (0x03, UNKNOWN)];
const _: () = assert!(MARK & UNKNOWN == UNKNOWN && 0x7f & UNKNOWN == 0x03 & UNKNOWN);

impl Player {
    /// Whether marks of these bytes were made since they were aged: of reads, and of writes.
    pub fn is_marked_anew(&self, address: u64, len: u64) -> [bool; 2] {
        [AccessKind::Reads, AccessKind::Writes].map(|kind| {
            let mut marks = vec![0; len as usize];
            self.machine.read_marks(kind, address, &mut marks);
            marks.iter().any(|m| *m == MARK || *m == UNKNOWN)
        })
    }

    /// Has the marks of these bytes differ from those that are made from here on.
    pub fn age(&mut self, address: u64, len: u64) {
        self.change_marks(address, len, |m| {
            AGED.iter().find(|a| a.1 == m).map(|a| a.0)
        });
    }

    /// Makes them what they were.
    pub fn rejuvenate(&mut self, address: u64, len: u64) {
        self.change_marks(address, len, |m| {
            AGED.iter().find(|a| a.0 == m).map(|a| a.1)
        });
    }

    fn change_marks(&mut self, address: u64, len: u64, new: impl Fn(u8) -> Option<u8>) {
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            let mut marks = vec![0; len as usize];
            self.machine.read_marks(kind, address, &mut marks);
            // Where there is none, no memory is to be made for them.
            let mut any = false;
            for m in &mut marks {
                if let Some(new) = new(*m) {
                    (*m, any) = (new, true);
                }
            }
            if any {
                self.machine.write_marks(kind, address, &marks);
            }
        }
    }

    /// The machine's marks no longer tell what was touched.
    pub fn spoil(&mut self) {
        if let Some(at) = &mut self.at {
            at.marks = false;
        }
    }
}
