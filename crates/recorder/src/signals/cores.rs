//! Core dumps of a process with several threads. They have to show where the other threads are,
//! too.
//!
//! The kernel dumps the registers that a thread had when it last entered the kernel. For a recorded
//! thread these belong to translated code or to the recorder. So when one thread dies:
//!
//! 1. Threads in translated code come to [`rest`] between two instructions of the program.
//! 2. A helper process attaches to all threads, as a debugger does.
//! 3. The helper gives them the program's registers, and holds them until the process is dead.
//!
//! A thread that does not rest in time is dumped as it is. Where tracing is not allowed, all are.

use crate::sys::context::FLAGS_FIXED;
use crate::sys::{self, arena, resources, stop, stub};
use crate::thread::threads::{self, Other};
use crate::thread::{self, Thread};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::*};
use hindsight_isa::Ctx;
use hindsight_isa::regs::{self, USER};
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::xsave::Area;
use linux_raw_sys::general::*;

/// Signals whose default action dumps core.
const DUMPING: [u32; 10] = [
    SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS,
];

/// Whether a signal dumps core when it kills.
pub fn dumps_core(signo: u32) -> bool {
    DUMPING.contains(&signo)
}

/// How often somebody looks at most, [`PAUSE`] microseconds apart: whether threads in translated
/// code rest, and whether the helper is done.
const PATIENCE: u32 = 2000;
/// As many looks are made in any case, since threads may be about to enter translated code.
const GRACE: u32 = 10;
/// Microseconds between two looks.
const PAUSE: u64 = 500;

/// Bytes of the helper's stack.
const STACK: u64 = 64 << 10;

/// Called when `t` is about to die of a signal. Returns whether the other threads were told. Does
/// not return if another thread was first.
pub fn begin(t: &mut Thread, signo: u32) -> bool {
    // If the memory is shared with another process, its list of threads does not say who dies.
    let alone = threads::is_alone() || t.task.borrows || threads::lends();
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

/// Keeps the thread, which stands between two instructions of the program, there for ever.
pub fn rest(t: &mut Thread) -> ! {
    sys::set_signal_mask(!0);
    t.publish();
    t.code.leave();
    t.inbox.resting.store(true, Release);
    loop {
        sys::pause();
    }
}

/// What the dying thread and the helper tell each other.
struct Job {
    others: Vec<Other>,
    /// 1 when all that can be done has been done.
    done: AtomicU32,
}

/// Makes the kernel find the program's registers in the other threads. Called after [`begin`], with
/// all signals blocked.
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
    // Never freed: nobody can ask the dead whether they still use it.
    let job: *mut Job = alloc::boxed::Box::into_raw(alloc::boxed::Box::new(job));
    // SAFETY: the box was leaked just now. From here on there are only shared references to it.
    let shared = unsafe { &*job };
    if start_helper(job) {
        let waits = (0..PATIENCE).take_while(|_| shared.done.load(Acquire) == 0);
        waits.for_each(|_| sys::sleep_us(PAUSE));
    }
}

/// Starts a process in this memory that may trace this one. False if that fails.
fn start_helper(job: *mut Job) -> bool {
    let prot = PROT_READ | PROT_WRITE;
    let Ok(stack) = arena::map(STACK, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) else {
        return false;
    };
    // No signal tells anybody of its end.
    let flags = (CLONE_VM | CLONE_FS | CLONE_FILES) as u64;
    let six = [flags, stack + STACK, 0, 0, 0, 0];
    // SAFETY: the stack is fresh memory that nothing else uses, and `job` is never freed.
    let ret = unsafe { sys::raw_clone(__NR_clone, six, help, job) };
    let Ok(pid) = sys::result(ret) else {
        return false;
    };
    sys::allow_tracer(pid);
    true
}

/// The helper's main function. The threads that it holds may own locks of the recorder. So it takes
/// no lock and allocates nothing.
extern "C" fn help(job: *mut Job) -> ! {
    // SAFETY: `prepare` leaked it, and there are only shared references to it.
    let job = unsafe { &*job };
    for o in &job.others {
        if let Some(stopped) = Stopped::new(o) {
            stopped.show();
        }
    }
    job.done.store(1, Release);
    // Waits until the last of them has ended.
    while sys::wait_any().is_ok() {}
    sys::exit_group(0)
}

/// A thread that the helper has stopped.
struct Stopped<'a>(&'a Other);

// Indices in `struct user_regs_struct`.
const RAX: usize = USER[regs::RAX];
const RCX: usize = USER[regs::RCX];
const R11: usize = USER[regs::R11];
const ORIGINAL_RAX: usize = 15;
const RIP: usize = 16;
const FLAGS: usize = 18;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;

impl Stopped<'_> {
    fn new(o: &Other) -> Option<Stopped<'_>> {
        const SEIZE: u32 = 0x4206;
        const INTERRUPT: u32 = 0x4207;
        /// If the helper dies, the thread dies too. It must not go on with registers that the
        /// recorder does not know.
        const EXITKILL: u64 = 0x10_0000;
        let tid = o.tid;
        // The permission to trace may not have been given yet.
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

    /// Gives it the program's registers, if it stands at a place where they are known.
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
        // SAFETY: context blocks are never unmapped, and this one's owner is stopped.
        let ctx = unsafe { &*self.0.ctx };
        // As the kernel shows a thread while its system call lasts.
        let (answer, number) = (regs[RAX], regs[ORIGINAL_RAX]);
        for (i, at) in USER.iter().enumerate() {
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
        /// Has room for components that the program does not use.
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
