//! The registers of the x87, and how its instructions use them.

use crate::fault::Fault;
use crate::soft::flag::{DE, IE, OE, PE, UE, ZE};
use crate::soft::{F80, Format, INDEFINITE, Number, QUIET, Round, Rounded, round};
use crate::word::Lane;
use hindsight_isa::VecState;

/// An 80-bit register: significand, and sign with exponent.
pub type F80Bits = (u64, u16);

/// Stack fault.
pub const STACK_FAULT: u16 = 0x40;
/// An unmasked exception waits.
pub const SUMMARY: u16 = 0x80;
pub const C0: u16 = 0x100;
pub const C1: u16 = 0x200;
pub const C2: u16 = 0x400;
pub const C3: u16 = 0x4000;
pub const BUSY: u16 = 0x8000;
/// All exceptions, as status and control word have them.
const EXCEPTIONS: u16 = 0x3f;
/// Those that operands raise before there is a result.
const OF_OPERANDS: u16 = (IE | DE | ZE) as u16;
/// Those of results that the format has not.
const OUT_OF_RANGE: u32 = OE | UE;
/// By this the exponent of a result is moved that is out of range, where that exception is not masked.
const BIAS: i32 = 24576;
/// No exponent reaches it.
const FAR: i32 = 1 << 20;

/// Why an instruction has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// An exception that is not masked waits. Operands and stack stay as they are.
    Withheld,
    /// The instruction is not executed.
    Fault(Fault),
}

/// The registers.
#[derive(Clone, Debug)]
pub struct X87 {
    /// By their physical numbers.
    registers: [F80Bits; 8],
    pub fcw: u16,
    /// The status word without the stack's top.
    pub status: u16,
    /// Physical number of st(0).
    pub top: u8,
    /// A bit for each register that is not empty, by physical numbers.
    pub full: u8,
}

impl Default for X87 {
    fn default() -> X87 {
        X87 {
            registers: [(0, 0); 8],
            fcw: 0x37f,
            status: 0,
            top: 0,
            full: 0,
        }
    }
}

fn to_bits(st: &Lane) -> F80Bits {
    let significand = u64::from_le_bytes(std::array::from_fn(|i| st[i]));
    (significand, u16::from_le_bytes([st[8], st[9]]))
}

fn to_bytes((significand, head): F80Bits) -> Lane {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&significand.to_le_bytes());
    out[8..10].copy_from_slice(&head.to_le_bytes());
    out
}

impl X87 {
    /// Puts the registers where all virtual processors have them.
    pub fn store(&self, v: &mut VecState) {
        for i in 0..8 {
            v.st[i] = to_bytes(self.registers[self.slot(i as u8)]);
        }
        (v.fcw, v.fsw, v.ftw) = (self.fcw, self.status_word(), self.full);
    }

    /// Takes the registers from there.
    pub fn load(&mut self, v: &VecState) {
        self.restore(v.fcw, v.fsw, v.ftw, &v.st);
    }

    /// Sets the registers: `st` from st(0) on, and tags as FXSAVE has them.
    pub fn restore(&mut self, fcw: u16, fsw: u16, tags: u8, st: &[Lane; 8]) {
        self.set_status_word(fsw);
        self.set_control(fcw);
        self.full = tags;
        for (i, s) in st.iter().enumerate() {
            let slot = self.slot(i as u8);
            self.registers[slot] = to_bits(s);
        }
    }

    /// The state in which a process begins.
    pub fn reset(&mut self) {
        *self = X87::default();
    }

    pub fn slot(&self, i: u8) -> usize {
        ((self.top + i) & 7) as usize
    }

    pub fn status_word(&self) -> u16 {
        self.status | (self.top as u16) << 11
    }

    pub fn set_status_word(&mut self, fsw: u16) {
        self.status = fsw & !0x3800;
        self.top = (fsw >> 11 & 7) as u8;
    }

