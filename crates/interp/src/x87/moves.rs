//! Loads and stores, constants, conditional moves.

use super::form::{denormal, end, memory_format, widen};
use crate::Memory;
use crate::core::Core;
use crate::core::x87::{F80Bits, Stop, X87};
use crate::fault::Fault;
use crate::op::{Flow, Op, Run};
use crate::soft::flag::IE;
use crate::soft::{Format, INDEFINITE, Number, Round, from_integer, to_integer};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// FLD of a number in memory of `size` bytes.
fn fld_memory<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let bits = match o.size {
        4 => u32::from_le_bytes(m.load(at)) as u64,
        _ => u64::from_le_bytes(m.load(at)),
    };
    let done = match memory_format(o.size as usize) {
        Some(f) => load(&mut c.x87, bits, f),
        None => Ok(()),
    };
    end(c, done)
}

fn load(x: &mut X87, bits: u64, f: Format) -> Result<(), Stop> {
    let (n, tiny) = widen(bits, f);
    if !x.is_full(7) {
        x.raise(if n.is_signaling() { IE } else { 0 })?;
        match x.raise(denormal(tiny)) {
            // The number is pushed nevertheless.
            Ok(()) | Err(Stop::Withheld) => {}
            fault => return fault,
        }
    }
    x.push(n.quiet().pack80())
}

fn fld_80<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let v = (
        u64::from_le_bytes(m.load(at)),
        u16::from_le_bytes(m.load(at.wrapping_add(8))),
    );
    let done = c.x87.push(v);
    end(c, done)
}

fn fld_register<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = match x.is_full(o.a) {
        true => x.push(x.get(o.a)),
        false => x.stack_fault(false).map(|v| {
            x.top = x.top.wrapping_sub(1) & 7;
            x.set(0, v);
        }),
    };
    end(c, done)
}

fn fild<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let v = match o.size {
        2 => i16::from_le_bytes(m.load(at)) as i64,
        4 => i32::from_le_bytes(m.load(at)) as i64,
        _ => i64::from_le_bytes(m.load(at)),
    };
    let n = from_integer(v < 0, v.unsigned_abs() as u128);
    let done = c.x87.push(n.pack80());
    end(c, done)
}

/// The constants: significand, sign with exponent, and whether the exact value is larger.
const CONSTANTS: [(Mnemonic, u64, u16, bool); 7] = [
    (Mnemonic::Fldz, 0, 0, false),
    (Mnemonic::Fld1, 1 << 63, 0x3fff, false),
    (Mnemonic::Fldpi, 0xc90f_daa2_2168_c235, 0x4000, false),
    (Mnemonic::Fldl2t, 0xd49a_784b_cd1b_8afe, 0x4000, true),
    (Mnemonic::Fldl2e, 0xb8aa_3b29_5c17_f0bc, 0x3fff, false),
    (Mnemonic::Fldlg2, 0x9a20_9a84_fbcf_f799, 0x3ffd, false),
    (Mnemonic::Fldln2, 0xb172_17f7_d1cf_79ac, 0x3ffe, false),
];

/// Loads the constant in `imm` and `disp`. Rounding down or up gives a neighbour.
fn constant<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let (significand, head) = (o.imm, o.disp as u16);
    let exact = significand << 1 == 0;
    let v = match (exact, o.c != 0, c.x87.mode()) {
        (true, ..) | (_, _, Round::Nearest) => significand,
        (_, true, Round::Up) => significand + 1,
        (_, false, Round::Down | Round::Zero) => significand - 1,
        _ => significand,
    };
    let done = c.x87.push((v, head));
    end(c, done)
}

/// FST and FSTP (`c` is 1) to memory.
fn fst_memory<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let Some(f) = memory_format(o.size as usize) else {
        return end(c, Err(Stop::Fault(Fault::NoInstruction)));
    };
    match narrow(&mut c.x87, f) {
        Ok(bits) => match o.size {
            4 => m.store(at, (bits as u32).to_le_bytes()),
            _ => m.store(at, bits.to_le_bytes()),
        },
        Err(stop) => return end(c, Err(stop)),
    }
    if o.c != 0 {
        c.x87.pop();
    }
    Flow::Next
}

/// st(0) in a format of memory.
fn narrow(x: &mut X87, f: Format) -> Result<u64, Stop> {
    if !x.is_full(0) {
        x.stack_fault(false)?;
        return Ok(INDEFINITE.pack(f));
    }
    x.set_c1(false);
    let Some((n, _)) = x.number(0) else {
        x.raise(IE)?;
        return Ok(INDEFINITE.pack(f));
    };
    if let Number::Nan { .. } = n {
        x.raise(if n.is_signaling() { IE } else { 0 })?;
        return Ok(n.quiet().pack(f));
    }
    Ok(x.narrow(n, f)?.pack(f))
}

fn fstp_80<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let x = &mut c.x87;
    let v = match x.is_full(0) {
        true => {
            x.set_c1(false);
            Ok(x.get(0))
        }
        false => x.stack_fault(false),
    };
    match v {
        Ok((significand, head)) => {
            m.store(at, significand.to_le_bytes());
            m.store(at.wrapping_add(8), head.to_le_bytes());
            c.x87.pop();
            Flow::Next
        }
        Err(stop) => end(c, Err(stop)),
    }
}

