//! Instructions whose result does not follow from registers and memory. They are executed, and
//! their results are recorded.

use crate::code::processor::{self, baseline, host_xcr0, xcr0};
use crate::run::shadow::Both;
use crate::run::slow;
use crate::sys::clocks;
use crate::sys::guard::Fault;
use crate::thread::Thread;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use hindsight_events::Event;
use hindsight_isa::regs::{RAX, RBX, RCX, RDX, recorded};
use hindsight_isa::string::StringMemory;
use hindsight_translate::effective::Registers;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

const FLAGS: u32 = 1 << recorded::FLAGS;

/// Size in bytes of a standard XSAVE area with all components of [`xcr0`].
fn area_size() -> u32 {
    // The dynamic linker asks dozens of times, and each answer takes several `cpuid` instructions.
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let shown = xcr0();
    let size = (2..63).filter(|i| shown >> i & 1 != 0).fold(576, |n, i| {
        let l = processor::ask(0xd, i);
        n.max(l.eax + l.ebx)
    });
    KNOWN.store(size, Relaxed);
    size
}

/// Executes `i` and records which registers it changed.
pub fn execute(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    use Mnemonic::*;
    let mut values = [0u64; recorded::COUNT];
    let mut mask = 0u32;
    let mut set = |n: usize, v: u64| {
        values[n] = v;
        mask |= 1 << n;
    };
    match i.mnemonic() {
        Cpuid if t.emulated.forbidden.cpuid => return Err(Fault::GP),
        Rdtsc | Rdtscp if t.emulated.forbidden.tsc => return Err(Fault::GP),
        Cpuid => {
            for (n, v) in [RAX, RBX, RCX, RDX].into_iter().zip(cpuid(t)) {
                set(n, v as u64);
            }
        }
        Rdtsc => {
            let [lo, hi, _] = time_stamp(false);
            let [lo, hi] = clocks::shown_stamp([lo, hi]);
            set(RAX, lo);
            set(RDX, hi);
        }
        Rdtscp => {
            let [lo, hi, number] = time_stamp(true);
            let [lo, hi] = clocks::shown_stamp([lo, hi]);
            set(RAX, lo);
            set(RDX, hi);
            set(RCX, number);
        }
        Xgetbv => {
            let v = match t.ctx.gpr[RCX] as u32 {
                0 => xcr0(),
                // Asks which components are in use. "All" is always correct.
                1 => xcr0(),
                _ => {
                    return Err(Fault::GP);
                }
            };
            set(RAX, v & 0xffff_ffff);
            set(RDX, v >> 32);
        }
        Rdpid => {
            let [_, _, number] = time_stamp(true);
            set(i.op_register(0).full_register().number(), number);
        }
        Rdrand | Rdseed => {
            let r = i.op_register(0);
            let n = r.full_register().number();
            let (v, ok) = random(i.mnemonic() == Rdseed);
            let v = match r.size() {
                8 => v,
                4 => v as u32 as u64,
                _ => t.ctx.gpr[n] & !0xffff | v & 0xffff,
            };
            set(n, v);
            set(recorded::FLAGS, t.ctx.rflags & !0x8d5 | ok as u64);
        }
        Lsl | Lar if i.op1_kind() == OpKind::Register => {
            let selector = Registers::from(&*t.ctx)
                .value(i.op1_register())
                .unwrap_or(0);
            let (v, ok) = descriptor(selector, i.mnemonic() == Lar);
            if ok && i.op_register(0).size() >= 4 {
                set(i.op_register(0).full_register().number(), v);
            }
            set(recorded::FLAGS, t.ctx.rflags & !0x40 | (ok as u64) << 6);
        }
        Verr | Verw => {
            let ok = verify(selector(t, i)?, i.mnemonic() == Verw);
            set(recorded::FLAGS, t.ctx.rflags & !0x40 | (ok as u64) << 6);
        }
        _ => slow::unsupported(t, i.ip()),
    }
    for (n, v) in values[..16].iter().enumerate() {
        if mask & (1 << n) != 0 {
            t.ctx.gpr[n] = *v;
        }
    }
    if mask & FLAGS != 0 {
        t.ctx.rflags = values[recorded::FLAGS];
    }
    t.event(&Event::Regs {
        mask,
        ilen: i.len() as u8,
        values,
    });
    Ok(())
}

