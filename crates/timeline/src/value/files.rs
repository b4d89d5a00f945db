//! Finds what memory held before anybody accessed it: zeros, or the content of a file.

use super::evident;
use super::query::{Query, positions, shares_cells};
use crate::engine::Engine;
use crate::model::memory::{Ground, KnownByte};
use crate::play::Viewpoint;
use crate::recording::maps::{Change, What};
use crate::scan::When;
use crate::scan::{Origin, Source};
use crate::{Mapping, Position, Result, ThreadId};
use std::sync::Arc;

const WRITE: u32 = 2;
const PRIVATE: u32 = 2;
const ANONYMOUS: u32 = 0x20;

/// Whether a mapping of a program's beginning was empty where the recording does not say what it held. Those of the
/// kernel were not. `told`: the recording says what the stack held.
fn empty(m: &Mapping, told: bool) -> bool {
    match &m.path[..] {
        "[stack]" | "[heap]" => told,
        p if p.starts_with('[') => false,
        _ => m.flags & ANONYMOUS != 0,
    }
}

/// What made a byte what it was, and where and by whom that is said.
type Made = (Position, ThreadId, Source);

/// What made each byte what it was, and where. Of several threads, the last one in order counts.
fn sources(
    engine: &Engine,
    threads: &[(ThreadId, u64)],
    (address, len): (u64, usize),
) -> Result<Vec<Option<Made>>> {
    let mut sources: Vec<Option<Made>> = vec![None; len];
    for (t, n) in threads {
        let scan = engine.scan(*t)?;
        // What a call maps is there as soon as it has returned.
        let its = scan.sources_of(address, len, n.saturating_add(1));
        let positions = positions(engine, *t, &its)?;
        for ((best, s), at) in sources.iter_mut().zip(its).zip(positions) {
            let (Some(s), Some(at)) = (s, at) else {
                continue;
            };
            if best.is_none_or(|b| b.0 <= at) {
                *best = Some((at, *t, s));
            }
        }
    }
    Ok(sources)
}

/// Fills in bytes that nobody accessed since they were mapped, if nothing else can have changed them. `threads` are
/// those of the image, each with the number of instructions that it has completed.
pub fn made(
    view: &Viewpoint,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let engine = view.engine();
    if q.whole() {
        return Ok(());
    }
    let (address, len) = (q.m.address, q.m.bytes.len());
    let end = address.saturating_add(len as u64);
    let there: Vec<_> = (engine.mappings(image, here)?.into_iter())
        .filter(|r| r.start < end && address < r.end && r.prot != 0)
        .collect();
    // A debugger's writes are seen beside what the program reads. The search by whole addresses passes over them.
    if evident::meddled(engine)? && shares_cells(engine, image, Some(here), &q.m)? {
        return Ok(());
    }
    let Some(past) = Past::new(engine, image, threads)? else {
        return Ok(());
    };
    // Stretches that have become what they are together.
    let region = |i: usize| {
        let at = address.wrapping_add(i as u64);
        there.iter().position(|r| r.start <= at && at < r.end)
    };
    let sources = sources(engine, threads, (address, len))?;
    let each: Vec<_> = (sources.into_iter().enumerate())
        .map(|(i, s)| (s, region(i)))
        .collect();
    let mut from = 0;
    for stretch in each.chunk_by(|a, b| a == b) {
        let bytes = from..from + stretch.len();
        from = bytes.end;
        let (source, region) = stretch[0];
        let Some(region) = region
            .map(|r| &there[r])
            .filter(|r| r.flags & PRIVATE != 0 && bytes.clone().any(|i| q.open(i)))
        else {
            continue;
        };
        let Some(when) = past.since(source)? else {
            continue;
        };
        let changed = match source.is_some() || past.from_the_start {
            true => q.changed(bytes.clone(), when)?,
            false => Vec::new(),
        };
        let first = address.wrapping_add(bytes.start as u64);
        let len = bytes.len();
        let stays = |i: &usize| q.open(*i) && !changed.iter().any(|c| c.contains(i));
        let bytes: Vec<usize> = bytes.filter(stays).collect();
        if bytes.is_empty() {
            continue;
        }
        let content = past.content(region, source, (first, len))?;
        for i in bytes {
            let at = address.wrapping_add(i as u64);
            let byte = content.byte(region, (at - first) as usize, at);
            q.m.bytes[i] = byte.map(|(value, ground)| KnownByte { value, ground });
        }
    }
    Ok(())
}

