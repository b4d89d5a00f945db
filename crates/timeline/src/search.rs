//! Runs to the next or previous stop.

use crate::index::Interval;
use crate::player::Player;
use crate::scan::Raw;
use crate::stops::*;
use crate::{Cursor, Ending, Filter, Kind, KindOf, Position, Result, ThreadId};
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::{Access, Finder};
use iced_x86::FlowControl;

/// Instructions between two looks whether it was cancelled.
const STRIDE: u64 = 1 << 22;
const RSP: usize = 4;
/// Parts into which a stretch is cut to find an access in it.
const SLICES: u64 = 16;
/// Instructions that are looked at one by one.
const FEW: u64 = 24;

/// Something to stop at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    pub thread: ThreadId,
    /// Where the cursor is to be.
    pub count: u64,
    pub reason: Reason,
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
    let found = match direction {
        Direction::Forward => forward(cursor, scope, stops, cancel),
        Direction::Backward => backward(cursor, scope, stops, cancel),
    };
    let (hit, cancelled) = match found {
        Ok(h) => (h, false),
        Err(crate::Error::Cancelled) => (None, true),
        Err(e) => {
            cursor.place(home.0, home.1)?;
            return Err(e);
        }
    };
    if cancelled {
        cursor.place(home.0, home.1)?;
        return cursor.stop(Reason::Cancelled);
    }
    if let Some(h) = hit {
        cursor.place(h.thread, h.count)?;
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
            (false, Some(n)) => (n, n + 1),
            (false, None) => (scan.from, scan.from),
        });
    }
    let mut width = WINDOW;
    let mut until = here.segment;
    loop {
        until = match threads.len() {
            1 => u64::MAX,
            _ => until.saturating_add(width),
        };
        width = width.saturating_mul(2);
        let mut best: Option<(Position, Hit)> = None;
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
        if best.is_some() || !open {
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
            false => timeline.count_at(*t, here)?,
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
                None => scan.to,
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

/// What happens in a stretch that stops, apart from what instructions do: the first or last.
fn event(cursor: &Cursor, s: Stretch, stops: &Stops, direction: Direction) -> Result<Option<Hit>> {
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
        let b = scan.events.partition_point(|e| e.0 <= s.hi);
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
        let list = scan.events[a..b.max(a)].iter().filter(|e| chosen(&e.1));
        // The nearest two are enough: one may lie just outside.
        match forward {
            true => list.take(2).for_each(|e| {
                one(e);
            }),
            false => {
                let near: Vec<_> = list.rev().take(2).collect();
                near.into_iter().rev().for_each(|e| {
                    one(e);
                });
            }
        }
    }
    if stops.threads {
        offer(scan.from, Reason::ThreadBegin);
        let ending = scan.ending.clone().unwrap_or(Ending::Unknown);
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
    }))
}

fn forward_in(
    cursor: &mut Cursor,
    mut s: Stretch,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let event = event(cursor, s, stops, Direction::Forward)?;
    if let Some(e) = &event {
        s.hi = e.count;
    }
    let wants = Wants::of(cursor, s.thread, stops);
    let player = cursor.player(s.thread)?;
    let mut found = None;
    if wants.breaks() {
        let mut lo = s.lo;
        while lo < s.hi && found.is_none() {
            let hi = s.hi.min((lo / STRIDE + 1) * STRIDE);
            wants.breaks_in(player, lo, hi, stops, cancel, &mut |h| {
                if h.count >= s.first {
                    found = Some(h);
                }
                found.is_none()
            })?;
            lo = hi;
        }
    }
    if let Some(h) = &found {
        s.hi = h.count;
    }
    if wants.steps() {
        let mut lo = s.lo;
        while lo < s.hi {
            let part = player.index(lo)?;
            let interval = &part.intervals[part.interval(lo)];
            let hi = s.hi.min(interval.to.max(lo + 1));
            if wants.touched(interval)
                && let Some(h) = wants.effects(player, lo, hi, Direction::Forward, cancel)?
            {
                return Ok(Some(h));
            }
            lo = hi;
        }
    }
    Ok(found.or(event))
}