/// What `cpuid` shows to the program: eax, ebx, ecx, edx.
fn cpuid(t: &Thread) -> [u32; 4] {
    let (leaf, sub) = (t.ctx.gpr[RAX] as u32, t.ctx.gpr[RCX] as u32);
    let r = processor::ask(leaf, sub);
    let size = if leaf == 0xd { area_size() } else { 0 };
    baseline().filter(leaf, sub, [r.eax, r.ebx, r.ecx, r.edx], host_xcr0(), size)
}

/// The time stamp, eax and edx. With the processor's number, which not all processors tell, in ecx.
fn time_stamp(numbered: bool) -> [u64; 3] {
    let (lo, hi): (u32, u32);
    let mut number = 0u32;
    // SAFETY: reads counters and changes only the registers that are declared. The second
    // instruction exists: the program would have got a fault otherwise.
    unsafe {
        match numbered {
            false => asm!("rdtsc", out("eax") lo, out("edx") hi, options(nomem, nostack)),
            true => {
                asm!("rdtscp", out("eax") lo, out("edx") hi, out("ecx") number, options(nomem, nostack))
            }
        }
    }
    [lo as u64, hi as u64, number as u64]
}

/// A random number, or one to seed others with, and the carry flag: whether there was one.
fn random(seed: bool) -> (u64, u8) {
    let (v, ok): (u64, u8);
    // SAFETY: changes only the registers that are declared. The instruction exists: `cpuid`
    // shows it to the program only if the processor has it.
    unsafe {
        if seed {
            asm!("rdseed {v}", "setc {c}", v = out(reg) v, c = out(reg_byte) ok, options(nomem, nostack));
        } else {
            asm!("rdrand {v}", "setc {c}", v = out(reg) v, c = out(reg_byte) ok, options(nomem, nostack));
        }
    }
    (v, ok)
}

/// The selector that the first operand of `i` names. One in memory is brought up to date in its cells,
/// so that replay knows it, too.
fn selector(t: &mut Thread, i: &Instruction) -> Result<u16, Fault> {
    let registers = Registers::from(&*t.ctx);
    if i.op0_kind() == OpKind::Register {
        return Ok(registers.value(i.op0_register()).unwrap_or(0) as u16);
    }
    let Some(at) = registers.operand(i, 0) else {
        slow::unsupported(t, i.ip());
    };
    let mut bytes = [0; 2];
    match Both::new(t, 0).read(at, &mut bytes) {
        Ok(()) => Ok(u16::from_le_bytes(bytes)),
        // The recorder has read it through another segment.
        Err((f, _)) if f.trap == Fault::GP.trap && i.memory_segment() == Register::SS => {
            Err(Fault::SS)
        }
        Err((f, _)) => Err(f),
    }
}

/// Whether a segment can be read, or else written.
fn verify(selector: u16, writes: bool) -> bool {
    let ok: u8;
    // SAFETY: looks at a descriptor. It changes only the registers that are declared, and flags.
    unsafe {
        if writes {
            asm!("verw {s:x}", "setz {z}", s = in(reg) selector, z = out(reg_byte) ok, options(nomem, nostack));
        } else {
            asm!("verr {s:x}", "setz {z}", s = in(reg) selector, z = out(reg_byte) ok, options(nomem, nostack));
        }
    }
    ok != 0
}

/// The limit of a segment, or its rights, and whether there is such a segment.
fn descriptor(selector: u64, rights: bool) -> (u64, bool) {
    let (v, ok): (u64, u8);
    // SAFETY: reads the limit or the rights of a descriptor. It changes only the registers
    // that are declared.
    unsafe {
        if rights {
            asm!("xor {v:e}, {v:e}", "lar {v:e}, {s:e}", "setz {z}", v = out(reg) v, s = in(reg) selector, z = out(reg_byte) ok, options(nomem, nostack));
        } else {
            asm!("xor {v:e}, {v:e}", "lsl {v:e}, {s:e}", "setz {z}", v = out(reg) v, s = in(reg) selector, z = out(reg_byte) ok, options(nomem, nostack));
        }
    }
    (v, ok != 0)
}
