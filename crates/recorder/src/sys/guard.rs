//! Access to the program's memory that reports a fault instead of crashing.
//!
//! The accesses are ordinary loads and stores. So the kernel treats them as the program's own, as
//! for stack growth and first touch. If one faults, the signal handler finds its address in
//! [`redirect`], and continues at the failure exit.

use core::arch::{asm, global_asm};

/// A failed access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// SIGSEGV or SIGBUS.
    pub signo: u8,
    /// The signal's code.
    pub code: i32,
    /// As the kernel reports it. 0 for an address that is not canonical.
    pub addr: u64,
    /// The exception.
    pub trap: Trap,
}

impl Fault {
    /// A general protection fault.
    pub const GP: Fault = Fault {
        signo: 11,
        code: 0x80,
        addr: 0,
        trap: Trap {
            number: 13,
            error: 0,
            address: 0,
        },
    };

    /// A stack fault: an address in the stack segment that is not canonical.
    pub const SS: Fault = Fault {
        signo: 7,
        trap: Trap::new(12, 0),
        ..Fault::GP
    };
}

/// What the processor tells about an exception. The kernel puts it into signal frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Trap {
    /// Number of the exception.
    pub number: u8,
    /// Its error code. 0 if it has none.
    pub error: u32,
    /// What a page fault leaves in CR2.
    pub address: u64,
}

impl Trap {
    /// An exception that is no page fault.
    pub const fn new(number: u8, error: u32) -> Trap {
        Trap {
            number,
            error,
            address: 0,
        }
    }
}

// Each routine has its accesses between two labels. At the failure exit three registers say what
// happened:
//
// - rdx: the address;
// - rcx: the signal in the low half, its code in the high half;
// - r8: the exception in the low half, its error code in the high half.
global_asm!(
    ".globl hindsight_guard_copy, hindsight_guard_copy_end, hindsight_guard_load, hindsight_guard_load_end",
    ".globl hindsight_guard_line, hindsight_guard_line_end, hindsight_guard_probe, hindsight_guard_probe_end",
    ".globl hindsight_guard_failed",
    ".balign 16",
    // rax: 0, or 1 after a fault. rdi, rsi, rcx: as for movsb.
    "hindsight_guard_copy:",
    "rep movsb",
    "hindsight_guard_copy_end:",
    "xor eax, eax",
    "ret",
    ".balign 16",
    // Loads 8 bytes from [rsi] into rax. rdi: 0, or 1 after a fault.
    "hindsight_guard_load:",
    "mov rax, [rsi]",
    "hindsight_guard_load_end:",
    "xor edi, edi",
    "ret",
    ".balign 16",
    // Copies 64 bytes from rsi to rdi.
    "hindsight_guard_line:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "hindsight_guard_line_end:",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "xor eax, eax",
    "ret",
    ".balign 16",
    // Proves that the byte at rsi may be written.
    "hindsight_guard_probe:",
    "lock or byte ptr [rsi], 0",
    "hindsight_guard_probe_end:",
    "xor eax, eax",
    "ret",
    "hindsight_guard_failed:",
    "mov eax, 1",
    "mov edi, 1",
    "ret",
);

unsafe extern "C" {
    fn hindsight_guard_copy();
    fn hindsight_guard_copy_end();
    fn hindsight_guard_load();
    fn hindsight_guard_load_end();
    fn hindsight_guard_line();
    fn hindsight_guard_line_end();
    fn hindsight_guard_probe();
    fn hindsight_guard_probe_end();
    fn hindsight_guard_failed();
}

/// Where to continue after a fault at host address `pc`, if that is one of this module's accesses.
/// There rdx must hold the faulting address, rcx `signo | code << 32`, and r8 `trap | error << 32`.
pub fn redirect(pc: u64) -> Option<u64> {
    let ranges = [
        (
            hindsight_guard_copy as *const (),
            hindsight_guard_copy_end as *const (),
        ),
        (
            hindsight_guard_load as *const (),
            hindsight_guard_load_end as *const (),
        ),
        (
            hindsight_guard_line as *const (),
            hindsight_guard_line_end as *const (),
        ),
        (
            hindsight_guard_probe as *const (),
            hindsight_guard_probe_end as *const (),
        ),
    ];
    ranges
        .iter()
        .any(|(a, b)| (*a as u64..*b as u64).contains(&pc))
        .then_some(hindsight_guard_failed as *const () as u64)
}

