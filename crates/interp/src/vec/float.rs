//! Floating-point arithmetic.

use super::element::count;
use super::form::{Lanes, last, selected, store, store_low};
use super::numbers::{Env, Float, flow};
use crate::Memory;
use crate::core::Core;
use crate::fault::Fault;
use crate::op::{Flow, Op, Run};
use crate::soft::Round;
use iced_x86::{Instruction, Mnemonic};
use std::cmp::Ordering;

/// An operation on elements: `a` is that of the first source.
pub trait Arithmetic {
    fn apply<T: Float>(e: &mut Env, a: T, b: T, imm: u8) -> T;
}

/// Declares operations on elements: `name: |env, a, b, imm| element;`.
macro_rules! arithmetic {
    ($($name:ident: |$e:ident, $a:ident, $b:ident, $imm:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl crate::vec::float::Arithmetic for $name {
                #[inline(always)]
                fn apply<T: crate::vec::numbers::Float>(
                    $e: &mut crate::vec::numbers::Env,
                    $a: T,
                    $b: T,
                    $imm: u8,
                ) -> T {
                    let _ = ($a, $imm);
                    $r
                }
            }
        )*
    };
}
pub(super) use arithmetic;

arithmetic! {
    Sum: |e, a, b, imm| e.add(a, b);
    Difference: |e, a, b, imm| e.sub(a, b);
    Product: |e, a, b, imm| e.mul(a, b);
    Quotient: |e, a, b, imm| e.div(a, b);
    Root: |e, a, b, imm| e.sqrt(b);
    Least: |e, a, b, imm| e.pick(a, b, Ordering::Less);
    Greatest: |e, a, b, imm| e.pick(a, b, Ordering::Greater);
    // Bit 2 of the constant: as MXCSR says. Bit 3: without the flag of inexact results.
    Whole: |e, a, b, imm| {
        let mode = if imm & 4 != 0 { e.mode } else { Round::of(imm as u32) };
        e.integral(b, mode, imm & 8 != 0)
    };
}

fn packed<M: Memory, F: Arithmetic, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        for i in 0..count::<T>() {
            // What the mask leaves out has no exceptions.
            if selected(c, o, l * count::<T>() + i) {
                let v = F::apply(&mut e, T::get(&a[l], i), T::get(&b[l], i), o.imm as u8);
                v.put(&mut r[l], i);
            }
        }
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store(c, o, &r);
    Flow::Next
}

fn scalar<M: Memory, F: Arithmetic, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let mut e = Env::of(c, o);
    let mut r = T::default();
    if selected(c, o, 0) {
        r = F::apply(&mut e, T::get(&a, 0), T::get(&b, 0), o.imm as u8);
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, a);
    Flow::Next
}

/// HADD and HSUB: neighbours, those of the first operand before those of the last one.
fn horizontal<M: Memory, F: Arithmetic, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    let half = count::<T>() / 2;
    for l in 0..(o.lanes as usize).min(4) {
        for i in 0..count::<T>() {
            let (v, k) = if i < half {
                (&a[l], i)
            } else {
                (&b[l], i - half)
            };
            let (x, y) = (T::get(v, 2 * k), T::get(v, 2 * k + 1));
            F::apply(&mut e, x, y, 0).put(&mut r[l], i);
        }
    }
    if e.finish(c) {
        store(c, o, &r);
        return Flow::Next;
    }
    Flow::Fault
}

/// ADDSUB: even elements are subtracted, odd ones added.
fn alternate<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        for i in 0..count::<T>() {
            let (x, y) = (T::get(&a[l], i), T::get(&b[l], i));
            let v = if i & 1 == 0 { e.sub(x, y) } else { e.add(x, y) };
            v.put(&mut r[l], i);
        }
    }
    if e.finish(c) {
        store(c, o, &r);
        return Flow::Next;
    }
    Flow::Fault
}

