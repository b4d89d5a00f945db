//! Finds the last access to each byte, of one thread or of several.

use super::agreed;
use super::past;
use super::query::{Query, floor, positions, shares_cells};
use super::restated;
use crate::access;
use crate::engine::Engine;
use crate::model::memory::{Detail, Ground, KnownByte};
use crate::model::stops::Watch;
use crate::play::Player;
use crate::play::Viewpoint;
use crate::scan::When;
use crate::{Cancel, Position, Result, ThreadId};
use hindsight_isa::observe::MARK;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// For at most this many bytes the search asks what follows from the index alone: that takes memory for each byte.
const TOGETHER: u64 = 4096;

/// Fills in what the threads of an image accessed before a position, `here`.
pub fn find(
    view: &mut Viewpoint,
    image: u32,
    (threads, here): (&[(ThreadId, u64)], Position),
    alone: bool,
    q: &mut Query,
) -> Result<()> {
    let engine = Arc::clone(view.engine());
    if image == view.image() {
        just_told(view, q)?;
    }
    let mut touched = Vec::new();
    for (t, n) in threads {
        q.cancel.check()?;
        if alone || past::last(&engine, *t, q.m.address, q.len(), *n, &q.cancel)?.is_some() {
            touched.push((*t, *n));
        }
    }
    // Marks and window know addresses modulo 2^32. Where mappings share cells, the last access is found by its whole
    // address.
    let exact = shares_cells(view.engine(), image, Some(here), &q.m)?;
    let home = (view.thread(), view.count());
    let mapped = mapped(view, threads, q)?;
    let by_others = |t: ThreadId| mapped.iter().flatten().any(|m| m.1 != t);
    match touched[..] {
        [] => {}
        [only] if !exact && (alone || only == home && !by_others(only.0)) => {
            one(view.player(only.0)?, only.1, q)?
        }
        // A question for candidates needs the time of the last access, too.
        _ if exact || q.detail == Detail::Candidates || q.len() > TOGETHER => {
            let since = vec![None; q.m.bytes.len()];
            shared(view, &touched, (&mapped, &since), exact, q)?
        }
        _ => {
            // First what follows from the index. The rest is played.
            let found = agreed::find(view, image, &touched, &mapped, q)?;
            // Nobody accessed these, so they are not searched for.
            found.none.iter().for_each(|i| q.lost[*i] = true);
            if !q.whole() {
                shared(view, &touched, (&mapped, &found.since), exact, q)?;
            }
            found.none.iter().for_each(|i| q.lost[*i] = false);
        }
    }
    for t in q.unclear() {
        let count = threads.iter().find(|(other, _)| *other == t);
        let p = view.player(t)?;
        settle(p, count.map_or(0, |t| t.1), q)?;
    }
    Ok(())
}

/// Fills in what the system call wrote that the thread has just made. The recording tells it at this very instant, so the marks
/// of what came before do not have it, and say what was there before.
fn just_told(view: &mut Viewpoint, q: &mut Query) -> Result<()> {
    let (thread, count) = (view.thread(), view.count());
    let engine = Arc::clone(view.engine());
    let told = engine.scan(thread)?.just_told(count);
    let covers = |at: u64| told.iter().any(|t| t.0 <= at && at - t.0 < t.1);
    let each = (0..q.m.bytes.len()).filter(|i| covers(q.m.address.wrapping_add(*i as u64)));
    let bytes: Vec<usize> = each.filter(|i| q.open(*i)).collect();
    if bytes.is_empty() {
        return Ok(());
    }
    let p = view.player(thread)?;
    p.seek(count)?;
    let [_, _, cells] = p.known(q.m.address, q.m.bytes.len());
    for i in bytes {
        q.m.bytes[i] = Some(KnownByte {
            value: cells[i],
            ground: Ground::Read,
        });
        q.when[i] = Some(When {
            thread,
            from: count - 1,
            to: count,
        });
    }
    Ok(())
}

/// When each byte was last mapped anew or changed, and by whom.
pub type Mapped = Vec<Option<(Position, ThreadId)>>;

