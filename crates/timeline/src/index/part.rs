//! The index of a part, as questions use it. Only what a question needs is read, checked and unpacked. It then stays in
//! a cache.
//!
//! The bytes of a part are a directory and *sections*. Each interval has two: its frame and its summary. Others are
//! about neighbouring pages: they say how all intervals accessed them. So one section tells what accessed an address
//! last, however long ago.

use super::codec::{Reader, unpack};
use super::differences::Differences;
use super::frame::IndexFrame;
use super::page_access::PageAccess;
use super::ranges::PartRange;
use super::stored::{Encoded, Stored, checked};
use super::summary::IntervalSummary;
use crate::base::sync::lock;
use crate::{Result, ThreadId};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_64;

/// Where a section lies in a part's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    at: u64,
    len: u64,
    sum: u64,
}

/// Where the bytes of a part are.
pub enum Bytes {
    File { file: Arc<File>, at: u64 },
    Memory(Vec<u8>),
}

impl Bytes {
    fn read(&self, s: &Section) -> Option<Arc<[u8]>> {
        let len = usize::try_from(s.len).ok()?;
        match self {
            Bytes::File { file, at } => checked(file, at.checked_add(s.at)?, len, s.sum),
            Bytes::Memory(all) => {
                let at = usize::try_from(s.at).ok()?;
                let its = all.get(at..at.checked_add(len)?)?;
                (xxh3_64(its) == s.sum).then(|| its.into())
            }
        }
    }
}

/// An interval and its two sections.
pub struct Span {
    pub from: u64,
    frame: Section,
    summary: Section,
}

/// Directory and bytes.
pub struct Body {
    pub spans: Vec<Span>,
    /// Where the last interval ends.
    end: u64,
    /// The sections about pages, each with its first page. They are sorted by page within each generation.
    pub pages: Vec<(u32, Section)>,
    /// For each generation, the index in `pages` where it ends.
    generations: Vec<usize>,
    bytes: Bytes,
    /// Unique among all bodies. If a part is made again, its sections may differ.
    pub number: u64,
}

/// The index of one part of a thread.
pub struct IndexPart {
    pub thread: ThreadId,
    pub from: u64,
    pub to: u64,
    pub range: PartRange,
    /// Unique among all parts. If a part of the same range is made again, its intervals may differ.
    pub number: u64,
    /// Where intervals begin.
    pub borders: Vec<u64>,
    /// Where the last interval ends.
    end: u64,
    pub body: Mutex<Arc<Body>>,
}

/// The intervals that accessed a page, by number, ascending, and how.
pub type Past = Vec<(u32, PageAccess)>;

/// What a section says of its pages: the bytes, and where each page begins in them.
pub struct Pages {
    pub at: Vec<(u32, usize)>,
    pub raw: Vec<u8>,
}

/// The numbers for the next part and the next body.
static PARTS: AtomicU64 = AtomicU64::new(0);
static BODIES: AtomicU64 = AtomicU64::new(0);

/// Which intervals touched each of some stretches of memory, for the parts that somebody asked about last: one of each
/// level.
#[derive(Default)]
pub struct Touching(Vec<(u64, Vec<IntervalSet>)>);

impl Touching {
    /// The answers for a part. `ask` is called if they are not known.
    pub fn of(
        &mut self,
        part: &IndexPart,
        ask: impl FnOnce() -> Result<Vec<IntervalSet>>,
    ) -> Result<&[IntervalSet]> {
        const LEVELS: usize = 2;
        let known = self.0.iter().position(|k| k.0 == part.number);
        let sets = match known {
            Some(i) => self.0.remove(i),
            None => (part.number, ask()?),
        };
        self.0.truncate(LEVELS - 1);
        self.0.insert(0, sets);
        Ok(&self.0[0].1)
    }
}

/// A set of intervals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntervalSet(Vec<u64>);

