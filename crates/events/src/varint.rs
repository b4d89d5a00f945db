//! LEB128 integers.

/// Longest encoding of a `u64`, in bytes.
pub const MAX: usize = 10;

/// Writes `v` at `out[at..]` and returns the offset behind it. `out` must have [`MAX`] bytes left.
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

/// Reads an integer at `b[at..]` and returns it with the offset behind it. `None` if `b` ends too early or
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

/// The offset behind `n` integers at `b[from..]`. `None` where [`get`] would return it. Reads most integers
/// only for their length, eight bytes at a time.
#[inline]
pub fn skip(b: &[u8], from: usize, n: usize) -> Option<usize> {
    const LAST: u64 = u64::from_le_bytes([0x80; 8]);
    let (mut at, mut left) = (from, n);
    // Bytes of the integer that has not ended yet.
    let mut open = 0;
    while left > 0 {
        let Some(word) = b.get(at..).and_then(|b| b.first_chunk()) else {
            return skip_reading(b, from, n);
        };
        // One bit for each byte that ends an integer.
        let mut ends = !u64::from_le_bytes(*word) & LAST;
        if open + ends.trailing_zeros() as usize / 8 >= MAX - 1 {
            // A value of this length may not fit 64 bits, so look at it.
            return skip_reading(b, from, n);
        }
        let count = ends.count_ones() as usize;
        if count < left {
            open = ends.leading_zeros() as usize / 8 + if ends == 0 { open } else { 0 };
            (at, left) = (at + 8, left - count);
            continue;
        }
        (1..left).for_each(|_| ends &= ends - 1);
        return Some(at + ends.trailing_zeros() as usize / 8 + 1);
    }
    Some(at)
}

fn skip_reading(b: &[u8], mut at: usize, n: usize) -> Option<usize> {
    for _ in 0..n {
        at = get(b, at)?.1;
    }
    Some(at)
}

/// Maps small negative and positive numbers to small unsigned ones.
pub fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn integers_are_skipped_as_they_are_read() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            seed >> 33
        };
        let (mut good, mut bad) = (0, 0);
        // Miri takes a thousand times as long.
        let rounds = if cfg!(miri) { 200 } else { 100_000 };
        for _ in 0..rounds {
            // Mostly bytes that do not end an integer: some integers become too long.
            let mut b = [0; 40];
            let often = random() % 20 + 1;
            for v in b.iter_mut() {
                *v = random() as u8 & 0x7f | if random() % often != 0 { 0x80 } else { 0 };
            }
            let len = random() as usize % b.len();
            let (from, n) = (random() as usize % 4, random() as usize % 8);
            let read = skip_reading(&b[..len], from, n);
            assert_eq!(
                skip(&b[..len], from, n),
                read,
                "{n} from {from} of {:x?}",
                &b[..len]
            );
            *(if read.is_some() { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > rounds / 10 && bad > rounds / 10, "{good}, {bad}");
    }
}
