//! What running translated code asks of the host thread: its GS base, a signal stack, and a
//! handler that turns faults of translated code into an ordinary exit.

use crate::Error;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

const SIGNALS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];
/// Bytes of the signal stack; a frame with AVX-512 state takes less than four kilobytes.
const STACK: usize = 64 << 10;
const ARCH_SET_GS: libc::c_int = 0x1001;
const ARCH_GET_GS: libc::c_int = 0x1003;

/// A fault of translated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub signal: i32,
    /// Host address of the instruction.
    pub host_pc: u64,
    /// Host address that it accessed, where the signal has one.
    pub address: u64,
}

/// What the handler knows about the code its thread runs.
struct Running {
    start: Cell<u64>,
    end: Cell<u64>,
    fault: Cell<Option<Fault>>,
}

thread_local! {
    // Without destructor and with a constant initial value, so that a signal handler may use it.
    static RUNNING: Running = const {
        Running { start: Cell::new(0), end: Cell::new(0), fault: Cell::new(None) }
    };
}

static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

// The kernel leaves the alignment check flag as translated code may have set it.
std::arch::global_asm!(
    ".globl hindsight_replay_handler",
    "hindsight_replay_handler:",
    "push 0x202",
    "popfq",
    "jmp {handler}",
    handler = sym handler,
);

unsafe extern "C" {
    safe fn hindsight_replay_handler(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    );
}

