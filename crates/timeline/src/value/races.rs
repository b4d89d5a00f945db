//! Finds values that memory may also have, because the order of threads is not determined.

use super::certain::pinpoint;
use super::past;
use super::query::Query;
use super::{accessed, files};
use crate::access;
use crate::model::memory::{Candidate, Unnamed, Why};
use crate::model::stops::Watch;
use crate::play::Viewpoint;
use crate::scan::Scan;
use crate::scan::{Instant, When};
use crate::{Position, Result, Segment, ThreadId};
use std::ops::Range;
use std::sync::Arc;

/// At most this many values of one thread are listed for a word.
const VALUES: usize = 4;

/// Bytes of a word with the same last access: the exact instruction, if it is known.
struct WordBytes {
    bytes: Range<usize>,
    last: Option<When>,
    /// The segment of that access. It is the cursor's if nobody is known to have accessed them.
    seen: Segment,
}

/// A question about such bytes.
struct RaceQuery {
    thread: ThreadId,
    target: access::Target,
    /// Only whether a byte was written matters.
    whether: bool,
}

/// Adds the values from segments that ran at the same time as the one with the last access, or as the cursor's.
/// `threads` are those that have begun, each with the number of instructions that it has completed.
///
/// The answer consists of single instructions. So it does not depend on where the index has its intervals: these only
/// tell what need not be looked at.
pub fn find(
    view: &mut Viewpoint,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let engine = Arc::clone(view.engine());
    let Some(now) = q.judge.as_ref().map(|j| j.now.clone()) else {
        return Ok(());
    };
    let mut others = engine.threads_of(image);
    others.retain(|t| !now.unborn.contains(t));
    let parts = parts(view, &others, &now, q)?;
    let mut wanted = Vec::new();
    for part in &parts {
        for t in &others {
            let of = |lo, hi| RaceQuery {
                thread: *t,
                target: target(q, &part.bytes, lo, hi),
                whether: false,
            };
            let scan = engine.scan(*t)?;
            let (lo, hi) = scan.concurrent(*t, &part.seen, &now.segment);
            match part.last.filter(|w| w.thread == *t) {
                // The cursor's own instructions are in order.
                Some(_) if *t == now.home.0 => {}
                // Another thread may not have come so far, or it may be farther.
                Some(w) => {
                    let lo = scan.concurrent(*t, &now.segment, &now.segment).0;
                    wanted.extend([of(lo, hi.min(w.from)), of(w.to, hi)]);
                }
                None if *t == now.home.0 => wanted.push(of(lo, hi.min(now.home.1))),
                None => wanted.push(of(lo, hi)),
            }
        }
        if let Some(last) = part.last.filter(|w| w.thread != now.home.0)
            && !part.seen.before(&now.segment)
        {
            whether(view, &others, &now, q, (part, last), &mut wanted)?;
        }
    }
    wanted.retain(|w| w.target.lo < w.target.hi);
    // Bytes that others wrote, perhaps only later than the cursor's instant.
    let mut unsure = vec![false; q.m.bytes.len()];
    let found = written(view, &wanted)?;
    for (w, found) in wanted.iter().zip(found) {
        if w.whether {
            let byte = w.target.address.wrapping_sub(q.m.address) as usize;
            unsure[byte] |= !found.all.is_empty();
            continue;
        }
        // The cursor's own instructions are in order: what it wrote later replaced what it wrote before.
        let mine = w.thread == now.home.0;
        let mut replaced = vec![false; w.target.len as usize];
        for value in &found.all {
            offer(view, q, w.thread, &w.target, value, &replaced)?;
            if mine {
                let (_, bytes) = overlap(&w.target, value);
                replaced[bytes].fill(true);
            }
        }
        if found.more && replaced.contains(&false) {
            unnamed(q, w.thread, w.target.address, w.target.len);
        }
    }
    let mut older = Vec::new();
    for part in &parts {
        let bytes = part.bytes.clone().filter(|i| unsure[*i]);
        older.extend(bytes.filter_map(|i| Some((i, part.last?))));
    }
    before(view, (image, here), threads, &now.segment, q, &older)
}

