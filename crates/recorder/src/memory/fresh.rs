//! Fills memory that the program gets and has not written yet (`--fill-fresh`), with what a key says. The event
//! says the key, so replay fills it again.

use crate::memory::maps::{Region, regions};
use crate::stream::ring;
use crate::sys::{config, guard};
use crate::thread::Thread;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use hindsight_events::event::MAX_BYTES;
use hindsight_events::fresh;
use hindsight_isa::regs::RSP;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_SHARED};

/// The most bytes that are filled of a block, and below the beginning of a stack. More would bring memory into use that
/// programs ask for and never touch.
pub const MOST: u64 = 64 << 10;

/// A function was found by which the program gets memory. The child of a `fork` has a copy.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Whether fresh memory is filled in this process.
pub fn is_wanted() -> bool {
    config::get().fill_fresh != 0 && ring::is_recorded()
}

/// Fills `addr..addr+len`, or its first [`MOST`] bytes, as far as the program may write there.
pub fn fill(t: &mut Thread, addr: u64, len: u64) {
    let end = addr.saturating_add(len.min(MOST));
    let mut at = addr;
    while at < end {
        let n = (end - at).min(MAX_BYTES as u64);
        if !piece(t, at, n as usize) {
            return;
        }
        at += n;
    }
}

/// Fills the stack of a thread that begins, below its stack pointer.
pub fn fill_stack(t: &mut Thread) {
    if !is_wanted() {
        return;
    }
    // Downwards, as the kernel lets the first thread's stack grow.
    let Range { start, mut end } = t.fresh.stack;
    let start = start.max(end.saturating_sub(MOST));
    while start < end {
        let n = (end - start).min(MAX_BYTES as u64);
        end -= n;
        match is_zero(end, n as usize) {
            Some(true) if piece(t, end, n as usize) => {}
            // Somebody has written it: an earlier thread, or the program before it made this one.
            Some(false) => {}
            _ => return,
        }
    }
}

/// Whether memory holds nothing but zeros. `None` if it cannot be read.
fn is_zero(addr: u64, len: usize) -> Option<bool> {
    let mut buf = [0; MAX_BYTES];
    let bytes = &mut buf[..len];
    guard::read(addr, bytes).ok()?;
    Some(bytes.iter().all(|b| *b == 0))
}

/// The memory below the stack pointer of a thread that is made by `clone`. If `size` is 0, the call does not say how much it is, and
/// what lies there may be something else.
pub fn stack_below(sp: u64, size: u64) -> Range<u64> {
    let regions = regions();
    let own = |r: &&Region| r.flags & (MAP_ANONYMOUS | MAP_SHARED) == MAP_ANONYMOUS;
    match regions.find(sp.wrapping_sub(1)).filter(own) {
        Some(r) => r.start.max(sp.saturating_sub(size))..sp,
        None => 0..0,
    }
}

/// A program begins, with this thread.
pub fn begin(t: &mut Thread) {
    if is_wanted() {
        ring::note_filled();
        let sp = t.ctx.gpr[RSP];
        t.fresh.stack = 0..sp;
        fill_stack(t);
    }
}

/// A function was found by which the program gets memory.
pub fn note_allocator() {
    if !FOUND.swap(true, Relaxed) {
        ring::note_allocating();
    }
}

/// Fills one piece. False if the program may not write there.
fn piece(t: &mut Thread, addr: u64, len: usize) -> bool {
    // Nothing may be written that is not recorded, so all or nothing.
    if guard::probe_write(addr, len as u64).is_err() {
        return false;
    }
    let (mut buf, key) = ([0; MAX_BYTES], t.fresh.key());
    let bytes = fresh::bytes(key, len, &mut buf);
    if guard::write(addr, bytes).is_err() {
        return false;
    }
    t.refresh(addr, bytes, key);
    true
}
