//! The index of a part as questions use it: what they need of it is read, checked and unpacked then, and
//! kept for a while.
//!
//! Its bytes are a directory, and *sections*: of each interval its frame and its ends, and of neighbouring
//! pages together, how they were accessed in all intervals. So what touched an address last, however long
//! ago, is known when one section is read.

use super::by_page::sections;
use super::codec::{Reader, put, unpack};
use super::draft::Draft;
use super::ends::IntervalSummary;
use super::frame::Frame;
use super::history::History;
use super::ranges::PartRange;
use super::touched::PageAccess;
use crate::base::sync::lock;
use crate::{Result, ThreadId};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_64;

/// A stretch of a part's bytes.
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
        let mut all: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let out = Arc::get_mut(&mut all)?;
        match self {
            Bytes::File { file, at } => file.read_exact_at(out, at.checked_add(s.at)?).ok()?,
            Bytes::Memory(all) => {
                let at = usize::try_from(s.at).ok()?;
                let end = at.checked_add(out.len())?;
                out.copy_from_slice(all.get(at..end)?);
            }
        }
        (xxh3_64(out) == s.sum).then_some(all)
    }
}

/// An interval.
pub struct Span {
    pub from: u64,
    frame: Section,
    ends: Section,
}

/// Directory and bytes.
pub struct Body {
    pub spans: Vec<Span>,
    /// Where the last one ends.
    end: u64,
    /// By the first page that each is about, of each generation behind that before.
    pub pages: Vec<(u32, Section)>,
    /// Where each ends.
    generations: Vec<usize>,
    bytes: Bytes,
    /// No other has it, also of the same part: where one is made anew, sections may be others.
    pub number: u64,
}

/// The index of one part of a thread.
pub struct Part {
    pub thread: ThreadId,
    pub from: u64,
    pub to: u64,
    pub place: PartRange,
    /// No other part has it: one of the same place that was made another time may have other intervals.
    pub number: u64,
    /// Where intervals begin.
    pub borders: Vec<u64>,
    /// Where the last one ends.
    end: u64,
    pub body: Mutex<Arc<Body>>,
}

/// How a page was accessed: the numbers of intervals that did, ascending.
pub type Past = Vec<(u32, PageAccess)>;

/// What is said of some neighbouring pages: where each begins in the bytes, and those.
pub struct Pages {
    pub at: Vec<(u32, usize)>,
    pub raw: Vec<u8>,
}

/// How many parts have been taken up, and how many bodies.
static PARTS: AtomicU64 = AtomicU64::new(0);
static BODIES: AtomicU64 = AtomicU64::new(0);

/// A set of intervals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set(Vec<u64>);

impl Set {
    pub fn new(n: usize) -> Set {
        Set(vec![0; n.div_ceil(64)])
    }

    pub fn add(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub fn has(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|w| w & (1 << (i % 64)) != 0)
    }
}

impl Part {
    /// Takes up a part of this directory, with `len` bytes of sections. `None`: it is damaged.
    pub fn open(place: PartRange, directory: &[u8], bytes: Bytes, len: u64) -> Option<Part> {
        let body = Body::open(place, directory, bytes, len)?;
        Some(Part {
            thread: place.thread,
            from: place.from,
            to: place.to,
            place,
            number: PARTS.fetch_add(1, Relaxed),
            borders: body.spans.iter().map(|s| s.from).collect(),
            end: body.end,
            body: Mutex::new(Arc::new(body)),
        })
    }

    /// The same of what was just made.
    pub fn made(place: PartRange, (directory, sections): &Encoded) -> Result<Part> {
        let bytes = sections.concat();
        let len = bytes.len() as u64;
        let part = Part::open(place, directory, Bytes::Memory(bytes), len);
        part.ok_or_else(|| crate::Error::Unsupported("an index cannot be read as made".into()))
    }

    /// The number of the interval in which `count` instructions are completed; at a border that which begins.
    pub fn interval(&self, count: u64) -> usize {
        let i = self.borders.partition_point(|from| *from <= count);
        i.saturating_sub(1)
    }

    /// Where an interval begins, and where it ends.
    pub fn bounds(&self, interval: usize) -> (u64, u64) {
        let border = |i: usize| self.borders.get(i).copied().unwrap_or(self.end);
        (border(interval), border(interval + 1))
    }

    /// Whether all of it is as it was made.
    pub fn is_whole(&self) -> bool {
        let body = lock(&self.body).clone();
        let spans = body.spans.iter().flat_map(|s| [&s.frame, &s.ends]);
        let mut all = spans.chain(body.pages.iter().map(|p| &p.1));
        all.all(|s| body.bytes.read(s).is_some())
    }
}

impl Body {
    pub fn open(place: PartRange, directory: &[u8], bytes: Bytes, len: u64) -> Option<Body> {
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
        let mut from = place.from;
        let mut spans = Vec::new();
        for _ in 0..r.int()? {
            let n = r.int()?;
            spans.push(Span {
                from,
                frame: section(&mut r)?,
                ends: section(&mut r)?,
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
        (to == place.to && whole).then_some(Body {
            spans,
            end: from,
            pages,
            generations,
            bytes,
            number: BODIES.fetch_add(1, Relaxed),
        })
    }

    pub fn frame(&self, interval: usize) -> Option<Frame> {
        let s = self.spans.get(interval)?;
        let blob = self.bytes.read(&s.frame)?;
        Some(Frame {
            position: s.from,
            blob,
        })
    }

    pub fn ends(&self, interval: usize) -> Option<IntervalSummary> {
        let blob = self.bytes.read(&self.spans.get(interval)?.ends)?;
        let frame = self.frame(interval)?;
        IntervalSummary::new(&blob, frame.open()?.1, frame.position)
    }

    /// How a page was accessed. `pages`: unpacks a section of pages.
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

/// The directory of a part, and its sections, which it follows.
pub type Encoded = (Vec<u8>, Vec<Arc<[u8]>>);

/// A part as bytes.
pub fn encode(draft: &Draft) -> Result<Encoded> {
    let (mut directory, mut out) = (Vec::new(), Vec::new());
    put(&mut directory, draft.to);
    put(&mut directory, draft.intervals.len() as u64);
    let mut section = |directory: &mut Vec<u8>, bytes: Arc<[u8]>| {
        put(directory, bytes.len() as u64);
        directory.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        out.push(bytes);
    };
    for i in &draft.intervals {
        put(&mut directory, i.to - i.from);
        i.sections()
            .for_each(|s| section(&mut directory, Arc::clone(s)));
    }
    let said = &draft.generations;
    let rest: Vec<&History> = (draft.intervals[said.intervals..].iter())
        .map(|i| &*i.history)
        .collect();
    let last = sections(&rest, said.intervals)?;
    put(&mut directory, said.all.len() as u64 + 1);
    for generation in said.all.iter().chain([&last]) {
        put(&mut directory, generation.len() as u64);
        let mut before = 0;
        for (page, bytes) in generation {
            put(&mut directory, (page - before) as u64);
            before = *page;
            section(&mut directory, bytes[..].into());
        }
    }
    Ok((directory, out))
}

#[cfg(test)]
mod tests;
