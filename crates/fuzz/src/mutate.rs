//! Changes inputs at random.

use crate::Rng;

/// No input is longer than this.
const MOST: usize = 1 << 16;

/// A number at which something may go wrong.
pub fn odd(r: &mut Rng) -> u64 {
    let near = r.below(5);
    let bit = 1u64 << r.below(64);
    match r.below(4) {
        0 => near,
        1 => bit.wrapping_add(near).wrapping_sub(2),
        2 => u64::MAX - near,
        _ => r.u64(),
    }
}

/// An input that comes from one or two of `examples` by a few changes.
pub fn input(r: &mut Rng, examples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = match examples {
        [] => Vec::new(),
        _ => examples[r.below(examples.len() as u64) as usize].clone(),
    };
    if r.one_in(10) && !examples.is_empty() {
        let other = &examples[r.below(examples.len() as u64) as usize];
        bytes.truncate(below(r, bytes.len() + 1));
        bytes.extend_from_slice(&other[below(r, other.len() + 1)..]);
    }
    for _ in 0..1 + r.below(4) {
        change(r, &mut bytes);
    }
    bytes.truncate(MOST);
    bytes
}

fn below(r: &mut Rng, n: usize) -> usize {
    r.below(n.max(1) as u64) as usize
}

/// Changes some bytes.
pub fn change(r: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return bytes.extend(r.u64().to_le_bytes());
    }
    // What says how the rest is to be read comes first in most inputs.
    let near = if r.one_in(3) { 400 } else { bytes.len() };
    let at = below(r, near.min(bytes.len()));
    match r.below(9) {
        0 => bytes[at] = r.u64() as u8,
        1 => bytes[at] ^= 1 << r.below(8),
        // A number in some width.
        2 => {
            let n = odd(r).to_le_bytes();
            let end = (at + 1 + below(r, 8)).min(bytes.len());
            bytes[at..end].copy_from_slice(&n[..end - at]);
        }
        // A number of many digits in place of a digit.
        3 => {
            let digits = bytes.iter().enumerate().filter(|(_, b)| b.is_ascii_digit());
            let places: Vec<usize> = digits.map(|d| d.0).collect();
            if !places.is_empty() {
                let at = places[below(r, places.len())];
                let n = odd(r).to_string();
                bytes.splice(at..at + 1, n.bytes());
            }
        }
        // A part again, elsewhere.
        4 => {
            let end = at + below(r, (bytes.len() - at + 1).min(4096));
            let part = bytes[at..end].to_vec();
            let to = below(r, bytes.len());
            bytes.splice(to..to, part);
        }
        5 => {
            let end = at + below(r, (bytes.len() - at + 1).min(4096));
            bytes.drain(at..end);
        }
        6 => {
            let new = r.u64().to_le_bytes();
            let n = 1 + below(r, 8);
            bytes.splice(at..at, new.into_iter().take(n));
        }
        7 if r.one_in(4) => bytes.truncate(at),
        _ => bytes[at] = r.pick(b"\0\xff\x7f\x80 \n#$*-\"{}"),
    }
}
