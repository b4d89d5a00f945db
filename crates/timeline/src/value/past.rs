//! What threads accessed before an instant. The index tells without a replay.

use super::query::Query;
use crate::engine::Engine;
use crate::index::{IndexPart, IntervalSummary, LINE, PAGE};
use crate::model::memory::{Ground, KnownByte};
use crate::scan::When;
use crate::{Cancel, Result, ThreadId};
use std::ops::Range;
use std::sync::Arc;

/// An interval that touched some bytes.
pub struct AccessingInterval {
    part: Arc<IndexPart>,
    interval: usize,
    pub from: u64,
    /// Accesses count up to here: the end of the interval, or earlier.
    pub to: u64,
    /// The thread did not access the bytes from the interval's end up to here.
    until: u64,
}

impl AccessingInterval {
    /// Whether only a part of the interval counts. Its summary is then not the answer.
    pub fn is_cut(&self) -> bool {
        self.to < self.end()
    }

    /// Where the interval ends.
    pub fn end(&self) -> u64 {
        self.part.bounds(self.interval).1
    }

    /// The interval: its part, and its number in the part.
    pub fn interval(&self) -> (&Arc<IndexPart>, usize) {
        (&self.part, self.interval)
    }

    /// What a line holds at the end of a whole interval, as far as the bytes in question go. Others may hold what they
    /// do later. `held` keeps the summary for the next line.
    fn line(
        &self,
        engine: &Arc<Engine>,
        held: &mut Option<Arc<IntervalSummary>>,
        page: u32,
        line: usize,
    ) -> Result<[u8; LINE]> {
        let part = &self.part;
        let coarse = part.range.is_coarse();
        let at_border = || {
            let borders = self.interval + 1..=part.last_border(self.until);
            engine.line_at(part, borders, page, line)
        };
        if coarse && !engine.is_framed(part, self.interval)? {
            return at_border();
        }
        let summary = match held.take() {
            Some(s) => s,
            None => part.summary(engine, self.interval)?,
        };
        // Sections that were made again may have no lines where there were some.
        if coarse && !summary.is_framed() {
            return at_border();
        }
        let bytes = summary.line(page, line);
        *held = Some(summary);
        bytes.ok_or_else(|| engine.bad_frame())
    }
}

/// The last interval of a thread that touched any of these bytes before `count`.
pub fn last(
    engine: &Arc<Engine>,
    thread: ThreadId,
    address: u64,
    len: u64,
    count: u64,
    cancel: &Cancel,
) -> Result<Option<AccessingInterval>> {
    let mut at = count;
    while at > 0
        && let Some(part) = engine.part_at(thread, at - 1, cancel)?
        && part.from < at
    {
        let below = part.interval(at - 1) + 1;
        let Some(i) = part.last(engine, address, len, below)? else {
            at = part.from;
            continue;
        };
        let (from, to) = part.bounds(i);
        let touched = |part, interval, from, to: u64| AccessingInterval {
            part,
            interval,
            from,
            to: to.min(count),
            until: count,
        };
        // A coarse interval that counts as a whole tells as much as a fine one.
        let fine = match count < to {
            true => engine.fine(&part, i, cancel)?,
            false => None,
        };
        let Some(fine) = fine else {
            return Ok(Some(touched(part, i, from, to)));
        };
        let below = fine.interval(at - 1) + 1;
        if let Some(i) = fine.last(engine, address, len, below)? {
            let (from, to) = fine.bounds(i);
            return Ok(Some(touched(fine, i, from, to)));
        }
        at = from;
    }
    Ok(None)
}

/// Whether a thread may have written to any of these bytes by instructions `lo..hi`, as its index tells. If only a part
/// of an interval counts, its steps tell.
pub fn writes(
    engine: &Arc<Engine>,
    thread: ThreadId,
    address: u64,
    len: u64,
    lo: u64,
    hi: u64,
    cancel: &Cancel,
) -> Result<bool> {
    let mut at = lo;
    while at < hi
        && let Some(part) = engine.part_at(thread, at, cancel)?
    {
        if part_writes(engine, &part, (address, len), (at, hi), cancel)? {
            return Ok(true);
        }
        if part.to <= at {
            break;
        }
        at = part.to;
    }
    Ok(false)
}