fn backward_in(
    cursor: &mut Cursor,
    mut s: Stretch,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let event = event(cursor, s, stops, Direction::Backward)?;
    if let Some(e) = &event {
        s.lo = e.count;
    }
    let wants = Wants::of(cursor, s.thread, stops);
    if !wants.breaks() && !wants.steps() {
        return Ok(event);
    }
    let player = cursor.player(s.thread)?;
    let mut hi = s.hi;
    while hi > s.lo {
        let part = player.index(hi - 1)?;
        let interval = &part.intervals[part.interval(hi - 1)];
        let lo = s.lo.max(interval.from).min(hi - 1);
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
        if wants.steps()
            && wants.touched(interval)
            && let Some(h) = wants.effects(player, from, hi, Direction::Backward, cancel)?
        {
            return Ok(Some(h));
        }
        if last.is_some() {
            return Ok(last);
        }
        hi = lo;
    }
    Ok(event)
}

/// What instructions of a thread can do that stops.
struct Wants {
    /// Breakpoints by number, with their addresses.
    breaks: Vec<(usize, u64)>,
    calls: Vec<u64>,
    watches: Vec<Watchpoint>,
    registers: Vec<Register>,
}

impl Wants {
    /// Only accesses to these bytes.
    fn watching(address: u64, len: u64, watch: Watch) -> Wants {
        Wants {
            breaks: Vec::new(),
            calls: Vec::new(),
            watches: vec![Watchpoint {
                id: 0,
                address,
                len,
                watch,
                image: None,
            }],
            registers: Vec::new(),
        }
    }

    fn of(cursor: &Cursor, thread: ThreadId, stops: &Stops) -> Wants {
        let image = cursor.timeline().0.image(thread);
        let here = |i: Option<u32>| i.is_none_or(|i| i == image);
        Wants {
            breaks: (stops.breakpoints.iter().enumerate())
                .filter(|(_, b)| here(b.image) && b.thread.is_none_or(|t| t == thread))
                .map(|(i, b)| (i, b.address))
                .collect(),
            calls: stops.calls.clone(),
            watches: (stops.watchpoints.iter().copied())
                .filter(|w| here(w.image) && w.len > 0)
                .collect(),
            registers: stops.registers.clone(),
        }
    }

    /// Whether some instructions are to be stopped before.
    fn breaks(&self) -> bool {
        !self.breaks.is_empty() || !self.calls.is_empty()
    }

    /// Whether it matters what instructions do.
    fn steps(&self) -> bool {
        !self.watches.is_empty() || !self.registers.is_empty()
    }

    /// Whether an interval may have effects that stop.
    fn touched(&self, interval: &Interval) -> bool {
        let by = |w: &Watchpoint| {
            let (reads, writes) = w.watch.kinds();
            interval.touches(w.address, w.len, reads, writes)
        };
        !self.registers.is_empty() || self.watches.iter().any(by)
    }

    /// Shows `found` all places to stop before among instructions `lo..hi`, in order, as long as it
    /// wants more.
    fn breaks_in(
        &self,
        player: &mut Player,
        lo: u64,
        hi: u64,
        stops: &mut Stops,
        cancel: &Cancel,
        found: &mut dyn FnMut(Hit) -> bool,
    ) -> Result<()> {
        check(cancel)?;
        player.seek(lo)?;
        let addresses = self.breaks.iter().map(|b| b.1);
        player.set_breaks(addresses.chain(self.calls.iter().copied()).collect());
        let mut looks = 0u32;
        while player.run(hi)? == Halt::Break {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(256) {
                check(cancel)?;
            }
            if let Some(h) = self.stops_here(player, stops)
                && !found(h)
            {
                break;
            }
        }
        Ok(())
    }

