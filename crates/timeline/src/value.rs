//! The value of memory at a position.

use crate::maps;
use crate::memory::*;
use crate::past;
use crate::player::Player;
use crate::scan::Origin;
use crate::search;
use crate::stops::{Cancel, Watch};
use crate::timeline::Inner;
use crate::{Cursor, Mapping, Position, Result, Segment, ThreadId};
use hindsight_isa::observe::MARK;
use std::sync::Arc;

/// Intervals that are replayed at most to find what is read later.
const AHEAD: usize = 4;
/// Words whose earlier values are kept for conditions.
const KEPT: usize = 1 << 14;

/// See [`Cursor::memory`].
pub fn memory(cursor: &mut Cursor, address: u64, len: usize) -> Result<Memory> {
    let mut m = Memory {
        address,
        bytes: vec![None; len],
        candidates: Vec::new(),
    };
    // Bytes whose value is not known, and is not to be had from what was before.
    let mut lost = vec![false; len];
    let (home, count) = (cursor.thread(), cursor.count());
    let mut here = cursor.position()?;
    let mut image = cursor.image();
    loop {
        let alone = accessed(cursor, image, (home, count), here, &mut m, &mut lost)?;
        if image == cursor.image() {
            cursor.place(home, count)?;
            if alone {
                made(cursor, image, (home, count), here, &mut m, &lost)?;
            }
            match alone {
                true => exposed(cursor, &mut m, &lost)?,
                false => races(cursor, &mut m)?,
            }
            cursor.place(home, count)?;
        }
        mapped(cursor, image, here, &mut m, &lost)?;
        if whole(&m, &lost) {
            break;
        }
        // A forked process began with its parent's memory.
        let trace = cursor.timeline().trace();
        let Some(forked) = trace.image(image).filter(|i| !i.by_exec && i.parent != 0) else {
            break;
        };
        let parent = forked.parent;
        let processes = cursor.timeline().processes()?;
        let Some(begin) = processes.iter().find(|p| p.image == image).map(|p| p.begin) else {
            break;
        };
        (image, here) = (parent, begin);
    }
    cursor.place(home, count)?;
    code(cursor.here()?, &mut m);
    Ok(m)
}

fn whole(m: &Memory, lost: &[bool]) -> bool {
    m.bytes
        .iter()
        .zip(lost)
        .all(|(b, lost)| b.is_some() || *lost)
}

/// What the threads of an image accessed before a position; whether there is only one thread.
fn accessed(
    cursor: &mut Cursor,
    image: u32,
    home: (ThreadId, u64),
    here: Position,
    m: &mut Memory,
    lost: &mut [bool],
) -> Result<bool> {
    let mut touched = Vec::new();
    let threads: Vec<ThreadId> = (cursor.timeline().scans()?.keys().copied())
        .filter(|t| cursor.timeline().0.image(*t) == image)
        .collect();
    let alone = threads.len() == 1;
    for t in threads {
        let n = match t == home.0 {
            true => Some(home.1),
            false => cursor.timeline().count_at(t, here)?,
        };
        let len = m.bytes.len() as u64;
        if let Some(n) = n
            && (alone || past::last(&cursor.timeline().0, t, m.address, len, n)?.is_some())
        {
            touched.push((t, n));
        }
    }
    // Marks and window know addresses modulo 2^32. Where that is not enough, the last access is found
    // by its whole address.
    let changes = cursor.timeline().changes(image)?;
    let exact = maps::aliased(&changes, m.address, m.bytes.len() as u64);
    match touched[..] {
        [] => {}
        [(t, n)] if !exact => one(cursor.player(t)?, n, m, lost)?,
        _ if exact => several(cursor, &touched, m, lost)?,
        _ => shared(cursor, &touched, m, lost)?,
    }
    Ok(alone)
}