/// The same for one part that has instruction `lo`.
fn part_writes(
    engine: &Arc<Engine>,
    part: &IndexPart,
    (address, len): (u64, u64),
    (lo, hi): (u64, u64),
    cancel: &Cancel,
) -> Result<bool> {
    let last = part.interval(hi.saturating_sub(1));
    let set = part.touching(engine, address, len, false, true)?;
    let touched = (part.interval(lo)..=last).filter(|i| set.has(*i));
    // Intervals of which only a part counts take longer.
    let (whole, cut): (Vec<usize>, Vec<usize>) = touched.partition(|i| {
        let (from, to) = part.bounds(*i);
        lo <= from && to <= hi
    });
    if !whole.is_empty() {
        return Ok(true);
    }
    for i in cut {
        let (from, to) = part.bounds(i);
        let (from, to) = (lo.max(from), hi.min(to));
        if let Some(fine) = engine.fine(part, i, cancel)? {
            if part_writes(engine, &fine, (address, len), (from, to), cancel)? {
                return Ok(true);
            }
            continue;
        }
        let summary = part.summary(engine, i)?;
        for step in summary.step(from)..=summary.step(to - 1) {
            let may = summary.touches(step, address, len, false);
            if may.ok_or_else(|| engine.bad_frame())? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The bytes among these that an interval accessed. They are given as offsets from an address.
pub fn accessed(
    engine: &Arc<Engine>,
    part: &IndexPart,
    interval: usize,
    address: u64,
    bytes: &[usize],
) -> Result<Vec<usize>> {
    let (mut out, mut line) = (Vec::new(), None);
    for i in bytes {
        let cell = address.wrapping_add(*i as u64) as u32 as usize;
        let (page, n) = ((cell / PAGE) as u32, cell % PAGE / LINE);
        let [read, written] = match line {
            Some((key, masks)) if key == (page, n) => masks,
            _ => part.masks(engine, interval, page, n)?,
        };
        line = Some(((page, n), [read, written]));
        if (read | written) & (1 << (cell % LINE)) != 0 {
            out.push(*i);
        }
    }
    Ok(out)
}

/// Fills in what an interval left of some bytes. Nothing before `floor` is known of them.
pub fn take(
    engine: &Arc<Engine>,
    touch: &AccessingInterval,
    floor: &[u64],
    q: &mut Query,
    bytes: impl Iterator<Item = usize>,
) -> Result<()> {
    let part = &touch.part;
    let (mut summary, mut line) = (None, None);
    let when = When {
        thread: part.thread,
        from: touch.from,
        to: touch.to,
    };
    for i in bytes {
        if !q.open(i) || floor[i] >= touch.to {
            continue;
        }
        let cell = q.m.address.wrapping_add(i as u64) as u32 as usize;
        let (page, n) = ((cell / PAGE) as u32, cell % PAGE / LINE);
        let masks = match line {
            Some((key, masks)) if key == (page, n) => masks,
            _ => part.masks(engine, touch.interval, page, n)?,
        };
        line = Some(((page, n), masks));
        let ground = match masks.map(|m| m & (1 << (cell % LINE)) != 0) {
            [false, false] => continue,
            [true, true] => {
                q.lose(i, when);
                continue;
            }
            // The index was made anew with other intervals since the instant was reached. It tells what the interval
            // leaves at its end, which is later.
            _ if touch.is_cut() => {
                q.lose(i, when);
                continue;
            }
            [_, true] => Ground::Written,
            _ => Ground::Read,
        };
        let bytes = touch.line(engine, &mut summary, page, n)?;
        q.m.bytes[i] = Some(KnownByte {
            value: bytes[cell % LINE],
            ground,
        });
        q.when[i] = Some(when);
    }
    Ok(())
}

/// Fills in what one thread accessed before `since`, a border between intervals. Nothing before a byte's `floor` is
/// known of it.
pub fn before(
    engine: &Arc<Engine>,
    thread: ThreadId,
    since: u64,
    floor: &[u64],
    q: &mut Query,
) -> Result<()> {
    for page in pages(q.m.address, q.m.bytes.len()) {
        let open = |i: usize| q.open(i) && floor[i] < since;
        if !page.clone().any(open) {
            continue;
        }
        let start = q.m.address.wrapping_add(page.start as u64);
        // Of large stretches the thread has not accessed most.
        let len = page.len() as u64;
        if last(engine, thread, start, len, since, &q.cancel)?.is_none() {
            continue;
        }
        for word in words(start, page.len()) {
            let word = page.start + word.start..page.start + word.end;
            word_before(engine, thread, (since, word), floor, q)?;
        }
    }
    Ok(())
}

/// The same for the bytes of one word.
fn word_before(
    engine: &Arc<Engine>,
    thread: ThreadId,
    (since, word): (u64, Range<usize>),
    floor: &[u64],
    q: &mut Query,
) -> Result<()> {
    let mut at = since;
    loop {
        let open = |i: &usize| q.open(*i) && floor[*i] < at;
        let (Some(first), Some(last_one)) = (word.clone().find(open), word.clone().rfind(open))
        else {
            return Ok(());
        };
        let start = q.m.address.wrapping_add(first as u64);
        let len = (last_one - first + 1) as u64;
        let Some(touch) = last(engine, thread, start, len, at, &q.cancel)? else {
            return Ok(());
        };
        at = touch.from;
        take(engine, &touch, floor, q, first..last_one + 1)?;
    }
}

/// The words of 8 bytes in a stretch of memory, as ranges of offsets in it.
pub fn words(address: u64, len: usize) -> impl Iterator<Item = Range<usize>> {
    blocks(address, len, 8)
}

/// The pages in a stretch of memory, as ranges of offsets in it.
pub fn pages(address: u64, len: usize) -> impl Iterator<Item = Range<usize>> {
    blocks(address, len, PAGE as u64)
}

fn blocks(address: u64, len: usize, size: u64) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let last = address.wrapping_add(from as u64) | (size - 1);
        let range = from..(last.wrapping_sub(address) as usize + 1).min(len);
        from = range.end;
        (range.start < range.end).then_some(range)
    })
}
