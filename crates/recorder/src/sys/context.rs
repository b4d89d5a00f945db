//! The kernel's signal context, as it is on a stack.

use hindsight_isa::CpuState;
use hindsight_isa::regs::{self, SIGCONTEXT};
use hindsight_isa::state::RFLAGS_MASK;

/// Index of r8 in [`Context::regs`], as the following ones are of others.
pub const R8: usize = SIGCONTEXT[regs::R8];
/// Index of r11.
pub const R11: usize = SIGCONTEXT[regs::R11];
/// Index of rdx.
pub const RDX: usize = SIGCONTEXT[regs::RDX];
/// Index of rcx.
pub const RCX: usize = SIGCONTEXT[regs::RCX];
/// Index of rsp.
pub const RSP: usize = SIGCONTEXT[regs::RSP];
/// Index of rip.
pub const RIP: usize = 16;
/// Index of the flags.
pub const EFLAGS: usize = 17;
const SEGMENTS: usize = 18;
/// Index of an exception's error code.
pub const ERROR: usize = 19;
/// Index of an exception's number.
pub const TRAPNO: usize = 20;
/// Index of the address of a page fault.
pub const CR2: usize = 22;

/// The trap flag in [`EFLAGS`].
pub const TF: u64 = 0x100;
/// The interrupt flag and the bit that is always set, as programs see them.
pub const FLAGS_FIXED: u64 = 0x202;

/// `struct ucontext` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Context {
    /// What the context has: see the kernel's `UC_` flags.
    pub flags: u64,
    /// Not used by the kernel.
    pub link: u64,
    /// Alternate stack: start, flags, size.
    pub stack: [u64; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, segments, error code, trap
    /// number, old mask, cr2.
    pub regs: [u64; 23],
    /// Address of the XSAVE area.
    pub fpstate: u64,
    /// Not used by the kernel.
    pub reserved: [u64; 8],
    /// Mask of the blocked signals.
    pub mask: u64,
}

const _: () = assert!(size_of::<Context>() == 304);

impl Context {
    /// A context with the registers of `s`. Segment bases are not part of it.
    pub fn from_cpu(s: &CpuState) -> Context {
        let mut c = Context::default();
        for (i, at) in SIGCONTEXT.iter().enumerate() {
            c.regs[*at] = s.gpr[i];
        }
        c.regs[RIP] = s.rip;
        c.regs[EFLAGS] = s.rflags & RFLAGS_MASK | FLAGS_FIXED;
        // cs 0x33, ss 0x2b.
        c.regs[SEGMENTS] = 0x2b << 48 | 0x33;
        c
    }

    /// Copies the registers into `s`.
    pub fn to_cpu(self, s: &mut CpuState) {
        for (i, at) in SIGCONTEXT.iter().enumerate() {
            s.gpr[i] = self.regs[*at];
        }
        s.rip = self.regs[RIP];
        s.rflags = self.regs[EFLAGS] & RFLAGS_MASK;
    }
}

/// The kernel's `siginfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Info {
    /// Number of the signal.
    pub signo: i32,
    /// An errno, mostly 0.
    pub errno: i32,
    /// Where the signal comes from.
    pub code: i32,
    /// Unused.
    pub pad: i32,
    /// An address, or the sender's process id and user, or something else: `code` says what.
    pub rest: [u64; 14],
}

const _: () = assert!(size_of::<Info>() == 128);

/// Its address is a value that no value of the program equals.
static HINT: u8 = 0;

impl Info {
    /// A fault at `addr`.
    pub fn fault(signo: u8, code: i32, addr: u64) -> Info {
        let mut i = Info {
            signo: signo as i32,
            code,
            ..Info::default()
        };
        i.rest[0] = addr;
        i
    }

    /// The signal by which a thread tells another one of its process that there is a signal for it
    /// (see [`crate::thread::pending`]). The kernel does not let it send that signal itself as
    /// `kill` would.
    pub fn hint(signo: u32) -> Info {
        const SI_QUEUE: i32 = -1;
        let mut info = Info {
            signo: signo as i32,
            code: SI_QUEUE,
            ..Info::default()
        };
        info.rest[0] = crate::sys::getpid() as u64 | (crate::sys::user() as u64) << 32;
        info.rest[1] = &raw const HINT as u64;
        info
    }

    /// Whether it is such a hint.
    pub fn is_hint(&self) -> bool {
        self.code == Info::hint(1).code && self.rest[1] == &raw const HINT as u64
    }

    /// The information with these bytes.
    pub fn from_bytes(bytes: &[u8; size_of::<Info>()]) -> Info {
        // SAFETY: `Info` consists of integers, which are valid whatever their bytes. There are as
        // many bytes as it has.
        unsafe { bytes.as_ptr().cast::<Info>().read_unaligned() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; size_of::<Info>()] {
        // SAFETY: `Info` consists of integers without padding.
        unsafe { core::mem::transmute(*self) }
    }

    /// Whether the processor raised it, and not another process or a timer.
    pub fn is_fault(&self) -> bool {
        use linux_raw_sys::general::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
        self.code > 0 && [SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP].contains(&(self.signo as u32))
    }

    /// The address of a fault. 0 for other signals.
    pub fn addr(&self) -> u64 {
        if self.is_fault() { self.rest[0] } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::{SIGSEGV, SIGUSR1};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn registers_come_back_from_a_context(gpr in any::<[u64; 16]>(), rip in any::<u64>(), rflags in any::<u64>()) {
            let cpu = CpuState { gpr, rip, rflags, fs_base: 1, gs_base: 2 };
            let context = Context::from_cpu(&cpu);
            let mut back = CpuState { fs_base: 3, gs_base: 4, ..CpuState::default() };
            context.to_cpu(&mut back);
            prop_assert_eq!((back.gpr, back.rip, back.rflags), (gpr, rip, rflags & RFLAGS_MASK));
            // Segment bases are not part of it.
            prop_assert_eq!((back.fs_base, back.gs_base), (3, 4));
        }
    }

    #[test]
    fn a_hint_is_known_by_its_value_and_only_faults_have_an_address() {
        let hint = Info::hint(SIGUSR1);
        assert!(hint.is_hint() && !hint.is_fault());
        assert_eq!(hint.addr(), 0);
        let other = Info {
            rest: [7; 14],
            ..hint
        };
        assert!(!other.is_hint());
        let fault = Info::fault(SIGSEGV as u8, 1, 0x1000);
        assert!(fault.is_fault() && !fault.is_hint());
        assert_eq!(fault.addr(), 0x1000);
        assert_eq!(Info::from_bytes(&fault.bytes()).bytes(), fault.bytes());
    }
}