/// Bytes that may have other values, grouped by the exact time of their last access.
fn parts(
    view: &mut Viewpoint,
    others: &[ThreadId],
    now: &Instant,
    q: &mut Query,
) -> Result<Vec<WordBytes>> {
    let mut known = Vec::new();
    let mut all: Vec<(Range<usize>, Option<When>)> = Vec::new();
    for word in past::words(q.m.address, q.m.bytes.len()) {
        q.cancel.check()?;
        for (bytes, when) in runs(q, others, word) {
            match when {
                None => all.push((bytes, None)),
                Some(w) => {
                    let (rivals, unsure) = rivals(view, others, q, &bytes, when)?;
                    if unsure.is_some() || !rivals.is_empty() {
                        known.push((bytes, w));
                    }
                }
            }
        }
    }
    let exact = pinpoint(view, q, &known)?.into_iter().flatten();
    all.extend(exact.map(|(bytes, when)| (bytes, Some(when))));
    all.sort_unstable_by_key(|p| p.0.start);
    let mut out: Vec<WordBytes> = Vec::new();
    for (bytes, last) in all {
        let begins =
            q.m.address
                .wrapping_add(bytes.start as u64)
                .is_multiple_of(8);
        if let Some(p) = out.last_mut()
            && (p.bytes.end, p.last, begins) == (bytes.start, last, false)
        {
            p.bytes.end = bytes.end;
            continue;
        }
        let seen = match last {
            Some(w) => view.engine().segment(w.thread, w.from)?,
            None => now.segment,
        };
        out.push(WordBytes { bytes, last, seen });
    }
    Ok(out)
}

fn target(q: &Query, bytes: &Range<usize>, lo: u64, hi: u64) -> access::Target {
    access::Target {
        address: q.m.address.wrapping_add(bytes.start as u64),
        len: bytes.len() as u64,
        lo,
        hi,
    }
}

/// Another thread made the last access to these bytes, perhaps only after the cursor's instant. Asks for each byte
/// whether anybody wrote it between the two. If so, it may still hold the earlier value.
fn whether(
    view: &Viewpoint,
    others: &[ThreadId],
    now: &Instant,
    q: &Query,
    (part, last): (&WordBytes, When),
    wanted: &mut Vec<RaceQuery>,
) -> Result<()> {
    let engine = view.engine();
    for t in others {
        let (lo, mut hi) = between(engine.scan(*t)?, *t, now, &part.seen);
        if *t == last.thread {
            hi = hi.min(last.to);
        }
        let all = target(q, &part.bytes, lo, hi);
        if past::writes(engine, *t, all.address, all.len, lo, hi, &q.cancel)? {
            wanted.extend(part.bytes.clone().map(|i| RaceQuery {
                thread: *t,
                target: target(q, &(i..i + 1), lo, hi),
                whether: true,
            }));
        }
    }
    Ok(())
}

/// The instructions of a thread that may lie between the cursor's instant and something in the segment `seen`.
fn between(scan: &Scan, thread: ThreadId, now: &Instant, seen: &Segment) -> (u64, u64) {
    let end = |s: &Segment| s.closes.unwrap_or(u64::MAX);
    let late = match end(seen) > end(&now.segment) {
        true => seen,
        false => &now.segment,
    };
    let (lo, hi) = scan.concurrent(thread, &now.segment, late);
    match thread == now.home.0 {
        true => (lo.max(now.home.1), hi),
        false => (lo, hi),
    }
}

/// Bytes of a word that were accessed last in the same interval or step, with that time.
pub fn runs(
    q: &Query,
    others: &[ThreadId],
    word: Range<usize>,
) -> Vec<(Range<usize>, Option<When>)> {
    // This image does not judge what was known in an image from which it came.
    let when =
        |i: usize| q.when[i].filter(|w| q.m.bytes[i].is_some() && others.contains(&w.thread));
    let mut out: Vec<(Range<usize>, Option<When>)> = Vec::new();
    for i in word {
        match out.last_mut() {
            Some((bytes, last)) if *last == when(i) => bytes.end = i + 1,
            _ => out.push((i..i + 1, when(i))),
        }
    }
    out
}

