//! Moves, extensions, conditional moves, addresses.

use super::form::{At, Binary, Unary, at, size, sized, two};
use crate::Memory;
use crate::core::{Core, slot};
use crate::fault::Fault;
use crate::op::{A, B, Flow, Int, Mem, Op, Place, Run, bit};
use crate::operand::gpr;
use hindsight_isa::regs::{RAX, RBX, RDX};
use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, Register};

struct Mov;
impl Binary for Mov {
    const READS: bool = false;
    #[inline(always)]
    fn apply<T: Int>(_: &mut Core, _: T, b: T) -> T {
        b
    }
}

/// A move that extends from `S` to `D`.
fn extend<M: Memory, D: Int, S: Int, P: Place, const SIGN: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v: S = P::get(c, m, o);
    D::of(if SIGN { v.signed() } else { v.wide() }).set(c, o.a);
    Flow::Next
}

fn find_extend<M: Memory, const SIGN: bool>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.a = gpr(i.op0_register());
    o.b = gpr(i.op1_register());
    macro_rules! forms {
        ($($to:literal $from:literal: $d:ty, $s:ty;)*) => {
            match (size(i, 0), size(i, 1), at(i, 1)) {
                $(
                    ($to, $from, At::Memory) => Some(extend::<M, $d, $s, Mem, SIGN>),
                    ($to, $from, _) => Some(extend::<M, $d, $s, B, SIGN>),
                )*
                _ => None,
            }
        };
    }
    forms! {
        2 1: u16, u8;
        4 1: u32, u8;
        8 1: u64, u8;
        2 2: u16, u16;
        4 2: u32, u16;
        8 2: u64, u16;
        4 4: u32, u32;
        8 4: u64, u32;
    }
}

fn lea<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    T::of(o.address(c)).set(c, o.a);
    Flow::Next
}

/// The number of a condition, as opcodes have it.
pub fn condition(code: ConditionCode) -> Option<u8> {
    use ConditionCode::*;
    Some(match code {
        o => 0,
        no => 1,
        b => 2,
        ae => 3,
        e => 4,
        ne => 5,
        be => 6,
        a => 7,
        s => 8,
        ns => 9,
        p => 10,
        np => 11,
        l => 12,
        ge => 13,
        le => 14,
        g => 15,
        None => return Option::None,
    })
}

fn cmov<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let new: T = P::get(c, m, o);
    let old = T::held(c, o.a);
    // A register of 32 bits is written in any case.
    let v = if c.flags.condition(o.c) { new } else { old };
    v.set(c, o.a);
    Flow::Next
}

fn set<M: Memory, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = c.flags.condition(o.c) as u8;
    P::set(c, m, o, v);
    Flow::Next
}

/// CBW, CWDE, CDQE: the accumulator's lower half is extended.
struct Widen;
impl Unary for Widen {
    fn apply<T: Int>(_: &mut Core, a: T) -> T {
        let half = 64 - T::BITS / 2;
        T::of(((a.wide() << half) as i64 >> half) as u64)
    }
}

/// CWD, CDQ, CQO: the sign fills rdx.
fn spread<M: Memory, T: Int>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let sign = T::held(c, RAX as u8).top();
    T::of(if sign { u64::MAX } else { 0 }).set(c, RDX as u8);
    Flow::Next
}

fn widen<M: Memory, T: Int>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let v = Widen::apply(c, T::held(c, RAX as u8));
    v.set(c, RAX as u8);
    Flow::Next
}

fn xlat<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let offset = c.gpr[RBX].wrapping_add(c.gpr[RAX] & 0xff);
    let offset = match o.has(bit::SHORT) {
        true => offset as u32 as u64,
        false => offset,
    };
    let v = u8::load(m, offset.wrapping_add(c.gpr[(o.segment & 31) as usize]));
    v.set(c, RAX as u8);
    Flow::Next
}

/// MOV from a segment register. A recorded program cannot have changed it: it has what the kernel gives each program.
fn from_segment<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.imm = match i.op1_register() {
        Register::CS => 0x33,
        Register::SS => 0x2b,
        r if r.is_segment_register() => 0,
        _ => return None,
    };
    o.a = gpr(i.op0_register());
    match at(i, 0) {
        At::Memory => Some(constant::<M, u16, Mem>),
        _ => sized!(size(i, 0), T => constant::<M, T, A>),
    }
}

/// The constant goes to a register or memory.
fn constant<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    P::set(c, m, o, T::of(o.imm));
    Flow::Next
}

/// CLZERO: zeros in the line of 64 bytes at rax.
fn zero_line<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = match o.has(bit::SHORT) {
        true => c.gpr[RAX] as u32 as u64,
        false => c.gpr[RAX],
    };
    m.store(at & !63, [0; 64]);
    Flow::Next
}

/// MOVDIR64B: a line of 64 bytes to the address in register `a`.
fn move_line<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let to = match o.has(bit::SHORT) {
        true => u32::held(c, o.a) as u64,
        false => u64::held(c, o.a),
    };
    if to % 64 != 0 {
        c.fault = Some(Fault::Exception(13));
        return Flow::Fault;
    }
    let line: [u8; 64] = m.load(o.address(c));
    m.store(to, line);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let conditional = |o: &mut Op<M>| {
        o.a = gpr(i.op0_register());
        o.b = gpr(i.op1_register());
        o.c = condition(i.condition_code())?;
        Some(())
    };
    match i.mnemonic() {
        Mov => {
            let other = |n| at(i, n) == At::Register && !i.op_register(n).is_gpr();
            match (other(0), other(1)) {
                (false, false) => two::<M, self::Mov>(i, o),
                (false, true) => from_segment(i, o),
                _ => Option::None,
            }
        }
        Movnti | Movdiri => two::<M, self::Mov>(i, o),
        Movzx => find_extend::<M, false>(i, o),
        Movsx | Movsxd => find_extend::<M, true>(i, o),
        Lea => {
            o.a = gpr(i.op0_register());
            o.segment = slot::ZERO;
            sized!(size(i, 0), T => lea::<M, T>)
        }
        Cmovo | Cmovno | Cmovb | Cmovae | Cmove | Cmovne | Cmovbe | Cmova | Cmovs | Cmovns
        | Cmovp | Cmovnp | Cmovl | Cmovge | Cmovle | Cmovg => {
            conditional(o)?;
            match at(i, 1) {
                At::Memory => sized!(size(i, 0), T => cmov::<M, T, Mem>),
                _ => sized!(size(i, 0), T => cmov::<M, T, B>),
            }
        }
        Seto | Setno | Setb | Setae | Sete | Setne | Setbe | Seta | Sets | Setns | Setp | Setnp
        | Setl | Setge | Setle | Setg => {
            conditional(o)?;
            match at(i, 0) {
                At::Memory => Some(set::<M, Mem>),
                _ => Some(set::<M, A>),
            }
        }
        Cbw => Some(widen::<M, u16>),
        Cwde => Some(widen::<M, u32>),
        Cdqe => Some(widen::<M, u64>),
        Cwd => Some(spread::<M, u16>),
        Cdq => Some(spread::<M, u32>),
        Cqo => Some(spread::<M, u64>),
        Movdir64b => {
            o.a = gpr(i.op0_register());
            Some(move_line)
        }
        Clzero => {
            if i.code() == Code::Clzerod {
                o.bits |= bit::SHORT;
            }
            Some(zero_line)
        }
        Xlatb => {
            o.segment = crate::operand::segment(i);
            if i.memory_base() == Register::EBX {
                o.bits |= bit::SHORT;
            }
            Some(xlat)
        }
        _ => Option::None,
    }
}
