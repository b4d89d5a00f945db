//! Which template an instruction needs.

use crate::effective::is_bit_string;
use hindsight_isa::desc::raise;
use hindsight_isa::mark::{CODE, MAGIC};
use hindsight_isa::{Transcendental, comes_from_outside};
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// How an instruction is translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// It has no effect for the guest.
    Nop,
    /// It is copied.
    Plain,
    /// `lea`.
    Lea,
    /// It loads a whole 32-bit or 64-bit register, with zero or sign extension.
    Load,
    /// It reads at most 8 bytes of memory. A general purpose register can replace the operand.
    GprRead,
    /// It reads and writes at most 8 bytes. A general purpose register can replace the operand.
    GprRmw,
    /// It only writes memory, and can be done twice.
    Store,
    /// The same, but the mask register must be restored before the second time.
    Scatter,
    /// It reads this many bytes.
    Read(usize),
    /// It loads a vector register from this many bytes.
    VecLoad(usize),
    /// The runtime must find out what it reads.
    PreRead,
    /// It is a store of the x87 of this many bytes, and can be done only once: it pops, and has no form that does not.
    PreStore(usize),
    /// It is another store of the x87. The first time is this code, which does not pop. Where an exception is not masked, it can be done
    /// only once, too: the second time would raise what the first one leaves waiting.
    X87Store(Code),
    /// A bit test whose offset is in a register, and can reach beyond the operand.
    BitMem,
    Xchg,
    Xadd,
    Cmpxchg,
    /// `cmpxchg8b` and `cmpxchg16b`.
    CmpxchgWide,
    /// A locked read-modify-write without a result.
    LockedRmw,
    Push,
    Pop,
    Pushf,
    Popf,
    Enter,
    Leave,
    Xlat,
    Branch,
    /// The runtime executes it.
    Slow,
    Syscall,
    /// It raises this exception of [`hindsight_isa::desc::raise`].
    Raise(u8),
}

/// Number of the operand that is the explicit memory operand.
pub fn mem_op(i: &Instruction) -> Option<u32> {
    (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Memory)
}

/// Whether a general purpose register can replace the memory operand.
fn takes_gpr(i: &Instruction, op: u32) -> bool {
    crate::forms::register_size(i, op).is_some()
}

/// The template of an instruction that is known by its name.
fn by_name(i: &Instruction) -> Option<Plan> {
    use Mnemonic::*;
    Some(match i.mnemonic() {
        // The last three are undefined unless the system has enabled them, which no program can.
        INVALID | Ud0 | Ud1 | Ud2 | Getsec | Getsecq | Vmfunc => Plan::Raise(raise::UD),
        Int3 => Plan::Raise(raise::BP),
        // Only some systems allow it to programs, and the virtual processor has no counter.
        Rdpmc => Plan::Raise(raise::GP),
        Int | Into | Int1 => Plan::Raise(raise::UNSUPPORTED),
        Syscall => Plan::Syscall,
        m if comes_from_outside(m) || Transcendental::of(m).is_some() => Plan::Slow,
        Rdfsbase | Rdgsbase | Wrfsbase | Wrgsbase => Plan::Slow,
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64
        | Fnsave | Fsave | Fnstenv | Fstenv => Plan::Slow,
        Xrstor | Xrstor64 | Fxrstor | Fxrstor64 | Frstor | Fldenv => Plan::PreRead,
        Nop if asks_recorder(i) => Plan::Slow,
        Nop | Endbr64 | Endbr32 | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2
        | Prefetchw | Prefetch | Prefetchwt1 | Reservednop | Clflush | Clflushopt | Clwb
        | Cldemote | Rdsspd | Rdsspq => Plan::Nop,
        Push => {
            let fsgs = i.op_kind(0) == OpKind::Register && i.op_register(0).is_segment_register();
            if fsgs {
                Plan::Raise(raise::UNSUPPORTED)
            } else {
                Plan::Push
            }
        }
        Pop => {
            let seg = i.op_kind(0) == OpKind::Register && i.op_register(0).is_segment_register();
            if seg {
                Plan::Raise(raise::UNSUPPORTED)
            } else {
                Plan::Pop
            }
        }
        Pushfq | Pushf => Plan::Pushf,
        Popfq | Popf => Plan::Popf,
        Enter => Plan::Enter,
        Leave => Plan::Leave,
        Xlatb => Plan::Xlat,
        Lea => Plan::Lea,
        _ => return None,
    })
}

