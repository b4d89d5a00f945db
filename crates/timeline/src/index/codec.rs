//! The encoding that all parts of the index's format use.

use super::pieces;
use crate::Result;
use hindsight_events::varint;

pub const PAGE: usize = 4096;
pub const LINE: usize = 64;
/// The level of compression (zstd). A negative one leaves literals as they are: an eighth larger than level 1, and a
/// quarter faster.
pub const LEVEL: i32 = -1;
/// The level for frames and summaries with steps. They take more room, and many threads make them at a time.
pub const LEVEL_STEPS: i32 = 1;

pub type Page = [u8; PAGE];

/// The instruction at which the part with this directory ends.
pub fn end(directory: &[u8]) -> Option<u64> {
    let mut r = Reader {
        b: directory,
        at: 0,
    };
    r.int()
}

/// The number of intervals of the part with this directory. 0 if it is damaged.
pub fn intervals(directory: &[u8]) -> u64 {
    let mut r = Reader {
        b: directory,
        at: 0,
    };
    let _to = r.int();
    r.int().unwrap_or(0)
}

/// The lines that hold these bytes: pages with masks of lines.
pub fn lines(address: u64, len: u64) -> impl Iterator<Item = (u32, u64)> {
    let first = address / LINE as u64;
    let last = (address + len.max(1) - 1) / LINE as u64;
    const LINES: u64 = (PAGE / LINE) as u64;
    (first..=last).map(|n| ((n / LINES) as u32 & 0xf_ffff, 1 << (n % LINES)))
}

/// Writes an integer.
pub fn put(out: &mut Vec<u8>, v: u64) {
    let mut b = [0; varint::MAX];
    let n = varint::put(&mut b, 0, v);
    out.extend_from_slice(&b[..n]);
}

pub fn pack(raw: &[u8], level: i32) -> Result<Vec<u8>> {
    let mut out = (raw.len() as u64).to_le_bytes().to_vec();
    pieces::compress(raw, level, &mut out)?;
    Ok(out)
}

/// A compressed piece may stand for at most this many bytes.
const MAX_RAW: u64 = 1 << 31;

pub fn unpack(b: &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = b.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(*len);
    if len > MAX_RAW || len / 4096 > rest.len() as u64 * 8 + 64 {
        return None;
    }
    let raw = hindsight_compress::unpack(rest, len as usize).ok()?;
    (raw.len() as u64 == len).then_some(raw)
}

/// Reads what [`put`] and similar functions wrote.
pub struct Reader<'a> {
    pub b: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn int(&mut self) -> Option<u64> {
        let (v, at) = varint::get(self.b, self.at)?;
        self.at = at;
        Some(v)
    }
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let s = self.b.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(s)
    }
    pub fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// The numbers of the set bits, ascending.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (i < 64).then_some(i)
    })
}
