//! Values that memory may also have, since the order of threads is not determined.

use super::certain::pinpoint;
use super::{Query, accessed, files};
use crate::doubts::When;
use crate::memory::{Candidate, Ground, Why};
use crate::past;
use crate::search;
use crate::stops::Watch;
use crate::{Cursor, Position, Result, Segment, ThreadId};
use std::ops::Range;

/// Values that are listed at most of one thread for a word.
const VALUES: usize = 4;

/// Adds what segments gave to memory that ran at the same time as the one that accessed it last, or as the
/// cursor's. `threads`: those that have begun, with the instructions they have completed.
pub fn find(
    cursor: &mut Cursor,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let timeline = cursor.timeline().clone();
    let Some(now) = q.judge.as_ref().map(|j| j.now.clone()) else {
        return Ok(());
    };
    let mut others = timeline.0.threads_of(image);
    others.retain(|t| !now.unborn.contains(t));
    // Words that may have other values, with when they were accessed last.
    let mut words = Vec::new();
    for word in past::words(q.m.address, q.m.bytes.len()) {
        q.check()?;
        let when = (word.clone()).filter_map(|i| q.when[i].filter(|_| q.m.bytes[i].is_some()));
        // What was known before in an image that this one came from is not this one's to judge.
        let when = when
            .filter(|w| others.contains(&w.thread))
            .max_by_key(|w| w.to);
        match when {
            Some(w) if !disputed(cursor, &others, q, &word, w)? => {}
            when => words.push((word, when)),
        }
    }
    let groups: Vec<_> = (words.iter())
        .filter_map(|(word, when)| when.map(|w| (of(q, word, w), w)))
        .collect();
    let mut exact = pinpoint(cursor, q, &groups)?.into_iter();
    // What was written there at the same time.
    let mut wanted = Vec::new();
    let mut lasts = Vec::new();
    for (i, (word, when)) in words.iter().enumerate() {
        let exact = when.and_then(|_| exact.next());
        let last = exact.and_then(|e| e.into_iter().map(|e| e.1).max_by_key(|w| w.from));
        let seen = match last {
            Some(w) => timeline.segment(w.thread, w.from)?,
            None => now.segment,
        };
        lasts.push((last, seen));
        for t in &others {
            let scan = timeline.0.scan(*t)?;
            let (mut lo, mut hi) = scan.concurrent(*t, &seen, &now.segment);
            if *t == now.home.0 {
                hi = hi.min(now.home.1);
            }
            if let Some(w) = last.filter(|w| w.thread == *t) {
                // Its own instructions are in order; but it may not have come so far.
                if *t == now.home.0 {
                    continue;
                }
                lo = scan.concurrent(*t, &now.segment, &now.segment).0;
                hi = hi.min(w.from);
            }
            let target = search::Target {
                address: q.m.address.wrapping_add(word.start as u64),
                len: word.len() as u64,
                lo,
                hi,
            };
            wanted.push((*t, i, target));
        }
    }
    let mut found = written(cursor, q, &wanted)?.into_iter();
    for (i, (word, _)) in words.iter().enumerate() {
        for (t, _, target) in wanted.iter().filter(|w| w.1 == i) {
            for value in found.next().into_iter().flatten() {
                offer(cursor, q, *t, target, &value)?;
            }
        }
        // What was there before, if it is not sure that the last write has happened yet.
        let (last, seen) = lasts[i];
        if let Some(w) = last
            && w.thread != now.home.0
            && !seen.before(&now.segment)
            && word
                .clone()
                .any(|i| q.m.bytes[i].is_some_and(|k| k.ground == Ground::Written))
        {
            before(
                cursor,
                (image, here),
                threads,
                &now.segment,
                q,
                word.clone(),
                w,
            )?;
        }
    }
    Ok(())
}

