//! Leaves a function, forwards and backwards.
//!
//! Most functions are soon over. A few instructions are stepped through first. For the others, the search looks for the
//! return address on the stack. It is a word at the stack pointer or above it that is the address of code.
//!
//! Forwards, a run stops where the thread has returned to one of those addresses. The word that held the address before
//! is the return address. But a return address may be overwritten, or popped together with more (`ret 16`). Then the
//! thread returns elsewhere. So the search also asks whether a return has read another word of that kind before.
//!
//! Backwards, it is the word that a call wrote last and that no return has read since.
//!
//! Words of the stack that are not known may be return addresses, too. Forwards, these belong to calls before the
//! recording began.

mod stack;

use super::run::{back_if_ended, run};
use super::step::{done, step_over};
use crate::Result;
use crate::model::stops::*;
use crate::play::Doing;
use crate::play::Viewpoint;
use hindsight_isa::regs::RSP;
use iced_x86::Mnemonic;
use stack::{Words, words};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// This many instructions of the function are stepped through first.
const STEPS: usize = 64;
/// This many bytes of the stack are searched for the return address: at first, and if it is not found.
const FRAMES: [u64; 2] = [64 << 10, 1 << 20];
/// The longest call instruction, in bytes.
const CALL: u64 = 8;
/// This many reads of a word are looked at, to find one by a return.
const READS: usize = 16;
/// On the way back to the call that pushed a word, at most this many writes by other instructions are passed over.
const WRITES: usize = 3;

/// Where a function was called, or has returned.
enum Way {
    To(u64),
    /// Not within the recording.
    Nowhere,
    /// No word of the stack tells.
    Unclear,
}

/// See [`crate::Cursor::step_out`].
pub fn step_out(view: &mut Viewpoint, direction: Direction) -> Result<Stop> {
    let home = (view.thread(), view.count());
    let stop = search_out(view, direction);
    Ok(done(back_if_ended(view, home, stop)?))
}

fn search_out(view: &mut Viewpoint, direction: Direction) -> Result<Stop> {
    let mut floor = view.registers()?.gpr[RSP];
    let mut steps = |view: &mut Viewpoint, n: usize| match direction {
        Direction::Forward => steps_forward(view, floor, n),
        Direction::Backward => steps_backward(view, &mut floor, n),
    };
    if let Some(stop) = steps(view, STEPS)? {
        return Ok(stop);
    }
    let home = (view.thread(), view.count());
    let frames = match direction {
        Direction::Forward => &FRAMES[..],
        Direction::Backward => &FRAMES[1..],
    };
    for frame in frames.iter().copied() {
        let found = match direction {
            Direction::Forward => find_return(view, floor, frame),
            Direction::Backward => find_call(view, floor, frame),
        };
        match found {
            Ok(Way::To(count)) => {
                view.set_position(home.0, count)?;
                let ends = direction == Direction::Forward && is_end(view)?;
                return view.stop(if ends { Reason::End } else { Reason::Step });
            }
            Ok(Way::Nowhere) => {
                let scan = view.engine().scan(home.0)?;
                let (count, reason) = match direction {
                    Direction::Forward => (scan.to, Reason::End),
                    Direction::Backward => (scan.from, Reason::Begin),
                };
                view.set_position(home.0, count)?;
                return view.stop(reason);
            }
            Ok(Way::Unclear) => view.set_position(home.0, home.1)?,
            Err(e) => return Err(e),
        }
    }
    // No word of the stack tells: step as far as needed.
    let mut steps = |view: &mut Viewpoint, n: usize| match direction {
        Direction::Forward => steps_forward(view, floor, n),
        Direction::Backward => steps_backward(view, &mut floor, n),
    };
    match steps(view, usize::MAX)? {
        Some(stop) => Ok(stop),
        None => view.stop(Reason::Step),
    }
}

