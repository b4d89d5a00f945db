//! The core dump of a process with several threads: where the others are, too.
//!
//! The kernel dumps the registers with which a thread has last entered it. For a recorded thread these are those of
//! translated code or of the recorder. So when one thread dies, those in translated code first come to
//! [`rest`] between two instructions of the program. Then a helper process attaches to all of them as a debugger
//! does, gives them the program's registers, and holds them until the process is dead. A thread that does
//! not get there in time, and all of them where tracing is not allowed, are dumped as they are.

use crate::sys::context::FLAGS_FIXED;
use crate::sys::{self, arena, resources, stop, stub};
use crate::thread::threads::{self, Other};
use crate::thread::{self, Thread};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::*};
use hindsight_isa::Ctx;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::xsave::Area;
use linux_raw_sys::general::*;

/// Signals that dump core.
const DUMPING: [u32; 10] = [
    SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS,
];

/// Whether a signal dumps core where it kills.
pub fn dumps_core(signo: u32) -> bool {
    DUMPING.contains(&signo)
}

/// Time for threads in translated code to come to rest, and for others that are about to be in it; and for
/// the helper, in looks at them, which are [`PAUSE`] microseconds apart.
const PATIENCE: u32 = 2000;
const GRACE: u32 = 10;
const PAUSE: u64 = 500;

/// Bytes of the helper's stack.
const STACK: u64 = 64 << 10;

/// `t` is about to die of a signal: whether the others have been told. Does not return if another thread
/// was first.
pub fn begin(t: &mut Thread, signo: u32) -> bool {
    // Memory that is shared with another process says nothing about who dies.
    let alone = threads::is_alone() || t.borrows || threads::lends();
    if alone || !dumps_core(signo) || !dumps() {
        return false;
    }
    if !stop::begin_dying() {
        rest(t);
    }
    true
}

/// Whether the kernel writes core dumps of this process.
fn dumps() -> bool {
    let mut first = [0];
    let piped = sys::open_read(c"/proc/sys/kernel/core_pattern").is_ok_and(|fd| {
        let got = sys::read(fd, &mut first);
        sys::close(fd);
        got == Ok(1) && first == *b"|"
    });
    piped || resources::get(RLIMIT_CORE).0 != 0
}

/// The thread stands between two instructions of the program, and stays there.
pub fn rest(t: &mut Thread) -> ! {
    sys::set_signal_mask(!0);
    t.publish();
    t.seen.store(u64::MAX, Release);
    t.inbox.resting.store(true, Release);
    loop {
        sys::pause();
    }
}

/// What the helper is told, and tells.
struct Job {
    others: Vec<Other>,
    /// 1: all that can be done has been done.
    done: AtomicU32,
}

/// After [`begin`]: has the kernel find the program's registers in the other threads. All signals are blocked.
pub fn prepare(t: &Thread) {
    let job = Job {
        others: threads::others(t),
        done: AtomicU32::new(0),
    };
    for round in 0..PATIENCE {
        let mut busy = false;
        for o in job.others.iter().filter(|o| !o.is_resting()) {
            if o.is_in_translated_code() {
                stop::kick(o.tid);
                busy = true;
            }
            busy |= round < GRACE;
        }
        if !busy {
            break;
        }
        sys::sleep_us(PAUSE);
    }
    // The dead are asked by nobody: this memory stays.
    let job: *mut Job = alloc::boxed::Box::into_raw(alloc::boxed::Box::new(job));
    // SAFETY: from here on it is only shared.
    let shared = unsafe { &*job };
    if start_helper(job) {
        let waits = (0..PATIENCE).take_while(|_| shared.done.load(Acquire) == 0);
        waits.for_each(|_| sys::sleep_us(PAUSE));
    }
}

/// Starts a process in this memory that can trace this one; not if that fails.
fn start_helper(job: *mut Job) -> bool {
    let prot = PROT_READ | PROT_WRITE;
    let Ok(stack) = arena::map(STACK, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) else {
        return false;
    };
    // No signal tells anybody of its end.
    let flags = (CLONE_VM | CLONE_FS | CLONE_FILES) as u64;
    let six = [flags, stack + STACK, 0, 0, 0, 0];
    // SAFETY: the stack is fresh, and the job is leaked.
    let ret = unsafe { sys::raw_clone(__NR_clone, six, help, job) };
    let Ok(pid) = sys::result(ret) else {
        return false;
    };
    sys::allow_tracer(pid);
    true
}

