//! What makes travel fast: frames from which replay can begin, and which memory was touched between
//! two of them.
//!
//! A *part* is a thread's stream from one of the recording's own key frames to the next. It is replayed
//! once, with marks of all accesses, in intervals. Of each interval are kept:
//!
//! * a frame: the registers at its start, and those lines of memory that the interval reads, as they
//!   were then. A replay of the interval needs no more;
//! * its history: for each page the words (8 bytes) that were read and that were written;
//! * its ends (`ends`): how each byte was accessed last, and what it then held. What was in memory is
//!   read from there, however long ago it was accessed, without replaying.
//!
//! Pages and lines are those of the window: addresses modulo 2^32.

mod build;
mod ends;
mod frame;
mod pieces;

use crate::scan::Scan;
use crate::timeline::Inner;
use crate::{Error, Result, ThreadId};
use hindsight_events::varint;
use hindsight_replay::LineMarks;
use std::collections::BTreeMap;

pub use build::build;
pub use ends::{End, Ends};
use ends::{Maker, covered};
pub use frame::Frame;

/// Instructions of an interval, unless the index would become too large.
pub const SPAN: u64 = 8 << 20;
pub const PAGE: usize = 4096;
pub const LINE: usize = 64;
const LEVEL: i32 = 1;

pub type Page = [u8; PAGE];

/// Bytes of a page's lines, by their number.
type Lines = BTreeMap<u32, (u64, Box<Page>)>;

/// What was touched of a page: a bit for each line, and of each line that was read or written two
/// bytes with a bit for each word of 8 bytes, for reads and for writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touched {
    pub page: u32,
    pub reads: u64,
    pub writes: u64,
    pub words: Box<[u8]>,
}

impl Touched {
    /// Makes it from the words of a page: the bytes of all its lines.
    pub fn new(page: u32, words: &[[u8; 2]; 64]) -> Touched {
        let mask = |k: usize| (0..64).fold(0u64, |m, i| m | ((words[i][k] != 0) as u64) << i);
        Touched {
            page,
            reads: mask(0),
            writes: mask(1),
            words: words
                .iter()
                .filter(|w| **w != [0; 2])
                .flatten()
                .copied()
                .collect(),
        }
    }

    /// Makes it from how some lines were accessed.
    fn of(page: u32, lines: u64, marks: &[LineMarks]) -> Touched {
        let mut t = Touched {
            page,
            reads: 0,
            writes: 0,
            words: Vec::new().into(),
        };
        let mut words = Vec::with_capacity(2 * marks.len());
        let mut rest = lines;
        for m in marks {
            let line = rest & rest.wrapping_neg();
            rest ^= line;
            t.reads |= if m.read != 0 { line } else { 0 };
            t.writes |= if m.written != 0 { line } else { 0 };
            words.extend([words_of(m.read), words_of(m.written)]);
        }
        t.words = words.into();
        t
    }

    /// The words of a line that were read, and those that were written.
    fn line(&self, i: usize) -> [u8; 2] {
        let any = self.reads | self.writes;
        if any & (1 << i) == 0 {
            return [0; 2];
        }
        let rank = (any & ((1 << i) - 1)).count_ones() as usize;
        match self.words.get(2 * rank..2 * rank + 2) {
            Some(w) => [w[0], w[1]],
            None => [0xff; 2],
        }
    }

    fn lines(&self) -> [[u8; 2]; 64] {
        std::array::from_fn(|i| self.line(i))
    }
}

/// Which words of 8 bytes have any of these bytes.
fn words_of(bytes: u64) -> u8 {
    let x = bytes | bytes >> 4;
    let x = x | x >> 2;
    let x = (x | x >> 1) & 0x0101_0101_0101_0101;
    (x.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// A stretch of a thread between two frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    pub from: u64,
    pub to: u64,
    pub frame: Frame,
    /// By page, ascending.
    pub history: Vec<Touched>,
    /// See [`Ends`]; compressed.
    pub ends: Vec<u8>,
}

/// The index of one part of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub thread: ThreadId,
    pub from: u64,
    pub to: u64,
    pub intervals: Vec<Interval>,
}