/// Moves what is read later to here, where nothing can have changed it in between: no system call,
/// signal, gap or other thread.
fn exposed(cursor: &mut Cursor, m: &mut Memory, lost: &[bool]) -> Result<()> {
    const PRIVATE: u32 = 2;
    let (t, count, image) = (cursor.thread(), cursor.count(), cursor.image());
    let timeline = cursor.timeline().clone();
    let here = timeline.position(t, count)?;
    let scan = timeline.0.scan(t)?;
    if count <= scan.quiet_until {
        // What is not known by now is not there, or nobody knows it.
        return Ok(());
    }
    let barriers = [
        scan.events.iter().map(|e| e.0).find(|n| *n >= count),
        scan.zeros.iter().map(|z| z.0).find(|n| *n >= count),
        scan.given.iter().map(|z| z.0).find(|n| *n >= count),
        scan.gaps.iter().map(|g| g.end).find(|n| *n >= count),
        scan.numbers.iter().map(|n| n.1).find(|n| *n >= count),
    ];
    let until = barriers.into_iter().flatten().min().unwrap_or(scan.to);
    // Memory that others share may change at any time.
    let (address, len) = (m.address, m.bytes.len() as u64);
    let list = timeline.mappings(image, here)?;
    let inside = |r: &crate::Mapping| {
        r.start <= address && address.saturating_add(len) <= r.end && r.flags & PRIVATE != 0
    };
    let shared = maps::aliased(&timeline.changes(image)?, address, len);
    if whole(m, lost) || shared || !list.iter().any(inside) {
        return Ok(());
    }
    cursor.player(t)?.with_helper(|p| {
        let mut shut = lost.to_vec();
        let (mut lo, mut replays) = (count, 0);
        while lo < until && replays < AHEAD && !whole(m, &shut) {
            let part = p.index(lo)?;
            let interval = &part.intervals[part.interval(lo)];
            let hi = until.min(interval.to.max(lo + 1));
            if interval.touches(address, len, true, false) {
                replays += 1;
                p.seek(lo)?;
                p.take_marks(address, len);
                p.set_breaks(Vec::new());
                p.run(hi)?;
                let [reads, writes, cells] = p.known(address, len as usize);
                p.spoil();
                for (i, b) in m.bytes.iter_mut().enumerate() {
                    if b.is_none() && !shut[i] && reads[i] == MARK && writes[i] == 0 {
                        *b = Some(Known {
                            value: cells[i],
                            ground: Ground::Exposed,
                        });
                    }
                    shut[i] |= writes[i] != 0;
                }
            } else if interval.touches(address, len, false, true) {
                break;
            }
            lo = hi;
        }
        Ok(())
    })
}

/// Fills in what mapped files say where it cannot be written.
fn mapped(
    cursor: &Cursor,
    image: u32,
    here: Position,
    m: &mut Memory,
    lost: &[bool],
) -> Result<()> {
    const WRITE: u32 = 2;
    if whole(m, lost) {
        return Ok(());
    }
    let timeline = cursor.timeline();
    let end = m.address.saturating_add(m.bytes.len() as u64);
    for r in timeline.mappings(image, here)? {
        if r.end <= m.address || end <= r.start || r.prot & WRITE != 0 || !r.path.starts_with('/') {
            continue;
        }
        let modules = timeline.trace().modules().iter();
        let found = modules
            .rev()
            .find(|i| i.path.as_bytes() == r.path.as_bytes());
        let Some(info) = found else { continue };
        let file = timeline.0.file(info.hash)?;
        for (i, lost) in lost.iter().enumerate() {
            let at = m.address.wrapping_add(i as u64);
            if at < r.start || r.end <= at || m.bytes[i].is_some() || *lost {
                continue;
            }
            let offset = (at - r.start).wrapping_add(r.offset);
            // Behind the file's end the page is filled with zeros.
            let value = match file.get(offset as usize) {
                Some(v) => *v,
                None if offset < (file.len() as u64).next_multiple_of(4096) => 0,
                None => continue,
            };
            m.bytes[i] = Some(Known {
                value,
                ground: Ground::Module,
            });
        }
    }
    Ok(())
}

/// What one thread knows of it, which nobody else has touched. The player stays at `count`.
fn one(p: &mut Player, count: u64, m: &mut Memory, lost: &mut [bool]) -> Result<()> {
    p.seek_end(count)?;
    take(p, m, lost);
    if whole(m, lost) {
        return Ok(());
    }
    let inner = Arc::clone(p.inner());
    let floor = floor(&inner, p.thread, m, count)?;
    let since = p.since();
    past::before(&inner, p.thread, since, &floor, m, lost)
}

/// For each byte, the instruction before which nothing is known of it that holds at `count`: nothing is
/// known across a gap, nor of what was in memory before it was mapped anew.
fn floor(inner: &Inner, thread: ThreadId, m: &Memory, count: u64) -> Result<Vec<u64>> {
    let scan = inner.scan(thread)?;
    let gap = scan.gaps[..scan.gaps.partition_point(|g| g.end < count)].last();
    let gap = gap.map_or(0, |g| g.end);
    let sources = scan.sources_of(m.address, m.bytes.len(), count);
    let mapped = sources.iter().map(|s| s.map_or(0, |s| s.at));
    Ok(mapped.map(|at| at.max(gap)).collect())
}