/// The helper. Threads that it holds may have locks of the recorder's: it takes none, and no memory.
extern "C" fn help(job: *mut Job) -> ! {
    // SAFETY: it was leaked for this process, and is only shared.
    let job = unsafe { &*job };
    for o in &job.others {
        if let Some(stopped) = Stopped::new(o) {
            stopped.show();
        }
    }
    job.done.store(1, Release);
    // Until the last of them has ended.
    while sys::wait_any().is_ok() {}
    sys::exit_group(0)
}

/// A thread that the helper has stopped.
struct Stopped<'a>(&'a Other);

// Indices of `struct user_regs_struct`.
const RAX: usize = 10;
const RCX: usize = 11;
const R11: usize = 6;
const ORIGINAL_RAX: usize = 15;
const RIP: usize = 16;
const FLAGS: usize = 18;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;
/// Where the general purpose registers are, in hardware order.
const HARDWARE: [usize; 16] = [10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];

impl Stopped<'_> {
    fn new(o: &Other) -> Option<Stopped<'_>> {
        const SEIZE: u32 = 0x4206;
        const INTERRUPT: u32 = 0x4207;
        /// Nobody goes on alone with registers that the recorder does not know.
        const EXITKILL: u64 = 0x10_0000;
        let tid = o.tid;
        // The permission may still be on its way.
        let seized = (0..GRACE).any(|_| {
            let done = sys::ptrace(SEIZE, tid, 0, EXITKILL).is_ok();
            if !done {
                sys::sleep_us(PAUSE);
            }
            done
        });
        if !seized || sys::ptrace(INTERRUPT, tid, 0, 0).is_err() {
            return None;
        }
        let stopped = (0..PATIENCE / 2).any(|_| {
            let came = sys::wait_thread(tid);
            if !came {
                sys::sleep_us(PAUSE);
            }
            came
        });
        stopped.then_some(Stopped(o))
    }

    /// Gives it the program's registers, if it stands where these are known.
    fn show(&self) {
        const GETREGS: u32 = 12;
        const SETREGS: u32 = 13;
        let tid = self.0.tid;
        let mut regs = [0u64; 27];
        if sys::ptrace(GETREGS, tid, 0, regs.as_mut_ptr() as u64).is_err() {
            return;
        }
        let in_call = stub::is_behind_call(regs[RIP]);
        if !self.0.is_resting() && !in_call {
            return;
        }
        // SAFETY: its owner is stopped.
        let ctx = unsafe { &*self.0.ctx };
        // As the kernel has it while the call lasts.
        let (answer, number) = (regs[RAX], regs[ORIGINAL_RAX]);
        for (i, at) in HARDWARE.iter().enumerate() {
            regs[*at] = ctx.gpr[i];
        }
        regs[FLAGS] = ctx.rflags & RFLAGS_MASK | FLAGS_FIXED;
        (regs[FS_BASE], regs[GS_BASE]) = (ctx.fs_base, ctx.gs_base);
        regs[RIP] = ctx.rip;
        regs[ORIGINAL_RAX] = u64::MAX;
        if in_call {
            const SYSCALL: u64 = 2;
            regs[RIP] += SYSCALL;
            (regs[RAX], regs[ORIGINAL_RAX]) = (answer, number);
            (regs[RCX], regs[R11]) = (regs[RIP], regs[FLAGS]);
        }
        let _ = sys::ptrace(SETREGS, tid, 0, regs.as_ptr() as u64);
        self.show_vectors(ctx);
    }

    fn show_vectors(&self, ctx: &Ctx) {
        const GET: u32 = 0x4204;
        const SET: u32 = 0x4205;
        const XSTATE: u64 = 0x202;
        /// With room for components that are not the program's.
        #[repr(C)]
        struct Large {
            area: Area,
            rest: [u8; 12 << 10],
        }
        let mut large = Large {
            area: Area::default(),
            rest: [0; 12 << 10],
        };
        let mut part = [&raw mut large as u64, size_of::<Large>() as u64];
        let at = part.as_mut_ptr() as u64;
        if sys::ptrace(GET, self.0.tid, XSTATE, at).is_ok() {
            thread::complete(&mut large.area, ctx, self.0.wide.as_ref());
            let _ = sys::ptrace(SET, self.0.tid, XSTATE, at);
        }
    }
}