/// The template of an instruction that goes elsewhere, or raises an exception.
fn by_flow(i: &Instruction) -> Option<Plan> {
    Some(match i.flow_control() {
        FlowControl::Next if i.is_privileged() => Plan::Raise(raise::GP),
        FlowControl::Next => return None,
        FlowControl::XbeginXabortXend => Plan::Raise(raise::UNSUPPORTED),
        FlowControl::Interrupt | FlowControl::Exception => Plan::Raise(raise::UNSUPPORTED),
        _ if i.is_privileged() => Plan::Raise(raise::GP),
        // `sysenter`, calls of a hypervisor.
        FlowControl::Call if i.op0_kind() != OpKind::NearBranch64 => {
            Plan::Raise(raise::UNSUPPORTED)
        }
        _ if far(i) => Plan::Raise(raise::UNSUPPORTED),
        _ => Plan::Branch,
    })
}

/// Chooses the template of `i`.
pub fn plan(i: &Instruction, info: &InstructionInfo) -> Plan {
    use Mnemonic::*;
    if let Some(plan) = by_name(i) {
        return plan;
    }
    if i.is_string_instruction() {
        return if matches!(i.mnemonic(), Insb | Insw | Insd | Outsb | Outsw | Outsd) {
            Plan::Raise(raise::GP)
        } else {
            Plan::Slow
        };
    }
    if let Some(plan) = by_flow(i) {
        return plan;
    }
    if unsupported(i) {
        return Plan::Raise(raise::UNSUPPORTED);
    }
    let Some(op) = mem_op(i) else {
        // It accesses implicit memory, and no template above knows it.
        return match info.used_memory().is_empty() {
            true => Plan::Plain,
            false if crate::kinds::is_masked_move(i) => Plan::Store,
            false => Plan::Raise(raise::UNSUPPORTED),
        };
    };
    let size = i.memory_size().size();
    if is_bit_string(i) {
        return Plan::BitMem;
    }
    match i.mnemonic() {
        Xchg => return Plan::Xchg,
        Xadd => return Plan::Xadd,
        Cmpxchg => return Plan::Cmpxchg,
        Cmpxchg8b | Cmpxchg16b => return Plan::CmpxchgWide,
        Fst | Fist => return Plan::X87Store(i.code()),
        Fstp | Fistp | Fisttp | Fbstp => {
            return match i.code() {
                Code::Fstp_m32fp => Plan::X87Store(Code::Fst_m32fp),
                Code::Fstp_m64fp => Plan::X87Store(Code::Fst_m64fp),
                Code::Fistp_m16int => Plan::X87Store(Code::Fist_m16int),
                Code::Fistp_m32int => Plan::X87Store(Code::Fist_m32int),
                _ => Plan::PreStore(size),
            };
        }
        _ => {}
    }
    by_access(i, info, op)
}

/// What becomes of an instruction in recordings and replays by translated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Translated code or the runtime executes it.
    Executed,
    /// It raises an exception, which a recording has as a signal.
    Raises,
    /// Translated code stops there. The recorder executes some of these itself, and ends at the others.
    Stops,
}

/// What becomes of `i`.
pub fn fate(i: &Instruction) -> Fate {
    let mut factory = InstructionInfoFactory::new();
    match plan(i, factory.info(i)) {
        Plan::Raise(raise::UNSUPPORTED) => Fate::Stops,
        Plan::Raise(_) => Fate::Raises,
        _ => Fate::Executed,
    }
}

