//! The last access to each byte, of one thread or several.

use super::{Query, floor, shares_cells};
use crate::doubts::When;
use crate::memory::{Ground, Known};
use crate::past;
use crate::player::Player;
use crate::search;
use crate::stops::Watch;
use crate::{Cursor, Position, Result, ThreadId};
use hindsight_isa::observe::MARK;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What the threads of an image accessed before a position.
pub fn find(
    cursor: &mut Cursor,
    image: u32,
    threads: &[(ThreadId, u64)],
    alone: bool,
    q: &mut Query,
) -> Result<()> {
    let inner = Arc::clone(&cursor.timeline().0);
    let mut touched = Vec::new();
    for (t, n) in threads {
        q.check()?;
        if alone || past::last(&inner, *t, q.m.address, q.len(), *n, &q.cancel)?.is_some() {
            touched.push((*t, *n));
        }
    }
    // Marks and window know addresses modulo 2^32. Where that is not enough, the last access is found
    // by its whole address.
    let exact = shares_cells(cursor.timeline(), image, &q.m)?;
    match touched[..] {
        [] => Ok(()),
        [(t, n)] if !exact => one(cursor.player(t)?, n, q),
        _ => shared(cursor, &touched, exact, q),
    }
}

/// What one thread knows of it, which nobody else has touched. The player stays at `count`.
fn one(p: &mut Player, count: u64, q: &mut Query) -> Result<()> {
    let inner = Arc::clone(p.inner());
    let floor = floor(&inner, p.thread, &q.m, count)?;
    let all = 0..q.m.bytes.len();
    match recent(p, (0, count), &floor, q, all)? {
        Some(since) if !q.whole() => past::before(&inner, p.thread, since, &floor, q),
        _ => Ok(()),
    }
}

/// Fills in of some bytes what a thread knows of them from the interval in which it completes `count` instructions,
/// up to there; returns where that begins. What it accessed last is played first, and the rest only if it is needed.
/// `None`: the player knows only since a place before `least`. It stays at `count`.
fn recent(
    p: &mut Player,
    (least, count): (u64, u64),
    floor: &[u64],
    q: &mut Query,
    bytes: Range<usize>,
) -> Result<Option<u64>> {
    p.seek_end(count)?;
    if p.since() < least {
        return Ok(None);
    }
    let mut to = count;
    loop {
        let mut part = q.part(bytes.start, bytes.end);
        take(p, to, &mut part);
        for i in bytes.clone() {
            if q.open(i) && (to == count || floor[i] < to) {
                q.put(i, &part, i - bytes.start);
            }
        }
        let since = p.since();
        let open = |i: &usize| q.open(*i) && floor[*i] < since;
        let (first, last) = (bytes.clone().find(open), bytes.clone().rfind(open));
        let before = match first.zip(last) {
            Some((first, last)) => {
                let address = q.m.address.wrapping_add(first as u64);
                p.step_touching(address, (last - first + 1) as u64)?
            }
            None => None,
        };
        let Some(end) = before else {
            let begin = p.interval_begin().unwrap_or(since);
            if to < count {
                p.seek_end(count)?;
            }
            return Ok(Some(begin));
        };
        p.seek_end(end)?;
        to = end;
    }
}

/// Fills in what the player's marks know, which is at `count`.
pub fn take(p: &Player, count: u64, q: &mut Query) {
    let [reads, writes, cells] = p.known(q.m.address, q.m.bytes.len());
    for i in 0..q.m.bytes.len() {
        if !q.open(i) {
            continue;
        }
        let ground = match (reads[i], writes[i]) {
            (_, MARK) => Ground::Written,
            (MARK, _) => Ground::Read,
            (0, 0) => continue,
            _ => {
                q.lost[i] = true;
                continue;
            }
        };
        q.m.bytes[i] = Some(Known {
            value: cells[i],
            ground,
        });
        q.when[i] = Some(When {
            thread: p.thread,
            from: p.since(),
            to: count,
        });
    }
}

