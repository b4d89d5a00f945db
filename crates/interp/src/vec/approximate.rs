//! Approximations of reciprocals, as the recorded processor gives them.

use super::element::{Element, count};
use super::form::{last, store, store_low};
use crate::Memory;
use crate::core::Core;
use crate::decode::fault;
use crate::op::{Flow, Op, Run};
use hindsight_isa::Finer;
use hindsight_isa::approximate::Reciprocal;
use iced_x86::{Instruction, Mnemonic};

/// A number of one of two lengths.
trait Guess: Element {
    fn finer(known: &Finer, what: Reciprocal, x: Self, mxcsr: u32) -> Self;
}

impl Guess for u32 {
    fn finer(known: &Finer, what: Reciprocal, x: u32, mxcsr: u32) -> u32 {
        known.of_single(what, x, mxcsr)
    }
}

impl Guess for u64 {
    fn finer(known: &Finer, what: Reciprocal, x: u64, mxcsr: u32) -> u64 {
        known.of_double(what, x, mxcsr)
    }
}

/// What the processor gives for each number. `None`: nobody knows.
trait Gives<T> {
    fn of(c: &Core, x: T) -> Option<T>;
}

struct Coarse<const ROOT: bool>;
struct Fine<const ROOT: bool>;

impl<const ROOT: bool> Gives<u32> for Coarse<ROOT> {
    fn of(c: &Core, x: u32) -> Option<u32> {
        Some(c.approximations.as_ref()?.of_number(what(ROOT), x))
    }
}

impl<T: Guess, const ROOT: bool> Gives<T> for Fine<ROOT> {
    fn of(c: &Core, x: T) -> Option<T> {
        Some(T::finer(c.finer.as_ref()?, what(ROOT), x, c.mxcsr))
    }
}

/// The instruction's code is in its constant.
fn unknown<M>(c: &mut Core, o: &Op<M>) -> Flow {
    c.fault = Some(fault(o.imm));
    Flow::Fault
}

fn packed<M: Memory, T: Element, G: Gives<T>>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = last(c, m, o);
    let mut r = [[0; 16]; 4];
    for (from, to) in b.iter().zip(&mut r).take(o.lanes as usize) {
        for i in 0..count::<T>() {
            let Some(v) = G::of(c, T::get(from, i)) else {
                return unknown(c, o);
            };
            v.put(to, i);
        }
    }
    store(c, o, &r);
    Flow::Next
}

fn scalar<M: Memory, T: Element, G: Gives<T>>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let Some(v) = G::of(c, T::get(&b, 0)) else {
        return unknown(c, o);
    };
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
    let run: Run<M> = match i.mnemonic() {
        Rcpps | Vrcpps => packed::<M, u32, Coarse<false>>,
        Rcpss | Vrcpss => scalar::<M, u32, Coarse<false>>,
        Rsqrtps | Vrsqrtps => packed::<M, u32, Coarse<true>>,
        Rsqrtss | Vrsqrtss => scalar::<M, u32, Coarse<true>>,
        Vrcp14ps => packed::<M, u32, Fine<false>>,
        Vrcp14ss => scalar::<M, u32, Fine<false>>,
        Vrcp14pd => packed::<M, u64, Fine<false>>,
        Vrcp14sd => scalar::<M, u64, Fine<false>>,
        Vrsqrt14ps => packed::<M, u32, Fine<true>>,
        Vrsqrt14ss => scalar::<M, u32, Fine<true>>,
        Vrsqrt14pd => packed::<M, u64, Fine<true>>,
        Vrsqrt14sd => scalar::<M, u64, Fine<true>>,
        _ => return None,
    };
    // Groups that are asked later have a constant of their own.
    o.imm = i.code() as u64;
    Some(run)
}
