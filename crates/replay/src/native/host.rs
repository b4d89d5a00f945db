//! What translated code needs of the host thread that runs it: a GS base, a signal stack, and a handler that
//! turns faults of translated code into an ordinary exit.

use crate::Error;
use crate::window::Window;
use hindsight_isa::Ctx;
use hindsight_isa::ctx::{APART, d};
use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::ThreadId;

const SIGNALS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];
/// Bytes of the signal stack. A frame with AVX-512 state takes less than 4 KiB. The rest is for making pages
/// ([`crate::lines::PageSource`]).
pub const STACK: usize = 256 << 10;
/// A signal stack is used from its top on, whatever the stack pointer is: `SS_AUTODISARM`, since Linux 4.7.
const SS_AUTODISARM: libc::c_int = 1 << 31;
/// `SEGV_ACCERR`: the access was to a mapping that forbids it.
const FORBIDDEN: libc::c_int = 2;
const ARCH_SET_GS: libc::c_int = 0x1001;
const ARCH_SET_FS: libc::c_int = 0x1002;
const ARCH_GET_FS: libc::c_int = 0x1003;
const ARCH_GET_GS: libc::c_int = 0x1004;

/// A fault in translated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub signal: i32,
    /// Host address of the instruction that faulted.
    pub host_pc: u64,
    /// Host address that it accessed, if the signal reports one.
    pub address: u64,
}

/// What the signal handler knows about the code that its thread runs.
struct Running {
    start: Cell<u64>,
    end: Cell<u64>,
    fault: Cell<Option<Fault>>,
}

thread_local! {
    // It has no destructor and a constant initial value, so a signal handler may use it.
    static RUNNING: Running = const {
        Running { start: Cell::new(0), end: Cell::new(0), fault: Cell::new(None) }
    };
}

static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

/// Whether user mode may use `rdgsbase` and its relatives. For the handler.
static UNPRIVILEGED: AtomicBool = AtomicBool::new(false);

// The kernel leaves the alignment check flag and the FS base as translated code set them. A thread that runs
// translated code has a GS base. Its own FS base is in the context block. Code that goes on gets its FS base back.
std::arch::global_asm!(
    ".globl hindsight_replay_handler",
    "hindsight_replay_handler:",
    "push 0x202",
    "popfq",
    "cmp byte ptr [rip + {unprivileged}], 0",
    "je 2f",
    "rdgsbase rax",
    "test rax, rax",
    "jz {handler}",
    "rdfsbase rax",
    "push rax",
    "mov rax, gs:[{fs}]",
    "wrfsbase rax",
    "call {handler}",
    "pop rcx",
    "test al, al",
    "jz 3f",
    "wrfsbase rcx",
    "3:",
    "ret",
    // Without these instructions, through arch_prctl.
    "2:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push 0",
    "mov edi, {get_gs}",
    "mov rsi, rsp",
    "mov eax, {arch_prctl}",
    "syscall",
    "cmp qword ptr [rsp], 0",
    "jz 4f",
    "mov edi, {get_fs}",
    "mov rsi, rsp",
    "mov eax, {arch_prctl}",
    "syscall",
    "mov edi, {set_fs}",
    "mov rsi, gs:[{fs}]",
    "mov eax, {arch_prctl}",
    "syscall",
    "pop rax",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "push rax",
    "call {handler}",
    "pop rsi",
    "test al, al",
    "jz 3b",
    "mov edi, {set_fs}",
    "mov eax, {arch_prctl}",
    "syscall",
    "ret",
    "4:",
    "pop rax",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp {handler}",
    unprivileged = sym UNPRIVILEGED,
    fs = const d::RUNTIME,
    get_fs = const ARCH_GET_FS,
    get_gs = const ARCH_GET_GS,
    set_fs = const ARCH_SET_FS,
    arch_prctl = const libc::SYS_arch_prctl,
    handler = sym handler,
);

unsafe extern "C" {
    safe fn hindsight_replay_handler(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    );
}

/// The trap flag.
const TF: i64 = 0x100;

