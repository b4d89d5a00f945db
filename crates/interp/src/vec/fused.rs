//! Fused multiplications and additions.

use super::element::count;
use super::form::{last, selected, store, store_low};
use super::numbers::{Env, Float};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::word::Lane;
use iced_x86::{Instruction, Mnemonic};

/// What is negated in element `i`: the product, and what is added. `KIND`: 0 adds, 1 subtracts, 2 and 3 are these with
/// a negated product, 4 subtracts and adds in turn, 5 adds and subtracts.
const fn negates(kind: u8, i: usize) -> (bool, bool) {
    match kind {
        0 => (false, false),
        1 => (false, true),
        2 => (true, false),
        3 => (true, true),
        4 => (false, i & 1 == 0),
        _ => (false, i & 1 != 0),
    }
}

/// The factors and what is added, of the operands 1, 2, 3: forms 132, 213, 231.
fn fused<T: Float, const FORM: u16>(e: &mut Env, operands: [T; 3], negates: (bool, bool)) -> T {
    let [x, y, z] = operands;
    // Of several NaNs, the first in the order of the operation counts.
    match FORM {
        132 => e.fma((x, z, y), negates, [0, 1, 2]),
        213 => e.fma((y, x, z), negates, [0, 1, 2]),
        _ => e.fma((y, z, x), negates, [0, 1, 2]),
    }
}

fn packed<M: Memory, T: Float, const FORM: u16, const KIND: u8>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let (x, y, z) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        for i in 0..count::<T>() {
            if selected(c, o, l * count::<T>() + i) {
                let all = [&x[l], &y[l], &z[l]].map(|l: &Lane| T::get(l, i));
                fused::<T, FORM>(&mut e, all, negates(KIND, i)).put(&mut r[l], i);
            }
        }
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store(c, o, &r);
    Flow::Next
}

fn scalar<M: Memory, T: Float, const FORM: u16, const KIND: u8>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let above = c.zmm[(o.a & 31) as usize][0];
    let (y, z) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let mut e = Env::of(c, o);
    let mut r = T::default();
    if selected(c, o, 0) {
        let all = [&above, &y, &z].map(|l: &Lane| T::get(l, 0));
        r = fused::<T, FORM>(&mut e, all, negates(KIND, 0));
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, above);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, _: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    macro_rules! forms {
        ($($f132:ident $f213:ident $f231:ident $function:ident $t:ty, $kind:literal;)*) => {
            match i.mnemonic() {
                $(
                    $f132 => $function::<M, $t, 132, $kind>,
                    $f213 => $function::<M, $t, 213, $kind>,
                    $f231 => $function::<M, $t, 231, $kind>,
                )*
                _ => return Option::None,
            }
        };
    }
    Some(forms! {
        Vfmadd132ps Vfmadd213ps Vfmadd231ps packed u32, 0;
        Vfmadd132pd Vfmadd213pd Vfmadd231pd packed u64, 0;
        Vfmadd132ss Vfmadd213ss Vfmadd231ss scalar u32, 0;
        Vfmadd132sd Vfmadd213sd Vfmadd231sd scalar u64, 0;
        Vfmsub132ps Vfmsub213ps Vfmsub231ps packed u32, 1;
        Vfmsub132pd Vfmsub213pd Vfmsub231pd packed u64, 1;
        Vfmsub132ss Vfmsub213ss Vfmsub231ss scalar u32, 1;
        Vfmsub132sd Vfmsub213sd Vfmsub231sd scalar u64, 1;
        Vfnmadd132ps Vfnmadd213ps Vfnmadd231ps packed u32, 2;
        Vfnmadd132pd Vfnmadd213pd Vfnmadd231pd packed u64, 2;
        Vfnmadd132ss Vfnmadd213ss Vfnmadd231ss scalar u32, 2;
        Vfnmadd132sd Vfnmadd213sd Vfnmadd231sd scalar u64, 2;
        Vfnmsub132ps Vfnmsub213ps Vfnmsub231ps packed u32, 3;
        Vfnmsub132pd Vfnmsub213pd Vfnmsub231pd packed u64, 3;
        Vfnmsub132ss Vfnmsub213ss Vfnmsub231ss scalar u32, 3;
        Vfnmsub132sd Vfnmsub213sd Vfnmsub231sd scalar u64, 3;
        Vfmaddsub132ps Vfmaddsub213ps Vfmaddsub231ps packed u32, 4;
        Vfmaddsub132pd Vfmaddsub213pd Vfmaddsub231pd packed u64, 4;
        Vfmsubadd132ps Vfmsubadd213ps Vfmsubadd231ps packed u32, 5;
        Vfmsubadd132pd Vfmsubadd213pd Vfmsubadd231pd packed u64, 5;
    })
}