    pub fn is_full(&self, i: u8) -> bool {
        self.full >> self.slot(i) & 1 != 0
    }

    pub fn get(&self, i: u8) -> F80Bits {
        self.registers[self.slot(i)]
    }

    pub fn set(&mut self, i: u8, v: F80Bits) {
        let slot = self.slot(i);
        self.registers[slot] = v;
        self.full |= 1 << slot;
    }

    pub fn pop(&mut self) {
        self.full &= !(1 << self.slot(0));
        self.top = (self.top + 1) & 7;
    }

    pub fn mode(&self) -> Round {
        Round::of(self.fcw as u32 >> 10)
    }

    /// The format to which precision control rounds.
    pub fn precision(&self) -> Format {
        let precision = match self.fcw >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        };
        Format { precision, ..F80 }
    }

    /// Notes exceptions. One that is not masked waits for the next instruction that asks for it.
    ///
    /// # Errors
    /// It is one of the operands, so there is no result.
    pub fn raise(&mut self, flags: u32) -> Result<(), Stop> {
        let flags = flags as u16;
        let open = flags & !self.fcw & EXCEPTIONS;
        let withheld = open & OF_OPERANDS != 0;
        self.status |= if withheld { flags & OF_OPERANDS } else { flags };
        if open != 0 {
            self.status |= SUMMARY | BUSY;
        }
        if withheld {
            self.set_c1(false);
            return Err(Stop::Withheld);
        }
        Ok(())
    }

    /// Rounds a result. If it is out of range, and that exception is not masked, it is rounded as if exponents had no limit.
    /// Then it has that exception's flag, and `true` comes with it.
    fn round(&self, n: Number, f: Format) -> (Rounded, bool) {
        let r = round(n, f, self.mode(), false);
        // A tiny result is one even if it is exact.
        let tiny = if r.number.is_denormal(f) { UE } else { 0 };
        let open = (r.flags | tiny) & OUT_OF_RANGE & !(self.fcw as u32);
        if open == 0 {
            return (r, false);
        }
        let endless = Format {
            least: -FAR,
            most: FAR,
            ..f
        };
        let mut r = round(n, endless, self.mode(), false);
        r.flags |= open;
        (r, true)
    }

    /// Rounds a result for a register, notes its exceptions and how it was rounded. Where overflow or underflow is not masked, such a
    /// result has another exponent.
    ///
    /// # Errors
    /// As [`X87::raise`], which no result causes.
    pub fn settle(&mut self, n: Number, f: Format) -> Result<F80Bits, Stop> {
        let (mut r, out_of_range) = self.round(n, f);
        if out_of_range {
            let overflow = r.flags & OE != 0;
            r.number = r.number.scaled(if overflow { -BIAS } else { BIAS });
            // FSCALE goes farther than the other exponent reaches.
            if overflow && round(r.number, F80, Round::Zero, false).flags & OE != 0 {
                r.number = Number::Infinite {
                    negative: n.negative(),
                };
                (r.flags, r.up) = (r.flags | PE, true);
            } else if r.number.is_denormal(F80) {
                r.number = Number::Zero {
                    negative: n.negative(),
                };
                (r.flags, r.up) = (r.flags | PE, false);
            }
        }
        self.raise(r.flags)?;
        self.set_c1(r.up);
        Ok(r.number.pack80())
    }

    /// Rounds a number for memory, notes its exceptions and how it was rounded.
    ///
    /// # Errors
    /// It is out of range, and that exception is not masked. Nothing is stored then.
    pub fn narrow(&mut self, n: Number, f: Format) -> Result<Number, Stop> {
        let (r, out_of_range) = self.round(n, f);
        if out_of_range {
            self.raise(r.flags & OUT_OF_RANGE)?;
            return Err(Stop::Withheld);
        }
        self.raise(r.flags)?;
        self.set_c1(r.up);
        Ok(r.number)
    }

    pub fn set_c1(&mut self, on: bool) {
        self.status = self.status & !C1 | if on { C1 } else { 0 };
    }

    pub fn set_conditions(&mut self, bits: u16) {
        self.status = self.status & !(C0 | C1 | C2 | C3) | bits;
    }

    /// Notes a stack fault. The result is indefinite.
    pub fn stack_fault(&mut self, overflow: bool) -> Result<F80Bits, Stop> {
        let done = self.raise(IE);
        self.status |= STACK_FAULT;
        self.set_c1(overflow);
        done.map(|()| INDEFINITE.pack80())
    }

    /// Pushes a value. A full stack loses one.
    pub fn push(&mut self, v: F80Bits) -> Result<(), Stop> {
        let v = match self.is_full(7) {
            true => self.stack_fault(true)?,
            false => {
                self.set_c1(false);
                v
            }
        };
        self.top = self.top.wrapping_sub(1) & 7;
        self.set(0, v);
        Ok(())
    }

    /// The result of an operation on a NaN, or on encodings that are not supported.
    pub fn nan(&mut self, a: Option<Number>, b: Option<Number>) -> Result<F80Bits, Stop> {
        self.set_c1(false);
        let (Some(a), Some(b)) = (a, b) else {
            self.raise(IE)?;
            return Ok(INDEFINITE.pack80());
        };
        if a.is_signaling() || b.is_signaling() {
            self.raise(IE)?;
        }
        Ok(larger_nan(a, b).quiet().pack80())
    }

    /// The operand in a register, and whether it is denormal.
    pub fn number(&self, i: u8) -> Option<(Number, bool)> {
        let (significand, head) = self.get(i);
        Number::unpack80(significand, head)
    }
}

