//! Prepares instructions whose reads depend on masks, indices or processor state. Brings their
//! cells up to date before they run, and proves that their writes cannot fault.

use crate::code::processor;
use crate::run::shadow::Shadow;
use crate::sys::guard::{self, Fault};
use hindsight_isa::regs::{RAX, RDX};
use hindsight_translate::effective::Registers;
use hindsight_translate::vsib::Elements;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The masks of the x87's exceptions in its control word.
const X87_EXCEPTIONS: u16 = 0x3f;

/// Prepares `i`. `writes` is the number of bytes that it writes at its memory operand, or 0.
///
/// - `Ok(true)`: it can run now.
/// - `Ok(false)`: it reads addresses that share cells, so it has to be executed in parts.
/// - `Err`: it faults.
pub fn run(t: &mut impl Shadow, i: &Instruction, writes: u64) -> Result<bool, Fault> {
    use Mnemonic::*;
    let Some(op) = (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Memory) else {
        t.unsupported(i.ip());
    };
    let vsib = i.memory_index().is_vector_register();
    if vsib {
        return gather(t, i);
    }
    let Some(addr) = Registers::from(t.ctx()).operand(i, op) else {
        t.unsupported(i.ip());
    };
    match i.mnemonic() {
        Bt | Bts | Btr | Btc => {
            let size = i.op_register(1).size() as u64;
            let at = Registers::from(t.ctx()).bit_string(i, addr);
            t.fill(at, size)?;
            if i.mnemonic() != Bt {
                guard::probe_write(at, size)?;
            }
        }
        _ if writes != 0 => {
            // An exception that is not masked may withhold the store. Then the cell is copied to memory as it is.
            if t.x87_control() & X87_EXCEPTIONS != X87_EXCEPTIONS {
                t.fill(addr, writes)?;
            }
            guard::probe_write(addr, writes)?
        }
        Xrstor | Xrstor64 => return xrstor(t, addr),
        Fxrstor | Fxrstor64 | Frstor | Fldenv => drop(t.fill(addr, i.memory_size().size() as u64)?),
        Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq => {
            let v = t.vec();
            let n = i.op_register(1).number();
            let size = if matches!(i.mnemonic(), Vmaskmovps | Vpmaskmovd) {
                4
            } else {
                8
            };
            let total = i.op_register(0).size();
            let active = |e: usize| v.zmm[n][e * size + size - 1] & 0x80 != 0;
            // Short addresses wrap between elements. Under a mask register they do not.
            for e in (0..total / size).filter(|e| active(*e)) {
                let at = Registers::from(t.ctx()).beyond(i, addr, (e * size) as u64);
                t.fill(at, size as u64)?;
            }
        }
        _ => masked(t, i, addr)?,
    }
    Ok(true)
}

/// Brings the cells of the active elements up to date, line by line. Only an active element may
/// fault.
fn elements(
    t: &mut impl Shadow,
    addr: u64,
    size: usize,
    count: usize,
    active: impl Fn(usize) -> bool,
) -> Result<(), Fault> {
    for e in 0..count {
        if active(e) {
            t.fill(addr + (e * size) as u64, size as u64)?;
        }
    }
    Ok(())
}

/// A memory operand under a mask register. Shuffles use elements that their mask does not name. So
/// all of the operand that can be read is brought up to date. But only elements that the mask
/// selects may fault.
fn masked(t: &mut impl Shadow, i: &Instruction, addr: u64) -> Result<(), Fault> {
    let total = i.memory_size().size() as u64;
    if i.op_mask() == Register::None || never_suppresses(i) {
        t.fill(addr, total)?;
        return Ok(());
    }
    // The bytes that one bit of the mask stands for.
    let size = match i.mnemonic() {
        Mnemonic::Vfmulcsh | Mnemonic::Vfcmulcsh | Mnemonic::Vfmaddcsh | Mnemonic::Vfcmaddcsh => 4,
        _ if i.op_code().can_broadcast() => i.op_code().broadcast_memory_size().size(),
        _ => i.memory_size().element_size().max(1),
    };
    let count = total as usize / size;
    let all = i.op_register(0).size() / size;
    let spread = spreads(i);
    let lanes = if i.is_broadcast() {
        i.op_code().memory_size().size() / size
    } else if spread {
        all
    } else {
        count
    };
    let k = t.vec().k[i.op_mask().number()];
    let k = if lanes >= 64 {
        k
    } else {
        k & ((1 << lanes) - 1)
    };
    for part in [addr, addr.wrapping_add(total.max(1) - 1)] {
        let _ = t.fill(part, 1);
    }
    use Mnemonic::*;
    if matches!(
        i.mnemonic(),
        Vpexpandd | Vpexpandq | Vexpandps | Vexpandpd | Vpexpandb | Vpexpandw
    ) {
        return elements(t, addr, size, k.count_ones() as usize, |_| true);
    }
    if i.is_broadcast() || spread {
        return elements(t, addr, size, count, |e| {
            (e..lanes).step_by(count).any(|l| k >> l & 1 != 0)
        });
    }
    elements(t, addr, size, count, |e| k >> e & 1 != 0)
}

