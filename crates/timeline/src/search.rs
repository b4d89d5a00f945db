//! Runs to the next or previous stop.

mod changes;
mod effects;
mod known;
mod list;
mod out;

use crate::model::stops::*;
use crate::play::Player;
use crate::scan::Raw;
use crate::{Cursor, Filter, Kind, KindOf, Position, Result, ThreadId};
use changes::Writers;
use effects::Wants;
use std::sync::Arc;

pub use list::Writes;
pub use out::step_out;

/// Something to stop at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    pub thread: ThreadId,
    /// Where the cursor is to be.
    pub count: u64,
    pub reason: Reason,
    /// The address of the instruction that does what stops, if that was looked at.
    pub pc: Option<u64>,
}

/// A stretch of one thread to be searched.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    thread: ThreadId,
    /// Instructions `lo..hi` are looked at.
    lo: u64,
    hi: u64,
    /// What is met before an instruction (breakpoints, events) counts from here on, up to `hi`, which
    /// counts only backwards when it is less.
    first: u64,
}

/// See [`Cursor::run`].
pub fn run(
    cursor: &mut Cursor,
    direction: Direction,
    scope: Scope,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Stop> {
    let home = (cursor.thread(), cursor.count());
    let hit = match nearest(cursor, direction, scope, stops, cancel) {
        Err(crate::Error::Cancelled) => {
            cursor.place(home.0, home.1)?;
            return cursor.stop(Reason::Cancelled);
        }
        Err(e) => {
            cursor.place(home.0, home.1)?;
            return Err(e);
        }
        Ok(hit) => hit,
    };
    if let Some(h) = hit {
        cursor.place(h.thread, h.count)?;
        if let (Reason::Breakpoint { .. } | Reason::Call { .. }, Some(pc)) = (&h.reason, h.pc) {
            // A handler's first instruction: behind the signal that comes there.
            cursor.player(h.thread)?.enter_at(pc)?;
        }
        return cursor.stop(h.reason);
    }
    // Nothing: to the end of what is in scope.
    let ends = cursor.scope_ends(home.0, scope)?;
    let (thread, count, reason) = match direction {
        Direction::Forward => (ends.1.0, ends.1.1, Reason::End),
        Direction::Backward => (ends.0.0, ends.0.1, Reason::Begin),
    };
    cursor.place(thread, count)?;
    cursor.stop(reason)
}

/// The next or previous stop. The cursor stays, but its virtual processors then stand anywhere.
pub fn nearest(
    cursor: &mut Cursor,
    direction: Direction,
    scope: Scope,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let home = (cursor.thread(), cursor.count());
    let found = cursor.unless(cancel, |cursor| {
        known::prepare(cursor, scope, stops, cancel)?;
        match direction {
            Direction::Forward => forward(cursor, scope, stops, cancel),
            Direction::Backward if stops.values.is_empty() => {
                backward(cursor, scope, stops, cancel)
            }
            Direction::Backward => changes::backward(cursor, scope, stops, cancel),
        }
    });
    // Where values are compared the cursor itself goes about.
    cursor.set_place(home.0, home.1);
    found
}

/// Instructions that are looked at first, but for breakpoints on the way forward: what is beyond a stop is played for
/// nothing, and whoever goes from one to the next often has the next one near.
const NEAR: u64 = 1 << 16;
/// Sequence numbers in the first window of a search over several threads.
const WINDOW: u64 = 1 << 12;

fn forward(
    cursor: &mut Cursor,
    scope: Scope,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let home = cursor.thread();
    let here = cursor.position()?;
    let timeline = cursor.timeline().clone();
    let threads: Vec<ThreadId> = (timeline.scans()?.keys().copied())
        .filter(|t| cursor.within(scope, *t))
        .collect();
    // Where each thread stands.
    let mut at = Vec::new();
    for t in &threads {
        let scan = timeline.0.scan(*t)?;
        at.push(match (*t == home, timeline.count_at(*t, here)?) {
            (true, _) => (cursor.count(), cursor.count() + 1),
            (false, None) => (scan.from, scan.from),
            // What it has done is over here, but the instant behind that may be still to come.
            (false, Some(n)) => match timeline.position(*t, n)? > here {
                true => (n, n),
                false => (n, n + 1),
            },
        });
    }
    let mut width = WINDOW;
    let mut until = here.segment;
    let mut best: Option<(Position, Hit)> = None;
    loop {
        until = match threads.len() {
            1 => u64::MAX,
            _ => until.saturating_add(width),
        };
        width = width.saturating_mul(2);
        let mut open = false;
        for (t, state) in threads.iter().zip(&mut at) {
            let scan = timeline.0.scan(*t)?;
            let end = scan
                .nth(*t, scan.numbers.partition_point(|n| n.0 <= until))
                .to;
            open |= end < scan.to;
            let mut hi = end;
            if let Some((p, _)) = &best {
                hi = hi.min(timeline.count_at(*t, *p)?.unwrap_or(scan.from));
            }
            let stretch = Stretch {
                thread: *t,
                lo: state.0,
                hi,
                first: state.1,
            };
            if let Some(h) = forward_in(cursor, stretch, stops, cancel)? {
                let p = timeline.position(*t, h.count)?;
                if best.as_ref().is_none_or(|b| p < b.0) {
                    best = Some((p, h));
                }
            }
            *state = (end.max(state.0), end.max(state.1));
        }
        // What is met at the end of a thread's segment stands at the beginning of its next one.
        let is_first = best.as_ref().is_some_and(|b| b.0.segment <= until);
        if is_first || !open {
            return Ok(best.map(|b| b.1));
        }
    }
}

fn backward(
    cursor: &mut Cursor,
    scope: Scope,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let home = cursor.thread();
    let here = cursor.position()?;
    let timeline = cursor.timeline().clone();
    let mut best: Option<(Position, Hit)> = None;
    let threads: Vec<ThreadId> = (timeline.scans()?.keys().copied())
        .filter(|t| cursor.within(scope, *t))
        .collect();
    let mut at = Vec::new();
    for t in &threads {
        at.push(match *t == home {
            true => Some(cursor.count()),
            false => match timeline.count_at(*t, here)? {
                // Its last instant is over too.
                Some(n) if n == timeline.0.scan(*t)?.to && timeline.position(*t, n)? < here => {
                    Some(n + 1)
                }
                other => other,
            },
        });
    }
    let mut width = WINDOW;
    let mut down = here.segment;
    loop {
        down = match threads.len() {
            1 => 0,
            _ => down.saturating_sub(width),
        };
        width = width.saturating_mul(2);
        for (t, hi) in threads.iter().zip(&mut at) {
            let Some(high) = *hi else { continue };
            let scan = timeline.0.scan(*t)?;
            // The first segment that was opened at `down` or later.
            let i = match down {
                0 => 0,
                _ => scan.numbers.partition_point(|n| n.0 < down) + 1,
            };
            let start = match scan.numbers.get(i.wrapping_sub(1)) {
                _ if i == 0 => scan.from,
                Some(n) => n.1,
                // Its last instant comes later, too.
                None => scan.to.saturating_add(1),
            };
            let mut lo = start.min(high);
            if let Some((p, _)) = &best {
                lo = lo
                    .max(timeline.count_at(*t, *p)?.unwrap_or(scan.from))
                    .min(high);
            }
            let stretch = Stretch {
                thread: *t,
                lo,
                hi: high,
                first: lo,
            };
            if let Some(h) = backward_in(cursor, stretch, stops, cancel)? {
                let p = timeline.position(*t, h.count)?;
                if best.as_ref().is_none_or(|b| p > b.0) {
                    best = Some((p, h));
                }
            }
            *hi = Some(start.min(high));
        }
        if best.is_some() || down == 0 {
            return Ok(best.map(|b| b.1));
        }
    }
}

/// What happens in a stretch that stops, apart from what instructions do: the first or last. `passed`: where what the
/// kernel wrote does not count.
fn event(
    cursor: &Cursor,
    s: Stretch,
    stops: &Stops,
    direction: Direction,
    passed: &[u64],
) -> Result<Option<Hit>> {
    let timeline = cursor.timeline();
    let scan = timeline.0.scan(s.thread)?;
    let mut best: Option<(u64, Reason)> = None;
    let forward = direction == Direction::Forward;
    let mut offer = |count: u64, reason: Reason| {
        let within = match forward {
            true => s.first <= count && count <= s.hi,
            false => s.lo <= count && count < s.hi,
        };
        let better = best.as_ref().is_none_or(|b| match forward {
            true => count < b.0,
            false => count >= b.0,
        });
        if within && better {
            best = Some((count, reason));
        }
        within
    };
    if stops.signals.is_some() || stops.syscalls.is_some() {
        let a = scan.events.partition_point(|e| e.0 + 1 < s.lo.min(s.first));
        let b = match forward {
            true => scan.events.partition_point(|e| e.0 <= s.hi),
            false => scan.events.partition_point(|e| e.0 < s.hi),
        };
        let chosen = |raw: &Raw| match raw {
            Raw::Signal { number, .. } => stops
                .signals
                .as_ref()
                .is_some_and(|l| l.is_empty() || l.contains(number)),
            Raw::Syscall { number, .. } => stops
                .syscalls
                .as_ref()
                .is_some_and(|l| l.is_empty() || l.contains(number)),
        };
        let mut one = |e: &(u64, Raw)| match e.1 {
            Raw::Signal {
                number,
                code,
                address,
            } => offer(
                e.0,
                Reason::Signal {
                    number,
                    code,
                    address,
                },
            ),
            Raw::Syscall { number, result, .. } => {
                let before = offer(e.0, Reason::Syscall { number });
                offer(e.0 + 1, Reason::SyscallReturn { number, result }) || before
            }
        };
        let mut list = scan.events[a..b.max(a)].iter().filter(|e| chosen(&e.1));
        // Those at the end may lie just outside, several at the same instant.
        match forward {
            true => list.any(&mut one),
            false => list.rev().any(&mut one),
        };
    }
    known::offer_all(
        timeline,
        scan,
        s,
        (stops, passed),
        forward,
        &mut |count, reason| {
            offer(count, reason);
        },
    );
    if stops.threads {
        offer(scan.from, Reason::ThreadBegin);
        let ending = timeline.0.ending(s.thread, scan);
        offer(scan.to, Reason::ThreadEnd(ending));
    }
    if stops.modules {
        let filter = Filter {
            thread: Some(s.thread),
            kinds: vec![KindOf::Module],
            ..Filter::default()
        };
        for h in timeline.events(&filter)? {
            match h.kind {
                Kind::ModuleLoad { path, .. } => offer(h.count, Reason::ModuleLoad { path }),
                Kind::ModuleUnload { path, .. } => offer(h.count, Reason::ModuleUnload { path }),
                _ => false,
            };
        }
    }
    Ok(best.map(|(count, reason)| Hit {
        thread: s.thread,
        count,
        reason,
        pc: None,
    }))
}

fn forward_in(
    cursor: &mut Cursor,
    mut s: Stretch,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let event = changes::event(cursor, s, stops, Direction::Forward, cancel)?;
    if let Some(e) = &event {
        s.hi = e.count;
    }
    let wants = Wants::of(cursor, s.thread, stops);
    let player = cursor.player(s.thread)?;
    if !wants.steps() {
        let found = wants.first_break(player, s, stops, cancel)?;
        return Ok(found.or(event));
    }
    let mut writers = Writers::known(player, &wants);
    let (mut lo, mut known) = (s.lo, None);
    let inner = Arc::clone(player.inner());
    let mut piece = NEAR;
    let at_once = wants.compares();
    while lo < s.hi {
        let part = player.index(lo)?;
        let i = part.interval(lo);
        let end = s.hi.min(part.bounds(i).1.max(lo + 1));
        let mut stretch = Stretch {
            lo,
            hi: end.min(lo.saturating_add(piece)),
            ..s
        };
        piece = u64::MAX;
        lo = stretch.hi;
        if at_once && wants.touched(&inner, &part, i, &mut known)? {
            let hit = writers.first(&wants, player, stretch, stops, cancel)?;
            if hit.is_some() {
                writers.keep(player, &wants);
                return Ok(hit);
            }
            continue;
        }
        let found = wants.first_break(player, stretch, stops, cancel)?;
        if let Some(h) = &found {
            stretch.hi = h.count;
        }
        if wants.touched(&inner, &part, i, &mut known)? {
            let (from, to) = (stretch.lo, stretch.hi);
            let way = Direction::Forward;
            let hit = in_interval(&wants, &mut writers, player, (from, to), way, cancel)?;
            if hit.is_some() {
                writers.keep(player, &wants);
                return Ok(hit);
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(event)
}

/// The first or last instruction among `lo..hi`, which are of one interval, whose effect stops.
fn in_interval(
    wants: &Wants,
    writers: &mut Writers,
    player: &mut Player,
    (lo, hi): (u64, u64),
    direction: Direction,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    if hi <= lo {
        return Ok(None);
    }
    let inner = Arc::clone(player.inner());
    let part = player.index(lo)?;
    let ends = part.ends(&inner, part.interval(lo))?;
    let Some(mut steps) = wants.steps_touching(&inner, &ends, lo, hi)? else {
        return writers.effects(wants, player, lo, hi, direction, cancel);
    };
    if direction == Direction::Backward {
        steps.reverse();
    }
    for n in steps {
        let (from, to) = (ends.steps[n].from.max(lo), ends.end_of(n).unwrap_or(hi));
        let found = writers.effects(wants, player, from, to.min(hi), direction, cancel)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn backward_in(
    cursor: &mut Cursor,
    mut s: Stretch,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let event = changes::event(cursor, s, stops, Direction::Backward, cancel)?;
    if let Some(e) = &event {
        s.lo = e.count;
    }
    let wants = Wants::of(cursor, s.thread, stops);
    if !wants.breaks() && !wants.steps() {
        return Ok(event);
    }
    let player = cursor.player(s.thread)?;
    let mut writers = Writers::known(player, &wants);
    // No instruction is at the last instant.
    let (mut hi, mut known) = (s.hi.min(player.to), None);
    let inner = Arc::clone(player.inner());
    let mut piece = NEAR;
    while hi > s.lo {
        let part = player.index(hi - 1)?;
        let i = part.interval(hi - 1);
        let begin = part.bounds(i).0.max(hi.saturating_sub(piece));
        let lo = s.lo.max(begin).min(hi - 1);
        piece = u64::MAX;
        let mut from = lo;
        let mut last = None;
        if wants.breaks() {
            wants.breaks_in(player, lo, hi, stops, cancel, &mut |h| {
                last = Some(h);
                true
            })?;
            if let Some(h) = &last {
                from = h.count;
            }
        }
        if wants.steps() && wants.touched(&inner, &part, i, &mut known)? {
            let way = Direction::Backward;
            let hit = in_interval(&wants, &mut writers, player, (from, hi), way, cancel)?;
            if hit.is_some() {
                writers.keep(player, &wants);
                return Ok(hit);
            }
        }
        if last.is_some() {
            return Ok(last);
        }
        hi = lo;
    }
    Ok(event)
}
