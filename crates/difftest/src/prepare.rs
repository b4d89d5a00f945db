//! Prepares a state in which an instruction does something: operands within reach, and contents
//! that make sense.

use crate::memory::{PAGE, Region};
use crate::state::{aim, random_target};
use hindsight_isa::{CpuState, VecState};
use hindsight_random::Rng;
use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

/// Lets the memory operands of `i`, explicit or not, lie in `region` and hold what makes sense.
pub(crate) fn prepare_instruction(
    i: &Instruction,
    region: &Region,
    cpu: &mut CpuState,
    vec: &mut VecState,
    data: &mut [u8],
    rng: &mut Rng,
) {
    let size = i.memory_size().size() as u64;
    let target = random_target(rng, region, size);
    let explicit = memory_operand(i);
    use Mnemonic::*;
    match i.mnemonic() {
        Xlatb => {
            let segment = match i.segment_prefix() {
                Register::FS => cpu.fs_base,
                Register::GS => cpu.gs_base,
                _ => 0,
            };
            cpu.gpr[3] = target.wrapping_sub(segment).wrapping_sub(cpu.gpr[0] & 255);
        }
        Leave | Enter => cpu.gpr[5] = random_target(rng, region, 8),
        Maskmovq | Maskmovdqu | Vmaskmovdqu => {
            let segment = match i.segment_prefix() {
                Register::FS => cpu.fs_base,
                Register::GS => cpu.gs_base,
                _ => 0,
            };
            cpu.gpr[7] = random_target(rng, region, 16).wrapping_sub(segment);
        }
        _ if i.is_string_instruction() => {
            cpu.gpr[1] = rng.below(70);
            cpu.gpr[6] = random_target(rng, region, 32);
            cpu.gpr[7] = random_target(rng, region, 32);
            if rng.one_in(4) {
                cpu.gpr[7] = cpu.gpr[6].wrapping_add(rng.below(16)).wrapping_sub(8);
            }
            if rng.one_in(2) {
                data.fill(cpu.gpr[0] as u8);
            }
        }
        Bt | Bts | Btr | Btc if explicit && i.op1_register().is_gpr() => {
            // Near enough not to hit the harness's own memory.
            let r = i.op1_register();
            let offset = rng.below(4000).wrapping_sub(2000);
            cpu.gpr[r.full_register().number()] = match r.size() {
                8 => offset,
                4 => offset & 0xffff_ffff | rng.u64() << 32,
                _ => offset & 0xffff | rng.u64() << 16,
            };
            aim(i, cpu, vec, target, rng);
        }
        Cmpxchg | Cmpxchg8b | Cmpxchg16b => {
            aim(i, cpu, vec, target, rng);
            let at = target.wrapping_sub(region.data) as usize;
            if rng.one_in(2) && at < data.len() - 16 {
                let a = cpu.gpr[0].to_le_bytes();
                data[at..at + 8].copy_from_slice(&a);
                let d = cpu.gpr[2].to_le_bytes();
                let k = if i.mnemonic() == Cmpxchg16b { 8 } else { 4 };
                if i.mnemonic() != Cmpxchg {
                    data[at + k..at + 2 * k].copy_from_slice(&d[..k]);
                }
            }
        }
        _ if explicit => aim(i, cpu, vec, target, rng),
        _ => {}
    }
    let indirect = matches!(
        i.flow_control(),
        FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
    );
    let landing = region.code + PAGE + 16 + rng.below(PAGE - 64);
    if indirect {
        let phase = if explicit { target } else { cpu.gpr[4] } as usize % 8;
        for c in data[phase..].chunks_exact_mut(8) {
            c.copy_from_slice(&landing.to_le_bytes());
        }
        if i.op0_register().is_gpr() && i.op0_register() != Register::RSP {
            cpu.gpr[i.op0_register().full_register().number()] = landing;
        }
    }
    if matches!(i.mnemonic(), Popf | Popfq) {
        // No single stepping, no alignment checks, no nested tasks.
        let phase = cpu.gpr[4] as usize % 8;
        for c in data[phase..].chunks_exact_mut(8) {
            let mut v = u64::from_le_bytes(c.try_into().unwrap_or_default());
            v &= 0x20_0cd5;
            c.copy_from_slice(&v.to_le_bytes());
        }
    }
}

/// Keeps an operand in FS or GS away from the harness's own memory, which is beside the FS base. If
/// no register can aim the operand, it gets an offset into `region`, or loses its segment.
pub(crate) fn settle_segment(i: &mut Instruction, region: &Region, cpu: &CpuState, rng: &mut Rng) {
    if !matches!(i.segment_prefix(), Register::FS | Register::GS) || !memory_operand(i) {
        return;
    }
    let (base, index) = (i.memory_base(), i.memory_index());
    if matches!(base, Register::RIP | Register::EIP) {
        return i.set_segment_prefix(Register::None);
    }
    let bare = base == Register::None && index == Register::None;
    let short = base != Register::None && base.size() == 4
        || index != Register::None && index.size() == 4
        || bare && i.memory_displ_size() == 4;
    if short {
        // Offsets of 32 bits are positive. The data lies behind the GS base.
        i.set_segment_prefix(Register::GS);
    }
    if bare {
        let from = match i.segment_prefix() {
            Register::FS => cpu.fs_base,
            _ => cpu.gs_base,
        };
        let offset = random_target(rng, region, 8).wrapping_sub(from);
        if i32::try_from(offset as i64).is_ok() {
            i.set_memory_displacement64(offset);
        } else {
            i.set_segment_prefix(Register::None);
        }
    }
}

/// Whether `i` must not follow instructions that may change what it needs. Removes an FS prefix: a
/// wild offset in FS would hit the harness.
pub(crate) fn unfit(i: &mut Instruction) -> bool {
    use Mnemonic::*;
    if i.segment_prefix() == Register::FS {
        i.set_segment_prefix(Register::None);
    }
    short_string(i)
        || matches!(
            i.mnemonic(),
            Popf | Popfq
                | Rdfsbase
                | Clflush
                | Clflushopt
                | Clwb
                | Enter
                | Fldenv
                | Frstor
                | Fldcw
                | Fxrstor
                | Fxrstor64
        )
        || matches!(i.mnemonic(), Bt | Bts | Btr | Btc) && i.op1_register().is_gpr()
}

/// Whether `i` is a string instruction with addresses of 32 bits.
pub(crate) fn short_string(i: &Instruction) -> bool {
    use iced_x86::OpKind::*;
    (0..i.op_count()).any(|n| matches!(i.op_kind(n), MemorySegESI | MemoryESEDI))
}

/// Whether `i` uses an address of 32 bits in FS or GS.
pub(crate) fn short_in_segment(i: &Instruction) -> bool {
    let short = i.memory_base().size() == 4 && i.memory_base() != Register::None
        || i.memory_index().size() == 4
        || i.memory_displ_size() == 4;
    short && matches!(i.segment_prefix(), Register::FS | Register::GS)
}

/// Whether `i` has an explicit memory operand.
pub fn memory_operand(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == iced_x86::OpKind::Memory)
}