/// Returns whether translated code goes on where it was.
extern "C" fn handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    // SAFETY: the kernel passes valid pointers; the context is a ucontext_t.
    let (pc, address, code) = unsafe {
        let regs = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        (
            regs[libc::REG_RIP as usize] as u64,
            (*info).si_addr() as u64,
            (*info).si_code,
        )
    };
    // Without that, the stack may be too small to make a page.
    let prepared = RUNNING.with(|r| r.end.get() != 0);
    let forbidden = signal == libc::SIGSEGV && code == FORBIDDEN;
    if forbidden && prepared && crate::window::touched(address) {
        return true;
    }
    let inside = RUNNING.with(|r| (r.start.get()..r.end.get()).contains(&pc))
        || hindsight_glue::in_search(pc);
    // If translated code sets the trap flag, single steps continue in the trampoline.
    let leaving = signal == libc::SIGTRAP && hindsight_glue::contains(pc);
    if inside || leaving {
        RUNNING.with(|r| {
            r.fault.set(Some(Fault {
                signal,
                host_pc: pc,
                address,
            }))
        });
        // SAFETY: translated code may be left anywhere through the exit trampoline, which stores the guest's
        // registers unchanged.
        unsafe {
            let regs = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            regs[libc::REG_EFL as usize] &= !TF;
            if inside {
                regs[libc::REG_RIP as usize] = hindsight_glue::exit_address() as i64;
            }
        }
        return false;
    }
    let index = SIGNALS.iter().position(|s| *s == signal);
    let previous = index.and_then(|i| PREVIOUS.get().map(|p| &p[i]));
    // SAFETY: the previous handler is called as the kernel would call it. If there was none, the signal gets
    // its old disposition, and the faulting instruction raises it again.
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
    false
}

