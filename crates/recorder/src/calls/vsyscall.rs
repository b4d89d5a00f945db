//! The page of system calls at a fixed address (vsyscall), which static programs from before 2012
//! call. The kernel lets nobody read it. It makes the call when the processor is about to execute
//! the page.

use crate::memory::maps::read_file;
use crate::memory::regime;
use crate::signals::frame;
use crate::sys::{self, clocks, guard};
use crate::thread::Thread;
use crate::thread::call::errno;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use hindsight_isa::regs::{RAX, RDI, RDX, RSI, RSP};
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::{__NR_getcpu, __NR_gettimeofday, __NR_time};

const BASE: u64 = 0xffff_ffff_ff60_0000;
/// The calls. Their addresses are [`STEP`] apart, from [`BASE`] on.
const CALLS: [u32; 3] = [__NR_gettimeofday, __NR_time, __NR_getcpu];
const STEP: u64 = 0x400;

/// Whether this kernel has the page. 0: not yet known, 1: no, 2: yes.
static PRESENT: AtomicU8 = AtomicU8::new(0);

fn is_present() -> bool {
    if PRESENT.load(Relaxed) == 0 {
        let maps = read_file(c"/proc/thread-self/maps");
        let found = maps.windows(10).any(|w| w == b"[vsyscall]");
        PRESENT.store(1 + found as u8, Relaxed);
    }
    PRESENT.load(Relaxed) == 2
}

/// Makes the call of the page at which the thread stands, and returns from it. False: the thread
/// stands at none, or the call raises a fault.
pub fn call(t: &mut Thread) -> bool {
    let at = t.ctx.rip.wrapping_sub(BASE);
    let Some(nr) = CALLS
        .get((at / STEP) as usize)
        .filter(|_| at.is_multiple_of(STEP))
    else {
        return false;
    };
    let mut caller = [0; 8];
    if !is_present() || guard::read(t.ctx.gpr[RSP], &mut caller).is_err() {
        return false;
    }
    let gpr = &t.ctx.gpr;
    let args = [
        gpr[RDI],
        gpr[RSI],
        if *nr == __NR_getcpu { 0 } else { gpr[RDX] },
        0,
        0,
        0,
    ];
    t.sequence();
    let ret = match clocks::answer(*nr, &args) {
        Some(answer) => answer.unwrap_or_else(errno),
        // SAFETY: these calls write only to the addresses that the program gave them.
        None => unsafe { sys::raw(*nr, args) },
    };
    clocks::after_call(*nr, &args);
    if ret == -(EFAULT as i64) as u64 {
        return false;
    }
    t.ctx.gpr[RAX] = ret;
    t.ctx.gpr[RSP] = t.ctx.gpr[RSP].wrapping_add(8);
    t.ctx.rip = u64::from_le_bytes(caller);
    regime::after_call(t, *nr, &args);
    frame::emit_state(t);
    t.sequence();
    true
}
