//! Checks that order numbers are unique in a recording.

use std::collections::HashMap;
use std::sync::Mutex;

/// Order numbers in one entry of the map.
const SPAN: u64 = 512;
/// Number of locks. With many, parts that are replayed at the same time rarely wait for each other.
const SHARDS: usize = 64;

type Shard = HashMap<u64, Box<[u64; SPAN as usize / 64]>>;

/// The order numbers that have occurred. Each may occur once.
pub struct Sequence {
    shards: Vec<Mutex<Shard>>,
}

impl Default for Sequence {
    fn default() -> Self {
        Sequence {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Sequence {
    /// Takes a number. `false` if it was taken before.
    pub fn take(&self, number: u64) -> bool {
        let span = number / SPAN;
        let mut shard = self.shards[span as usize % SHARDS]
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        let bits = shard.entry(span).or_default();
        let (word, bit) = ((number % SPAN / 64) as usize, 1 << (number % 64));
        let free = bits[word] & bit == 0;
        bits[word] |= bit;
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once() {
        let o = Sequence::default();
        let numbers = [0, 1, 63, 64, 511, 512, 1 << 40, u64::MAX];
        assert!(numbers.iter().all(|n| o.take(*n)));
        assert!(!numbers.iter().any(|n| o.take(*n)));
        assert!(o.take(2));
    }
}