fn mapped(view: &Viewpoint, threads: &[(ThreadId, u64)], q: &Query) -> Result<Mapped> {
    let engine = view.engine();
    let mut out = vec![None; q.m.bytes.len()];
    for (t, n) in threads {
        // With what became of memory at this very instant, such as in a system call that has just returned.
        let until = n.saturating_add(1);
        let sources = (engine.scan(*t)?).sources_of(q.m.address, q.m.bytes.len(), until);
        let positions = positions(engine, *t, &sources)?;
        for (m, at) in out.iter_mut().zip(positions) {
            *m = (*m).max(at.map(|at| (at, *t)));
        }
    }
    Ok(out)
}

/// Decides about bytes whose values were lost at an access. The loss does not matter if it was before the bytes were
/// mapped anew, or before a gap, and nothing accessed them since. `count` is where the thread is. The player stays.
pub fn settle(p: &mut Player, count: u64, q: &mut Query) -> Result<()> {
    let floor = floor(p.engine(), p.thread, &q.m, count)?;
    let (mut bytes, mut targets) = (Vec::new(), Vec::new());
    for (i, floor) in floor.into_iter().enumerate() {
        let Some(when) = q.unclear[i].take_if(|w| w.thread == p.thread) else {
            continue;
        };
        // Otherwise something that happened since has lost it.
        if when.from <= floor && floor <= when.to {
            bytes.push((i, when));
            targets.push(access::Target {
                address: q.m.address.wrapping_add(i as u64),
                len: 1,
                lo: floor,
                hi: when.to,
            });
        }
    }
    if targets.is_empty() {
        return Ok(());
    }
    let ask = |h: &mut Player| access::last_effects(h, &targets, Watch::Access, 1);
    let found = p.with_helper(ask)?;
    for ((i, when), mut found) in bytes.into_iter().zip(found) {
        q.lost[i] = false;
        if let Some(last) = found.all.pop() {
            put(q, i, when.thread, &last);
        }
    }
    Ok(())
}

/// Fills in a byte whose last access is known.
fn put(q: &mut Query, i: usize, thread: ThreadId, last: &access::Last) {
    let e = &last.effect;
    match last.bytes.first() {
        Some((value, true)) => {
            q.m.bytes[i] = Some(KnownByte {
                value: *value,
                ground: match e.write {
                    true => Ground::Written,
                    false => Ground::Read,
                },
            });
            q.when[i] = Some(When {
                thread,
                from: e.count,
                to: e.count + 1,
            });
        }
        _ => q.lost[i] = true,
    }
}

/// Fills in what one thread knows. Nobody else has accessed these bytes. The player stays at `count`.
pub fn one(p: &mut Player, count: u64, q: &mut Query) -> Result<()> {
    let engine = Arc::clone(p.engine());
    let mut floor = floor(&engine, p.thread, &q.m, count)?;
    restated::raise(&engine, p.thread, &q.m, count, &mut floor)?;
    // What is mapped at this very instant has not been accessed yet.
    let all = 0..q.m.bytes.len();
    let anew = engine.scan(p.thread)?;
    let anew = anew.sources_of(q.m.address, q.m.bytes.len(), count.saturating_add(1));
    let all: Vec<usize> = all
        .filter(|i| anew[*i].is_none_or(|s| s.at < count))
        .collect();
    for (floor, _) in (floor.iter_mut().zip(&anew)).filter(|f| f.1.is_some_and(|s| s.at >= count)) {
        *floor = count;
    }
    let mut since = recent(p, (0, count), &floor, q, &all)?;
    if p.is_ahead() {
        restated::fill(p, count, &floor, q)?;
        if !all.iter().any(|i| q.open(*i) && floor[*i] < p.since()) {
            return Ok(());
        }
        // The recording does not tell all of it.
        p.seek_by_index(count)?;
        since = recent(p, (0, count), &floor, q, &all)?;
    }
    if let Since::Known(since) = since
        && !q.whole()
    {
        past::before(&engine, p.thread, since, &floor, q)?;
        restated::fill(p, count, &floor, q)?;
    }
    Ok(())
}

/// How far back a search has looked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// All accesses from there on are known.
    Known(u64),
    /// The player's marks begin at an earlier instant, so they do not tell.
    Unknown,
}