/// The return is the first one whose return address lies at `floor` or above.
fn steps_forward(view: &mut Viewpoint, floor: u64, n: usize) -> Result<Option<Stop>> {
    for _ in 0..n {
        view.cancel().check()?;
        let returns = view.instruction()?;
        let returns = returns.is_some_and(|i| i.is_return() && i.rsp >= floor);
        let before = (view.thread(), view.count());
        let stop = step_over(view, Direction::Forward)?;
        if stop.reason == Reason::End && n == STEPS {
            // The callee did not return. Perhaps it left this function too (`longjmp`).
            view.set_position(before.0, before.1)?;
            return Ok(None);
        }
        if stop.reason != Reason::Step || returns {
            return Ok(Some(stop));
        }
    }
    Ok(None)
}

/// The call is the last one that pushed its return address at `floor` or above. `floor` grows with the stack pointer on
/// the way back.
fn steps_backward(view: &mut Viewpoint, floor: &mut u64, n: usize) -> Result<Option<Stop>> {
    for _ in 0..n {
        view.cancel().check()?;
        let stop = step_over(view, Direction::Backward)?;
        if stop.reason != Reason::Step {
            return Ok(Some(stop));
        }
        let here = view.instruction()?;
        let rsp = match &here {
            Some(i) => i.rsp,
            None => view.registers()?.gpr[RSP],
        };
        // A call that was stepped over as a whole leaves the stack pointer as it was.
        if here.is_some_and(|i| i.is_call()) && rsp.wrapping_sub(8) >= *floor {
            return Ok(Some(stop));
        }
        *floor = rsp.max(*floor);
    }
    Ok(None)
}

/// The address after the call instruction at the cursor, if there is one.
fn is_call(view: &mut Viewpoint) -> Result<Option<u64>> {
    let here = view.instruction()?.filter(Doing::is_call);
    Ok(here.map(|i| i.next))
}

/// Whether the next instruction is a return that reads this word of the stack.
fn returns_from(view: &mut Viewpoint, slot: u64) -> Result<bool> {
    let here = view.instruction()?;
    Ok(here.is_some_and(|i| i.is_return() && i.rsp == slot))
}

fn is_end(view: &Viewpoint) -> Result<bool> {
    Ok(view.count() == view.engine().scan(view.thread())?.to)
}

/// Where the thread returned to one of the addresses in the stack above the cursor.
fn find_return(view: &mut Viewpoint, floor: u64, frame: u64) -> Result<Way> {
    let begin = view.count();
    let mut slots: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let words = words(view, floor, frame)?;
    for (slot, to) in &words.addresses {
        slots.entry(*to).or_default().push(*slot);
    }
    let slots = Arc::new(slots);
    // Words of the stack up to here now belong to functions that were called since.
    let gone = Rc::new(Cell::new(0));
    let breakpoints = slots.keys().map(|to| {
        let (slots, gone, to) = (Arc::clone(&slots), Rc::clone(&gone), *to);
        let mut b = Breakpoint::at(0, to);
        b.condition = Some(Condition::code(move |v| {
            let slot = v.registers().gpr[RSP].wrapping_sub(8);
            slot > gone.get() && slots[&to].binary_search(&slot).is_ok()
        }));
        b
    });
    let mut stops = Stops {
        breakpoints: breakpoints.collect(),
        ..Stops::default()
    };
    loop {
        let stop = run(view, Direction::Forward, Scope::Thread, &mut stops)?;
        match stop.reason {
            Reason::Breakpoint { .. } => {}
            Reason::Cancelled => return Err(crate::Error::Cancelled),
            _ => {
                let end = view.count();
                let read = first_return(view, (begin, end), &words, u64::MAX)?;
                // It never returns if there is nothing else to which it could return.
                return Ok(match read {
                    Some(count) => Way::To(count),
                    None if words.all => Way::Nowhere,
                    None => Way::Unclear,
                });
            }
        }
        let (thread, count) = (view.thread(), view.count());
        let slot = view.registers()?.gpr[RSP].wrapping_sub(8);
        view.set_position(thread, count - 1)?;
        let returned = returns_from(view, slot)?;
        if !returned {
            // The thread came there in another way.
            view.set_position(thread, count)?;
            continue;
        }
        // Two cases. A function that was called since has its return address there, and this one was left in another
        // way (`longjmp`). Or its own return address was written there anew (`swapcontext`).
        match is_pushed_since(view, begin, slot)? {
            Some(true) => {
                gone.set(slot);
                view.set_position(thread, count)?;
                continue;
            }
            Some(false) => view.set_position(thread, count - 1)?,
            None => return Ok(Way::Unclear),
        }
        let read = first_return(view, (begin, count - 1), &words, slot)?;
        return Ok(Way::To(read.unwrap_or(count)));
    }
}

