//! Calls by which the program gets memory (`--fill-fresh`). When one returns, what is fresh of the block is filled.
//!
//! Such functions call each other: `operator new` calls `malloc`, and an allocator's `calloc` may call its
//! `malloc`. The outermost call counts, since it knows what its caller expects.
//!
//! Where it is not certain that a call has returned, or what of a block is fresh, nothing is filled.

use crate::code::places;
use crate::memory::fresh;
use crate::sys::allocators::Allocator;
use crate::sys::guard;
use crate::thread::Thread;
use crate::thread::fresh::{Call, Gets};
use hindsight_isa::regs::{RAX, RDI, RDX, RSI, RSP};

/// The thread stands between two instructions, before the one at `pc`. Fills what it has got if a call returns
/// there, and notes a call that begins.
pub fn arrive(t: &mut Thread, pc: u64) {
    if !fresh::is_wanted() {
        return;
    }
    let sp = t.ctx.gpr[RSP];
    if let Some(call) = t.fresh.call.take_if(|c| c.returns.is_over(pc, sp))
        && (call.returns.pc, call.returns.sp) == (pc, sp)
        // It has come here by returning, not by a jump after somebody has left the call by an exception or `longjmp`.
        && t.fresh.by_address
        && guard::load_u64(sp - 8) == Ok(pc)
    {
        returned(t, call.gets);
    }
    if let Some(what) = places::allocator_at(pc) {
        called(t, pc, what);
    }
}

/// Whether the thread has to come to the runtime the next time that it comes to `pc`: a call returns there.
pub fn is_awaited(t: &Thread, pc: u64) -> bool {
    t.fresh.call.as_ref().is_some_and(|c| c.returns.pc == pc)
}

/// The function at `entry` is called.
fn called(t: &mut Thread, entry: u64, what: Allocator) {
    let behind = t.ctx.gpr[RSP] + 8;
    if t.fresh
        .call
        .as_ref()
        .is_some_and(|c| c.returns.sp != behind)
    {
        // Within another call.
        return;
    }
    let Some(returns) = places::return_of(t) else {
        return;
    };
    let mut gets = gets(t, what);
    if let Some(c) = &t.fresh.call
        && c.entry != entry
        && c.returns.pc == returns.pc
        && c.gets != gets
    {
        // That one has jumped here, as `calloc` may to `malloc`. Or it was left by an exception, and its caller calls this one. So it
        // is not known what the caller expects.
        gets = Gets::Nothing;
    }
    t.fresh.call = Some(Call {
        entry,
        returns,
        gets,
    });
}

/// What the function that is called will have got. Its arguments are in registers.
fn gets(t: &Thread, what: Allocator) -> Gets {
    let g = &t.ctx.gpr;
    let arguments = [g[RDI], g[RSI], g[RDX]];
    let resized = |size: Option<u64>| match (size, held(g[RDI])) {
        (Some(size), Some(kept)) => Gets::Result { kept, size },
        _ => Gets::Nothing,
    };
    match what {
        Allocator::Sized(i) => Gets::Result {
            kept: 0,
            size: arguments[i],
        },
        Allocator::Stored => Gets::Stored {
            at: g[RDI],
            size: g[RDX],
        },
        Allocator::Resized => resized(Some(g[RSI])),
        Allocator::ResizedArray => resized(g[RSI].checked_mul(g[RDX])),
        Allocator::Zeroed => Gets::Nothing,
    }
}

/// The most bytes that the block at `addr` can hold, by what glibc has written before it: its size with that, whose lowest
/// three bits mean something else.
fn held(addr: u64) -> Option<u64> {
    match addr {
        0 => Some(0),
        _ => guard::load_u64(addr.wrapping_sub(8)).ok().map(|s| s & !7),
    }
}

/// The call has returned.
fn returned(t: &mut Thread, gets: Gets) {
    let result = t.ctx.gpr[RAX];
    let (addr, kept, size) = match gets {
        Gets::Nothing => return,
        Gets::Result { kept, size } => (result, kept, size),
        Gets::Stored { at, size } => match guard::load_u64(at) {
            Ok(addr) if result as u32 == 0 => (addr, 0, size),
            _ => return,
        },
    };
    if addr != 0 && kept < size {
        fresh::fill(t, addr + kept, size - kept);
    }
}