fn install() {
    PREVIOUS.get_or_init(|| {
        UNPRIVILEGED.store(fsgsbase(), Relaxed);
        SIGNALS.map(|signal| {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: a zeroed sigaction is valid. The handler takes locks and memory only to make a page that waits. Only an
            // access to its cells leads there, and whoever accesses cells without asking before holds no lock.
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

/// The upper halves of ymm0 to ymm15, while other code may use them.
pub struct UpperHalves {
    kept: Box<[u8; 256]>,
    /// The processor has them, and the system has enabled them.
    there: bool,
}

impl UpperHalves {
    /// Those of this machine.
    pub fn new() -> UpperHalves {
        const {
            assert!(
                !cfg!(target_feature = "avx"),
                "the compiler must know the lower halves only"
            );
        }
        let kept = Box::new([0; 256]);
        let there = is_x86_feature_detected!("avx");
        UpperHalves { kept, there }
    }

    /// Keeps them.
    #[inline(always)]
    pub fn save(&mut self) {
        if self.there {
            // SAFETY: `new` has found AVX, and the memory has 16 bytes for each of the registers.
            unsafe {
                std::arch::asm!(
                "vextractf128 [{at} + 0], ymm0, 1",
                "vextractf128 [{at} + 16], ymm1, 1",
                "vextractf128 [{at} + 32], ymm2, 1",
                "vextractf128 [{at} + 48], ymm3, 1",
                "vextractf128 [{at} + 64], ymm4, 1",
                "vextractf128 [{at} + 80], ymm5, 1",
                "vextractf128 [{at} + 96], ymm6, 1",
                "vextractf128 [{at} + 112], ymm7, 1",
                "vextractf128 [{at} + 128], ymm8, 1",
                "vextractf128 [{at} + 144], ymm9, 1",
                "vextractf128 [{at} + 160], ymm10, 1",
                "vextractf128 [{at} + 176], ymm11, 1",
                "vextractf128 [{at} + 192], ymm12, 1",
                "vextractf128 [{at} + 208], ymm13, 1",
                "vextractf128 [{at} + 224], ymm14, 1",
                "vextractf128 [{at} + 240], ymm15, 1",
                    at = in(reg) self.kept.as_mut_ptr(),
                    options(nostack, preserves_flags),
                );
            }
        }
    }

    /// Puts them back. The lower halves, which are all that the compiler knows, stay as they are.
    #[inline(always)]
    pub fn restore(&self) {
        if self.there {
            // SAFETY: as above. `new` asserts that the compiler uses no upper half.
            unsafe {
                std::arch::asm!(
                "vinsertf128 ymm0, ymm0, [{at} + 0], 1",
                "vinsertf128 ymm1, ymm1, [{at} + 16], 1",
                "vinsertf128 ymm2, ymm2, [{at} + 32], 1",
                "vinsertf128 ymm3, ymm3, [{at} + 48], 1",
                "vinsertf128 ymm4, ymm4, [{at} + 64], 1",
                "vinsertf128 ymm5, ymm5, [{at} + 80], 1",
                "vinsertf128 ymm6, ymm6, [{at} + 96], 1",
                "vinsertf128 ymm7, ymm7, [{at} + 112], 1",
                "vinsertf128 ymm8, ymm8, [{at} + 128], 1",
                "vinsertf128 ymm9, ymm9, [{at} + 144], 1",
                "vinsertf128 ymm10, ymm10, [{at} + 160], 1",
                "vinsertf128 ymm11, ymm11, [{at} + 176], 1",
                "vinsertf128 ymm12, ymm12, [{at} + 192], 1",
                "vinsertf128 ymm13, ymm13, [{at} + 208], 1",
                "vinsertf128 ymm14, ymm14, [{at} + 224], 1",
                "vinsertf128 ymm15, ymm15, [{at} + 240], 1",
                    at = in(reg) self.kept.as_ptr(),
                    options(nostack, readonly, preserves_flags),
                );
            }
        }
    }
}

/// Memory for the signal stack of the thread that runs a machine.
pub struct SignalStack(Box<[u8]>);

impl SignalStack {
    pub fn new() -> SignalStack {
        SignalStack(vec![0; STACK].into_boxed_slice())
    }
}

/// While this exists, its thread may run translated code of one cache with one window.
///
/// All signals that a program can send are blocked meanwhile. Their handlers might run on the guest's stack
/// pointer, which is an arbitrary number here.
pub struct Prepared {
    gs: u64,
    fs: u64,
    unprivileged: bool,
    mask: libc::sigset_t,
    stack: libc::stack_t,
    /// The translation cache for which this thread was prepared before. It is restored on drop.
    outer: (u64, u64),
}

impl Prepared {
    pub fn new(
        window: &mut Window,
        cache: std::ops::Range<u64>,
        stack: &mut SignalStack,
    ) -> Result<Prepared, Error> {
        install();
        let ss = libc::stack_t {
            ss_sp: stack.0.as_mut_ptr().cast(),
            // The kernel otherwise takes a stack pointer of the program, which may be any number, for one on this stack.
            ss_flags: SS_AUTODISARM,
            ss_size: STACK,
        };
        let unprivileged = UNPRIVILEGED.load(Relaxed);
        let mut p = Prepared {
            outer: RUNNING.with(|r| (r.start.get(), r.end.get())),
            gs: 0,
            fs: base(SegmentRegister::Fs, unprivileged),
            unprivileged,
            // SAFETY: both consist of plain integers and pointers, for which zero is valid.
            mask: unsafe { MaybeUninit::zeroed().assume_init() },
            // SAFETY: as above.
            stack: unsafe { MaybeUninit::zeroed().assume_init() },
        };
        // SAFETY: the sets and stacks outlive the calls. The machine that owns the signal stack keeps it
        // while it uses `Prepared`. The GS base may point to the window's memory.
        unsafe {
            let mut block = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigfillset(&mut block);
            SIGNALS.iter().for_each(|s| {
                libc::sigdelset(&mut block, *s);
            });
            let old = libc::stack_t { ss_flags: 0, ..ss };
            if libc::sigaltstack(&ss, &mut p.stack) != 0
                && libc::sigaltstack(&old, &mut p.stack) != 0
            {
                return Err(Error::last_os("cannot set the signal stack"));
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &block, &mut p.mask);
            p.gs = base(SegmentRegister::Gs, unprivileged);
            window.ctx_mut().runtime = p.fs;
            set_gs(window.base() + APART as u64, unprivileged);
        }
        RUNNING.with(|r| {
            r.start.set(cache.start);
            r.end.set(cache.end);
            r.fault.set(None);
        });
        Ok(p)
    }

    /// Runs translated code that sets access marks. The marks of reads begin at `marks`.
    ///
    /// # Safety
    /// As for [`hindsight_glue::enter`].
    #[inline(always)]
    pub unsafe fn enter_marking(&self, ctx: *mut Ctx, marks: u64) {
        // SAFETY: `fs` is the FS base of the thread that was prepared. A machine stays in one thread while
        // this exists, so it is this thread's.
        unsafe { hindsight_glue::enter_marking(ctx, marks, self.fs, self.unprivileged) }
    }

    /// The fault that ended the last run of translated code, if any.
    #[inline(always)]
    pub fn take_fault(&self) -> Option<Fault> {
        RUNNING.with(|r| r.fault.take())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        RUNNING.with(|r| {
            r.start.set(self.outer.0);
            r.end.set(self.outer.1);
        });
        // SAFETY: restores the previous values.
        unsafe {
            set_gs(self.gs, self.unprivileged);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut());
            libc::sigaltstack(&self.stack, null_mut());
        }
    }
}

/// A thread that stays prepared. In another thread it is useless, and dropping it there undoes nothing.
pub struct Held {
    host: ManuallyDrop<Prepared>,
    thread: ThreadId,
}

// SAFETY: the content is used and dropped only in the thread that made it.
unsafe impl Send for Held {}

impl Held {
    pub fn new(host: Prepared) -> Held {
        Held {
            host: ManuallyDrop::new(host),
            thread: std::thread::current().id(),
        }
    }

    /// The prepared thread, if called in the thread that made it.
    pub fn get(&self) -> Option<&Prepared> {
        (self.thread == std::thread::current().id()).then_some(&self.host)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let here = self.get().is_some();
        debug_assert!(here, "this thread stays prepared, and another one does not");
        if here {
            // SAFETY: nobody uses it any more.
            unsafe { ManuallyDrop::drop(&mut self.host) }
        }
    }
}

/// Whether user mode may use `rdgsbase` and its relatives.
fn fsgsbase() -> bool {
    // SAFETY: the call only returns a value.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}

#[derive(Clone, Copy)]
enum SegmentRegister {
    Fs,
    Gs,
}

/// A segment base of this thread. `unprivileged` is the result of [`fsgsbase`].
fn base(of: SegmentRegister, unprivileged: bool) -> u64 {
    let mut base = 0u64;
    // SAFETY: only reads the base. The instructions are used only where they are enabled.
    unsafe {
        match (of, unprivileged) {
            (SegmentRegister::Fs, true) => {
                std::arch::asm!("rdfsbase {}", out(reg) base, options(nostack, nomem, preserves_flags));
            }
            (SegmentRegister::Gs, true) => {
                std::arch::asm!("rdgsbase {}", out(reg) base, options(nostack, nomem, preserves_flags));
            }
            (SegmentRegister::Fs, false) => {
                libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &mut base);
            }
            (SegmentRegister::Gs, false) => {
                libc::syscall(libc::SYS_arch_prctl, ARCH_GET_GS, &mut base);
            }
        }
    }
    base
}

/// # Safety
/// Nothing in this thread relies on GS.
unsafe fn set_gs(base: u64, unprivileged: bool) {
    // SAFETY: see `base`.
    unsafe {
        if unprivileged {
            std::arch::asm!("wrgsbase {}", in(reg) base, options(nostack, nomem, preserves_flags));
        } else {
            libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base);
        }
    }
}

/// Control words of the host thread's floating-point units.
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

    /// Sets the x87 unit and the control words to the state that compiled code expects.
    pub fn restore(&self, avx: bool) {
        // SAFETY: the x87 and vector registers are declared as clobbered. `avx` says that vzeroupper exists.
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

#[cfg(test)]
mod tests {
    use super::super::executable::Executable;
    use super::*;
    use hindsight_isa::Predictor;

    thread_local! {
        static MINE: Cell<u32> = const { Cell::new(0) };
    }

    /// The thread has its own FS base again after translated code ran, even after a fault. Tests both
    /// `wrfsbase` and the system call.
    #[test]
    fn the_fs_base_is_the_threads_own_again() {
        let mut code = Executable::new(4096).unwrap();
        code.put(0, &[0x0f, 0x0b]);
        let faulty = code.base();
        let mut window = Window::new(Predictor { bits: 16 }).unwrap();
        let mut stack = SignalStack::new();
        install();
        for unprivileged in [fsgsbase(), false] {
            UNPRIVILEGED.store(unprivileged, Relaxed);
            MINE.set(7);
            let host = Prepared::new(&mut window, faulty..faulty + 2, &mut stack).unwrap();
            assert_eq!(
                (host.fs, host.unprivileged),
                (base(SegmentRegister::Fs, false), unprivileged)
            );
            for (entry, signal) in [
                (hindsight_glue::exit_address(), None),
                (faulty, Some(libc::SIGILL)),
            ] {
                let marks = window.base();
                let ctx = window.ctx_mut();
                ctx.resume = entry;
                // SAFETY: the context belongs to the prepared window, and the entered code leaves at once.
                unsafe { host.enter_marking(ctx, marks) };
                assert_eq!(base(SegmentRegister::Fs, false), host.fs);
                assert_eq!(host.take_fault().map(|f| f.signal), signal);
                assert_eq!(MINE.get(), 7);
            }
        }
        UNPRIVILEGED.store(fsgsbase(), Relaxed);
    }
}
