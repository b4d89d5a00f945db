//! The bare processor: loads a state, runs code at its own address, and catches how it ends.

use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::xsave::{AREA_LEN, Area, COMPONENTS, Layout};
use hindsight_isa::{CpuState, VecState};
use std::cell::UnsafeCell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ARCH_SET_GS: i32 = 0x1001;

/// A signal that ended a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trap {
    /// Signal number.
    pub signo: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`.
    pub addr: u64,
    /// Address of the instruction that raised it.
    pub pc: u64,
}

/// What the signal handler saved.
#[derive(Clone)]
pub struct Caught {
    /// How it ended.
    pub trap: Trap,
    /// General purpose registers, in hardware order.
    pub gpr: [u64; 16],
    /// RFLAGS.
    pub rflags: u64,
    area: Area,
}

struct Shared(UnsafeCell<Option<Box<Caught>>>);
// SAFETY: only the harness's one thread uses it.
unsafe impl Sync for Shared {}

static CAUGHT: Shared = Shared(UnsafeCell::new(None));
static HOST_RSP: AtomicU64 = AtomicU64::new(0);
static TARGET: AtomicU64 = AtomicU64::new(0);
/// Where the handler continues. 0 while no test code runs.
static CONTINUE: AtomicU64 = AtomicU64::new(0);
/// Number of the current case's first encoding, for the watchdog's message.
pub static CODE: AtomicU64 = AtomicU64::new(0);
/// Seed of the current case, for the watchdog's message.
pub static CASE: AtomicU64 = AtomicU64::new(0);

std::arch::global_asm!(
    ".globl hindsight_difftest_native, hindsight_difftest_native_exit",
    // void native(Area *rdi, u64 *rsi): rsi points to 16 registers and the flags.
    "hindsight_difftest_native:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 24",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov [rip + {rsp_at}], rsp",
    "mov eax, {mask}",
    "xor edx, edx",
    "xrstor64 [rdi]",
    "push qword ptr [rsi + 128]",
    "popfq",
    "mov rax, [rsi]",
    "mov rcx, [rsi + 8]",
    "mov rdx, [rsi + 16]",
    "mov rbx, [rsi + 24]",
    "mov rsp, [rsi + 32]",
    "mov rbp, [rsi + 40]",
    "mov rdi, [rsi + 56]",
    "mov r8, [rsi + 64]",
    "mov r9, [rsi + 72]",
    "mov r10, [rsi + 80]",
    "mov r11, [rsi + 88]",
    "mov r12, [rsi + 96]",
    "mov r13, [rsi + 104]",
    "mov r14, [rsi + 112]",
    "mov r15, [rsi + 120]",
    "mov rsi, [rsi + 48]",
    "jmp qword ptr [rip + {target}]",
    "hindsight_difftest_native_exit:",
    "mov rsp, [rip + {rsp_at}]",
    "fninit",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "vzeroupper",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // The kernel leaves the alignment check flag as the interrupted code had it.
    ".globl hindsight_difftest_handler",
    "hindsight_difftest_handler:",
    "push 0x202",
    "popfq",
    "jmp {handler}",
    rsp_at = sym HOST_RSP,
    target = sym TARGET,
    mask = const COMPONENTS,
    handler = sym handler,
);

unsafe extern "C" {
    fn hindsight_difftest_native(area: *const Area, regs: *const u64);
    fn hindsight_difftest_native_exit();
    fn hindsight_difftest_handler();
}

const ORDER: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn handler(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers. Execution continues at code that restores all that
    // test code may have changed.
    unsafe {
        let uc = &mut *context.cast::<libc::ucontext_t>();
        let regs = &mut uc.uc_mcontext.gregs;
        let pc = regs[libc::REG_RIP as usize] as u64;
        let addr = (*info).si_addr() as u64;
        if let Some(exit) = crate::guard::redirect(pc) {
            regs[libc::REG_RIP as usize] = exit as i64;
            regs[libc::REG_RDX as usize] = addr as i64;
            regs[libc::REG_RCX as usize] = (signo as u64 | ((*info).si_code as u64) << 32) as i64;
            return;
        }
        let next = CONTINUE.load(Relaxed);
        if next == 0 || signo == libc::SIGPROF {
            let seed = CASE.load(Relaxed);
            let what = CODE.load(Relaxed);
            // Not `eprintln`: the test runner keeps what that prints, and loses it in the abort.
            let _ = writeln!(
                std::io::stderr(),
                "signal {signo} at {pc:#x} (address {addr:#x}), encoding {what}, seed {seed:#x}"
            );
            libc::abort();
        }
        let caught = (*CAUGHT.0.get()).get_or_insert_with(|| {
            Box::new(Caught {
                trap: Trap::default(),
                gpr: [0; 16],
                rflags: 0,
                area: Area::default(),
            })
        });
        caught.trap = Trap {
            signo,
            code: (*info).si_code,
            addr,
            pc,
        };
        for (to, from) in caught.gpr.iter_mut().zip(ORDER) {
            *to = regs[from as usize] as u64;
        }
        caught.rflags = regs[libc::REG_EFL as usize] as u64;
        let fp = uc.uc_mcontext.fpregs.cast::<u8>();
        // The kernel's own words behind the legacy area say how long the frame is.
        let len = fp.add(464 + 16).cast::<u32>().read_unaligned() as usize;
        caught.area.0.fill(0);
        let n = len.min(AREA_LEN);
        std::ptr::copy_nonoverlapping(fp, caught.area.0.as_mut_ptr(), n);
        regs[libc::REG_RIP as usize] = next as i64;
        regs[libc::REG_EFL as usize] = 0x202;
    }
}

/// Installs the signal handler for the calling thread.
pub fn install() {
    // SAFETY: plain system calls. The stack is never freed.
    unsafe {
        let size = 256 << 10;
        let stack = Box::leak(vec![0u8; size].into_boxed_slice());
        let ss = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: size,
        };
        assert_eq!(libc::sigaltstack(&ss, std::ptr::null_mut()), 0);
        let mut sa: libc::sigaction = std::mem::zeroed();
        sa.sa_sigaction = hindsight_difftest_handler as *const () as usize;
        sa.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        for s in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGPROF,
        ] {
            assert_eq!(libc::sigaction(s, &sa, std::ptr::null_mut()), 0);
        }
    }
}

/// Lets the process die with a message once it has used so many seconds of the processor. 0: never.
/// The time on the clock does not count: a machine that stands still for a while is no fault.
pub fn watchdog(seconds: u32) {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let timer = libc::itimerval {
        it_interval: zero,
        it_value: libc::timeval {
            tv_sec: seconds.into(),
            ..zero
        },
    };
    // SAFETY: a plain system call. It reads `timer` alone.
    let r = unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) };
    assert_eq!(r, 0);
}

/// Sets the GS base of this thread.
pub fn set_gs(base: u64) {
    // SAFETY: only the code under test uses GS in this process.
    let r = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) };
    assert_eq!(r, 0);
}

/// The FS base of this thread.
pub fn fs_base() -> u64 {
    let v;
    // SAFETY: the first word of the thread control block is its own address (x86-64 psABI).
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) v, options(nostack, readonly)) };
    v
}

/// Runs `f`. A signal in it continues at host address `next`. Returns what was caught, if anything.
///
/// # Safety
/// `next` restores what the code under test has changed, and returns from `f`.
pub unsafe fn catching(next: u64, f: impl FnOnce()) -> Option<Caught> {
    // SAFETY: the harness has one thread, and the handler runs only within `f`.
    unsafe {
        let c = CAUGHT.0.get();
        if let Some(c) = (*c).as_mut() {
            c.trap.signo = 0;
        }
        CONTINUE.store(next, Relaxed);
        f();
        CONTINUE.store(0, Relaxed);
        (*c).as_ref()
            .filter(|c| c.trap.signo != 0)
            .map(|c| (**c).clone())
    }
}

/// Runs the code at `cpu.rip` until it raises a signal. Returns the signal, and the registers as
/// they then are.
pub fn run(cpu: &CpuState, vec: &VecState, layout: &Layout) -> (Trap, CpuState, VecState) {
    let mut area = Area::default();
    layout.from_state(vec, &mut area);
    let mut regs = [0; 17];
    regs[..16].copy_from_slice(&cpu.gpr);
    regs[16] = cpu.rflags | 0x202;
    TARGET.store(cpu.rip, Relaxed);
    set_gs(cpu.gs_base);
    let exit = hindsight_difftest_native_exit as *const () as u64;
    // SAFETY: the code ends in a breakpoint. The exit restores all state that the callee must
    // preserve, and vector registers are declared as clobbered.
    let caught = unsafe {
        catching(exit, || {
            std::arch::asm!("call {f}", f = sym hindsight_difftest_native, in("rdi") &area,
                in("rsi") regs.as_ptr(), clobber_abi("C"))
        })
    };
    let c = caught.expect("native code ends with a signal");
    let state = CpuState {
        gpr: c.gpr,
        rip: c.trap.pc,
        rflags: c.rflags & RFLAGS_MASK,
        fs_base: cpu.fs_base,
        gs_base: cpu.gs_base,
    };
    (c.trap, state, layout.to_state(&c.area))
}
