//! Conversions between formats of numbers.

use super::element::{Element, count, element, set_element};
use super::form::{last, selected, store, store_first, store_low};
use super::numbers::{Env, Float};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run, bit};
use crate::operand::gpr;
use crate::soft::Round;
use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind};

/// Converts each element: as many as the source of `d` lanes has, or the result if its elements are larger.
fn each<M: Memory, S: Element, T: Element + Default>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
    f: impl Fn(&mut Env, S) -> T,
) -> Flow {
    let v = last(c, m, o);
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    let n = match S::BYTES >= T::BYTES {
        true => (o.d as usize).min(4) * count::<S>(),
        false => (o.lanes as usize).min(4) * count::<T>(),
    };
    for i in (0..n).filter(|i| selected(c, o, *i)) {
        set_element(&mut r, i, f(&mut e, element(&v, i)));
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    // A half register is all that there is: the mask has no bits for the rest.
    store(c, o, &r);
    if n * T::BYTES < 16 {
        c.zmm[(o.a & 31) as usize][0][8..].fill(0);
    }
    Flow::Next
}

fn between<M: Memory, S: Float, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    each(c, m, o, |e, x: S| e.convert::<S, T>(x))
}

/// `HOW`: bit 0 truncates, bit 1 is without a sign.
fn to_integers<M: Memory, S: Float, T: Element + Int + Default, const HOW: u8>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    each(c, m, o, |e, x: S| {
        let mode = if HOW & 1 != 0 { Round::Zero } else { e.mode };
        T::of(e.integer(x, mode, T::BITS, HOW & 2 == 0))
    })
}

fn from_integers<M: Memory, S: Element + Int, T: Float, const SIGNED: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    each(c, m, o, |e, x: S| {
        e.number::<T>(if SIGNED { x.signed() } else { x.wide() }, SIGNED)
    })
}

/// VCVTPH2PS.
fn from_halves<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    each(c, m, o, |e, x: u16| e.widen_half(x))
}

/// VCVTPS2PH, which can have its result in memory. Bit 2 of the constant: rounds as MXCSR says. The source has `d`
/// lanes.
fn to_halves<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let mut e = Env::of(c, o);
    if o.imm & 4 == 0 {
        e.mode = Round::of(o.imm as u32);
    }
    e.keep_tiny_halves();
    let mut r = [[0; 16]; 4];
    let n = (o.d as usize).min(4) * 4;
    for i in (0..n).filter(|i| selected(c, o, *i)) {
        set_element::<u16>(&mut r, i, e.convert(element::<u32>(&v, i)));
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_first(c, m, o, &r, 2 * n);
    Flow::Next
}

/// CVTSS2SD and CVTSD2SS.
fn low_between<M: Memory, S: Float, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (above, v) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let mut e = Env::of(c, o);
    let mut r = T::default();
    if selected(c, o, 0) {
        r = e.convert::<S, T>(S::get(&v, 0));
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, above);
    Flow::Next
}

/// From a general purpose register or memory.
fn from_general<M: Memory, S: Int, T: Float, const SIGNED: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v: S = match o.has(bit::MEMORY) {
        true => S::load(m, o.address(c)),
        false => S::held(c, o.c),
    };
    let above = c.zmm[(o.b & 31) as usize][0];
    let mut e = Env::of(c, o);
    let r: T = e.number(if SIGNED { v.signed() } else { v.wide() }, SIGNED);
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, above);
    Flow::Next
}

fn to_general<M: Memory, S: Float, T: Int, const HOW: u8>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v = S::get(&last(c, m, o)[0], 0);
    let mut e = Env::of(c, o);
    let mode = if HOW & 1 != 0 { Round::Zero } else { e.mode };
    let r = e.integer(v, mode, T::BITS, HOW & 2 == 0);
    if !e.finish(c) {
        return Flow::Fault;
    }
    T::of(r).set(c, o.a);
    Flow::Next
}

const SIGNED: u8 = 0;
const TRUNCATED: u8 = 1;
const UNSIGNED: u8 = 2;
const BOTH: u8 = 3;