    /// The first or last instruction among `lo..hi` whose effect stops.
    fn effects(
        &self,
        player: &mut Player,
        lo: u64,
        hi: u64,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Option<Hit>> {
        check(cancel)?;
        if hi <= lo {
            return Ok(None);
        }
        player.seek(lo)?;
        player.set_breaks(Vec::new());
        if !self.registers.is_empty() || hi - lo <= FEW {
            return self.step_through(player, hi, cancel, direction);
        }
        player.snapshot()?;
        let size = ((hi - lo) / SLICES).max(1);
        let mut touched = Vec::new();
        let mut a = lo;
        self.clear(player);
        while a < hi {
            let b = hi.min(a + size);
            if player.run(b)? != Halt::Position {
                // The thread's end.
                touched.push((a, b));
                break;
            }
            if self.clear(player) {
                touched.push((a, b));
                if direction == Direction::Forward {
                    player.spoil();
                    if let Some(h) = self.effects(player, a, b, direction, cancel)? {
                        return Ok(Some(h));
                    }
                    touched.pop();
                    player.seek(b)?;
                    self.clear(player);
                }
            }
            a = b;
        }
        player.spoil();
        if direction == Direction::Forward {
            touched.reverse();
        }
        while let Some((a, b)) = touched.pop() {
            if let Some(h) = self.effects(player, a, b, direction, cancel)? {
                return Ok(Some(h));
            }
        }
        Ok(None)
    }

    /// Takes the marks of all that is watched; whether there were any.
    fn clear(&self, player: &mut Player) -> bool {
        let mut any = false;
        for w in &self.watches {
            let [r, wr] = player.take_marks(w.address, w.len);
            let (reads, writes) = w.watch.kinds();
            any |= reads && r.iter().any(|m| *m != 0);
            any |= writes && wr.iter().any(|m| *m != 0);
        }
        any
    }

    /// The stop that the instruction at the player's place is, before it runs.
    fn stops_here(&self, player: &mut Player, stops: &mut Stops) -> Option<Hit> {
        let (pc, count, thread) = (player.registers().rip, player.count(), player.thread);
        let hit = |reason| Hit {
            thread,
            count,
            reason,
        };
        for (i, address) in self.breaks.iter().filter(|b| b.1 == pc) {
            let b = &mut stops.breakpoints[*i];
            let holds = match &mut b.condition {
                Some(c) => c(player),
                None => true,
            };
            if holds {
                return Some(hit(Reason::Breakpoint {
                    id: b.id,
                    address: *address,
                }));
            }
        }
        self.calls
            .contains(&pc)
            .then(|| hit(Reason::Call { function: pc }))
    }

    /// The same one instruction after the other, from where the player is.
    fn step_through(
        &self,
        player: &mut Player,
        hi: u64,
        cancel: &Cancel,
        direction: Direction,
    ) -> Result<Option<Hit>> {
        let mut finder = Finder::new();
        let mut list: Vec<Access> = Vec::new();
        let thread = player.thread;
        let mut code = [0; 15];
        let mut last = None;
        while player.count() < hi {
            check(cancel)?;
            let count = player.count();
            let (cpu, vec) = (player.registers(), player.vectors());
            let n = player.code(cpu.rip, &mut code);
            let skipped = player.skipped();
            if player.run(count + 1)? != Halt::Position {
                break;
            }
            if player.skipped() != skipped {
                // What runs in a gap is not known.
                player.leave_gap(hi)?;
                continue;
            }
            let after = player.registers();
            finder.find(&code[..n], (&cpu, &vec), &after, &mut list);
            let reason = self.watched(count, &list).or_else(|| {
                let after_vec = player.vectors();
                let changed = |r: &&Register| r.differs((&cpu, &vec), (&after, &after_vec));
                let register = self.registers.iter().find(changed);
                register.map(|r| Reason::Register(*r))
            });
            let Some(reason) = reason else { continue };
            last = Some(Hit {
                thread,
                count: match direction {
                    Direction::Forward => count + 1,
                    Direction::Backward => count,
                },
                reason,
            });
            if direction == Direction::Forward {
                break;
            }
        }
        Ok(last)
    }

    /// The watchpoint that one of an instruction's accesses meets.
    fn watched(&self, count: u64, list: &[Access]) -> Option<Reason> {
        for w in &self.watches {
            let (reads, writes) = w.watch.kinds();
            let fits =
                |a: &&Access| a.touches(w.address, w.len) && (a.read && reads || a.write && writes);
            if let Some(a) = list.iter().find(fits) {
                return Some(Reason::Watchpoint {
                    id: w.id,
                    count,
                    address: a.address,
                    len: a.len,
                    read: a.read,
                    write: a.write,
                });
            }
        }
        None
    }
}

/// An access that was found.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// Instructions completed before it.
    pub count: u64,
    pub address: u64,
    pub len: u64,
    pub write: bool,
}

