//! Decoded instructions, and how they reach their operands.

use crate::Memory;
use crate::core::Core;
use crate::word::Word;

/// What happens behind an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next instruction of the block follows.
    Next,
    /// [`Core::rip`] says what follows.
    Leave,
    /// It cannot be executed. [`Core::fault`] says why, and nothing has changed.
    Fault,
}

/// Executes a decoded instruction.
pub type Run<M> = fn(&mut Core, &mut M, &Op<M>) -> Flow;

/// A decoded instruction. What its fields mean is a matter between the function and the decoder, but for the address.
pub struct Op<M> {
    pub run: Run<M>,
    pub imm: u64,
    /// Displacement of the address.
    pub disp: u64,
    /// Address of the instruction that follows if this one does not leave its block.
    pub next: u64,
    /// The first operand: a register.
    pub a: u8,
    /// The second.
    pub b: u8,
    /// The third.
    pub c: u8,
    /// The fourth.
    pub d: u8,
    /// Slots of the address's registers (see [`Core::gpr`]).
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    pub segment: u8,
    /// See [`bit`].
    pub bits: u8,
    /// Vectors: lanes of 16 bytes.
    pub lanes: u8,
    /// Vectors: mask register, 0 for none.
    pub mask: u8,
    /// Vectors: bytes of an element for the mask.
    pub element: u8,
    /// Vectors: bytes of a memory operand.
    pub size: u8,
    /// Vectors: rounding that the instruction says, plus one.
    pub rounding: u8,
    /// Bytes of the instruction.
    pub len: u8,
}

/// Bits of [`Op::bits`].
pub mod bit {
    /// Addresses have 32 bits.
    pub const SHORT: u8 = 1;
    /// Vectors: the last operand is in memory.
    pub const MEMORY: u8 = 2;
    /// Vectors: bytes above the result become zero.
    pub const CLEARS: u8 = 4;
    /// Vectors: elements that the mask leaves out become zero.
    pub const ZEROING: u8 = 8;
    /// Vectors: one element of memory stands for all.
    pub const BROADCAST: u8 = 16;
    /// Vectors: floating-point exceptions are not noted.
    pub const SILENT: u8 = 32;
    /// Vectors: an operand is an MMX register.
    pub const MMX: u8 = 64;
}

impl<M> Op<M> {
    pub fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// The address of its memory operand.
    #[inline(always)]
    pub fn address(&self, c: &Core) -> u64 {
        let g = &c.gpr;
        let slot = |n: u8| g[(n & 31) as usize];
        let offset = slot(self.base)
            .wrapping_add(slot(self.index) << (self.scale & 3))
            .wrapping_add(self.disp);
        let offset = match self.bits & bit::SHORT {
            0 => offset,
            _ => offset as u32 as u64,
        };
        offset.wrapping_add(slot(self.segment))
    }
}

/// An operand that a register or memory can hold.
pub trait Int: Word {
    /// What stands in register `r` of this size. A high byte is numbered from 0x80 on.
    fn held(c: &Core, r: u8) -> Self;
    /// Changes register `r` as an instruction of this operand size does.
    fn set(self, c: &mut Core, r: u8);
    fn load<M: Memory>(m: &mut M, addr: u64) -> Self;
    fn store<M: Memory>(self, m: &mut M, addr: u64);
}

macro_rules! int {
    ($t:ty, |$c:ident, $r:ident| $get:expr, |$old:ident, $v:ident, $s:ident| $set:expr) => {
        impl Int for $t {
            #[inline(always)]
            fn held($c: &Core, $r: u8) -> $t {
                $get as $t
            }
            #[inline(always)]
            fn set(self, c: &mut Core, $s: u8) {
                let $v = self as u64;
                let slot = &mut c.gpr[($s & 31) as usize];
                let $old = *slot;
                let _ = $old;
                *slot = $set;
            }
            #[inline(always)]
            fn load<M: Memory>(m: &mut M, addr: u64) -> $t {
                <$t>::from_le_bytes(m.load(addr))
            }
            #[inline(always)]
            fn store<M: Memory>(self, m: &mut M, addr: u64) {
                m.store(addr, self.to_le_bytes())
            }
        }
    };
}

int!(
    u8,
    |c, r| c.gpr[(r & 31) as usize] >> (r >> 7 << 3),
    |old, v, s| {
        let shift = s >> 7 << 3;
        old & !(0xff << shift) | v << shift
    }
);
int!(u16, |c, r| c.gpr[(r & 31) as usize], |old, v, s| old
    & !0xffff
    | v);
int!(u32, |c, r| c.gpr[(r & 31) as usize], |old, v, s| v);
int!(u64, |c, r| c.gpr[(r & 31) as usize], |old, v, s| v);

/// Where an operand is.
pub trait Place {
    fn get<M: Memory, T: Int>(c: &Core, m: &mut M, o: &Op<M>) -> T;
    fn set<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>, v: T);
}

/// The first operand is a register.
pub struct A;
/// The second operand is a register.
pub struct B;
/// An operand is in memory.
pub struct Mem;
/// The operand is a constant.
pub struct Imm;

impl Place for A {
    #[inline(always)]
    fn get<M: Memory, T: Int>(c: &Core, _: &mut M, o: &Op<M>) -> T {
        T::held(c, o.a)
    }
    #[inline(always)]
    fn set<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>, v: T) {
        v.set(c, o.a)
    }
}

impl Place for B {
    #[inline(always)]
    fn get<M: Memory, T: Int>(c: &Core, _: &mut M, o: &Op<M>) -> T {
        T::held(c, o.b)
    }
    #[inline(always)]
    fn set<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>, v: T) {
        v.set(c, o.b)
    }
}

impl Place for Mem {
    #[inline(always)]
    fn get<M: Memory, T: Int>(c: &Core, m: &mut M, o: &Op<M>) -> T {
        T::load(m, o.address(c))
    }
    #[inline(always)]
    fn set<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>, v: T) {
        v.store(m, o.address(c))
    }
}

impl Place for Imm {
    #[inline(always)]
    fn get<M: Memory, T: Int>(_: &Core, _: &mut M, o: &Op<M>) -> T {
        T::of(o.imm)
    }
    #[inline(always)]
    fn set<M: Memory, T: Int>(_: &mut Core, _: &mut M, _: &Op<M>, _: T) {}
}