/// Lanes of the source, which is the second operand.
pub fn source_lanes(i: &Instruction, o: u8) -> u8 {
    match i.op1_kind() {
        OpKind::Register => (i.op1_register().size() / 16).max(1) as u8,
        // As many as the wider operand has.
        _ if i.is_broadcast() => match i.code().encoding() {
            EncodingKind::EVEX => {
                let mut whole = *i;
                whole.set_is_broadcast(false);
                let bytes = whole.memory_size().size().max(i.op0_register().size());
                (bytes / 16).max(1) as u8
            }
            _ => o,
        },
        _ => (i.memory_size().size() / 16).max(1) as u8,
    }
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let wide = i.op0_register().is_gpr64();
    let from_wide = match i.op_count() {
        0 => false,
        n => {
            let n = n - 1;
            match i.op_kind(n) {
                OpKind::Register => i.op_register(n).is_gpr64(),
                _ => i.memory_size().size() == 8,
            }
        }
    };
    macro_rules! general {
        ($s:ty, $how:expr) => {{
            o.a = gpr(i.op0_register());
            if wide {
                to_general::<M, $s, u64, $how>
            } else {
                to_general::<M, $s, u32, $how>
            }
        }};
    }
    macro_rules! from {
        ($t:ty, $signed:literal) => {{
            if i.op_kind(i.op_count() - 1) == OpKind::Register {
                o.c = gpr(i.op_register(i.op_count() - 1));
            }
            match from_wide {
                true => from_general::<M, u64, $t, $signed>,
                false => from_general::<M, u32, $t, $signed>,
            }
        }};
    }
    let scalar: Option<Run<M>> = match i.mnemonic() {
        Cvtss2si | Vcvtss2si => Some(general!(u32, SIGNED)),
        Cvtsd2si | Vcvtsd2si => Some(general!(u64, SIGNED)),
        Cvttss2si | Vcvttss2si => Some(general!(u32, TRUNCATED)),
        Cvttsd2si | Vcvttsd2si => Some(general!(u64, TRUNCATED)),
        Vcvtss2usi => Some(general!(u32, UNSIGNED)),
        Vcvtsd2usi => Some(general!(u64, UNSIGNED)),
        Vcvttss2usi => Some(general!(u32, BOTH)),
        Vcvttsd2usi => Some(general!(u64, BOTH)),
        Cvtsi2ss | Vcvtsi2ss => Some(from!(u32, true)),
        Cvtsi2sd | Vcvtsi2sd => Some(from!(u64, true)),
        Vcvtusi2ss => Some(from!(u32, false)),
        Vcvtusi2sd => Some(from!(u64, false)),
        Cvtss2sd | Vcvtss2sd => Some(low_between::<M, u32, u64> as Run<M>),
        Cvtsd2ss | Vcvtsd2ss => Some(low_between::<M, u64, u32> as Run<M>),
        _ => Option::None,
    };
    if scalar.is_some() {
        return scalar;
    }
    let lanes = source_lanes(i, o.lanes);
    let (run, element): (Run<M>, u8) = match i.mnemonic() {
        Cvtps2pd | Vcvtps2pd => (between::<M, u32, u64>, 8),
        Cvtpd2ps | Vcvtpd2ps => (between::<M, u64, u32>, 4),
        Cvtps2dq | Vcvtps2dq => (to_integers::<M, u32, u32, SIGNED>, 4),
        Cvttps2dq | Vcvttps2dq => (to_integers::<M, u32, u32, TRUNCATED>, 4),
        Cvtpd2dq | Vcvtpd2dq => (to_integers::<M, u64, u32, SIGNED>, 4),
        Cvttpd2dq | Vcvttpd2dq => (to_integers::<M, u64, u32, TRUNCATED>, 4),
        Cvtdq2ps | Vcvtdq2ps => (from_integers::<M, u32, u32, true>, 4),
        Cvtdq2pd | Vcvtdq2pd => (from_integers::<M, u32, u64, true>, 8),
        Vcvtps2udq => (to_integers::<M, u32, u32, UNSIGNED>, 4),
        Vcvttps2udq => (to_integers::<M, u32, u32, BOTH>, 4),
        Vcvtpd2udq => (to_integers::<M, u64, u32, UNSIGNED>, 4),
        Vcvttpd2udq => (to_integers::<M, u64, u32, BOTH>, 4),
        Vcvtps2qq => (to_integers::<M, u32, u64, SIGNED>, 8),
        Vcvttps2qq => (to_integers::<M, u32, u64, TRUNCATED>, 8),
        Vcvtpd2qq => (to_integers::<M, u64, u64, SIGNED>, 8),
        Vcvttpd2qq => (to_integers::<M, u64, u64, TRUNCATED>, 8),
        Vcvtps2uqq => (to_integers::<M, u32, u64, UNSIGNED>, 8),
        Vcvttps2uqq => (to_integers::<M, u32, u64, BOTH>, 8),
        Vcvtpd2uqq => (to_integers::<M, u64, u64, UNSIGNED>, 8),
        Vcvttpd2uqq => (to_integers::<M, u64, u64, BOTH>, 8),
        Vcvtudq2ps => (from_integers::<M, u32, u32, false>, 4),
        Vcvtudq2pd => (from_integers::<M, u32, u64, false>, 8),
        Vcvtqq2ps => (from_integers::<M, u64, u32, true>, 4),
        Vcvtqq2pd => (from_integers::<M, u64, u64, true>, 8),
        Vcvtuqq2ps => (from_integers::<M, u64, u32, false>, 4),
        Vcvtuqq2pd => (from_integers::<M, u64, u64, false>, 8),
        Vcvtph2ps => (from_halves, 4),
        Vcvtps2ph => (to_halves, 2),
        _ => return Option::None,
    };
    (o.d, o.element) = (lanes, element);
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, OpCodeOperandKind, Register};

    /// The length that the form says is found without the tables of forms, which take time and room.
    #[test]
    fn lanes_of_a_broadcast_are_those_of_the_form() {
        let mut seen = [0; 3];
        for code in Code::values() {
            use OpCodeOperandKind::*;
            let form = code.op_code();
            let source = matches!(form.op1_kind(), xmm_or_mem | ymm_or_mem | zmm_or_mem);
            if form.encoding() != EncodingKind::EVEX || !form.can_broadcast() || !source {
                continue;
            }
            let to = match form.op0_kind() {
                xmm_reg | xmm_vvvv => Register::XMM1,
                ymm_reg | ymm_vvvv => Register::YMM1,
                zmm_reg | zmm_vvvv => Register::ZMM1,
                k_reg => Register::K1,
                other => panic!("{code:?}: {other:?}"),
            };
            let mut i = Instruction::new();
            i.set_code(code);
            i.set_op0_kind(OpKind::Register);
            i.set_op0_register(to);
            i.set_op1_kind(OpKind::Memory);
            i.set_is_broadcast(true);
            let length = form.l().min(2);
            assert_eq!(source_lanes(&i, 9), 1 << length, "{code:?}");
            seen[length as usize] += 1;
        }
        assert!(seen.iter().all(|n| *n > 20), "{seen:?}");
    }
}