/// Threads that may have written other values to bytes than the one from `when`, which is an interval. Also a thread
/// that may have written them in between, if the access at `when` may not have happened yet. It tells as much as is
/// possible without finding the exact time.
pub fn rivals(
    view: &Viewpoint,
    others: &[ThreadId],
    q: &Query,
    bytes: &Range<usize>,
    when: Option<When>,
) -> Result<(Vec<ThreadId>, Option<ThreadId>)> {
    let engine = view.engine();
    let mut out = Vec::new();
    let Some(now) = q.judge.as_ref().map(|j| &j.now) else {
        return Ok((out, None));
    };
    let (home, count) = now.home;
    let (early, late) = match when {
        Some(w) => (
            engine.segment(w.thread, w.from)?,
            engine.segment(w.thread, w.to.saturating_sub(1).max(w.from))?,
        ),
        None => (now.segment, now.segment),
    };
    let far = when.is_some_and(|w| w.thread != home && !late.before(&now.segment));
    let mut unsure = None;
    let by = |t: ThreadId| when.is_some_and(|w| w.thread == t);
    for t in others.iter().filter(|t| !(by(**t) && **t == home)) {
        let scan = engine.scan(*t)?;
        let (mut lo, mut hi) = scan.concurrent(*t, &early, &now.segment);
        if *t == home {
            hi = hi.min(count);
        }
        if by(*t) {
            lo = scan.concurrent(*t, &now.segment, &now.segment).0;
        }
        let w = target(q, bytes, lo, hi);
        if past::writes(engine, *t, w.address, w.len, lo, hi, &q.cancel)? {
            out.push(*t);
        }
        if far && unsure.is_none() {
            let (lo, hi) = between(scan, *t, now, &late);
            let wrote = past::writes(engine, *t, w.address, w.len, lo, hi, &q.cancel)?;
            unsure = wrote.then_some(*t);
        }
    }
    Ok((out, unsure))
}

/// Notes that a thread may have written more values than are listed.
pub fn unnamed(q: &mut Query, thread: ThreadId, address: u64, len: u64) {
    let all = &mut q.m.unnamed;
    let covers = |u: &Unnamed| {
        let end = address + len;
        u.thread == thread && u.address <= address && end <= u.address + u.len
    };
    let next = |u: &Unnamed| u.thread == thread && u.address + u.len == address;
    if all.iter().any(covers) {
    } else if let Some(u) = all.iter_mut().find(|u| next(u)) {
        u.len += len;
    } else {
        all.push(Unnamed {
            address,
            len,
            thread,
        });
    }
}

/// The last values that threads wrote, one answer for each question, in the same order.
fn written(view: &mut Viewpoint, wanted: &[RaceQuery]) -> Result<Vec<access::Lasts>> {
    // What a thread wrote before an instant, and what it wrote after it, lie far apart. They are separate questions.
    let key = |w: &RaceQuery| (w.thread, w.target.hi);
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| key(&wanted[*i]));
    let mut asked: Vec<access::Asked> = Vec::new();
    let mut which: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let (t, w) = (wanted[i].thread, wanted[i].target);
        match (asked.last_mut(), which.last_mut()) {
            (Some(a), Some(list)) if a.thread == t && w.lo < a.targets[0].hi => {
                a.targets.push(w);
                list.push(i);
            }
            _ => {
                asked.push(access::Asked {
                    thread: t,
                    targets: vec![w],
                });
                which.push(vec![i]);
            }
        }
    }
    let mut out = vec![access::Lasts::default(); wanted.len()];
    let found = access::last_of_several(view, &asked, Watch::Write, VALUES)?;
    for (which, found) in which.into_iter().zip(found) {
        for (i, found) in which.into_iter().zip(found) {
            out[i] = found;
        }
    }
    Ok(out)
}

/// The bytes that a write has in common with a word: their address, and their numbers in the word.
fn overlap(word: &access::Target, value: &access::Last) -> (u64, Range<usize>) {
    let e = &value.effect;
    let start = e.address.max(word.address);
    let stop = (e.address.saturating_add(e.len)).min(word.address.saturating_add(word.len));
    let number = |at: u64| (at - word.address) as usize;
    (start, number(start)..number(stop))
}