fn fault(addr: u64, what: u64, trap: u64) -> Fault {
    Fault {
        signo: what as u8,
        code: (what >> 32) as i32,
        addr,
        trap: Trap {
            number: trap as u8,
            error: (trap >> 32) as u32,
            address: addr,
        },
    }
}

fn copy(to: u64, from: u64, len: u64) -> Result<(), Fault> {
    let (failed, addr, what, trap): (u64, u64, u64, u64);
    // SAFETY: one side is a buffer of the recorder with `len` bytes. The other one is the program's
    // memory, where a fault leads to the failure exit. The direction flag is clear, as the ABI
    // demands. All registers that change are declared.
    unsafe {
        asm!("call {f}", f = sym hindsight_guard_copy, inout("rdi") to => _, inout("rsi") from => _,
            inout("rcx") len => what, out("rax") failed, out("rdx") addr, out("r8") trap);
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(fault(addr, what, trap))
    }
}

/// Reads the program's memory at `addr`. After a fault the bytes before the faulting one have been
/// read.
pub fn read(addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
    copy(buf.as_mut_ptr() as u64, addr, buf.len() as u64)
}

/// Writes the program's memory at `addr`. After a fault the bytes before the faulting one have been
/// written.
pub fn write(addr: u64, buf: &[u8]) -> Result<(), Fault> {
    copy(addr, buf.as_ptr() as u64, buf.len() as u64)
}

/// Reads 8 bytes at `addr`.
pub fn load_u64(addr: u64) -> Result<u64, Fault> {
    let (failed, value, at, what, trap): (u64, u64, u64, u64, u64);
    // SAFETY: a load whose fault leads to the failure exit. All registers that change are declared.
    unsafe {
        asm!("call {f}", f = sym hindsight_guard_load, in("rsi") addr, out("rdi") failed, out("rax") value,
            out("rdx") at, out("rcx") what, out("r8") trap);
    }
    if failed == 0 {
        Ok(value)
    } else {
        Err(fault(at, what, trap))
    }
}

/// Reads 64 bytes at `addr`.
pub fn load_line(addr: u64, buf: &mut [u8; 64]) -> Result<(), Fault> {
    let (failed, at, what, trap): (u64, u64, u64, u64);
    // SAFETY: 64 bytes are loaded, where a fault leads to the failure exit, and stored to `buf`,
    // which has as many. All registers that change are declared.
    unsafe {
        asm!("call {f}", f = sym hindsight_guard_line, in("rsi") addr, inout("rdi") buf.as_mut_ptr() => _,
            out("rax") failed, out("rdx") at, out("rcx") what, out("r8") trap,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _);
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(fault(at, what, trap))
    }
}

/// Proves that `addr..addr+len` may be written. Writes to one byte of each page what it holds.
pub fn probe_write(addr: u64, len: u64) -> Result<(), Fault> {
    if len == 0 {
        return Ok(());
    }
    let mut at = addr;
    let last = addr.wrapping_add(len - 1);
    loop {
        probe_byte(at)?;
        let next = (at & !4095).wrapping_add(4096);
        if next > last || next < at {
            return Ok(());
        }
        at = next;
    }
}

fn probe_byte(addr: u64) -> Result<(), Fault> {
    let (failed, at, what, trap): (u64, u64, u64, u64);
    // SAFETY: an atomic instruction that writes the value that it has read. Its fault leads to the
    // failure exit. All registers that change are declared.
    unsafe {
        asm!("call {f}", f = sym hindsight_guard_probe, in("rsi") addr, out("rdi") _,
            out("rax") failed, out("rdx") at, out("rcx") what, out("r8") trap);
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(fault(at, what, trap))
    }
}

/// A string of the program up to its zero. `None` if it cannot be read, or is longer than the
/// kernel accepts for a path.
pub fn read_path(addr: u64) -> Option<alloc::vec::Vec<u8>> {
    const LONGEST: usize = 4096;
    let mut out = alloc::vec::Vec::new();
    while out.len() < LONGEST {
        let at = addr.wrapping_add(out.len() as u64);
        let mut piece = [0; 64];
        // Ends at a multiple of the piece's size. So it does not touch a page that no byte of the
        // string is in.
        let n = piece.len() - at as usize % piece.len();
        read(at, &mut piece[..n]).ok()?;
        if let Some(end) = piece[..n].iter().position(|b| *b == 0) {
            out.extend_from_slice(&piece[..end]);
            return Some(out);
        }
        out.extend_from_slice(&piece[..n]);
    }
    None
}