/// The MMX registers are the significands, by their physical numbers.
impl X87 {
    pub fn mmx(&self, n: u8) -> u64 {
        self.registers[(n & 7) as usize].0
    }

    /// Sign and exponent become all ones.
    pub fn set_mmx(&mut self, n: u8, v: u64) {
        self.registers[(n & 7) as usize] = (v, 0xffff);
    }

    /// What each instruction on MMX registers does: the stack begins at register 0, and none is empty.
    pub fn enter_mmx(&mut self) {
        (self.top, self.full) = (0, 0xff);
    }
}

/// Which of two operands an operation gives that has a NaN: a quiet one, then that with the larger significand.
fn larger_nan(a: Number, b: Number) -> Number {
    let (Number::Nan { payload: x, .. }, Number::Nan { payload: y, .. }) = (a, b) else {
        return if a.is_nan() { a } else { b };
    };
    match (a.is_signaling(), b.is_signaling()) {
        (true, false) => b,
        (false, true) => a,
        _ if x & !QUIET > y & !QUIET => a,
        _ if x & !QUIET < y & !QUIET => b,
        _ if a.negative() => b,
        _ => a,
    }
}

impl X87 {
    /// As FNINIT does. The registers keep what they have.
    pub fn init(&mut self) {
        (self.fcw, self.status, self.top, self.full) = (0x37f, 0, 0, 0);
    }

    /// Sets the control word. Exceptions that waited and are masked now, or are not masked any more, change the summary.
    pub fn set_control(&mut self, fcw: u16) {
        self.fcw = fcw & 0x1f3f | 0x40;
        let waits = self.status & !self.fcw & EXCEPTIONS != 0;
        self.status &= !(SUMMARY | BUSY);
        if waits {
            self.status |= SUMMARY | BUSY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_that_are_not_masked_wait() {
        let mut x = X87 {
            fcw: 0x37f & !((IE | PE) as u16),
            status: C1,
            ..X87::default()
        };
        assert_eq!(x.raise(PE), Ok(()));
        assert_eq!(x.status, PE as u16 | SUMMARY | BUSY | C1);
        assert_eq!(x.raise(IE | PE), Err(Stop::Withheld));
        assert_eq!(x.status, (IE | PE) as u16 | SUMMARY | BUSY);
    }
}