/// Whether a word may have other values than the one that it was given at `when`, which is an interval: as
/// far as can be told without finding out when exactly that was.
fn disputed(
    cursor: &Cursor,
    others: &[ThreadId],
    q: &Query,
    word: &Range<usize>,
    when: When,
) -> Result<bool> {
    let timeline = cursor.timeline();
    let Some(now) = q.judge.as_ref().map(|j| &j.now) else {
        return Ok(false);
    };
    let (home, count) = now.home;
    let address = q.m.address.wrapping_add(word.start as u64);
    let len = word.len() as u64;
    let early = timeline.segment(when.thread, when.from)?;
    for t in others {
        if *t == when.thread && *t == home {
            continue;
        }
        let scan = timeline.0.scan(*t)?;
        let (mut lo, mut hi) = scan.concurrent(*t, &early, &now.segment);
        if *t == home {
            hi = hi.min(count);
        }
        if *t == when.thread {
            lo = scan.concurrent(*t, &now.segment, &now.segment).0;
            hi = hi.min(when.to);
        }
        if past::writes(&timeline.0, *t, address, len, lo, hi, &q.cancel)? {
            return Ok(true);
        }
    }
    let late = timeline.segment(when.thread, when.to.saturating_sub(1).max(when.from))?;
    Ok(when.thread != home && !late.before(&now.segment))
}

/// The bytes of a word that were accessed at one time.
fn of(q: &Query, word: &Range<usize>, when: When) -> Range<usize> {
    let mine = |i: &usize| q.when[*i] == Some(when);
    let first = word.clone().find(mine).unwrap_or(word.start);
    let len = (first..word.end).take_while(mine).count();
    first..first + len.max(1)
}

/// The last values that threads gave to words, in the order in which they are asked for.
fn written(
    cursor: &mut Cursor,
    q: &Query,
    wanted: &[(ThreadId, usize, search::Target)],
) -> Result<Vec<Vec<search::Last>>> {
    let mut threads: Vec<ThreadId> = wanted.iter().map(|w| w.0).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut out = vec![Vec::new(); wanted.len()];
    for t in threads {
        let (which, targets): (Vec<usize>, Vec<_>) = (wanted.iter().enumerate())
            .filter(|(_, w)| w.0 == t)
            .map(|(i, w)| (i, w.2))
            .unzip();
        let p = cursor.player(t)?;
        let found = search::last_effects(p, &targets, Watch::Write, VALUES, &q.cancel)?;
        for (i, found) in which.into_iter().zip(found) {
            out[i] = found;
        }
    }
    Ok(out)
}

/// Adds a value that a thread gave to bytes of a word.
fn offer(
    cursor: &Cursor,
    q: &mut Query,
    t: ThreadId,
    word: &search::Target,
    value: &search::Last,
) -> Result<()> {
    let e = &value.effect;
    let start = e.address.max(word.address);
    let stop = (e.address.saturating_add(e.len)).min(word.address.saturating_add(word.len));
    let part = (start - word.address) as usize..(stop - word.address) as usize;
    let bytes = value.bytes[part].iter().map(|b| b.0).collect();
    add(q, start, bytes, t, cursor.timeline().position(t, e.count)?);
    Ok(())
}

/// A value that was there before segments that ran at the same time as the cursor's.
fn before(
    cursor: &mut Cursor,
    (image, here): (u32, Position),
    threads: &[(ThreadId, u64)],
    mine: &Segment,
    q: &mut Query,
    word: Range<usize>,
    last: When,
) -> Result<()> {
    let timeline = cursor.timeline().clone();
    let mut earlier = Vec::new();
    for (t, n) in threads {
        let (lo, _) = timeline.0.scan(*t)?.concurrent(*t, mine, mine);
        let home = q.judge.as_ref().is_some_and(|j| j.now.home.0 == *t);
        earlier.push((*t, if home { *n } else { lo.min(*n) }));
    }
    let mut old = q.part(word.start, word.end);
    accessed::find(cursor, image, &earlier, false, &mut old)?;
    files::made(cursor, image, &earlier, here, &mut old)?;
    let position = timeline.position(last.thread, last.from)?;
    for i in word {
        let Some(known) = q.m.bytes[i] else { continue };
        let j = i - (old.m.address.wrapping_sub(q.m.address)) as usize;
        let at = q.m.address.wrapping_add(i as u64);
        match (old.m.bytes[j], old.when[j]) {
            (Some(b), _) if b.value == known.value => {}
            (Some(b), Some(w)) => {
                let position = timeline.position(w.thread, w.to.saturating_sub(1))?;
                add(q, at, vec![b.value], w.thread, position);
            }
            // Nobody accessed it before.
            (Some(b), None) => add(q, at, vec![b.value], last.thread, position),
            // What it was is not known: so it is not known what it is.
            (None, _) => {
                q.doubt(i, i + 1, last, Why::Race, position);
            }
        }
    }
    Ok(())
}

/// Adds a candidate, unless it is what is known anyway, or there already.
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