/// Whether a mapping that was there when a program began was then empty where it is not recorded what it
/// held. Others are the kernel's.
fn empty(m: &Mapping) -> bool {
    const ANONYMOUS: u32 = 0x20;
    let own = !m.path.starts_with('[') || ["[stack]", "[heap]"].contains(&&m.path[..]);
    own && (m.flags & ANONYMOUS != 0 || m.path.starts_with('['))
}

/// Fills in what was never accessed since it was made, where it is recorded all that changes memory.
fn made(
    cursor: &Cursor,
    image: u32,
    (thread, count): (ThreadId, u64),
    here: Position,
    m: &mut Memory,
    lost: &[bool],
) -> Result<()> {
    let timeline = cursor.timeline();
    let scan = timeline.0.scan(thread)?;
    if whole(m, lost) || count > scan.quiet_until {
        return Ok(());
    }
    let end = m.address.saturating_add(m.bytes.len() as u64);
    let there: Vec<_> = (timeline.mappings(image, here)?.into_iter())
        .filter(|r| r.start < end && m.address < r.end && r.prot != 0)
        .collect();
    let sources = scan.sources_of(m.address, m.bytes.len(), count);
    // What a file has, from an offset on.
    let mut file: Option<(u32, u64, Vec<u8>)> = None;
    for (i, source) in sources.into_iter().enumerate() {
        let at = m.address.wrapping_add(i as u64);
        let region = there.iter().find(|r| r.start <= at && at < r.end);
        let (None, false, Some(region)) = (m.bytes[i], lost[i], region) else {
            continue;
        };
        m.bytes[i] = match source.map(|s| (s.origin, at - s.address)) {
            Some((Origin::Zero, _)) => Some((0, Ground::Fresh)),
            Some((Origin::File { module, offset }, o)) => {
                let at = offset.saturating_add(o);
                let known = file.as_ref().filter(|f| f.0 == module && f.1 <= at);
                if known.is_none_or(|f| at - f.1 >= f.2.len() as u64) {
                    let rest = m.bytes.len() - i;
                    let bytes = timeline.trace().module_part(module, at, rest)?;
                    file = Some((module, at, bytes));
                }
                let byte = file.as_ref().and_then(|f| f.2.get((at - f.1) as usize));
                byte.map(|b| (*b, Ground::Module))
            }
            // Where it came from is another question.
            Some((Origin::Moved(_), _)) => None,
            // What is not mentioned was there, empty, when the program began.
            None if empty(region) => Some((0, Ground::Fresh)),
            None => None,
        }
        .map(|(value, ground)| Known { value, ground });
    }
    Ok(())
}

/// Fills in what the player's marks know.
fn take(p: &Player, m: &mut Memory, lost: &mut [bool]) {
    let [reads, writes, cells] = p.known(m.address, m.bytes.len());
    for i in 0..m.bytes.len() {
        if m.bytes[i].is_some() || lost[i] {
            continue;
        }
        let ground = match (reads[i], writes[i]) {
            (_, MARK) => Ground::Written,
            (MARK, _) => Ground::Read,
            (0, 0) => continue,
            _ => {
                lost[i] = true;
                continue;
            }
        };
        m.bytes[i] = Some(Known {
            value: cells[i],
            ground,
        });
    }
}

