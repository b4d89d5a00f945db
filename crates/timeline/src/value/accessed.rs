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
    p.seek_end(count)?;
    take(p, count, q);
    if q.whole() {
        return Ok(());
    }
    let inner = Arc::clone(p.inner());
    let floor = floor(&inner, p.thread, &q.m, count)?;
    let since = p.since();
    past::before(&inner, p.thread, since, &floor, q)
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
            } else if !mixed && seek_in(cursor.player(t)?, touch.from, touch.to)? {
                let mut part = q.part(first, last + 1);
                take(cursor.player(t)?, touch.to, &mut part);
                for i in first..=last {
                    if q.open(i) {
                        q.put(i, &part, i - first);
                    }
                }
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

/// Goes to the end of a part of an interval; whether the marks are of just that part.
fn seek_in(p: &mut Player, from: u64, to: u64) -> Result<bool> {
    p.seek_end(to)?;
    Ok(p.since() == from)
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
            let Some(last) = found.pop() else { continue };
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
