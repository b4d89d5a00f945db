//! Stops in a stretch of a thread that are not effects of instructions.

use super::hit::{Hit, SearchRange};
use super::known;
use crate::model::memory::Detail;
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::scan::Raw;
use crate::value;
use crate::{Filter, Kind, KindOf, Result, ThreadId};

/// The first or last of these stops. A write of the kernel counts only if it changed the value.
pub fn event(
    view: &mut Viewpoint,
    s: SearchRange,
    stops: &Stops,
    direction: Direction,
) -> Result<Option<Hit>> {
    let mut passed = Vec::new();
    loop {
        let found = any_event(view, s, stops, direction, &passed)?;
        let Some(Hit { reason, .. }) = &found else {
            return Ok(found);
        };
        let Reason::Watchpoint { count, .. } = *reason else {
            return Ok(found);
        };
        let home = (view.thread(), view.count());
        let counts = leaves_other_there(view, (s.thread, count), stops, reason);
        view.set_position(home.0, home.1)?;
        if counts? {
            return Ok(found);
        }
        passed.push(count);
    }
}

/// The first or last stop of a stretch that is not an effect of an instruction. At the counts in `passed`, the kernel's
/// writes do not count.
fn any_event(
    view: &Viewpoint,
    s: SearchRange,
    stops: &Stops,
    direction: Direction,
    passed: &[u64],
) -> Result<Option<Hit>> {
    let engine = view.engine();
    let scan = engine.scan(s.thread)?;
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
    if !stops.signals.is_nothing() || !stops.syscalls.is_nothing() {
        let a = scan.events.partition_point(|e| e.0 + 1 < s.lo.min(s.first));
        let b = match forward {
            true => scan.events.partition_point(|e| e.0 <= s.hi),
            false => scan.events.partition_point(|e| e.0 < s.hi),
        };
        let chosen = |raw: &Raw| match raw {
            Raw::Signal { number, .. } => stops.signals.has(number),
            Raw::Syscall { number, .. } => stops.syscalls.has(number),
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
        // Several events may be at one instant, so those at an end of the list may lie just outside.
        match forward {
            true => list.any(&mut one),
            false => list.rev().any(&mut one),
        };
    }
    known::offer_all(
        engine,
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
        if !engine.is_open(s.thread, scan) {
            let ending = engine.ending(s.thread, scan);
            offer(scan.to, Reason::ThreadEnd(ending));
        }
    }
    if stops.modules {
        let filter = Filter {
            thread: Some(s.thread),
            kinds: vec![KindOf::Module],
            ..Filter::default()
        };
        for h in engine.events(&filter)? {
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

/// Whether the kernel's write at an instruction left another value in watched memory.
fn leaves_other_there(
    view: &mut Viewpoint,
    (thread, count): (ThreadId, u64),
    stops: &Stops,
    reason: &Reason,
) -> Result<bool> {
    let Reason::Watchpoint { address, len, .. } = *reason else {
        return Ok(true);
    };
    for w in stops.watchpoints.iter().filter(|w| w.watch.kinds().1) {
        let from = address.max(w.address);
        let to = (address.saturating_add(len)).min(w.address.saturating_add(w.len));
        if from >= to {
            continue;
        }
        let value = stops.values.iter().find(|v| v.id == w.id);
        let held = value.and_then(|v| {
            v.bytes
                .get((from - w.address) as usize..(to - w.address) as usize)
        });
        let Some(held) = held else { return Ok(true) };
        let part = Watchpoint {
            address: from,
            len: to - from,
            ..*w
        };
        if first_other(view, (thread, count + 1), (part, held), &[])?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The address of the first watched byte that differs from `value` at an instant, or is not known there.
pub fn first_other(
    view: &mut Viewpoint,
    at: (ThreadId, u64),
    (w, value): (Watchpoint, &[u8]),
    but: &[u64],
) -> Result<Option<u64>> {
    view.set_position(at.0, at.1)?;
    let held = value::memory(view, w.address, value.len(), Detail::Known)?;
    let mut bytes = (w.address..).zip(held.bytes.iter().zip(value));
    let other = bytes.find(|(a, (h, v))| !but.contains(a) && h.is_none_or(|k| k.value != **v));
    Ok(other.map(|(a, _)| a))
}
