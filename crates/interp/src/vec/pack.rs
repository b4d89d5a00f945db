//! Results with fewer elements, or smaller ones: narrowing moves, compression and expansion.

use super::element::{Element, count, element, set_element};
use super::form::{Lanes, selected, store, store_first};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run, bit};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// How an element gets a smaller size.
trait Narrow {
    fn narrow<S: Int, T: Int>(v: S) -> T;
}

struct Truncate;
struct Saturate;
struct SaturateUnsigned;

impl Narrow for Truncate {
    fn narrow<S: Int, T: Int>(v: S) -> T {
        T::of(v.wide())
    }
}

impl Narrow for Saturate {
    fn narrow<S: Int, T: Int>(v: S) -> T {
        let most = (1i64 << (T::BITS - 1)) - 1;
        T::of((v.signed() as i64).clamp(-most - 1, most) as u64)
    }
}

impl Narrow for SaturateUnsigned {
    fn narrow<S: Int, T: Int>(v: S) -> T {
        T::of(v.wide().min((1 << T::BITS) - 1))
    }
}

/// VPMOV: each element of register `c`, which has `d` lanes, to a register or memory.
fn narrow<M: Memory, N: Narrow, S: Element + Int, T: Element + Int>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let mut r = [[0; 16]; 4];
    let n = (o.d as usize).min(4) * count::<S>();
    for i in 0..n {
        set_element(&mut r, i, N::narrow::<S, T>(element(&v, i)));
    }
    store_first(c, m, o, &r, n * <T as Element>::BYTES);
    Flow::Next
}

/// VPCOMPRESS: the selected elements of register `c` one after the other. In memory nothing follows them; in a register
/// the elements behind them are as the mask leaves them out.
fn compress<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let n = (o.d as usize).min(4) * count::<T>();
    let mut r: Lanes = match o.has(bit::ZEROING) {
        true => [[0; 16]; 4],
        false => c.zmm[(o.a & 31) as usize],
    };
    let mut kept = 0;
    for i in (0..n).filter(|i| selected(c, o, *i)) {
        set_element::<T>(&mut r, kept, element(&v, i));
        kept += 1;
    }
    if o.has(bit::MEMORY) {
        m.write(o.address(c), &r.as_flattened()[..kept * T::BYTES]);
    } else {
        r.as_flattened_mut()[n * T::BYTES..].fill(0);
        c.zmm[(o.a & 31) as usize] = r;
    }
    Flow::Next
}

/// VPEXPAND: elements of a register or memory, one after the other, become the selected elements. Of memory only those
/// are read.
fn expand<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let n = (o.lanes as usize).min(4) * count::<T>();
    let chosen = (0..n).filter(|i| selected(c, o, *i));
    let mut v = c.zmm[(o.c & 31) as usize];
    if o.has(bit::MEMORY) {
        let len = chosen.clone().count() * T::BYTES;
        m.read(o.address(c), &mut v.as_flattened_mut()[..len]);
    }
    let mut r = [[0; 16]; 4];
    for (from, i) in chosen.enumerate() {
        set_element::<T>(&mut r, i, element(&v, from));
    }
    store(c, o, &r);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    macro_rules! narrowing {
        ($($plain:ident $signed:ident $unsigned:ident $s:ty, $t:ty;)*) => {
            match i.mnemonic() {
                $(
                    $plain => Some((narrow::<M, Truncate, $s, $t> as Run<M>, <$t>::BITS)),
                    $signed => Some((narrow::<M, Saturate, $s, $t> as Run<M>, <$t>::BITS)),
                    $unsigned => Some((narrow::<M, SaturateUnsigned, $s, $t> as Run<M>, <$t>::BITS)),
                )*
                _ => Option::None,
            }
        };
    }
    let narrowing = narrowing! {
        Vpmovwb Vpmovswb Vpmovuswb u16, u8;
        Vpmovdb Vpmovsdb Vpmovusdb u32, u8;
        Vpmovqb Vpmovsqb Vpmovusqb u64, u8;
        Vpmovdw Vpmovsdw Vpmovusdw u32, u16;
        Vpmovqw Vpmovsqw Vpmovusqw u64, u16;
        Vpmovqd Vpmovsqd Vpmovusqd u64, u32;
    };
    let (run, bits): (Run<M>, u32) = narrowing.or_else(|| {
        Some(match i.mnemonic() {
            Vpcompressb => (compress::<M, u8>, 8),
            Vpcompressw => (compress::<M, u16>, 16),
            Vpcompressd | Vcompressps => (compress::<M, u32>, 32),
            Vpcompressq | Vcompresspd => (compress::<M, u64>, 64),
            Vpexpandb => (expand::<M, u8>, 8),
            Vpexpandw => (expand::<M, u16>, 16),
            Vpexpandd | Vexpandps => (expand::<M, u32>, 32),
            Vpexpandq | Vexpandpd => (expand::<M, u64>, 64),
            _ => return Option::None,
        })
    })?;
    // The size of a source in a register.
    if i.op1_kind() == OpKind::Register {
        o.d = (i.op1_register().size() / 16) as u8;
    }
    o.element = (bits / 8) as u8;
    Some(run)
}