/// What several threads know of it: the last interval of any of them that touched a word tells, if all of
/// it comes after those of the others; else the last access is looked for.
fn shared(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    m: &mut Memory,
    lost: &mut [bool],
) -> Result<()> {
    let timeline = cursor.timeline().clone();
    let inner = &timeline.0;
    // When the memory was mapped anew last, and what each thread knows nothing from before of.
    let mut mapped = vec![None; m.bytes.len()];
    let mut floors = Vec::new();
    for (t, n) in threads {
        let scan = inner.scan(*t)?;
        for (i, s) in (scan.sources_of(m.address, m.bytes.len(), *n).into_iter()).enumerate() {
            if let Some(s) = s {
                mapped[i] = mapped[i].max(Some((timeline.position(*t, s.at)?, *t)));
            }
        }
        floors.push(floor(inner, *t, m, *n)?);
    }
    for word in past::words(m.address, m.bytes.len()) {
        let mut since: Vec<u64> = threads.iter().map(|t| t.1).collect();
        loop {
            let open = |i: &usize| m.bytes[*i].is_none() && !lost[*i];
            let (Some(first), Some(last)) = (word.clone().find(open), word.clone().rfind(open))
            else {
                break;
            };
            let (start, len) = (m.address.wrapping_add(first as u64), last - first + 1);
            let mut touches = Vec::new();
            for (k, (t, _)) in threads.iter().enumerate() {
                if let Some(touch) = past::last(inner, *t, start, len as u64, since[k])? {
                    let from = timeline.position(*t, touch.from)?;
                    let to = timeline.position(*t, touch.to - 1)?;
                    touches.push((to, from, k, touch));
                }
            }
            touches.sort_by_key(|t| t.0);
            let Some((to, from, k, touch)) = touches.pop() else {
                break;
            };
            let anew = mapped[first..=last].iter().flatten().max().copied();
            if anew.is_some_and(|a| a.0 > to) {
                break;
            }
            let (t, mine) = (threads[k].0, threads[k].1);
            let mixed = touches.last().is_some_and(|o| o.0 >= from)
                || anew.is_some_and(|a| a.0 > from && a.1 != t);
            if !mixed && !touch.is_cut() {
                past::take(inner, &touch, &floors[k], m, lost, first..last + 1)?;
            } else if !mixed && seek_in(cursor.player(t)?, touch.from, touch.to)? {
                let mut part = Memory {
                    address: start,
                    bytes: m.bytes[first..=last].to_vec(),
                    candidates: Vec::new(),
                };
                take(cursor.player(t)?, &mut part, &mut lost[first..=last]);
                m.bytes[first..=last].copy_from_slice(&part.bytes);
            } else {
                let left: Vec<_> = (threads.iter().zip(&since))
                    .map(|(t, n)| (t.0, *n))
                    .collect();
                let after = anew.map(|a| a.0);
                exactly(cursor, &left, after, m, lost, first, last + 1)?;
                break;
            }
            since[k] = touch.from.min(mine);
        }
    }
    Ok(())
}

/// Goes to the end of a part of an interval; whether the marks are of just that part.
fn seek_in(p: &mut Player, from: u64, to: u64) -> Result<bool> {
    p.seek_end(to)?;
    Ok(p.since() == from)
}

/// The last access of several threads to each of some bytes of a word.
fn exactly(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    after: Option<Position>,
    m: &mut Memory,
    lost: &mut [bool],
    from: usize,
    to: usize,
) -> Result<()> {
    let whole = m.bytes[from..to].iter().all(Option::is_none);
    if whole && word_of(cursor, threads, after, m, lost, from, to)? {
        return Ok(());
    }
    for i in from..to {
        if m.bytes[i].is_none() && !lost[i] {
            word_of(cursor, threads, after, m, lost, i, i + 1)?;
        }
    }
    Ok(())
}

/// The last access to each byte, of several threads, in the total order.
fn several(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    m: &mut Memory,
    lost: &mut [bool],
) -> Result<()> {
    for word in past::words(m.address, m.bytes.len()) {
        exactly(cursor, threads, None, m, lost, word.start, word.end)?;
    }
    Ok(())
}

/// The same for bytes that were accessed together, not before `after`; `false` if they were not.
fn word_of(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    after: Option<Position>,
    m: &mut Memory,
    lost: &mut [bool],
    from: usize,
    to: usize,
) -> Result<bool> {
    let address = m.address.wrapping_add(from as u64);
    let len = (to - from) as u64;
    let mut best: Option<(Position, ThreadId, search::Effect)> = None;
    for (t, n) in threads {
        let p = cursor.player(*t)?;
        let found =
            search::last_effect(p, address, len, Watch::Access, p.from, *n, &Cancel::new())?;
        if let Some(e) = found {
            let at = cursor.timeline().position(*t, e.count)?;
            if best.as_ref().is_none_or(|b| at > b.0) {
                best = Some((at, *t, e));
            }
        }
    }
    let best = best.filter(|b| after.is_none_or(|a| b.0 >= a));
    let Some((_, t, e)) = best else {
        return Ok(true);
    };
    if e.address > address || e.address + e.len < address + len {
        return Ok(false);
    }
    let p = cursor.player(t)?;
    p.seek_end(e.count + 1)?;
    let lost = &mut lost[from..to];
    let mut part = Memory {
        address,
        bytes: vec![None; to - from],
        candidates: Vec::new(),
    };
    take(p, &mut part, lost);
    let ground = if e.write {
        Ground::Written
    } else {
        Ground::Read
    };
    for (b, k) in m.bytes[from..to].iter_mut().zip(part.bytes) {
        *b = k.map(|k| Known { ground, ..k });
    }
    Ok(true)
}