impl Interval {
    /// What was touched of a page.
    pub fn touched(&self, page: u32) -> Option<&Touched> {
        let i = self.history.binary_search_by_key(&page, |t| t.page);
        Some(&self.history[i.ok()?])
    }

    /// Whether any word of these bytes was read, or written.
    pub fn touches(&self, address: u64, len: u64, reads: bool, writes: bool) -> bool {
        let end = address.saturating_add(len);
        let mut at = address & !7;
        while at < end {
            let next = (at & !(PAGE as u64 - 1)) + PAGE as u64;
            if let Some(t) = self.touched((at as u32) / PAGE as u32) {
                let stop = end.min(next);
                while at < stop {
                    let [r, w] = t.line(at as usize % PAGE / LINE);
                    let behind = (at & !(LINE as u64 - 1)) + LINE as u64;
                    let first = (at as usize % LINE) / 8;
                    let last = ((stop.min(behind) - 1) as usize % LINE) / 8;
                    let wanted = (0xff << first) & (0xff >> (7 - last));
                    if (reads && r & wanted != 0) || (writes && w & wanted != 0) {
                        return true;
                    }
                    at = behind;
                }
            }
            at = next;
        }
        false
    }

    fn size(&self) -> usize {
        let words: usize = self.history.iter().map(|t| 4 + t.words.len() / 2).sum();
        self.frame.blob.len() + self.ends.len() + words + 16
    }

    /// How what was touched was accessed last, and what it held at the end; `None`: it is damaged.
    pub fn ends(&self) -> Option<Ends> {
        Ends::new(&self.ends, self.history.len(), self.frame.open()?.1)
    }

    /// This interval and the one that follows it as one. `changes`: where something else than the
    /// thread's instructions changed memory in the second, by address and length.
    fn join(&self, next: &Interval, changes: &[(u64, u64)]) -> Result<Interval> {
        let damaged = || Error::Unsupported("a frame in memory does not decode".into());
        let ends = [self, next].map(|i| i.ends().ok_or_else(damaged));
        let [mine, others] = ends;
        let (mine, others) = (mine?, others?);
        let (state, mut lines) = self.frame.unpack().ok_or_else(damaged)?;
        let (_, more) = next.frame.unpack().ok_or_else(damaged)?;
        for (page, (mask, bytes)) in more {
            let (have, mine) = lines
                .entry(page)
                .or_insert_with(|| (0, Box::new([0; PAGE])));
            // Lines that this interval read are there as of its start. Others it has not touched, or
            // has written what of them is read later: the later content serves.
            let zero = self.touched(page).map_or(0, |t| t.reads);
            let new = mask & !*have & !zero;
            for i in (0..64).filter(|i| new & (1 << i) != 0) {
                let part = i * LINE..(i + 1) * LINE;
                mine[part.clone()].copy_from_slice(&bytes[part]);
            }
            *have |= new;
        }
        lines.retain(|_, l| l.0 != 0);
        let mut pages: BTreeMap<u32, [[u8; 2]; 64]> = BTreeMap::new();
        for t in self.history.iter().chain(&next.history) {
            let mine = pages.entry(t.page).or_insert([[0; 2]; 64]);
            for (a, b) in mine.iter_mut().zip(t.lines()) {
                *a = [a[0] | b[0], a[1] | b[1]];
            }
        }
        let history: Vec<Touched> = pages.iter().map(|(p, w)| Touched::new(*p, w)).collect();
        let mut maker = Maker::default();
        for t in &history {
            let end = |i: usize| {
                let first = mine.line(&self.history, t.page, i);
                let last = others.line(&next.history, t.page, i);
                let wiped = (changes.iter()).fold(0, |m, c| m | covered(t.page, i, c.0, c.1));
                match (first, last) {
                    (Some(a), Some(b)) => Some(b.after(&a, wiped)),
                    (Some(a), None) => Some(a.wiped(wiped)),
                    (None, b) => b,
                }
            };
            let any = t.reads | t.writes;
            let of = |i: usize| (any & (1 << i) != 0).then(|| end(i)).flatten();
            let all: [Option<End>; 64] = std::array::from_fn(of);
            if (0..64).any(|i| any & (1 << i) != 0 && all[i].is_none()) {
                return Err(damaged());
            }
            let base = lines.get(&t.page).map(|l| (l.0, &*l.1));
            maker.page(t, base, |i| all[i].unwrap_or_default());
        }
        Ok(Interval {
            from: self.from,
            to: next.to,
            frame: Frame::pack(&state, &lines)?,
            history,
            ends: maker.pack()?,
        })
    }
}

