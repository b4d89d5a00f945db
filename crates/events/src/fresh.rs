//! What stands in memory that a program gets and has not written yet (`record --fill-fresh`). It is computed from a key alone. So
//! the recording needs no more than the key ([`Event::Fresh`](crate::Event::Fresh)), and a reader finds the same bytes.
//!
//! The bytes are what programs usually find in memory that others have used: small numbers, numbers that look like addresses, text,
//! ones, noise. None of their words is zero.

use crate::event::MAX_BYTES;

/// Bytes of memory that are alike in kind.
const GROUP: usize = 32;

/// Of so many groups the list in [`Kind::of`] speaks.
const KINDS: u64 = 16;

/// The key of the piece number `number` of a thread, in a recording with this seed.
pub fn key(seed: u32, number: u32) -> u64 {
    (seed as u64) << 32 | number as u64
}

/// The first number of a thread whose maker would have given `number` next. Threads that begin alike have other bytes.
pub fn first_of_child(number: u32) -> u32 {
    mix(number as u64 | 1 << 32) as u32
}

/// Writes the bytes of a key to the beginning of `out`, `len` of them, and returns these. At most [`MAX_BYTES`] are written.
pub fn bytes(key: u64, len: usize, out: &mut [u8; MAX_BYTES]) -> &[u8] {
    let out = &mut out[..len.min(MAX_BYTES)];
    for (g, group) in out.chunks_mut(GROUP).enumerate() {
        let from = mix(key ^ mix(g as u64));
        let kind = Kind::of(from);
        for (w, word) in group.chunks_mut(8).enumerate() {
            let value = kind.word(mix(from.wrapping_add(w as u64 + 1)));
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
    }
    out
}

/// What a group holds.
enum Kind {
    /// Numbers of one byte or two, as counts and lengths are.
    Small,
    /// What looks like addresses of the program's data and heap.
    Low,
    /// What looks like addresses of libraries and stacks.
    High,
    Text,
    Ones,
    Noise,
}

impl Kind {
    fn of(random: u64) -> Kind {
        match random >> 32 & (KINDS - 1) {
            0..5 => Kind::Small,
            5..9 => Kind::Low,
            9..11 => Kind::High,
            11..13 => Kind::Text,
            13 => Kind::Ones,
            _ => Kind::Noise,
        }
    }

    /// A word of this kind.
    fn word(&self, random: u64) -> u64 {
        match self {
            Kind::Small if random >> 63 == 0 => 1 + random % 0xff,
            Kind::Small => 1 + random % 0xffff,
            // Nearly always nothing is mapped there, and never the recorder's own memory.
            Kind::Low => 0x5500_0000_0000 | (random & 0x1ff_ffff_fff0),
            Kind::High => 0x7e00_0000_0000 | (random & 0x1ff_ffff_fff8),
            Kind::Text => u64::from_le_bytes(random.to_le_bytes().map(|b| b' ' + b % 95)),
            Kind::Ones => u64::MAX,
            Kind::Noise => random | 1 << 63,
        }
    }
}

/// The finalizer of SplitMix64.
fn mix(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ v >> 31
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn of(key: u64, len: usize) -> Vec<u8> {
        bytes(key, len, &mut [0; MAX_BYTES]).to_vec()
    }

    #[test]
    fn a_key_gives_the_same_bytes_each_time_and_another_key_others() {
        assert_eq!(of(key(7, 3), 5000), of(key(7, 3), 5000));
        // A shorter piece begins as a longer one does.
        assert_eq!(of(key(7, 3), 5000)[..77], of(key(7, 3), 77));
        for other in [key(8, 3), key(7, 4), key(6, 3)] {
            assert_ne!(of(other, 64), of(key(7, 3), 64));
        }
        assert_ne!(first_of_child(0), first_of_child(1));
        assert_eq!(of(1, 0), []);
    }

    #[test]
    fn no_word_is_zero_and_all_kinds_occur() {
        let all: Vec<u8> = (0..64).flat_map(|n| of(key(1, n), MAX_BYTES)).collect();
        let words = all.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w));
        let (mut kinds, mut n) = ([0u64; 6], 0);
        for w in words {
            assert_ne!(w, 0);
            let text = w.to_le_bytes().iter().all(|b| (b' '..0x7f).contains(b));
            let kind = match w {
                1..=0xffff => 0,
                0x5500_0000_0000..0x5700_0000_0000 => 1,
                0x7e00_0000_0000..0x8000_0000_0000 => 2,
                u64::MAX => 4,
                _ if text => 3,
                _ => 5,
            };
            kinds[kind] += 1;
            n += 1;
        }
        // Shares in sixteenths, within a fifth.
        for (found, share) in kinds.into_iter().zip([5, 4, 2, 2, 1, 2]) {
            let wanted = n * share / KINDS;
            assert!(found.abs_diff(wanted) * 5 < wanted, "{kinds:?} of {n}");
        }
    }
}