impl IntervalSet {
    pub fn new(n: usize) -> IntervalSet {
        IntervalSet(vec![0; n.div_ceil(64)])
    }

    pub fn add(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub fn has(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|w| w & (1 << (i % 64)) != 0)
    }
}

impl IndexPart {
    /// Opens a part with this directory and `len` bytes of sections. `None`: the directory is damaged.
    pub fn open(range: PartRange, directory: &[u8], bytes: Bytes, len: u64) -> Option<IndexPart> {
        let body = Body::open(range, directory, bytes, len)?;
        Some(IndexPart {
            thread: range.thread,
            from: range.from,
            to: range.to,
            range,
            number: PARTS.fetch_add(1, Relaxed),
            borders: body.spans.iter().map(|s| s.from).collect(),
            end: body.end,
            body: Mutex::new(Arc::new(body)),
        })
    }

    /// Opens a part that was just made.
    pub fn made(range: PartRange, part: &Encoded) -> Result<IndexPart> {
        let (bytes, len) = in_memory(part)?;
        let part = IndexPart::open(range, &part.0, bytes, len);
        part.ok_or_else(|| crate::Error::Unsupported("an index cannot be read as made".into()))
    }

    /// The number of the interval that has instruction `count`. At a border it is the interval that begins there.
    pub fn interval(&self, count: u64) -> usize {
        let i = self.borders.partition_point(|from| *from <= count);
        i.saturating_sub(1)
    }

    /// The number of the last border that is not after `count`. The end of the last interval is a border, too.
    pub fn last_border(&self, count: u64) -> usize {
        match count >= self.end {
            true => self.borders.len(),
            false => self.interval(count),
        }
    }

    /// Where an interval begins, and where it ends.
    pub fn bounds(&self, interval: usize) -> (u64, u64) {
        let border = |i: usize| self.borders.get(i).copied().unwrap_or(self.end);
        (border(interval), border(interval + 1))
    }

    /// Whether it lies in another file than this one.
    pub fn is_elsewhere(&self, file: Option<&Arc<File>>) -> bool {
        match &lock(&self.body).bytes {
            Bytes::File { file: its, .. } => file.is_none_or(|f| !Arc::ptr_eq(f, its)),
            Bytes::Memory(_) => false,
        }
    }

    /// The number of bytes that it takes in memory; approximately.
    pub fn held(&self) -> usize {
        let body = lock(&self.body).clone();
        let bytes = match &body.bytes {
            Bytes::File { .. } => 0,
            Bytes::Memory(all) => all.len(),
        };
        bytes
            + size_of::<Span>() * body.spans.len()
            + size_of::<(u32, Section)>() * body.pages.len()
    }

    /// Checks all sections against their checksums.
    pub fn is_whole(&self) -> bool {
        let body = lock(&self.body).clone();
        let spans = body.spans.iter().flat_map(|s| [&s.frame, &s.summary]);
        let mut all = spans.chain(body.pages.iter().map(|p| &p.1));
        all.all(|s| body.bytes.read(s).is_some())
    }
}

impl Body {
    pub fn open(range: PartRange, directory: &[u8], bytes: Bytes, len: u64) -> Option<Body> {
        let mut r = Reader {
            b: directory,
            at: 0,
        };
        let to = r.int()?;
        let mut at = 0u64;
        let mut section = |r: &mut Reader| {
            let s = Section {
                at,
                len: r.int()?,
                sum: r.word()?,
            };
            at = at.checked_add(s.len)?;
            (at <= len).then_some(s)
        };
        let mut from = range.from;
        let mut spans = Vec::new();
        for _ in 0..r.int()? {
            let n = r.int()?;
            spans.push(Span {
                from,
                frame: section(&mut r)?,
                summary: section(&mut r)?,
            });
            from = from.checked_add(n)?;
        }
        let (mut pages, mut generations) = (Vec::new(), Vec::new());
        for _ in 0..r.int()? {
            let mut page = 0u32;
            for _ in 0..r.int()? {
                page = page.checked_add(u32::try_from(r.int()?).ok()?)?;
                pages.push((page, section(&mut r)?));
            }
            generations.push(pages.len());
        }
        let whole = r.at == directory.len() && at == len && !spans.is_empty();
        (to == range.to && whole).then_some(Body {
            spans,
            end: from,
            pages,
            generations,
            bytes,
            number: BODIES.fetch_add(1, Relaxed),
        })
    }