/// FST and FSTP (`c` is 1) to a register.
fn fst_register<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let v = match x.is_full(0) {
        true => {
            x.set_c1(false);
            Ok(x.get(0))
        }
        false => x.stack_fault(false),
    };
    let done = v.map(|v| {
        x.set(o.a, v);
        if o.c != 0 {
            x.pop();
        }
    });
    end(c, done)
}

/// FSTPNCE: an empty st(0) is no fault, and is not stored.
fn fst_unchecked<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    x.set_c1(false);
    if x.is_full(0) {
        x.set(o.a, x.get(0));
    }
    x.pop();
    Flow::Next
}

/// FIST, FISTP (`c` is 1) and FISTTP (`d` is 1).
fn fist<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let bits = o.size as u32 * 8;
    let x = &mut c.x87;
    let mode = if o.d != 0 { Round::Zero } else { x.mode() };
    let v = match integer(x, mode, bits) {
        Ok(v) => v,
        Err(stop) => return end(c, Err(stop)),
    };
    match o.size {
        2 => m.store(at, (v as u16).to_le_bytes()),
        4 => m.store(at, (v as u32).to_le_bytes()),
        _ => m.store(at, v.to_le_bytes()),
    }
    if o.c != 0 {
        c.x87.pop();
    }
    Flow::Next
}

/// st(0) as an integer of so many bits.
fn integer(x: &mut X87, mode: Round, bits: u32) -> Result<u64, Stop> {
    let indefinite = 1 << (bits - 1);
    if !x.is_full(0) {
        x.stack_fault(false)?;
        return Ok(indefinite);
    }
    x.set_c1(false);
    let fits = x
        .number(0)
        .and_then(|(n, _)| to_integer(n, mode, bits, true));
    let Some((v, flags, up)) = fits else {
        x.raise(IE)?;
        return Ok(indefinite);
    };
    x.raise(flags)?;
    x.set_c1(up);
    Ok(v)
}

fn fxch<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let mut take = |i: u8| -> Result<F80Bits, Stop> {
        match x.is_full(i) {
            true => Ok(x.get(i)),
            false => x.stack_fault(false),
        }
    };
    let done = take(0).and_then(|a| Ok((a, take(o.a)?)));
    let done = done.map(|(a, b)| {
        x.set(0, b);
        x.set(o.a, a);
        x.set_c1(false);
    });
    end(c, done)
}

/// FCMOVcc: the condition's number is `c`.
fn fcmov<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let taken = c.flags.condition(o.c);
    let x = &mut c.x87;
    let done = match x.is_full(0) && x.is_full(o.a) {
        true => {
            if taken {
                let v = x.get(o.a);
                x.set(0, v);
            }
            Ok(())
        }
        false => x.stack_fault(false).map(|v| x.set(0, v)),
    };
    end(c, done)
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let memory = i.op0_kind() == OpKind::Memory;
    let size = if memory { i.memory_size().size() } else { 0 };
    o.size = size as u8;
    if let Some(k) = CONSTANTS.iter().find(|k| k.0 == i.mnemonic()) {
        (o.imm, o.disp, o.c) = (k.1, k.2 as u64, k.3 as u8);
        return Some(constant);
    }
    let register = |n: u32| i.op_register(n).number() as u8;
    match (i.mnemonic(), memory) {
        (Fld, true) if size == 10 => Some(fld_80),
        (Fld, true) => Some(fld_memory),
        (Fld, false) => {
            o.a = register(0);
            Some(fld_register)
        }
        (Fild, _) => Some(fild),
        (Fstp, true) if size == 10 => Some(fstp_80),
        (Fst | Fstp, true) => {
            o.c = (i.mnemonic() == Fstp) as u8;
            Some(fst_memory)
        }
        (Fstpnce, _) => {
            o.a = register(0);
            Some(fst_unchecked)
        }
        (Fst | Fstp, false) => {
            (o.a, o.c) = (register(0), (i.mnemonic() == Fstp) as u8);
            Some(fst_register)
        }
        (Fist | Fistp | Fisttp, _) => {
            (o.c, o.d) = ((i.mnemonic() != Fist) as u8, (i.mnemonic() == Fisttp) as u8);
            Some(fist)
        }
        (Fxch, _) => {
            o.a = register(1);
            Some(fxch)
        }
        (Fcmovb | Fcmove | Fcmovbe | Fcmovu | Fcmovnb | Fcmovne | Fcmovnbe | Fcmovnu, _) => {
            o.a = register(1);
            o.c = match i.mnemonic() {
                Fcmovb => 2,
                Fcmovnb => 3,
                Fcmove => 4,
                Fcmovne => 5,
                Fcmovbe => 6,
                Fcmovnbe => 7,
                Fcmovu => 10,
                _ => 11,
            };
            Some(fcmov)
        }
        _ => Option::None,
    }
}