/// The template of an instruction by how it accesses its memory operand, operand `op`.
fn by_access(i: &Instruction, info: &InstructionInfo, op: u32) -> Plan {
    use Mnemonic::*;
    let size = i.memory_size().size();
    let masked = i.op_mask() != Register::None;
    // Its index is a vector register: a gather or a scatter.
    let vsib = i.memory_index().is_vector_register();
    match op_access(info, op) {
        OpAccess::NoMemAccess | OpAccess::None => Plan::Nop,
        OpAccess::Read | OpAccess::CondRead => {
            let maskmov = matches!(
                i.mnemonic(),
                Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq
            );
            if masked || vsib || maskmov || size > 64 || size == 0 {
                Plan::PreRead
            } else if size <= 8 && matches!(i.code(), Code::Mov_r32_rm32 | Code::Mov_r64_rm64)
                || matches!(i.mnemonic(), Movzx | Movsx | Movsxd)
            {
                if i.op_register(0).size() >= 4 {
                    Plan::Load
                } else {
                    Plan::GprRead
                }
            } else if size <= 8 && takes_gpr(i, op) {
                Plan::GprRead
            } else if vec_load(i) && matches!(size, 16 | 32 | 64) {
                Plan::VecLoad(size)
            } else {
                Plan::Read(size)
            }
        }
        OpAccess::Write | OpAccess::CondWrite => {
            if vsib {
                Plan::Scatter
            } else {
                Plan::Store
            }
        }
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            if i.has_lock_prefix() && takes_gpr(i, op) {
                Plan::LockedRmw
            } else if size <= 8 && takes_gpr(i, op) {
                Plan::GprRmw
            } else {
                // A masked vector store writes only the selected elements. Processors do not read
                // the others.
                if masked {
                    Plan::Store
                } else {
                    Plan::Raise(raise::UNSUPPORTED)
                }
            }
        }
    }
}

/// Whether `i` is the instruction of [`hindsight_isa::mark`].
fn asks_recorder(i: &Instruction) -> bool {
    i.code() == Code::Nop_rm32
        && i.len() == CODE.len()
        && (i.memory_base(), i.memory_index()) == (Register::RAX, Register::RAX)
        && i.memory_displacement32() == MAGIC
}

fn op_access(info: &InstructionInfo, op: u32) -> OpAccess {
    match op {
        0 => info.op0_access(),
        1 => info.op1_access(),
        2 => info.op2_access(),
        3 => info.op3_access(),
        _ => info.op4_access(),
    }
}

/// Whether `i` is a plain move of a whole vector from memory, so that its destination can be
/// compared afterwards.
fn vec_load(i: &Instruction) -> bool {
    use Mnemonic::*;
    i.op_kind(0) == OpKind::Register
        && matches!(
            i.mnemonic(),
            Movups
                | Movupd
                | Movaps
                | Movapd
                | Movdqu
                | Movdqa
                | Lddqu
                | Vmovups
                | Vmovupd
                | Vmovaps
                | Vmovapd
                | Vmovdqu
                | Vmovdqa
                | Vlddqu
                | Vmovdqu8
                | Vmovdqu16
                | Vmovdqu32
                | Vmovdqu64
                | Vmovdqa32
                | Vmovdqa64
        )
}

fn far(i: &Instruction) -> bool {
    i.is_jmp_far()
        || i.is_jmp_far_indirect()
        || i.is_call_far()
        || i.is_call_far_indirect()
        || matches!(
            i.mnemonic(),
            Mnemonic::Retf
                | Mnemonic::Iretq
                | Mnemonic::Iretd
                | Mnemonic::Iret
                | Mnemonic::Sysexit
                | Mnemonic::Sysret
        )
}

/// Instructions that depend on what the virtual processor does not have.
fn unsupported(i: &Instruction) -> bool {
    use Mnemonic::*;
    let segment_load = i.op_count() > 0
        && i.op_kind(0) == OpKind::Register
        && i.op_register(0).is_segment_register();
    let tile =
        (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_tmm());
    segment_load
        || tile
        || matches!(
            i.mnemonic(),
            Lfs | Lgs
                | Lss
                | Lds
                | Les
                | Sldt
                | Str
                | Smsw
                | Sgdt
                | Sidt
                | Rdpkru
                | Wrpkru
                | Xtest
                | Monitor
                | Mwait
                | Monitorx
                | Mwaitx
                | Umonitor
                | Umwait
                | Tpause
                | Movdir64b
                | Enqcmd
                | Enqcmds
                | Xsaves
                | Xsaves64
                | Xrstors
                | Xrstors64
                | Ldtilecfg
                | Sttilecfg
                | Tilerelease
                | Ptwrite
                | Incsspd
                | Incsspq
                | Rstorssp
                | Saveprevssp
                | Wrssd
                | Wrssq
                | Clzero
                | Senduipi
                | Uiret
                | Clui
                | Stui
                | Testui
                | Encls
                | Enclu
                | Bndmov
                | Bndldx
                | Bndstx
                | Bndcl
                | Bndcu
                | Bndcn
                | Bndmk
                | Rdpru
                | Hreset
                | Serialize
                | Vp2intersectd
                | Vp2intersectq
        )
}