/// Trap flag.
const TF: i64 = 0x100;

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers; the context is a ucontext_t.
    let (pc, address) = unsafe {
        let regs = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        (
            regs[libc::REG_RIP as usize] as u64,
            (*info).si_addr() as u64,
        )
    };
    let inside = RUNNING.with(|r| (r.start.get()..r.end.get()).contains(&pc))
        || hindsight_glue::in_search(pc);
    // Single steps go on in the trampoline when translated code has set the trap flag.
    let leaving = signal == libc::SIGTRAP && hindsight_glue::contains(pc);
    if inside || leaving {
        RUNNING.with(|r| {
            r.fault.set(Some(Fault {
                signal,
                host_pc: pc,
                address,
            }))
        });
        // SAFETY: translated code may be left anywhere through the exit trampoline, which
        // stores the guest's registers as they are.
        unsafe {
            let regs = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            regs[libc::REG_EFL as usize] &= !TF;
            if inside {
                regs[libc::REG_RIP as usize] = hindsight_glue::exit_address() as i64;
            }
        }
        return;
    }
    let index = SIGNALS.iter().position(|s| *s == signal);
    let previous = index.and_then(|i| PREVIOUS.get().map(|p| &p[i]));
    // SAFETY: the previous handler is called as the kernel would call it; without one the signal
    // gets its old disposition, and the faulting instruction raises it again.
    unsafe {
        match previous {
            Some(p) if p.sa_sigaction == libc::SIG_DFL || p.sa_sigaction == libc::SIG_IGN => {
                libc::sigaction(signal, p, null_mut());
            }
            Some(p) if p.sa_flags & libc::SA_SIGINFO != 0 => {
                let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(p.sa_sigaction);
                f(signal, info, context);
            }
            Some(p) => {
                let f: extern "C" fn(libc::c_int) = std::mem::transmute(p.sa_sigaction);
                f(signal);
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

fn install() {
    PREVIOUS.get_or_init(|| {
        SIGNALS.map(|signal| {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: a zeroed sigaction is valid; the handler is async-signal-safe.
            unsafe {
                let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                new.sa_sigaction = hindsight_replay_handler as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigfillset(&mut new.sa_mask);
                libc::sigaction(signal, &new, old.as_mut_ptr());
                old.assume_init()
            }
        })
    });
}

/// Memory for the signal stack of whichever thread runs a machine.
pub struct SignalStack(Box<[u8]>);

impl SignalStack {
    pub fn new() -> SignalStack {
        SignalStack(vec![0; STACK].into_boxed_slice())
    }
}

/// While it exists, this thread may run translated code from one cache over one window.
///
/// All signals that a program can send are blocked meanwhile: their handlers might run on the
/// guest's stack pointer, which is an arbitrary number here.
pub struct Prepared {
    gs: u64,
    mask: libc::sigset_t,
    stack: libc::stack_t,
}

impl Prepared {
    pub fn new(
        gs_base: u64,
        cache: std::ops::Range<u64>,
        stack: &mut SignalStack,
    ) -> Result<Prepared, Error> {
        install();
        let ss = libc::stack_t {
            ss_sp: stack.0.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        let mut p = Prepared {
            gs: 0,
            // SAFETY: both are plain integers and pointers.
            mask: unsafe { MaybeUninit::zeroed().assume_init() },
            // SAFETY: as above.
            stack: unsafe { MaybeUninit::zeroed().assume_init() },
        };
        // SAFETY: the sets and stacks outlive the calls, and the stack outlives `Prepared`'s use
        // by the machine that owns it. The window is memory that `gs_base` may point to.
        unsafe {
            let mut block = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigfillset(&mut block);
            SIGNALS.iter().for_each(|s| {
                libc::sigdelset(&mut block, *s);
            });
            if libc::sigaltstack(&ss, &mut p.stack) != 0 {
                return Err(Error::last_os("cannot set the signal stack"));
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &block, &mut p.mask);
            p.gs = get_gs();
            set_gs(gs_base);
        }
        RUNNING.with(|r| {
            r.start.set(cache.start);
            r.end.set(cache.end);
            r.fault.set(None);
        });
        Ok(p)
    }

    /// The fault that ended the last run of translated code, if one did.
    #[inline(always)]
    pub fn take_fault(&self) -> Option<Fault> {
        RUNNING.with(|r| r.fault.take())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        RUNNING.with(|r| r.end.set(0));
        // SAFETY: restores what was there before.
        unsafe {
            set_gs(self.gs);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut());
            libc::sigaltstack(&self.stack, null_mut());
        }
    }
}

/// Whether user mode may use `rdgsbase` and `wrgsbase`.
fn fsgsbase() -> bool {
    // SAFETY: a plain query.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}

fn get_gs() -> u64 {
    let mut base = 0u64;
    // SAFETY: reads the base; the kernel has enabled the instruction if AT_HWCAP2 says so.
    unsafe {
        if fsgsbase() {
            std::arch::asm!("rdgsbase {}", out(reg) base, options(nostack, nomem, preserves_flags));
        } else {
            libc::syscall(libc::SYS_arch_prctl, ARCH_GET_GS, &mut base);
        }
    }
    base
}

/// # Safety
/// Nothing on this thread relies on GS.
unsafe fn set_gs(base: u64) {
    // SAFETY: see `get_gs`.
    unsafe {
        if fsgsbase() {
            std::arch::asm!("wrgsbase {}", in(reg) base, options(nostack, nomem, preserves_flags));
        } else {
            libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base);
        }
    }
}

/// Control words of the host thread's floating point units.
pub struct HostFloat {
    mxcsr: u32,
    fcw: u16,
}

impl HostFloat {
    pub fn save() -> HostFloat {
        let mut h = HostFloat { mxcsr: 0, fcw: 0 };
        // SAFETY: stores two control words.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{}]",
                "fnstcw [{}]",
                in(reg) &mut h.mxcsr,
                in(reg) &mut h.fcw,
                options(nostack, preserves_flags),
            );
        }
        h
    }

    /// Gives the x87 unit and the control words the state that compiled code expects.
    pub fn restore(&self, avx: bool) {
        // SAFETY: the x87 and vector registers are declared clobbered; `avx` says that vzeroupper exists.
        unsafe {
            std::arch::asm!(
                "fninit",
                "ldmxcsr [{}]",
                "fldcw [{}]",
                in(reg) &self.mxcsr,
                in(reg) &self.fcw,
                options(nostack, readonly),
            );
            if avx {
                std::arch::asm!("vzeroupper", clobber_abi("C"), options(nostack, nomem));
            }
        }
    }
}