    pub fn frame(&self, interval: usize) -> Option<IndexFrame> {
        let s = self.spans.get(interval)?;
        let blob = self.bytes.read(&s.frame)?;
        Some(IndexFrame {
            position: s.from,
            blob,
        })
    }

    pub fn summary(&self, interval: usize) -> Option<IntervalSummary> {
        let blob = self.bytes.read(&self.spans.get(interval)?.summary)?;
        let frame = self.frame(interval)?;
        IntervalSummary::new(&blob, frame.open()?.1, frame.position)
    }

    /// How memory changed in an interval of the coarse level.
    pub fn differences(&self, interval: usize) -> Option<Differences> {
        let section = &self.spans.get(interval)?.summary;
        let blob = self.bytes.read(section)?;
        let from = self.spans[interval].from;
        let mut differences = IntervalSummary::differences_of(&blob, from)?;
        if let Bytes::File { file, at } = &self.bytes {
            // Only the list of pages stays in memory.
            differences.leave_in(file, at + section.at);
        }
        Some(differences)
    }

    /// How a page was accessed. `pages` unpacks a section by number. `None`: the data is damaged.
    pub fn past(&self, page: u32, pages: &dyn Fn(usize) -> Option<Arc<Pages>>) -> Option<Past> {
        let mut out = Past::new();
        let mut begin = 0;
        for end in self.generations.iter().copied() {
            let before = self.pages[begin..end].partition_point(|p| p.0 <= page);
            if let Some(n) = before.checked_sub(1) {
                let section = pages(begin + n)?;
                if let Ok(i) = section.at.binary_search_by_key(&page, |p| p.0) {
                    let more = section.past(i)?;
                    let behind =
                        |e: &(u32, PageAccess)| out.last().is_none_or(|l: &(u32, _)| l.0 < e.0);
                    if !more.first().is_none_or(behind) {
                        return None;
                    }
                    out.extend(more);
                }
            }
            begin = end;
        }
        Some(out)
    }

    pub fn unpack_pages(&self, n: usize) -> Option<Pages> {
        let raw = unpack(&self.bytes.read(&self.pages.get(n)?.1)?)?;
        let mut at = Vec::new();
        let mut r = Reader { b: &raw, at: 0 };
        let mut page = 0u32;
        while r.at < raw.len() {
            page = page.checked_add(u32::try_from(r.int()?).ok()?)?;
            let len = usize::try_from(r.int()?).ok()?;
            at.push((page, r.at));
            r.take(len)?;
        }
        Some(Pages { at, raw })
    }
}

impl Pages {
    fn past(&self, i: usize) -> Option<Past> {
        let (page, at) = self.at[i];
        let mut r = Reader { b: &self.raw, at };
        let mut out = Vec::new();
        let mut interval = 0u32;
        for _ in 0..r.int()? {
            interval = interval.checked_add(u32::try_from(r.int()?).ok()?)?;
            out.push((interval, PageAccess::read(page, &mut r)?));
        }
        Some(out)
    }
}

/// The sections of a part in memory, and how many bytes they are.
pub fn in_memory((_, sections): &Encoded) -> Result<(Bytes, u64)> {
    let mut all = Vec::with_capacity(sections.iter().map(Stored::len).sum());
    for s in sections {
        all.extend_from_slice(&s.bytes()?);
    }
    let len = all.len() as u64;
    Ok((Bytes::Memory(all), len))
}

#[cfg(test)]
mod tests;
