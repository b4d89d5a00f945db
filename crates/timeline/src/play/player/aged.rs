//! Tells new accesses from old ones without forgetting the old ones: old marks are *aged*.

use super::Player;
use hindsight_isa::observe::{MARK, UNKNOWN};
use hindsight_replay::AccessKind;

/// Aged marks, and the marks that they were. Code that reads marks takes an aged one for the old one. It also loses the
/// same bits where knowledge is lost. The result then counts as a new mark. That only causes a look in vain.
const AGED: [(u8, u8); 2] = [(0x7f, MARK), (0x03, UNKNOWN)];
const _: () = assert!(MARK & UNKNOWN == UNKNOWN && 0x7f & UNKNOWN == 0x03 & UNKNOWN);

impl Player {
    /// Whether these bytes got marks since their marks were aged: of reads, and of writes.
    pub fn is_marked_anew(&self, address: u64, len: u64) -> [bool; 2] {
        [AccessKind::Reads, AccessKind::Writes].map(|kind| {
            let mut marks = vec![0; len as usize];
            self.machine.read_marks(kind, address, &mut marks);
            marks.iter().any(|m| *m == MARK || *m == UNKNOWN)
        })
    }

    /// Ages the marks of these bytes. New marks then differ from them.
    pub fn age(&mut self, address: u64, len: u64) {
        self.change_marks(address, len, |m| {
            AGED.iter().find(|a| a.1 == m).map(|a| a.0)
        });
    }

    /// Makes aged marks ordinary ones again.
    pub fn rejuvenate(&mut self, address: u64, len: u64) {
        self.change_marks(address, len, |m| {
            AGED.iter().find(|a| a.0 == m).map(|a| a.1)
        });
    }

    fn change_marks(&mut self, address: u64, len: u64, new: impl Fn(u8) -> Option<u8>) {
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            let mut marks = vec![0; len as usize];
            self.machine.read_marks(kind, address, &mut marks);
            // If there are no marks, writing would allocate memory for them.
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

    /// The machine's marks no longer tell all accesses.
    pub fn spoil(&mut self) {
        if let Some(at) = &mut self.at {
            at.marks = false;
        }
    }
}