/// Fills in what a thread knows of some bytes from the interval that contains `count`. Returns where that interval
/// begins. The last step is played first, the others only if they are needed. [`Since::Unknown`]: the marks begin
/// before `least`. The player stays at `count`.
fn recent(
    p: &mut Player,
    (least, count): (u64, u64),
    floor: &[u64],
    q: &mut Query,
    bytes: &[usize],
) -> Result<Since> {
    p.seek_end(count)?;
    if least > 0 && p.is_ahead() {
        p.seek_by_index(count)?;
    }
    if p.since() < least {
        return Ok(Since::Unknown);
    }
    take(p, count, q, bytes.iter().copied());
    let since = p.since();
    let open = |i: &usize| q.open(*i) && floor[*i] < since;
    match p.interval_begin() {
        // The helper plays, and this player stays where it is.
        Some(begin) if bytes.iter().any(open) => {
            let found = p.with_helper(|h| in_steps(h, (begin, since), floor, q, bytes))?;
            if found == Since::Unknown {
                // Accesses in between are not known. Earlier ones do not count.
                bytes.iter().for_each(|i| q.lost[*i] |= q.open(*i));
                return Ok(Since::Known(begin));
            }
            Ok(found)
        }
        begin => Ok(Since::Known(begin.unwrap_or(since))),
    }
}

/// Does the same with the steps of an interval that begins at `begin`, up to `end`. The last steps that may have
/// accessed the bytes are played. [`Since::Unknown`]: the marks begin before the interval. The player may stand
/// anywhere afterwards.
fn in_steps(
    p: &mut Player,
    (begin, end): (u64, u64),
    floor: &[u64],
    q: &mut Query,
    bytes: &[usize],
) -> Result<Since> {
    let part = p.index(end - 1)?;
    let interval = part.interval(end - 1);
    // The part may have been made again since, with other borders.
    let begin = begin.max(part.bounds(interval).0);
    // The steps cannot have accessed what the whole interval did not access.
    let bytes = past::accessed(p.engine(), &part, interval, q.m.address, bytes)?;
    let summary = part.summary(p.engine(), interval)?;
    let mut to = end;
    while begin < to {
        let mut open = bytes.clone();
        open.retain(|i| q.open(*i) && floor[*i] < to);
        if open.is_empty() {
            break;
        }
        let step = summary.step(to - 1);
        let mut touched = false;
        for i in &open {
            let address = q.m.address.wrapping_add(*i as u64);
            let its = summary.touches(step, address, 1, true);
            touched |= its.ok_or_else(|| p.engine().bad_frame())?;
        }
        if !touched {
            to = summary.steps[step].from;
            continue;
        }
        p.seek_end_since(to, begin)?;
        if p.since() < begin {
            return Ok(Since::Unknown);
        }
        take(p, to, q, open.into_iter());
        to = p.since();
    }
    Ok(Since::Known(begin))
}

/// Fills in what the marks of a player at `count` say of some bytes.
pub fn take(p: &Player, count: u64, q: &mut Query, bytes: impl Iterator<Item = usize>) {
    let [reads, writes, cells] = p.known(q.m.address, q.m.bytes.len());
    let when = When {
        thread: p.thread,
        from: p.since(),
        to: count,
    };
    for i in bytes {
        if !q.open(i) {
            continue;
        }
        let ground = match (reads[i], writes[i]) {
            (_, MARK) => Ground::Written,
            (MARK, _) => Ground::Read,
            (0, 0) => continue,
            _ => {
                q.lose(i, when);
                continue;
            }
        };
        q.m.bytes[i] = Some(KnownByte {
            value: cells[i],
            ground,
        });
        q.when[i] = Some(when);
    }
}

/// When, and by which thread, memory was touched: the last and the first instant of that, and the
/// thread's index.
type Touched = (Position, Position, usize, past::AccessingInterval);

