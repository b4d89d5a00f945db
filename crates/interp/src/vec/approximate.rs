//! Approximations of reciprocals, as the recorded processor gives them.

use super::element::{Element, count};
use super::form::{last, store, store_low};
use crate::Memory;
use crate::core::Core;
use crate::decode::fault;
use crate::op::{Flow, Op, Run};
use hindsight_isa::approximate::{Reciprocal, reciprocal};
use iced_x86::{Instruction, Mnemonic};

/// The instruction's code is in its constant.
fn packed<M: Memory, const ROOT: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = last(c, m, o);
    let Some(known) = &c.approximations else {
        c.fault = Some(fault(o.imm));
        return Flow::Fault;
    };
    let mut r = [[0; 16]; 4];
    for (from, to) in b.iter().zip(&mut r).take(o.lanes as usize) {
        for i in 0..count::<u32>() {
            let v = known.of_number(what(ROOT), u32::get(from, i));
            v.put(to, i);
        }
    }
    store(c, o, &r);
    Flow::Next
}

fn scalar<M: Memory, const ROOT: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let Some(known) = &c.approximations else {
        c.fault = Some(fault(o.imm));
        return Flow::Fault;
    };
    let v = known.of_number(what(ROOT), u32::get(&b, 0));
    store_low(c, o, v, a);
    Flow::Next
}

fn what(root: bool) -> Reciprocal {
    match root {
        true => Reciprocal::Root,
        false => Reciprocal::Number,
    }
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let what = reciprocal(i.mnemonic())?;
    o.imm = i.code() as u64;
    let alone = matches!(i.mnemonic(), Rcpss | Vrcpss | Rsqrtss | Vrsqrtss);
    Some(match (what, alone) {
        (Reciprocal::Number, false) => packed::<M, false>,
        (Reciprocal::Number, true) => scalar::<M, false>,
        (Reciprocal::Root, false) => packed::<M, true>,
        (Reciprocal::Root, true) => scalar::<M, true>,
    })
}