/// DPPS and DPPD: the upper half of the constant selects products, the lower half where the sum goes.
fn dot<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut r: Lanes = [[0; 16]; 4];
    let rule = c.left_open.dot_product;
    let [low_first, high_first, sums_first] = rule.map_or([false; 3], |r| r.upper_first);
    let mut unclear = false;
    for l in 0..(o.lanes as usize).min(4) {
        let mut p = [T::default(); 4];
        for (i, p) in p.iter_mut().enumerate().take(count::<T>()) {
            if o.imm >> (4 + i) & 1 != 0 {
                *p = e.mul(T::get(&a[l], i), T::get(&b[l], i));
            }
        }
        let mut add = |x: T, y: T, upper_first: bool| {
            // Processors differ in which one they take.
            unclear |= rule.is_none() && x != y && [x, y].iter().all(|v| e.unpack(*v).0.is_nan());
            if upper_first {
                e.add(y, x)
            } else {
                e.add(x, y)
            }
        };
        let low = add(p[0], p[1], low_first);
        let sum = match count::<T>() {
            2 => low,
            _ => {
                let high = add(p[2], p[3], high_first);
                add(low, high, sums_first)
            }
        };
        for i in (0..count::<T>()).filter(|i| o.imm >> i & 1 != 0) {
            sum.put(&mut r[l], i);
        }
    }
    if unclear {
        let name = if count::<T>() == 2 { "Dppd" } else { "Dpps" };
        c.fault = Some(Fault::Approximate(format!("{name} of several NaNs")));
        return Flow::Fault;
    }
    if e.finish(c) {
        store(c, o, &r);
    }
    flow(c.fault.is_none())
}

/// The function of an operation on elements: the name ends with their type, and says whether it is all of them.
pub fn of<M: Memory, F: Arithmetic>(i: &Instruction) -> Run<M> {
    match format!("{:?}", i.mnemonic()) {
        n if n.ends_with("ps") => packed::<M, F, u32>,
        n if n.ends_with("pd") => packed::<M, F, u64>,
        n if n.ends_with("ss") => scalar::<M, F, u32>,
        _ => scalar::<M, F, u64>,
    }
}

pub fn find<M: Memory>(i: &Instruction, _: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    Some(match i.mnemonic() {
        Addps | Addpd | Addss | Addsd | Vaddps | Vaddpd | Vaddss | Vaddsd => of::<M, Sum>(i),
        Subps | Subpd | Subss | Subsd | Vsubps | Vsubpd | Vsubss | Vsubsd => of::<M, Difference>(i),
        Mulps | Mulpd | Mulss | Mulsd | Vmulps | Vmulpd | Vmulss | Vmulsd => of::<M, Product>(i),
        Divps | Divpd | Divss | Divsd | Vdivps | Vdivpd | Vdivss | Vdivsd => of::<M, Quotient>(i),
        Sqrtps | Sqrtpd | Sqrtss | Sqrtsd | Vsqrtps | Vsqrtpd | Vsqrtss | Vsqrtsd => {
            of::<M, Root>(i)
        }
        Minps | Minpd | Minss | Minsd | Vminps | Vminpd | Vminss | Vminsd => of::<M, Least>(i),
        Maxps | Maxpd | Maxss | Maxsd | Vmaxps | Vmaxpd | Vmaxss | Vmaxsd => of::<M, Greatest>(i),
        Roundps | Roundpd | Roundss | Roundsd | Vroundps | Vroundpd | Vroundss | Vroundsd => {
            of::<M, Whole>(i)
        }
        Haddps | Vhaddps => horizontal::<M, Sum, u32>,
        Haddpd | Vhaddpd => horizontal::<M, Sum, u64>,
        Hsubps | Vhsubps => horizontal::<M, Difference, u32>,
        Hsubpd | Vhsubpd => horizontal::<M, Difference, u64>,
        Addsubps | Vaddsubps => alternate::<M, u32>,
        Addsubpd | Vaddsubpd => alternate::<M, u64>,
        Dpps | Vdpps => dot::<M, u32>,
        Dppd | Vdppd => dot::<M, u64>,
        _ => return Option::None,
    })
}
