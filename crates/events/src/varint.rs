//! LEB128 integers.

/// Longest encoding of a `u64`.
pub const MAX: usize = 10;

/// Writes `v` at `out[at..]`, returns the position behind it. `out` must have [`MAX`] bytes left.
#[inline]
pub fn put(out: &mut [u8], mut at: usize, mut v: u64) -> usize {
    while v >= 0x80 {
        out[at] = v as u8 | 0x80;
        v >>= 7;
        at += 1;
    }
    out[at] = v as u8;
    at + 1
}

/// Reads an integer at `b[at..]`: value and position behind it. `None` when `b` ends too early or
/// the value does not fit.
#[inline]
pub fn get(b: &[u8], at: usize) -> Option<(u64, usize)> {
    match *b.get(at)? {
        v @ 0..0x80 => Some((v as u64, at + 1)),
        _ => long(b, at),
    }
}

fn long(b: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut v = 0u64;
    for i in 0..MAX {
        let byte = *b.get(at)?;
        at += 1;
        let bits = (byte & 0x7f) as u64;
        if i == MAX - 1 && bits > 1 {
            return None;
        }
        v |= bits << (7 * i);
        if byte & 0x80 == 0 {
            return Some((v, at));
        }
    }
    None
}

/// Maps small negative and positive numbers to small unsigned ones.
pub fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}