/// Adds a value that a thread wrote to bytes of a word, apart from those that were replaced later.
fn offer(
    view: &Viewpoint,
    q: &mut Query,
    t: ThreadId,
    word: &access::Target,
    value: &access::Last,
    replaced: &[bool],
) -> Result<()> {
    let (start, bytes) = overlap(word, value);
    let position = view.engine().position(t, value.effect.count)?;
    let mut at = bytes.start;
    for run in replaced[bytes.clone()].chunk_by(|a, b| a == b) {
        let its = at..at + run.len();
        at = its.end;
        if !run[0] {
            let address = start + (its.start - bytes.start) as u64;
            let held = value.bytes[its].iter().map(|b| b.0).collect();
            add(q, address, held, t, position);
        }
    }
    Ok(())
}

/// Adds the values that bytes had before the segments that ran at the same time as the cursor's. `bytes` has the times
/// of their last accesses.
fn before(
    view: &mut Viewpoint,
    (image, here): (u32, Position),
    threads: &[(ThreadId, u64)],
    mine: &Segment,
    q: &mut Query,
    bytes: &[(usize, When)],
) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let engine = Arc::clone(view.engine());
    let which: Vec<usize> = bytes.iter().map(|b| b.0).collect();
    let old = old(view, (image, here), threads, mine, q, &which)?;
    let mut groups: Vec<(Range<usize>, When)> = Vec::new();
    for (i, last) in bytes {
        let i = *i;
        let Some(known) = q.m.bytes[i] else { continue };
        let address = q.m.address.wrapping_add(i as u64);
        let position = engine.position(last.thread, last.from)?;
        match (old.m.bytes[i], old.when[i]) {
            (Some(b), _) if b.value == known.value => {}
            (Some(_), Some(w)) => match groups.last_mut() {
                Some((g, when)) if g.end == i && !address.is_multiple_of(8) && *when == w => {
                    g.end += 1
                }
                _ => groups.push((i..i + 1, w)),
            },
            // Nobody accessed it before.
            (Some(b), None) => add(q, address, vec![b.value], last.thread, position),
            // The earlier value is not known, so the present one is not known either.
            (None, _) => q.make_candidate(i, i + 1, *last, Why::Race, position),
        }
    }
    for (part, when) in pinpoint(view, &old, &groups)?.into_iter().flatten() {
        let address = q.m.address.wrapping_add(part.start as u64);
        let bytes = old.m.bytes[part].iter().map(|b| b.map_or(0, |k| k.value));
        let position = engine.position(when.thread, when.from)?;
        add(q, address, bytes.collect(), when.thread, position);
    }
    Ok(())
}

/// What is known of bytes before the segments that ran at the same time as the cursor's.
pub fn old(
    view: &mut Viewpoint,
    (image, here): (u32, Position),
    threads: &[(ThreadId, u64)],
    mine: &Segment,
    q: &Query,
    bytes: &[usize],
) -> Result<Query> {
    let engine = Arc::clone(view.engine());
    let mut earlier = Vec::new();
    for (t, n) in threads {
        let (lo, _) = engine.scan(*t)?.concurrent(*t, mine, mine);
        let home = q.judge.as_ref().is_some_and(|j| j.now.home.0 == *t);
        earlier.push((*t, if home { *n } else { lo.min(*n) }));
    }
    let mut old = q.part(0, q.m.bytes.len());
    old.lost.fill(true);
    for i in bytes {
        old.lost[*i] = false;
    }
    accessed::find(view, image, (&earlier, here), false, &mut old)?;
    files::made(view, image, &earlier, here, &mut old)?;
    Ok(old)
}

/// Adds a candidate, unless it is the known value or already there.
fn add(q: &mut Query, address: u64, bytes: Vec<u8>, thread: ThreadId, position: Position) {
    let offset = (address - q.m.address) as usize;
    let known = q.m.bytes[offset..offset + bytes.len()].iter();
    let same = known
        .zip(&bytes)
        .all(|(k, b)| k.is_some_and(|k| k.value == *b));
    let mut all = q.m.candidates.iter_mut();
    let there = all.find(|c| {
        let next = c.address + c.bytes.len() as u64 == address;
        next && (c.thread, c.position) == (thread, position)
    });
    match there {
        _ if same => {}
        Some(c) => c.bytes.extend(bytes),
        None => {
            let twin = |c: &Candidate| (c.address, &c.bytes) == (address, &bytes);
            if !q.m.candidates.iter().any(twin) {
                q.m.candidates.push(Candidate {
                    address,
                    bytes,
                    thread,
                    position,
                    why: Why::Race,
                });
            }
        }
    }
}
