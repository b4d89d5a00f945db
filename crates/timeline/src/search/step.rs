//! Steps: one instruction, or a whole call.

use super::run::{back_if_ended, find, run};
use crate::model::memory::Found;
use crate::model::stops::*;
use crate::play::{Doing, Viewpoint};
use crate::{Result, ThreadId};
use hindsight_isa::regs::RSP;
use hindsight_replay::{Binary, Expression, Operand, Step};

/// One instruction forwards or backwards.
pub fn step(view: &mut Viewpoint, direction: Direction, scope: Scope) -> Result<Stop> {
    let moved = match direction {
        Direction::Forward => after(view, scope)?,
        Direction::Backward => before(view, scope)?,
    };
    let reason = match (moved, direction) {
        (Some((thread, count)), _) => {
            let scan = view.engine().scan(thread)?;
            let count = scan.outside_gap(count, direction);
            view.set_position(thread, count)?;
            Reason::Step
        }
        (None, Direction::Forward) => Reason::End,
        (None, Direction::Backward) => Reason::Begin,
    };
    view.stop(reason)
}

/// One instruction forwards or backwards in this thread. A call counts as one instruction, with all that it does.
pub fn step_over(view: &mut Viewpoint, direction: Direction) -> Result<Stop> {
    let home = (view.thread(), view.count());
    let stop = over(view, direction);
    back_if_ended(view, home, stop)
}

fn over(view: &mut Viewpoint, direction: Direction) -> Result<Stop> {
    if direction == Direction::Forward {
        let Some(call) = view.instruction()?.filter(|i| i.is_call()) else {
            return step(view, direction, Scope::Thread);
        };
        // A recursive call passes here with a lower stack pointer.
        let mut b = Breakpoint::at(0, call.next);
        let returned = [
            Step::Register(Operand::General(RSP as u8)),
            Step::Constant(call.rsp),
            Step::Binary(Binary::LessUnsigned),
            Step::IsZero,
            Step::End,
        ];
        b.condition = Some(Expression::new(returned.to_vec()).into());
        let mut stops = Stops {
            breakpoints: vec![b],
            ..Stops::default()
        };
        let stop = run(view, direction, Scope::Thread, &mut stops)?;
        return Ok(done(stop));
    }
    let (pc, from) = (view.registers()?.rip, view.count());
    let back = step(view, direction, Scope::Thread)?;
    let returned = view.instruction()?.filter(|i| i.is_return());
    let (Reason::Step, Some(Doing { rsp: slot, .. })) = (&back.reason, returned) else {
        return Ok(back);
    };
    // The last write to the word is usually that of the call. In a child of `vfork` the parent has made the call.
    let (home, ret) = (view.thread(), view.count());
    while let Some(w) = last_write(view, slot)? {
        view.set_position(w.thread, w.count)?;
        let call = view.instruction()?.filter(|i| i.is_call());
        let call = call.is_some_and(|i| i.next == pc);
        if call && w.thread == home && w.count < from {
            return view.stop(Reason::Step);
        }
    }
    view.set_position(home, ret)?;
    view.stop(Reason::Step)
}

/// A stop at an internal breakpoint or watchpoint means that the step is done.
pub fn done(mut stop: Stop) -> Stop {
    if let Reason::Breakpoint { .. } | Reason::Watchpoint { .. } = stop.reason {
        stop.reason = Reason::Step;
    }
    stop
}

/// The instant one instruction later in a scope.
fn after(view: &Viewpoint, scope: Scope) -> Result<Option<(ThreadId, u64)>> {
    let s = view.engine().segment(view.thread(), view.count())?;
    if view.count() < s.to && (view.count() + 1 < s.to || scope == Scope::Thread) {
        return Ok(Some((view.thread(), view.count() + 1)));
    }
    let to = view.engine().thread(view.thread())?.to;
    if scope == Scope::Thread {
        return Ok((view.count() < to).then_some((view.thread(), view.count() + 1)));
    }
    // The segment is over. The one that was opened next follows.
    match view
        .engine()
        .opened_after(s.opens, |t| view.within(scope, t))?
    {
        Some(next) => Ok(Some((next.thread, next.from))),
        None if view.count() < to => Ok(Some((view.thread(), view.count() + 1))),
        None => Ok(None),
    }
}

/// The instant one instruction earlier in a scope.
fn before(view: &Viewpoint, scope: Scope) -> Result<Option<(ThreadId, u64)>> {
    let s = view.engine().segment(view.thread(), view.count())?;
    let from = view.engine().scan(view.thread())?.from;
    if scope == Scope::Thread || view.count() > s.from {
        return Ok((view.count() > from).then(|| (view.thread(), view.count() - 1)));
    }
    let last = view
        .engine()
        .opened_before(s.opens, |t| view.within(scope, t))?;
    Ok(last.map(|s| (s.thread, s.to - 1)))
}

/// The last write to a word of the stack.
fn last_write(view: &mut Viewpoint, slot: u64) -> Result<Option<Found>> {
    find(view, Direction::Backward, slot, 8, Watch::Write)
}