/// The last that each thread did to memory before it had completed so many instructions; the latest last.
fn touches(
    engine: &Arc<Engine>,
    threads: &[(ThreadId, u64)],
    since: &[u64],
    (start, len): (u64, usize),
    cancel: &Cancel,
) -> Result<Vec<Touched>> {
    let mut touches = Vec::new();
    for (k, (t, _)) in threads.iter().enumerate() {
        let last = past::last(engine, *t, start, len as u64, since[k], cancel)?;
        if let Some(touch) = last {
            let from = engine.position(*t, touch.from)?;
            let to = engine.position(*t, touch.to - 1)?;
            touches.push((to, from, k, touch));
        }
    }
    touches.sort_by_key(|t| t.0);
    Ok(touches)
}

/// Bytes of a word. For each thread, only accesses before this instruction count.
type Word = (Vec<usize>, Vec<u64>);

/// The words of all pages that somebody accessed and of which something is not known. Of large stretches nobody has accessed most.
fn touched(engine: &Arc<Engine>, threads: &[(ThreadId, u64)], q: &Query) -> Result<Vec<Word>> {
    let begin: Vec<u64> = threads.iter().map(|t| t.1).collect();
    let mut out = Vec::new();
    for page in past::pages(q.m.address, q.m.bytes.len()) {
        let stretch = (q.m.address.wrapping_add(page.start as u64), page.len());
        let open = page.clone().any(|i| q.open(i));
        if !open || touches(engine, threads, &begin, stretch, &q.cancel)?.is_empty() {
            continue;
        }
        let all = past::words(stretch.0, stretch.1);
        let bytes = |w: Range<usize>| (page.start + w.start..page.start + w.end).collect();
        out.extend(all.map(|w| (bytes(w), begin.clone())));
    }
    Ok(out)
}

/// Fills in what several threads know. For each word, the last interval that touched it decides, if all of that
/// interval comes after those of the other threads. Otherwise, and with `exact`, the last access is searched for.
fn shared(
    view: &mut Viewpoint,
    threads: &[(ThreadId, u64)],
    (mapped, since_when): (&Mapped, &[Option<Position>]),
    exact: bool,
    q: &mut Query,
) -> Result<()> {
    let engine = Arc::clone(view.engine());
    let engine = &engine;
    // For each thread and byte: nothing older than this is known.
    let mut floors = Vec::new();
    for (t, n) in threads {
        floors.push(floor(engine, *t, &q.m, *n)?);
    }
    let mut wanted = Vec::new();
    let mut words = touched(engine, threads, q)?;
    while !words.is_empty() {
        // Words for which a part of an interval must be played, by that part. They are played together.
        let mut played: BTreeMap<(usize, u64, u64), Vec<Word>> = BTreeMap::new();
        for (mut bytes, mut since) in words.drain(..) {
            q.cancel.check()?;
            loop {
                bytes.retain(|i| q.open(*i));
                let (Some(first), Some(last)) = (bytes.first().copied(), bytes.last().copied())
                else {
                    break;
                };
                let (start, len) = (q.m.address.wrapping_add(first as u64), last - first + 1);
                let mut touches = touches(engine, threads, &since, (start, len), &q.cancel)?;
                let Some((to, from, k, touch)) = touches.pop() else {
                    break;
                };
                // Bytes that were mapped anew since do not hold what they held. The rest of the word may.
                let all = bytes.len();
                bytes.retain(|i| mapped[*i].is_none_or(|a| a.0 <= to));
                if bytes.len() < all {
                    continue;
                }
                let anew = bytes.iter().filter_map(|i| mapped[*i]).max();
                let mixed = exact
                    || touches.last().is_some_and(|o| o.0 >= from)
                    || anew.is_some_and(|a| a.0 > from && a.1 != threads[k].0);
                if mixed {
                    wanted.extend(asked(&bytes, threads, &since, mapped));
                    break;
                }
                if touch.is_cut() {
                    let bounds = (k, touch.from, touch.to);
                    played.entry(bounds).or_default().push((bytes, since));
                    break;
                }
                past::take(engine, &touch, &floors[k], q, bytes.iter().copied())?;
                since[k] = touch.from.min(threads[k].1);
            }
        }
        for ((k, from, to), mut list) in played {
            let bytes: Vec<usize> = list.iter().flat_map(|w| w.0.iter().copied()).collect();
            let (t, floor) = (threads[k].0, &floors[k]);
            let home = view.thread() == t && view.count() == to;
            let p = view.player(t)?;
            let found = match home {
                true => recent(p, (from, to), floor, q, &bytes)?,
                false => in_steps(p, (from, to), floor, q, &bytes)?,
            };
            if found != Since::Unknown {
                list.iter_mut()
                    .for_each(|w| w.1[k] = from.min(threads[k].1));
                words.extend(list);
                continue;
            }
            for (mut bytes, since) in list {
                bytes.retain(|i| q.open(*i));
                wanted.extend(asked(&bytes, threads, &since, mapped));
            }
        }
    }
    let mut sure = Vec::new();
    for w in &mut wanted {
        if w.after < since_when[w.byte] {
            w.after = since_when[w.byte];
            sure.push(w.byte);
        }
    }
    exactly(view, wanted, q)?;
    // Somebody accessed these bytes there. If nobody was found, it is not known who.
    sure.iter().for_each(|i| q.lost[*i] |= q.open(*i));
    Ok(())
}

