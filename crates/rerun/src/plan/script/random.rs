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
    /// Where the next random bytes are that a program gets, if they would be at this place. Those that it left out long ago it does not
    /// get any more. `None`: the next ones come much later.
    pub fn random(&self, at: u64) -> Option<u64> {
        let Some(stream) = self.streams.get(&RANDOM) else {
            return Some(at);
        };
        let left = |(from, index): &&(u64, usize)| *from >= at && !self.slots[*index].used;
        let from_here = stream.chunks.get(stream.first..)?;
        // Of one that has been read in part the rest follows.
        let part = |(from, index): &(u64, usize)| {
            let slot = &self.slots[*index];
            *from < at && at - from < slot.call.received.len() as u64 && !slot.used
        };
        if from_here.iter().any(part) {
            return Some(at);
        }
        match from_here
            .iter()
            .filter(left)
            .find(|c| !self.is_long_ago(c.1))
        {
            Some((_, index)) if self.is_far(*index) => None,
            Some((from, _)) => Some(*from),
            None => Some(at),
        }
    }
}