/// Whether the instruction repeats its operand over the destination.
fn spreads(i: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        i.mnemonic(),
        Vbroadcastss
            | Vbroadcastsd
            | Vbroadcastf32x2
            | Vbroadcastf32x4
            | Vbroadcastf32x8
            | Vbroadcastf64x2
            | Vbroadcastf64x4
            | Vbroadcasti32x2
            | Vbroadcasti32x4
            | Vbroadcasti32x8
            | Vbroadcasti64x2
            | Vbroadcasti64x4
            | Vpbroadcastb
            | Vpbroadcastw
            | Vpbroadcastd
            | Vpbroadcastq
    )
}

/// Whether the instruction reads its whole operand whatever the mask says. Those have "NF" in their
/// exception type (Intel SDM volume 2, section 2.8).
fn never_suppresses(i: &Instruction) -> bool {
    use Mnemonic::*;
    // A shift by a count in memory.
    let counted = i.op_count() == 3 && i.op_kind(2) == OpKind::Memory;
    let shift = matches!(
        i.mnemonic(),
        Vpsrlw | Vpsrld | Vpsrlq | Vpsllw | Vpslld | Vpsllq | Vpsraw | Vpsrad | Vpsraq
    );
    counted && shift
        || matches!(
            i.mnemonic(),
            Vgf2p8affineqb
                | Vgf2p8affineinvqb
                | Vcvtne2ps2bf16
                | Valignd
                | Valignq
                | Vdbpsadbw
                | Vpackssdw
                | Vpacksswb
                | Vpackusdw
                | Vpackuswb
                | Vpalignr
                | Vpconflictd
                | Vpconflictq
                | Vpermb
                | Vpermw
                | Vpermd
                | Vpermq
                | Vpermps
                | Vpermpd
                | Vpermi2b
                | Vpermi2w
                | Vpermi2d
                | Vpermi2q
                | Vpermi2ps
                | Vpermi2pd
                | Vpermt2b
                | Vpermt2w
                | Vpermt2d
                | Vpermt2q
                | Vpermt2ps
                | Vpermt2pd
                | Vpermilps
                | Vpermilpd
                | Vpmultishiftqb
                | Vpshufb
                | Vpshufd
                | Vpshufhw
                | Vpshuflw
                | Vpunpcklbw
                | Vpunpcklwd
                | Vpunpckldq
                | Vpunpcklqdq
                | Vpunpckhbw
                | Vpunpckhwd
                | Vpunpckhdq
                | Vpunpckhqdq
                | Vshuff32x4
                | Vshuff64x2
                | Vshufi32x4
                | Vshufi64x2
                | Vshufps
                | Vshufpd
                | Vunpcklps
                | Vunpcklpd
                | Vunpckhps
                | Vunpckhpd
                | Vmovshdup
                | Vmovsldup
                | Vmovddup
                | Vinsertf32x4
                | Vinsertf32x8
                | Vinsertf64x2
                | Vinsertf64x4
                | Vinserti32x4
                | Vinserti32x8
                | Vinserti64x2
                | Vinserti64x4
                | Vpmaddubsw
                | Vpmaddwd
        )
}

/// False if elements share cells, since then not all of them can be up to date at once.
fn gather(t: &mut impl Shadow, i: &Instruction) -> Result<bool, Fault> {
    let v = t.vec();
    let Some(elements) = Elements::of(i, &v, &Registers::from(t.ctx())) else {
        t.unsupported(i.ip());
    };
    let active = &elements.active;
    for (_, at) in active {
        t.fill(*at, elements.size as u64)?;
    }
    if active.iter().all(|(_, at)| at >> 32 == active[0].1 >> 32) {
        return Ok(true);
    }
    for (_, at) in active {
        if t.fill(*at, elements.size as u64)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Brings everything up to date that `xrstor` may read, for the components that it is asked for.
fn xrstor(t: &mut impl Shadow, addr: u64) -> Result<bool, Fault> {
    if !addr.is_multiple_of(64) {
        return Err(Fault::GP);
    }
    let wanted = (t.ctx().gpr[RAX] & 0xffff_ffff | t.ctx().gpr[RDX] << 32) & processor::xcr0();
    t.fill(addr, 576)?;
    let mut header = [0; 64];
    guard::read(addr + 512, &mut header)?;
    let word = |n: usize| u64::from_le_bytes(core::array::from_fn(|i| header[8 * n + i]));
    let (present, layout) = (word(0), word(1));
    let compact = layout >> 63 != 0;
    let mut next = 576;
    for c in 2..63u32 {
        let there = if compact { layout } else { present } >> c & 1 != 0;
        if !there {
            continue;
        }
        let l = processor::ask(0xd, c);
        let at = if compact {
            let at = if l.ecx & 2 != 0 {
                u64::next_multiple_of(next, 64)
            } else {
                next
            };
            next = at + l.eax as u64;
            at
        } else {
            l.ebx as u64
        };
        if wanted >> c & 1 == 0 || present >> c & 1 == 0 {
            continue;
        }
        t.fill(addr + at, l.eax as u64)?;
    }
    Ok(true)
}
