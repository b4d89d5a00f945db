//! What makes travel fast: frames from which replay can begin, and which memory was touched between
//! two of them.
//!
//! A *part* is a thread's stream from one of the recording's own key frames to the next. It is replayed
//! once, with marks of all accesses, in intervals. Of each interval are kept:
//!
//! * a frame: the registers at its start, the pages that the interval accesses, and those lines of them that it
//!   reads, as they were then. A replay of the interval needs no more;
//! * its history: for each page the words (8 bytes) that were read and that were written;
//! * its ends (`ends`): how each byte was accessed last, and what it then held. What was in memory is
//!   read from there, however long ago it was accessed, without replaying.
//!
//! Pages and lines are those of the window: addresses modulo 2^32.

mod build;
mod by_page;
mod ends;
mod frame;
mod given;
mod history;
mod maker;
mod pages;
mod part;
mod pieces;
pub mod sidecar;
mod split;
mod steps;
mod touched;

use crate::engine::Inner;
use crate::scan::Scan;
use crate::{Error, Result, ThreadId};
use hindsight_events::varint;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use build::{Budget, Progress, build};
use by_page::Generations;
use ends::{End, covered};
pub use ends::{Ends, OpenedEnds};
pub use frame::Frame;
use history::History;
use maker::Maker;
pub use part::{Bytes, Encoded, Key, Part, Set, Unpacked, encode};
pub use split::by_several;
pub use touched::Touched;

/// Instructions of an interval.
pub const SPAN: u64 = 32 << 20;
/// Where several threads share memory, and intervals are made in steps: what one of them may have written at the same time
/// as another is found by replaying from the steps that wrote there.
pub const SHARED_SPAN: u64 = 8 << 20;
pub const PAGE: usize = 4096;
pub const LINE: usize = 64;
/// Of compression. A negative one leaves literals as they are: an eighth larger, a quarter faster than 1.
const LEVEL: i32 = -1;
/// Of frames and ends with steps, which take more room, and are made by many threads at a time.
const LEVEL_STEPS: i32 = 1;

pub type Page = [u8; PAGE];

/// Bytes of a page's lines, by their number.
type Lines = BTreeMap<u32, (u64, Box<Page>)>;

/// A stretch of a thread between two frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    pub from: u64,
    pub to: u64,
    pub frame: Frame,
    pub history: Arc<History>,
    /// See [`Ends`]; compressed.
    pub ends: Arc<[u8]>,
}

/// The index of one part of a thread, while it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    pub thread: ThreadId,
    pub from: u64,
    pub to: u64,
    pub intervals: Vec<Interval>,
    /// What was said of the first of them by page.
    generations: Generations,
}

impl Interval {
    /// What was touched of a page.
    fn touched(&self, page: u32) -> Option<Touched> {
        self.history.touched(page)
    }

    /// Those that the index has of each interval, one behind the other.
    fn sections(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        [&self.frame.blob, &self.ends].into_iter()
    }

    fn size(&self) -> usize {
        self.frame.blob.len() + self.ends.len() + self.history.size() + 16
    }

    /// What it held at the end; `None`: it is damaged.
    fn ends(&self) -> Option<Ends> {
        Ends::new(&self.ends, self.frame.open()?.1, self.from)
    }