/// Values that segments which ran at the same time gave to some of it.
fn races(cursor: &mut Cursor, m: &mut Memory) -> Result<()> {
    let (home, count) = (cursor.thread(), cursor.count());
    let mine: Segment = cursor.timeline().segment(home, count)?;
    let image = cursor.image();
    let timeline = cursor.timeline().clone();
    for (t, scan) in timeline.scans()? {
        if *t == home || timeline.0.image(*t) != image {
            continue;
        }
        // Their segments that were open while the cursor's was.
        let first = scan.numbers.partition_point(|n| n.0 <= mine.opens);
        let end = match mine.closes {
            Some(c) => scan.numbers.partition_point(|n| n.0 < c),
            None => scan.numbers.len(),
        };
        let begun = first > 0 || scan.begins_without_number();
        let (lo, hi) = (
            match begun {
                true => scan.nth(*t, first).from,
                false => scan.from,
            },
            scan.nth(*t, end.max(first)).to,
        );
        let p = cursor.player(*t)?;
        let len = m.bytes.len() as u64;
        let found = search::last_effect(p, m.address, len, Watch::Write, lo, hi, &Cancel::new())?;
        let Some(e) = found else { continue };
        p.seek_end(e.count + 1)?;
        let start = e.address.max(m.address);
        let stop = (e.address + e.len).min(m.address.wrapping_add(len));
        let [_, _, bytes] = p.known(start, (stop - start) as usize);
        let offset = (start - m.address) as usize;
        let same = bytes
            .iter()
            .enumerate()
            .all(|(i, b)| m.bytes[offset + i].is_some_and(|k| k.value == *b));
        if !same {
            m.candidates.push(Candidate {
                address: start,
                bytes,
                thread: *t,
                position: timeline.position(*t, e.count)?,
            });
        }
    }
    Ok(())
}

/// Fills in what is known because it was executed.
fn code(p: &Player, m: &mut Memory) {
    let mut one = [0];
    for (i, b) in m.bytes.iter_mut().enumerate().filter(|b| b.1.is_none()) {
        if p.code(m.address.wrapping_add(i as u64), &mut one) == 1 {
            *b = Some(Known {
                value: one[0],
                ground: Ground::Code,
            });
        }
    }
}

/// Memory as a condition sees it: what this thread knows of it; `false` if any of it is unknown.
pub fn read(p: &mut Player, address: u64, buf: &mut [u8]) -> Result<bool> {
    let mut m = Memory {
        address,
        bytes: vec![None; buf.len()],
        candidates: Vec::new(),
    };
    let mut lost = vec![false; buf.len()];
    take(p, &mut m, &mut lost);
    for (i, lost) in lost.iter().enumerate() {
        if m.bytes[i].is_none() && !lost {
            let at = address.wrapping_add(i as u64);
            m.bytes[i] = earlier(p, at & !7)?[(at & 7) as usize];
        }
    }
    code(p, &mut m);
    for (b, k) in buf.iter_mut().zip(&m.bytes) {
        match k {
            Some(k) => *b = k.value,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// What is known of a word as of when the player's marks begin. Asked often, so answers are kept by
/// the interval that touched the word last.
fn earlier(p: &mut Player, word: u64) -> Result<[Option<Known>; 8]> {
    let since = p.since();
    let inner = Arc::clone(p.inner());
    let Some(from) = past::last(&inner, p.thread, word, 8, since)?.map(|t| t.from) else {
        return Ok([None; 8]);
    };
    if let Some(known) = p.kept.get(&(word, from)) {
        return Ok(*known);
    }
    let mut m = Memory {
        address: word,
        bytes: vec![None; 8],
        candidates: Vec::new(),
    };
    let floor = floor(&inner, p.thread, &m, since)?;
    past::before(&inner, p.thread, since, &floor, &mut m, &mut [false; 8])?;
    let mut known = [None; 8];
    known.copy_from_slice(&m.bytes);
    if p.kept.len() >= KEPT {
        p.kept.clear();
    }
    p.kept.insert((word, from), known);
    Ok(known)
}