/// The instant after the first return among instructions `from..to` that read one of these words. The word must be an
/// address, or unknown, and lie below `below`. No call may have pushed it since.
fn first_return(
    view: &mut Viewpoint,
    (from, to): (u64, u64),
    words: &Words,
    below: u64,
) -> Result<Option<u64>> {
    let thread = view.thread();
    let unknown = words.unknown(view, (from, to), Watch::Read)?;
    let slots = words.addresses.iter().map(|w| w.0).chain(unknown);
    let slots = slots.filter(|s| *s < below);
    let mut left: BTreeMap<u64, usize> = slots.map(|s| (s, READS)).collect();
    let mut at = from;
    while !left.is_empty() {
        view.set_position(thread, at)?;
        let mut stops = Stops {
            watchpoints: left.keys().map(|s| word(*s, Watch::Read)).collect(),
            ..Stops::default()
        };
        let stop = run(view, Direction::Forward, Scope::Thread, &mut stops)?;
        let (slot, count) = match stop.reason {
            Reason::Watchpoint { id, count, .. } if count < to => (id, count),
            Reason::Cancelled => return Err(crate::Error::Cancelled),
            _ => return Ok(None),
        };
        at = count + 1;
        view.set_position(thread, count)?;
        if returns_from(view, slot)? {
            if is_pushed_since(view, from, slot)? != Some(true) {
                return Ok(Some(at));
            }
            // A callee returns there. It lies below the return address.
            left.remove(&slot);
        } else if let Some(n) = left.get_mut(&slot) {
            *n -= 1;
            left.retain(|_, n| *n > 0);
        }
    }
    Ok(None)
}

/// Whether a call has written a word of the stack since `from`. Another write may have followed: some indirect branches
/// are a call, a write over its return address, and a return. `None`: others wrote it too often to tell.
fn is_pushed_since(view: &mut Viewpoint, from: u64, slot: u64) -> Result<Option<bool>> {
    let thread = view.thread();
    for _ in 0..WRITES {
        let written = access(view, Direction::Backward, slot, Watch::Write)?;
        let Some(written) = written.filter(|w| *w >= from) else {
            return Ok(Some(false));
        };
        view.set_position(thread, written)?;
        if is_call(view)?.is_some() {
            return Ok(Some(true));
        }
    }
    Ok(None)
}

/// The content of a word of the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The address after a call instruction.
    Return(u64),
    /// The address of other code.
    Other,
    Unknown,
}

/// The last call whose return address lies in the stack above the cursor and was read by no return. It is unclear if
/// the address is no longer there as the call wrote it, because something else may be there then.
fn find_call(view: &mut Viewpoint, floor: u64, frame: u64) -> Result<Way> {
    let (thread, here) = (view.thread(), view.count());
    let begin = view.engine().scan(thread)?.from;
    let mut calls: BTreeMap<u64, bool> = BTreeMap::new();
    let found = words(view, floor, frame)?;
    let mut left = BTreeMap::new();
    for (slot, to) in &found.addresses {
        let is = match calls.get(to) {
            Some(is) => *is,
            None => is_behind_call(view, *to)?,
        };
        calls.insert(*to, is);
        let held = if is { Held::Return(*to) } else { Held::Other };
        left.insert(*slot, (held, WRITES));
    }
    for slot in found.unknown(view, (begin, here), Watch::Write)? {
        left.insert(slot, (Held::Unknown, WRITES));
    }
    while !left.is_empty() {
        let watchpoints = left.keys().map(|slot| word(*slot, Watch::Write));
        let mut stops = Stops {
            watchpoints: watchpoints.collect(),
            ..Stops::default()
        };
        let stop = run(view, Direction::Backward, Scope::Thread, &mut stops)?;
        let (slot, count) = match stop.reason {
            Reason::Watchpoint { id, count, .. } => (id, count),
            Reason::Cancelled => return Err(crate::Error::Cancelled),
            _ => break,
        };
        let pushed = view.registers()?.gpr[RSP].wrapping_sub(8) == slot;
        let call = is_call(view)?.filter(|_| pushed);
        match (left.get_mut(&slot), call) {
            (Some((held, _)), Some(to)) => {
                let same = *held == Held::Unknown || *held == Held::Return(to);
                left.remove(&slot);
                if same && !has_returned(view, (count + 1, here), slot)? {
                    return Ok(Way::To(count));
                }
                if !same && !returns_first(view, (count + 1, here), slot)? {
                    return Ok(Way::Unclear);
                }
            }
            // Perhaps a return address that was written anew.
            (Some((_, more)), None) if *more > 1 => *more -= 1,
            _ => {
                left.remove(&slot);
            }
        }
        view.set_position(thread, count)?;
    }
    // Either the function was called before the recording began, or the thread came to this stack in another way.
    Ok(match found.all && begins_there(view, floor, here)? {
        true => Way::Nowhere,
        false => Way::Unclear,
    })
}