/// What is known of an image's past.
struct Past<'a> {
    engine: &'a Arc<Engine>,
    threads: &'a [(ThreadId, u64)],
    first: ThreadId,
    told: bool,
    from_the_start: bool,
    /// Threads may have changed memory in stretches that the recording no longer has: before these numbers.
    unkept: Vec<(ThreadId, u64)>,
}

impl<'a> Past<'a> {
    /// `None`: the image has no thread.
    fn new(
        engine: &'a Arc<Engine>,
        image: u32,
        threads: &'a [(ThreadId, u64)],
    ) -> Result<Option<Past<'a>>> {
        let Some(first) = engine.first_thread(image) else {
            return Ok(None);
        };
        let mut unkept = Vec::new();
        for t in engine.threads_of(image) {
            let scan = engine.scan(t)?;
            if scan.from > 0 {
                unkept.push((t, scan.numbers.first().map_or(u64::MAX, |n| n.0)));
            }
        }
        Ok(Some(Past {
            engine,
            threads,
            first,
            told: engine.scan(first)?.told,
            from_the_start: engine.has_all_of(image)?,
            unkept,
        }))
    }

    /// When memory became what a source made it. `None`: threads ran unrecorded since, and may have changed it.
    fn since(&self, source: Option<Made>) -> Result<Option<When>> {
        // Nothing from before a gap is known.
        let since = source.map_or(0, |s| s.2.at);
        let holder = source.map_or(self.first, |s| s.1);
        let gaps = &self.engine.scan(holder)?.gaps;
        let until = self.threads.iter().find(|t| t.0 == holder);
        let until = until.map_or(0, |t| t.1);
        let unseen = gaps.iter().any(|g| g.end > since && g.start < until);
        let opens = match source {
            Some(_) if !self.unkept.is_empty() => self.engine.segment(holder, since)?.opens,
            _ => 0,
        };
        let open = |u: &(ThreadId, u64)| source.is_none_or(|s| s.1 != u.0 && opens < u.1);
        let when = When {
            thread: holder,
            from: since,
            to: since + 1,
        };
        Ok((!unseen && !self.unkept.iter().any(open)).then_some(when))
    }

    /// What a source put into a stretch of a mapping, given by its first address and its length.
    fn content(
        &self,
        region: &Mapping,
        source: Option<Made>,
        (first, len): (u64, usize),
    ) -> Result<Content> {
        let of_mapped = |loaded| -> Result<Content> {
            let file = file_of(self.engine, region)?;
            Ok(file.map_or(Content::Unknown, |file| Content::Mapped { file, loaded }))
        };
        Ok(match source.map(|s| (s.2.origin, s.2.address)) {
            Some((Origin::Zero, _)) => Content::Zeros,
            Some((Origin::File { module, offset }, address)) => {
                let at = offset.saturating_add(first - address);
                Content::Told(self.engine.trace.module_part(module, at, len)?)
            }
            Some((Origin::Mapped, _)) => of_mapped(false)?,
            // A file that is mapped gives its content.
            Some((Origin::Discarded, _)) if region.flags & ANONYMOUS != 0 => Content::Zeros,
            // Where it came from is another question, or not known.
            Some((Origin::Moved(_) | Origin::Discarded | Origin::Unknown, _)) => Content::Unknown,
            None if !self.from_the_start => Content::Unknown,
            // A mapping without a source was there when the program began.
            None if empty(region, self.told) => Content::Zeros,
            None if region.path.starts_with('/') => of_mapped(!self.told)?,
            None => Content::Unknown,
        })
    }
}

/// What a stretch of memory held before anybody accessed it.
enum Content {
    Zeros,
    /// These bytes of a file. Behind its end nothing is known.
    Told(Vec<u8>),
    /// What a mapped file has there. `loaded` as for [`in_file`].
    Mapped {
        file: Arc<Vec<u8>>,
        loaded: bool,
    },
    Unknown,
}

impl Content {
    /// The byte at an address of a mapping, which is number `i` of the stretch.
    fn byte(&self, region: &Mapping, i: usize, at: u64) -> Option<(u8, Ground)> {
        match self {
            Content::Zeros => Some((0, Ground::Fresh)),
            Content::Told(bytes) => bytes.get(i).map(|b| (*b, Ground::Module)),
            Content::Mapped { file, loaded } => in_file(file, region, at, *loaded),
            Content::Unknown => None,
        }
    }
}