/// What several threads know of it: the last interval of any of them that touched a word tells, if all of
/// it comes after those of the others; else the last access is looked for, and so where `exact`.
fn shared(
    cursor: &mut Cursor,
    threads: &[(ThreadId, u64)],
    exact: bool,
    q: &mut Query,
) -> Result<()> {
    let timeline = cursor.timeline().clone();
    let inner = &timeline.0;
    // When the memory was mapped anew or changed last, and what each thread knows nothing from before of.
    let mut mapped = vec![None; q.m.bytes.len()];
    let mut floors = Vec::new();
    for (t, n) in threads {
        let scan = inner.scan(*t)?;
        let sources = scan.sources_of(q.m.address, q.m.bytes.len(), *n);
        for (m, s) in mapped.iter_mut().zip(sources) {
            if let Some(s) = s {
                *m = (*m).max(Some((timeline.position(*t, s.at)?, *t)));
            }
        }
        floors.push(floor(inner, *t, &q.m, *n)?);
    }
    let mut wanted = Vec::new();
    for word in past::words(q.m.address, q.m.bytes.len()) {
        q.check()?;
        let mut since: Vec<u64> = threads.iter().map(|t| t.1).collect();
        loop {
            let open = |i: &usize| q.open(*i);
            let (Some(first), Some(last)) = (word.clone().find(open), word.clone().rfind(open))
            else {
                break;
            };
            let (start, len) = (q.m.address.wrapping_add(first as u64), last - first + 1);
            let mut touches = Vec::new();
            for (k, (t, _)) in threads.iter().enumerate() {
                if let Some(touch) = past::last(inner, *t, start, len as u64, since[k], &q.cancel)?
                {
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
            let mixed = exact
                || touches.last().is_some_and(|o| o.0 >= from)
                || anew.is_some_and(|a| a.0 > from && a.1 != t);
            if !mixed && !touch.is_cut() {
                past::take(inner, &touch, &floors[k], q, first..last + 1)?;
            } else if !mixed
                && let (bounds, bytes) = ((touch.from, touch.to), first..last + 1)
                && recent(cursor.player(t)?, bounds, &floors[k], q, bytes)?.is_some()
            {
                // It is filled in.
            } else {
                let left: Vec<_> = (threads.iter().zip(&since))
                    .map(|(t, n)| (t.0, *n))
                    .collect();
                wanted.extend((first..=last).map(|byte| Wanted {
                    byte,
                    threads: left.clone(),
                    after: mapped[byte].map(|m| m.0),
                    best: None,
                }));
                break;
            }
            since[k] = touch.from.min(mine);
        }
    }
    exactly(cursor, wanted, q)
}

/// A byte whose last access by several threads is to be found.
struct Wanted {
    byte: usize,
    /// Threads, with the instructions before which their accesses count.
    threads: Vec<(ThreadId, u64)>,
    /// Accesses before count for nothing.
    after: Option<Position>,
    best: Option<(Position, ThreadId, search::Last)>,
}

/// The last access of several threads to each of some bytes.
fn exactly(cursor: &mut Cursor, mut all: Vec<Wanted>, q: &mut Query) -> Result<()> {
    let timeline = cursor.timeline().clone();
    all.retain(|w| q.open(w.byte));
    let address = |w: &Wanted| q.m.address.wrapping_add(w.byte as u64);
    // By thread: which of the bytes, up to where, and the last place where that may have been.
    let mut order: BTreeMap<ThreadId, Vec<(usize, u64, Position)>> = BTreeMap::new();
    for (i, w) in all.iter().enumerate() {
        for (t, n) in &w.threads {
            if let Some(touch) = past::last(&timeline.0, *t, address(w), 1, *n, &q.cancel)? {
                let until = timeline.position(*t, touch.to - 1)?;
                order.entry(*t).or_default().push((i, *n, until));
            }
        }
    }
    // Those first that may have been the last: then the others need not be searched.
    let mut order: Vec<_> = order.into_iter().collect();
    order.sort_by_key(|(_, list)| std::cmp::Reverse(list.iter().map(|o| o.2).max()));
    for (t, mut list) in order {
        let from = timeline.0.scan(t)?.from;
        let mut targets = Vec::new();
        let known = |w: &Wanted| w.best.as_ref().map(|b| b.0).max(w.after);
        list.retain(|(i, _, until)| known(&all[*i]).is_none_or(|k| *until >= k));
        for (i, n, _) in &list {
            let lo = match known(&all[*i]) {
                Some(k) => timeline.count_at(t, k)?.unwrap_or(from),
                None => from,
            };
            targets.push(search::Target {
                address: address(&all[*i]),
                len: 1,
                lo,
                hi: *n,
            });
        }
        let p = cursor.player(t)?;
        let found = search::last_effects(p, &targets, Watch::Access, 1, &q.cancel)?;
        for ((i, _, _), mut found) in list.into_iter().zip(found) {
            let Some(last) = found.all.pop() else {
                continue;
            };
            let at = timeline.position(t, last.effect.count)?;
            if known(&all[i]).is_none_or(|k| at >= k) {
                all[i].best = Some((at, t, last));
            }
        }
    }
    for w in all {
        let (Some((_, t, last)), i) = (w.best, w.byte) else {
            continue;
        };
        let e = last.effect;
        match last.bytes.first() {
            Some((value, true)) => {
                q.m.bytes[i] = Some(Known {
                    value: *value,
                    ground: match e.write {
                        true => Ground::Written,
                        false => Ground::Read,
                    },
                });
                q.when[i] = Some(When {
                    thread: t,
                    from: e.count,
                    to: e.count + 1,
                });
            }
            _ => q.lost[i] = true,
        }
    }
    Ok(())
}