/// Queries for the last accesses to bytes. `since` says for each thread how far back accesses are known already.
fn asked(
    bytes: &[usize],
    threads: &[(ThreadId, u64)],
    since: &[u64],
    mapped: &Mapped,
) -> Vec<LastAccessQuery> {
    let left: Vec<_> = (threads.iter().zip(since))
        .map(|(t, n)| (t.0, *n))
        .collect();
    let one = |i: &usize| LastAccessQuery {
        byte: *i,
        threads: left.clone(),
        after: mapped[*i].map(|m| m.0),
        best: None,
    };
    bytes.iter().map(one).collect()
}

/// Asks for the last access of several threads to a byte.
struct LastAccessQuery {
    byte: usize,
    /// The threads. Only accesses before the given instruction count.
    threads: Vec<(ThreadId, u64)>,
    /// Accesses before this position do not count.
    after: Option<Position>,
    best: Option<(Position, ThreadId, access::Last)>,
}

/// Finds the last access of several threads to each of some bytes.
fn exactly(view: &mut Viewpoint, mut all: Vec<LastAccessQuery>, q: &mut Query) -> Result<()> {
    let engine = Arc::clone(view.engine());
    all.retain(|w| q.open(w.byte));
    let address = |w: &LastAccessQuery| q.m.address.wrapping_add(w.byte as u64);
    // For each thread: the bytes, the end of the search, and the last place where the access may be.
    let mut order: BTreeMap<ThreadId, Vec<(usize, u64, Position)>> = BTreeMap::new();
    for (i, w) in all.iter().enumerate() {
        for (t, n) in &w.threads {
            if let Some(touch) = past::last(&engine, *t, address(w), 1, *n, &q.cancel)? {
                let until = engine.position(*t, touch.to - 1)?;
                order.entry(*t).or_default().push((i, *n, until));
            }
        }
    }
    // First the threads that may have come last. The others then need no search.
    let mut order: Vec<_> = order.into_iter().collect();
    order.sort_by_key(|(_, list)| std::cmp::Reverse(list.iter().map(|o| o.2).max()));
    for (t, mut list) in order {
        let from = engine.scan(t)?.from;
        let mut targets = Vec::new();
        let known = |w: &LastAccessQuery| w.best.as_ref().map(|b| b.0).max(w.after);
        list.retain(|(i, _, until)| known(&all[*i]).is_none_or(|k| *until >= k));
        for (i, n, _) in &list {
            let lo = match known(&all[*i]) {
                Some(k) => engine.count_at(t, k)?.unwrap_or(from),
                None => from,
            };
            targets.push(access::Target {
                address: address(&all[*i]),
                len: 1,
                lo,
                hi: *n,
            });
        }
        let p = view.player(t)?;
        let found = access::last_effects(p, &targets, Watch::Access, 1)?;
        for ((i, _, _), mut found) in list.into_iter().zip(found) {
            let Some(last) = found.all.pop() else {
                continue;
            };
            let at = engine.position(t, last.effect.count)?;
            if known(&all[i]).is_none_or(|k| at >= k) {
                all[i].best = Some((at, t, last));
            }
        }
    }
    for w in all {
        let (Some((_, t, last)), i) = (w.best, w.byte) else {
            continue;
        };
        put(q, i, t, &last);
    }
    Ok(())
}