impl Hit {
    /// The access that it is.
    fn effect(&self) -> Option<Effect> {
        match self.reason {
            Reason::Watchpoint {
                count,
                address,
                len,
                write,
                ..
            } => Some(Effect {
                count,
                address,
                len,
                write,
            }),
            _ => None,
        }
    }
}

/// The last access of one thread to these bytes by instructions `lo..hi`.
pub fn last_effect(
    player: &mut Player,
    address: u64,
    len: u64,
    watch: Watch,
    lo: u64,
    hi: u64,
    cancel: &Cancel,
) -> Result<Option<Effect>> {
    let wants = Wants::watching(address, len, watch);
    let mut hi = hi;
    while hi > lo {
        let part = player.index(hi - 1)?;
        let interval = &part.intervals[part.interval(hi - 1)];
        let from = lo.max(interval.from).min(hi - 1);
        if wants.touched(interval)
            && let Some(h) = wants.effects(player, from, hi, Direction::Backward, cancel)?
        {
            return Ok(h.effect());
        }
        hi = from;
    }
    Ok(None)
}

fn check(cancel: &Cancel) -> Result<()> {
    match cancel.is_cancelled() {
        true => Err(crate::Error::Cancelled),
        false => Ok(()),
    }
}

/// See [`Cursor::step_out`].
pub fn step_out(cursor: &mut Cursor, direction: Direction, cancel: &Cancel) -> Result<Stop> {
    match direction {
        Direction::Forward => out_forward(cursor, cancel),
        Direction::Backward => out_backward(cursor, cancel),
    }
}

/// The return is the first one whose address lies at the present stack pointer or above.
fn out_forward(cursor: &mut Cursor, cancel: &Cancel) -> Result<Stop> {
    let floor = cursor.registers()?.gpr[RSP];
    loop {
        if cancel.is_cancelled() {
            return cursor.stop(Reason::Cancelled);
        }
        let flow = cursor.instruction()?.map(|i| i.0);
        let rsp = cursor.registers()?.gpr[RSP];
        let stop = cursor.step_over(Direction::Forward, cancel)?;
        if stop.reason != Reason::Step || (flow == Some(FlowControl::Return) && rsp >= floor) {
            return Ok(stop);
        }
    }
}

/// The call is the last one whose return address lies where the stack pointer has not been above since.
fn out_backward(cursor: &mut Cursor, cancel: &Cancel) -> Result<Stop> {
    let mut floor = cursor.registers()?.gpr[RSP];
    loop {
        if cancel.is_cancelled() {
            return cursor.stop(Reason::Cancelled);
        }
        let stop = cursor.step_over(Direction::Backward, cancel)?;
        if stop.reason != Reason::Step {
            return Ok(stop);
        }
        let rsp = cursor.registers()?.gpr[RSP];
        let flow = cursor.instruction()?.map(|i| i.0);
        let call = matches!(flow, Some(FlowControl::Call | FlowControl::IndirectCall));
        // A call that was stepped over as a whole leaves the stack pointer as it was.
        if call && rsp.wrapping_sub(8) >= floor {
            return Ok(stop);
        }
        floor = floor.max(rsp);
    }
}
