//! Instructions that save the vector state. What they write depends on the host: its format, its
//! optimisations, the addresses of translated code. So replay does not repeat them. Where the
//! program reads the saved area, it gets mispredictions.

use crate::code::processor;
use crate::sys::guard::{self, Fault};
use crate::thread::Thread;
use core::arch::asm;
use hindsight_isa::regs::{RAX, RDX};
use hindsight_isa::xsave::{Area, COMPONENTS};
use hindsight_translate::effective::Registers;
use iced_x86::{Instruction, Mnemonic};

/// Executes a save instruction. Writes the program's memory and leaves its cells as they are.
pub fn save(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let Some(addr) = Registers::from(&*t.ctx).operand(i, 0) else {
        crate::run::slow::unsupported(t, i.ip());
    };
    let wanted = (t.ctx.gpr[RAX] & 0xffff_ffff | t.ctx.gpr[RDX] << 32) & processor::xcr0();
    let mut out = Area::default();
    let area: *const Area = t.area();
    use Mnemonic::*;
    // The guest's state is loaded first, since the runtime has used vector registers.
    //
    // SAFETY: `area` is a valid XSAVE area, and `out` is large enough for every form. All vector
    // registers are declared clobbered (`clobber_abi`). Guest state that is in them is loaded from
    // `area` again.
    unsafe {
        macro_rules! run {
            ($what:literal, $mask:expr) => {
                asm!("mov eax, {all}", "xor edx, edx", "xrstor64 [{a}]", "mov eax, {m:e}", "xor edx, edx", $what,
                    all = const COMPONENTS, a = in(reg) area, m = in(reg) $mask, out("eax") _, out("edx") _,
                    in("rdi") &raw mut out, clobber_abi("C"))
            };
        }
        let (align, len) = match i.mnemonic() {
            Fnstenv | Fstenv => (1, 28),
            Fnsave | Fsave => (1, 108),
            // The last 96 bytes are reserved, or belong to the program.
            Fxsave | Fxsave64 => (16, 416),
            _ => (64, 0),
        };
        if addr % align != 0 {
            return Err(Fault::GP);
        }
        match i.mnemonic() {
            Fnstenv | Fstenv => run!("fnstenv [rdi]", 0u32),
            Fnsave | Fsave => run!("fnsave [rdi]", 0u32),
            Fxsave | Fxsave64 => run!("fxsave64 [rdi]", 0u32),
            Xsavec | Xsavec64 => run!("xsavec64 [rdi]", wanted as u32),
            _ => {
                // The header's bits of components that are not saved stay as they are.
                let mut bv = [0; 8];
                guard::read(addr + 512, &mut bv)?;
                out.0[512..520].copy_from_slice(&bv);
                run!("xsave64 [rdi]", wanted as u32);
            }
        }
        if len != 0 {
            guard::write(addr, &out.0[..len])?;
            crate::memory::regime::tell_behind(t, addr, len as u64);
            return Ok(());
        }
    }
    let compact = matches!(i.mnemonic(), Xsavec | Xsavec64);
    let len = write_parts(addr, &out, wanted, compact)?;
    crate::memory::regime::tell_behind(t, addr, len);
    Ok(())
}

/// Writes the parts of an XSAVE image that the instruction writes. Returns the offset of their end.
fn write_parts(addr: u64, out: &Area, wanted: u64, compact: bool) -> Result<u64, Fault> {
    let o = &out.0;
    let put = |from: usize, to: usize| guard::write(addr + from as u64, &o[from..to]);
    if wanted & 1 != 0 {
        put(0, 24)?;
        put(32, 160)?;
    }
    if wanted & 6 != 0 {
        put(24, 32)?;
    }
    if wanted & 2 != 0 {
        put(160, 416)?;
    }
    put(512, if compact { 576 } else { 520 })?;
    let (mut next, mut end) = (576, 576);
    for c in 2..63u32 {
        if wanted >> c & 1 == 0 {
            continue;
        }
        let l = crate::code::processor::ask(0xd, c);
        let size = l.eax as usize;
        let at = if compact {
            if l.ecx & 2 != 0 {
                usize::next_multiple_of(next, 64)
            } else {
                next
            }
        } else {
            l.ebx as usize
        };
        next = at + size;
        // The compact form does not write a component that is in its initial state.
        let bv = u64::from_le_bytes(core::array::from_fn(|i| o[512 + i]));
        if !compact || bv >> c & 1 != 0 {
            put(at, at + size)?;
            end = end.max(at + size);
        }
    }
    Ok(end as u64)
}