/// Whether the thread began on the stack that contains an address.
fn begins_there(view: &mut Viewpoint, address: u64, here: u64) -> Result<bool> {
    let thread = view.thread();
    view.set_position(thread, here)?;
    let mapped = (view.engine()).mappings(view.image(), view.position()?)?;
    view.set_position(thread, 0)?;
    let top = |address| stack::top(&mapped, address);
    let rsp = view.registers()?.gpr[RSP];
    Ok(top(rsp).is_some() && top(rsp) == top(address))
}

/// Whether a call instruction ends at an address.
fn is_behind_call(view: &mut Viewpoint, to: u64) -> Result<bool> {
    for n in 2..=CALL {
        let from = to.wrapping_sub(n);
        let code = view.code(from, n as usize)?;
        let found = hindsight_replay::access::decode(&code, from);
        let call = |i: iced_x86::Instruction| i.next_ip() == to && i.mnemonic() == Mnemonic::Call;
        if found.is_some_and(call) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a return is among the first instructions that read a word of the stack, in `from..to`.
fn returns_first(view: &mut Viewpoint, (mut from, to): (u64, u64), slot: u64) -> Result<bool> {
    let thread = view.thread();
    for _ in 0..READS {
        view.set_position(thread, from)?;
        let read = access(view, Direction::Forward, slot, Watch::Read)?;
        let Some(read) = read.filter(|r| *r < to) else {
            return Ok(false);
        };
        view.set_position(thread, read)?;
        if view.instruction()?.is_some_and(|i| i.is_return()) {
            return Ok(true);
        }
        from = read + 1;
    }
    Ok(false)
}

/// Whether a return has read a word of the stack, in `from..to`.
fn has_returned(view: &mut Viewpoint, (from, mut to): (u64, u64), slot: u64) -> Result<bool> {
    let thread = view.thread();
    for _ in 0..READS {
        view.set_position(thread, to)?;
        let read = access(view, Direction::Backward, slot, Watch::Read)?;
        let Some(read) = read.filter(|r| *r >= from) else {
            return Ok(false);
        };
        view.set_position(thread, read)?;
        if view.instruction()?.is_some_and(|i| i.is_return()) {
            return Ok(true);
        }
        to = read;
    }
    Ok(false)
}

/// The count before the thread's nearest access to a word.
fn access(
    view: &mut Viewpoint,
    direction: Direction,
    address: u64,
    watch: Watch,
) -> Result<Option<u64>> {
    let mut stops = Stops {
        watchpoints: vec![word(address, watch)],
        ..Stops::default()
    };
    match run(view, direction, Scope::Thread, &mut stops)?.reason {
        Reason::Watchpoint { count, .. } => Ok(Some(count)),
        Reason::Cancelled => Err(crate::Error::Cancelled),
        _ => Ok(None),
    }
}

/// A watchpoint on a word. Its id is the address.
fn word(address: u64, watch: Watch) -> Watchpoint {
    Watchpoint {
        id: address,
        address,
        len: 8,
        watch,
        image: None,
    }
}
