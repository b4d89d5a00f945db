//! Maps whose keys are numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash function for integers. Guest addresses need no better one.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(*b as u64));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(29) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
/// A map by guest addresses.
pub type AddressMap<V> = Map<u64, V>;