/// Fills in what mapped files say of memory that was never writable since it was mapped. A mapping that was there when
/// the recording began may have been written before: the loader relocates constants, and then takes away the right to
/// write them. What is sure even then, `evident` has filled in.
pub fn mapped(view: &Viewpoint, image: u32, here: Position, q: &mut Query) -> Result<()> {
    if q.whole() {
        return Ok(());
    }
    let engine = view.engine();
    let end = q.m.address.saturating_add(q.len());
    let within = |r: &Mapping| r.start < end && q.m.address < r.end && r.path.starts_with('/');
    let there: Vec<Mapping> = (engine.mappings(image, here)?.into_iter())
        .filter(within)
        .collect();
    if there.is_empty() || evident::meddled(engine)? {
        return Ok(());
    }
    let whole = engine.has_all_of(image)?;
    let changes = engine.changes(image)?;
    let constant = |m: &Mapping, c: &Change| {
        m.prot & WRITE == 0 && m.flags & PRIVATE != 0 && (whole || c.when.is_some())
    };
    let other = |c: &Change| match &c.what {
        What::Map(m) if !constant(m, c) => Some(m.start..m.end),
        _ => None,
    };
    let others: Vec<_> = changes.iter().filter_map(other).collect();
    for r in there {
        let at = |i: usize| q.m.address.wrapping_add(i as u64);
        let is_asked = |i: &usize| {
            let inside = r.start <= at(*i) && at(*i) < r.end;
            inside && q.open(*i) && !others.iter().any(|o| o.contains(&at(*i)))
        };
        let asked: Vec<usize> = (0..q.m.bytes.len()).filter(is_asked).collect();
        if asked.is_empty() {
            continue;
        }
        let Some(file) = file_of(engine, &r)? else {
            continue;
        };
        for i in asked {
            let byte = in_file(&file, &r, q.m.address.wrapping_add(i as u64), false);
            q.m.bytes[i] = byte.map(|(value, ground)| KnownByte { value, ground });
        }
    }
    Ok(())
}

/// What a mapped file has at an address. `loaded`: the kernel's loader made the mapping, or the recorder in its place.
/// They clear the rest of the page after the file's part of a segment.
fn in_file(file: &[u8], r: &Mapping, at: u64, loaded: bool) -> Option<(u8, Ground)> {
    let offset = (at - r.start).wrapping_add(r.offset);
    if loaded && r.prot & WRITE != 0 && behind_segment(file, offset) {
        return Some((0, Ground::Fresh));
    }
    // After the file's end, the page is filled with zeros.
    match usize::try_from(offset).ok().and_then(|o| file.get(o)) {
        Some(v) => Some((*v, Ground::Module)),
        None if offset < (file.len() as u64).next_multiple_of(4096) => Some((0, Ground::Module)),
        None => None,
    }
}

/// The content of a mapping's file.
fn file_of(engine: &Engine, r: &Mapping) -> Result<Option<Arc<Vec<u8>>>> {
    let modules = engine.trace.modules().iter();
    let named = modules
        .rev()
        .find(|i| i.path.as_bytes() == r.path.as_bytes());
    named.map(|i| engine.file(i.hash)).transpose()
}

/// Whether the kernel's loader, which made a mapping, cleared an address there although the file has something else.
pub fn cleared(engine: &Engine, r: &Mapping, at: u64) -> Result<bool> {
    let offset = at.wrapping_sub(r.start).wrapping_add(r.offset);
    let file = match r.prot & WRITE {
        0 => None,
        _ => file_of(engine, r)?,
    };
    Ok(file.is_some_and(|f| behind_segment(&f, offset)))
}

/// Whether this offset of an executable file is in a writable page only because mappings consist of whole pages. The
/// segment in that page ends before the offset. It has zeros there.
fn behind_segment(file: &[u8], offset: u64) -> bool {
    const LOAD: u32 = 1;
    const HEADER: usize = 56;
    const WRITABLE: u32 = 2;
    let part = |at: usize, len| file.get(at..at.checked_add(len)?);
    let word = |at: usize| Some(u64::from_le_bytes(part(at, 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(part(at, 4)?.try_into().ok()?));
    let count = half(56).map_or(0, |v| v as u16 as usize);
    let Some(table) = word(32).filter(|_| file.starts_with(b"\x7fELF")) else {
        return false;
    };
    (0..count).any(|i| {
        let at = usize::try_from(table).unwrap_or(usize::MAX);
        let at = at.saturating_add(i * HEADER);
        let segment = (|| {
            let field = |n: usize| at.checked_add(n);
            let (kind, flags) = (half(at)?, half(field(4)?)?);
            let (start, size) = (word(field(8)?)?, word(field(32)?)?);
            Some((kind == LOAD && flags & WRITABLE != 0, start, size))
        })();
        segment.is_some_and(|(wanted, start, size)| {
            let end = start.saturating_add(size);
            wanted && end > 0 && end <= offset && offset / 4096 == end.saturating_sub(1) / 4096
        })
    })
}