impl Part {
    /// The number of the interval in which `count` instructions are completed; at a border that which begins.
    pub fn interval(&self, count: u64) -> usize {
        let i = self.intervals.partition_point(|i| i.from <= count);
        i.saturating_sub(1)
    }

    fn size(&self) -> usize {
        self.intervals.iter().map(Interval::size).sum()
    }

    /// Halves the number of frames.
    fn thin(&mut self, scan: &Scan) -> Result<()> {
        let join = |pair: &[Interval]| match pair {
            [a, b] => a.join(b, &scan.changed(b.from, b.to)),
            _ => Ok(pair[0].clone()),
        };
        // Nothing else is done meanwhile.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = self.intervals.len().div_ceil(cores).next_multiple_of(2);
        self.intervals = std::thread::scope(|s| {
            let shares = self.intervals.chunks(share.max(2));
            let joined: Vec<_> = shares
                .map(|i| s.spawn(move || i.chunks(2).map(join).collect::<Result<Vec<_>>>()))
                .collect();
            let mut all = Vec::with_capacity(self.intervals.len().div_ceil(2));
            for j in joined {
                match j.join() {
                    Ok(part) => all.extend(part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, Error>(all)
        })?;
        Ok(())
    }
}

/// Where a part lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub thread: ThreadId,
    /// Its first chunk.
    pub chunk: usize,
    pub from: u64,
    pub to: u64,
    /// The thread ends there, and not with a key frame.
    pub last: bool,
}

/// The parts of a thread.
pub fn places(inner: &Inner, thread: ThreadId) -> Vec<Place> {
    let chunks = inner.trace.chunks(thread.0);
    let end = chunks.last().map_or(0, |c| c.last_pos);
    let mut starts: Vec<usize> = (0..chunks.len()).filter(|i| chunks[*i].keyframe).collect();
    if starts.is_empty() && !chunks.is_empty() {
        starts.push(0);
    }
    let ends = starts.iter().skip(1).map(|s| chunks[*s].first_pos);
    let ends: Vec<u64> = ends.chain([end]).collect();
    (starts.iter().zip(&ends).enumerate())
        .map(|(i, (chunk, to))| Place {
            thread,
            chunk: *chunk,
            from: chunks[*chunk].first_pos,
            to: *to,
            last: i + 1 == starts.len(),
        })
        .collect()
}

/// Writes an integer.
pub fn put(out: &mut Vec<u8>, v: u64) {
    let mut b = [0; varint::MAX];
    let n = varint::put(&mut b, 0, v);
    out.extend_from_slice(&b[..n]);
}

pub fn pack(raw: &[u8]) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::Unsupported(format!("cannot compress: {e}"));
    let mut out = (raw.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(&zstd::bulk::compress(raw, LEVEL).map_err(failed)?);
    Ok(out)
}

/// Most bytes that a compressed piece may stand for.
const MAX_RAW: u64 = 1 << 31;

pub fn unpack(b: &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = b.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(*len);
    if len > MAX_RAW || len / 4096 > rest.len() as u64 * 8 + 64 {
        return None;
    }
    let raw = zstd::bulk::decompress(rest, len as usize).ok()?;
    (raw.len() as u64 == len).then_some(raw)
}

/// Reads what [`put`] and its kin wrote.
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
