//! The value of memory at a position.

use crate::maps;
use crate::memory::*;
use crate::player::Player;
use crate::search;
use crate::stops::{Cancel, Watch};
use crate::{Cursor, Position, Result, Segment, ThreadId};
use hindsight_isa::observe::MARK;

/// Intervals that are replayed at most for one question.
const REPLAYS: usize = 1000;
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
            && (alone || last_interval(cursor.player(t)?, m.address, len, n)?.is_some())
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
        _ => several(cursor, &touched, m, lost)?,
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

/// The start of the last interval before `count` that touched any of these lines.
fn last_interval(p: &mut Player, address: u64, len: u64, count: u64) -> Result<Option<u64>> {
    let mut at = count;
    while at > p.from {
        let part = p.index(at - 1)?;
        for i in (0..=part.interval(at - 1)).rev() {
            let interval = &part.intervals[i];
            if interval.touches(address, len, true, true) {
                return Ok(Some(interval.from));
            }
            at = interval.from;
        }
        at = at.min(part.from);
        if at == 0 {
            break;
        }
    }
    Ok(None)
}

/// What one thread knows of it, which nobody else has touched. The player stays at `count`; what was
/// before is looked for with its helper.
fn one(p: &mut Player, count: u64, m: &mut Memory, lost: &mut [bool]) -> Result<()> {
    p.seek_end(count)?;
    take(p, m, lost);
    if whole(m, lost) {
        return Ok(());
    }
    let since = p.since();
    p.with_helper(|h| back(h, count, since, m, lost))
}

/// The same for what was accessed before `since`, interval by interval; moves the player.
fn back(
    p: &mut Player,
    count: u64,
    mut since: u64,
    m: &mut Memory,
    lost: &mut [bool],
) -> Result<()> {
    let len = m.bytes.len();
    // Nothing is known across a gap. One within an interval is the player's business.
    let gaps = &p.inner().scan(p.thread)?.gaps;
    let gap = gaps[..gaps.partition_point(|g| g.end < count)].last();
    let floor = gap.map_or(0, |g| g.end).max(p.from);
    for _ in 0..REPLAYS {
        let open = |i: &usize| m.bytes[*i].is_none() && !lost[*i];
        let (Some(first), Some(last)) = ((0..len).find(open), (0..len).rfind(open)) else {
            return Ok(());
        };
        if since <= floor {
            return Ok(());
        }
        let (start, n) = (
            m.address.wrapping_add(first as u64),
            (last - first + 1) as u64,
        );
        // The last instant of that interval, with marks from its start.
        match last_interval(p, start, n, since)? {
            Some(from) if p.end_of(from)? > floor => p.seek_end(p.end_of(from)?.min(since))?,
            _ => return Ok(()),
        }
        take(p, m, lost);
        since = p.since();
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

/// The last access to each byte, of several threads, in the total order.
fn several(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    m: &mut Memory,
    lost: &mut [bool],
) -> Result<()> {
    let mut from = 0;
    while from < m.bytes.len() {
        let word = (m.address.wrapping_add(from as u64) | 7).wrapping_sub(m.address) as usize + 1;
        let to = word.min(m.bytes.len());
        if !word_of(cursor, threads, m, lost, from, to)? {
            for i in from..to {
                word_of(cursor, threads, m, lost, i, i + 1)?;
            }
        }
        from = to;
    }
    Ok(())
}

/// The same for bytes that were accessed together; `false` if they were not.
fn word_of(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
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
    let Some(from) = last_interval(p, word, 8, since)? else {
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
    p.with_helper(|h| back(h, since, since, &mut m, &mut [false; 8]))?;
    let mut known = [None; 8];
    known.copy_from_slice(&m.bytes);
    if p.kept.len() >= KEPT {
        p.kept.clear();
    }
    p.kept.insert((word, from), known);
    Ok(known)
}
