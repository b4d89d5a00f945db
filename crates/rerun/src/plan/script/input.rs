//! Random bytes. How often a program asks for them may depend on what it got, and on addresses.

use super::{RANDOM, Script, Slot};
use crate::plan::class::Class;

impl Slot {
    /// Whether a program may make it more often, or less often, than recorded. How often it asks for the time depends on how fast it
    /// is. How often it asks for random bytes may depend on addresses, as in names of temporary files.
    pub(super) fn is_free(&self) -> bool {
        self.class == Class::Time || self.call.number as i64 == libc::SYS_getrandom
    }
}

impl Script {
    /// Where the next random bytes of a thread are. `at` is behind those that were read last. Those that the thread left out long ago it
    /// does not get any more. `None`: the next ones come much later.
    pub fn random(&self, lane: u32, at: u64) -> Option<u64> {
        let Some(stream) = self.streams.get(&RANDOM) else {
            return Some(at);
        };
        let own = |(_, index): &&(u64, usize)| {
            let slot = &self.slots[*index];
            slot.call.lane == lane && !slot.used && !self.is_long_ago(*index)
        };
        let mut left = stream.chunks.iter().skip(stream.first).filter(own);
        match left.next() {
            // It may have been read in part.
            Some((from, index)) if *from < at => {
                let len = self.slots[*index].call.received.len() as u64;
                Some(if at - from < len { at } else { *from })
            }
            Some((_, index)) if self.is_far(*index) => None,
            Some((from, _)) => Some(*from),
            // Behind all that are loaded.
            None => Some(stream.pos),
        }
    }
}