    /// This interval and the one that follows it as one. `changes`: where something else than the
    /// thread's instructions changed memory in the second, by address and length. `stepped`: they have steps, and
    /// frames of all lines that are accessed.
    fn join(&self, next: &Interval, changes: &[(u64, u64)], stepped: bool) -> Result<Interval> {
        let damaged = || Error::Unsupported("a frame in memory does not decode".into());
        let level = if stepped { LEVEL_STEPS } else { LEVEL };
        let ends = [self, next].map(|i| i.ends().ok_or_else(damaged));
        let [mine, others] = ends;
        let (mine, others) = (mine?, others?);
        let (state, mut lines) = self.frame.unpack().ok_or_else(damaged)?;
        let (behind, more) = next.frame.unpack().ok_or_else(damaged)?;
        for (page, (mask, bytes)) in more {
            let (have, mine) = lines
                .entry(page)
                .or_insert_with(|| (0, Box::new([0; PAGE])));
            // Lines that this interval read are there as of its start. Others it has not touched, or
            // has written what of them is read later: the later content serves.
            let zero = self.touched(page).map_or(0, |t| match stepped {
                true => t.any(),
                false => t.reads,
            });
            let new = mask & !*have & !zero;
            for i in (0..64).filter(|i| new & (1 << i) != 0) {
                let part = i * LINE..(i + 1) * LINE;
                mine[part.clone()].copy_from_slice(&bytes[part]);
            }
            *have |= new;
        }
        let mut pages: BTreeMap<u32, [[u8; 2]; 64]> = BTreeMap::new();
        for t in self.history.iter().chain(next.history.iter()) {
            let mine = pages.entry(t.page).or_insert([[0; 2]; 64]);
            for (a, b) in mine.iter_mut().zip(t.lines()) {
                *a = [a[0] | b[0], a[1] | b[1]];
            }
        }
        let mut history: Vec<Touched> = pages.iter().map(|(p, w)| Touched::new(*p, w)).collect();
        let mut maker = Maker::default();
        for t in &mut history {
            let (page, any) = (t.page, t.any());
            let both = [self, next].map(|interval| interval.touched(page));
            let of = |k: usize, ends: &Ends, i: usize| -> Result<Option<End>> {
                let touched = both[k].as_ref().filter(|t| t.any() & (1 << i) != 0);
                // What steps say of contents stays as it is.
                let line = || match stepped {
                    true => Some([0; LINE]),
                    false => ends.line(page, i),
                };
                let end = touched.map(|t| Some(t.end(i, line()?)));
                end.map(|e| e.ok_or_else(damaged)).transpose()
            };
            let end = |i: usize| -> Result<End> {
                let (first, last) = (of(0, &mine, i)?, of(1, &others, i)?);
                let wiped = (changes.iter()).fold(0, |m, c| m | covered(page, i, c.0, c.1));
                Ok(match (first, last) {
                    (Some(a), Some(b)) => b.after(&a, wiped),
                    (Some(a), None) => a.wiped(wiped),
                    (None, b) => b.unwrap_or_default(),
                })
            };
            let mut all = [End::default(); 64];
            for i in (0..64).filter(|i| any & (1 << i) != 0) {
                all[i] = end(i)?;
            }
            if stepped {
                let lines = (0..64).filter(|i| any & (1 << i) != 0);
                lines.for_each(|i| t.mark(i, all[i].masks));
                continue;
            }
            let base = lines.get(&t.page).map(|l| (l.0, &*l.1));
            maker.page(t, base, |i| all[i]);
        }
        if stepped {
            maker.stepped = true;
            maker.append(&mine, None).ok_or_else(damaged)?;
            let given = given::between(self, next, [&mine, &others], changes);
            maker.add_to_last(given.ok_or_else(damaged)?);
            maker.append(&others, Some(behind)).ok_or_else(damaged)?;
            maker.thin();
        }
        Ok(Interval {
            from: self.from,
            to: next.to,
            frame: Frame::pack(&state, &lines, level)?,
            history: Arc::new(history.into_iter().collect()),
            ends: maker.pack(level)?,
        })
    }
}

impl Draft {
    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        self.intervals.iter().map(Interval::size).sum()
    }

    /// Halves the number of frames.
    fn thin(&mut self, scan: &Scan, stepped: bool) -> Result<()> {
        let join = |pair: &[Interval]| match pair {
            [a, b] => a.join(b, &scan.changed(b.from, b.to), stepped),
            _ => Ok(pair[0].clone()),
        };
        // Nothing else is done meanwhile.
        let cores = hindsight_guard::processors();
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
    // Where the quiet regime ends at a key frame there are two; only what comes behind the last is of use.
    let at = |s: &usize| chunks[*s].first_pos;
    let mut next = starts
        .iter()
        .skip(1)
        .map(at)
        .collect::<Vec<_>>()
        .into_iter();
    starts.retain(|s| next.next() != Some(at(s)));
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

/// The number of intervals of a part with this directory; 0 if it is none.
pub fn intervals(directory: &[u8]) -> u64 {
    let mut r = Reader {
        b: directory,
        at: 0,
    };
    let _to = r.int();
    r.int().unwrap_or(0)
}

/// The lines that hold these bytes, by their pages.
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
