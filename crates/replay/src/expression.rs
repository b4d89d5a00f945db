//! Conditions of breaks, as programs of a small stack machine. A machine evaluates them where it meets the break, and goes on
//! without ending the run if they fail.
//!
//! The operations are those of gdb's agent expressions (gdb's manual, appendix "The GDB Agent Expression Mechanism"), with
//! registers by name.

use hindsight_isa::CpuState;

/// Steps after which an evaluation ends: loops are possible.
const MAX_STEPS: usize = 10_000;
const MAX_STACK: usize = 100;

/// A register that an expression may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A general register, by its hardware number, 0 to 15.
    General(u8),
    /// The instruction pointer.
    Rip,
    /// The flags of [`hindsight_isa::state::RFLAGS_MASK`].
    Flags,
    /// Base of the FS segment.
    FsBase,
    /// Base of the GS segment.
    GsBase,
}

impl Operand {
    /// Its value in this state.
    pub fn of(self, c: &CpuState) -> u64 {
        match self {
            Operand::General(n) => c.gpr[n as usize & 15],
            Operand::Rip => c.rip,
            Operand::Flags => c.rflags,
            Operand::FsBase => c.fs_base,
            Operand::GsBase => c.gs_base,
        }
    }
}

/// What an operation with two operands computes. `a` lies below `b` on the stack; all values have 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binary {
    /// `a + b`, modulo 2^64.
    Add,
    /// `a - b`, modulo 2^64.
    Sub,
    /// `a * b`, modulo 2^64.
    Mul,
    /// Signed quotient. Division by zero ends the evaluation without a value.
    DivSigned,
    /// Unsigned quotient; likewise.
    DivUnsigned,
    /// Signed remainder; likewise.
    RemSigned,
    /// Unsigned remainder; likewise.
    RemUnsigned,
    /// `a` shifted left by `b` bits. From 64 on nothing is left.
    ShiftLeft,
    /// `a` shifted right by `b` bits. The sign comes in.
    ShiftSigned,
    /// `a` shifted right by `b` bits. Zeros come in.
    ShiftUnsigned,
    /// Bits that are in both.
    And,
    /// Bits that are in one or both.
    Or,
    /// Bits that are in one only.
    Xor,
    /// 1 if both are equal, else 0.
    Equal,
    /// 1 if `a < b` as signed numbers, else 0.
    LessSigned,
    /// 1 if `a < b` as unsigned numbers, else 0.
    LessUnsigned,
}

/// An operation. Operands come from the stack, and the result goes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Pushes a register.
    Register(Operand),
    /// Pushes a number.
    Constant(u64),
    /// Replaces an address by this many bytes of memory there: 1, 2, 4 or 8, as an unsigned number.
    Load(u8),
    /// Replaces two values by one.
    Binary(Binary),
    /// 1 if the value is 0, else 0.
    IsZero,
    /// Inverts all bits.
    Invert,
    /// Extends the sign from this many bits, 1 to 64.
    SignExtend(u8),
    /// Keeps this many bits, 1 to 64, and clears the others.
    ZeroExtend(u8),
    /// Removes the value. If it is not zero, goes on at the step with this number.
    GotoIf(usize),
    /// Goes on at the step with this number.
    Goto(usize),
    /// Pushes the value this far below the top again. 0: the top itself.
    Pick(usize),
    /// Removes the value.
    Drop,
    /// Exchanges the two values on top.
    Swap,
    /// `a b c` becomes `c a b`; `c` is on top before.
    Rotate,
    /// Ends. The value on top is the result.
    End,
}

/// What an expression looks at.
pub trait Look {
    /// The value of a register.
    fn register(&self, operand: Operand) -> u64;
    /// Copies memory. `false`: not all of it is known.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> bool;
}

/// Some programs. The expression holds if any of them gives a value that is not 0, or gives none: it divides by zero, needs
/// memory that is not known, or is no valid program. So a run stops where a condition cannot be evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expression(Vec<Vec<Step>>);

impl Expression {
    /// An expression of one program.
    ///
    /// ```
    /// use hindsight_replay::{Binary, Expression, Operand, Step};
    /// // rdi == 5
    /// let e = Expression::new(vec![
    ///     Step::Register(Operand::General(7)),
    ///     Step::Constant(5),
    ///     Step::Binary(Binary::Equal),
    ///     Step::End,
    /// ]);
    /// assert!(!e.reads_memory());
    /// ```
    pub fn new(program: Vec<Step>) -> Expression {
        Expression(vec![program])
    }

    /// An expression that holds where one of these holds. Without any it never holds.
    pub fn any(all: impl IntoIterator<Item = Expression>) -> Expression {
        Expression(all.into_iter().flat_map(|e| e.0).collect())
    }

    /// Whether a register is compared so: `register OP value`.
    pub fn compare(register: Operand, how: Binary, value: u64) -> Expression {
        Expression::new(vec![
            Step::Register(register),
            Step::Constant(value),
            Step::Binary(how),
            Step::End,
        ])
    }

    /// Whether it may look at memory.
    pub fn reads_memory(&self) -> bool {
        (self.0.iter().flatten()).any(|s| matches!(s, Step::Load(_)))
    }

    /// Whether it holds.
    pub fn holds(&self, look: &mut dyn Look) -> bool {
        let mut stack = Vec::new();
        (self.0.iter()).any(|p| value(p, &mut stack, look).is_none_or(|v| v != 0))
    }
}

/// The result of a program. `None`: it has none.
fn value(program: &[Step], stack: &mut Vec<u64>, look: &mut dyn Look) -> Option<u64> {
    stack.clear();
    let mut at = 0;
    for _ in 0..MAX_STEPS {
        let step = program.get(at)?;
        at += 1;
        match *step {
            Step::Register(r) => stack.push(look.register(r)),
            Step::Constant(c) => stack.push(c),
            Step::Load(n) => {
                let mut buf = [0; 8];
                let address = stack.pop()?;
                let known = look.read(address, buf.get_mut(..n as usize)?);
                known.then_some(())?;
                stack.push(u64::from_le_bytes(buf));
            }
            Step::Binary(how) => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(binary(how, a, b)?);
            }
            Step::IsZero => {
                let a = stack.pop()?;
                stack.push((a == 0) as u64);
            }
            Step::Invert => {
                let a = stack.pop()?;
                stack.push(!a);
            }
            Step::SignExtend(bits) | Step::ZeroExtend(bits) => {
                let a = stack.pop()?;
                let unused = 64u32.checked_sub(bits as u32).filter(|u| *u < 64)?;
                stack.push(match step {
                    Step::SignExtend(_) => ((a << unused) as i64 >> unused) as u64,
                    _ => a << unused >> unused,
                });
            }
            Step::GotoIf(to) => {
                if stack.pop()? != 0 {
                    at = to;
                }
            }
            Step::Goto(to) => at = to,
            Step::Pick(n) => {
                let from = stack.len().checked_sub(n.checked_add(1)?)?;
                stack.push(stack[from]);
            }
            Step::Drop => {
                stack.pop()?;
            }
            Step::Swap => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.extend([b, a]);
            }
            Step::Rotate => {
                let (c, b, a) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.extend([c, a, b]);
            }
            Step::End => return stack.pop(),
        }
        if stack.len() > MAX_STACK {
            return None;
        }
    }
    None
}

fn binary(how: Binary, a: u64, b: u64) -> Option<u64> {
    let (sa, sb) = (a as i64, b as i64);
    let far = b >= 64;
    Some(match how {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::DivSigned => sa.checked_div(sb)? as u64,
        Binary::DivUnsigned => a.checked_div(b)?,
        Binary::RemSigned => sa.checked_rem(sb)? as u64,
        Binary::RemUnsigned => a.checked_rem(b)?,
        Binary::ShiftLeft | Binary::ShiftUnsigned if far => 0,
        Binary::ShiftLeft => a << b,
        Binary::ShiftUnsigned => a >> b,
        Binary::ShiftSigned => (sa >> b.min(63)) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Equal => (a == b) as u64,
        Binary::LessSigned => (sa < sb) as u64,
        Binary::LessUnsigned => (a < b) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::*;

    /// General registers hold 100 and their number; memory below 0x100 holds its address.
    struct Fake;

    impl Look for Fake {
        fn register(&self, operand: Operand) -> u64 {
            match operand {
                Operand::General(n) => 100 + n as u64,
                _ => 7,
            }
        }
        fn read(&mut self, address: u64, buf: &mut [u8]) -> bool {
            buf.fill(address as u8);
            address < 0x100
        }
    }

    fn run(program: &[Step]) -> Option<u64> {
        value(program, &mut Vec::new(), &mut Fake)
    }

    #[test]
    fn evaluates() {
        let two = |a, b, how| run(&[Constant(a), Constant(b), Step::Binary(how), End]);
        let minus = |n: i64| n as u64;
        for (a, b, how, want) in [
            (5, 3, super::Binary::Sub, Some(2)),
            (5, 3, super::Binary::Mul, Some(15)),
            (minus(-8), 2, super::Binary::DivSigned, Some(minus(-4))),
            (
                minus(-8),
                2,
                super::Binary::DivUnsigned,
                Some(minus(-8) / 2),
            ),
            (minus(-7), 4, super::Binary::RemSigned, Some(minus(-3))),
            (7, 4, super::Binary::RemUnsigned, Some(3)),
            (1, 0, super::Binary::DivSigned, None),
            (1, 0, super::Binary::RemUnsigned, None),
            (minus(i64::MIN), minus(-1), super::Binary::DivSigned, None),
            (1, 63, super::Binary::ShiftLeft, Some(1 << 63)),
            (1, 64, super::Binary::ShiftLeft, Some(0)),
            (u64::MAX, 70, super::Binary::ShiftUnsigned, Some(0)),
            (minus(-2), 70, super::Binary::ShiftSigned, Some(u64::MAX)),
            (minus(-4), 1, super::Binary::ShiftSigned, Some(minus(-2))),
            (6, 3, super::Binary::And, Some(2)),
            (6, 3, super::Binary::Or, Some(7)),
            (6, 3, super::Binary::Xor, Some(5)),
            (minus(-1), 1, super::Binary::LessSigned, Some(1)),
            (minus(-1), 1, super::Binary::LessUnsigned, Some(0)),
        ] {
            assert_eq!(two(a, b, how), want, "{a:#x} {how:?} {b:#x}");
        }
        assert_eq!(run(&[Register(Operand::General(7)), End]), Some(107));
        assert_eq!(run(&[Constant(0x42), Load(2), End]), Some(0x4242));
        assert_eq!(
            run(&[Constant(0x180), SignExtend(8), End]),
            Some(minus(-128))
        );
        assert_eq!(run(&[Constant(0x180), ZeroExtend(8), End]), Some(0x80));
        assert_eq!(run(&[Constant(0), IsZero, Invert, End]), Some(!1));
        let choose = |c| [Constant(c), GotoIf(4), Constant(8), End, Constant(9), End];
        assert_eq!((run(&choose(0)), run(&choose(1))), (Some(8), Some(9)));
        let three = [Constant(1), Constant(2), Constant(3)];
        let then = |rest: &[Step]| run(&[&three, rest].concat());
        assert_eq!(then(&[Rotate, Drop, Drop, End]), Some(3));
        assert_eq!(then(&[Swap, End]), Some(2));
        assert_eq!(then(&[Pick(2), End]), Some(1));
    }

    #[test]
    fn what_gives_no_value_holds() {
        for bad in [
            &[Constant(0x100), Load(1), End][..],
            &[Constant(1), Load(9), End],
            &[Goto(0)],
            &[End],
            &[Constant(1)],
            &[Constant(1), Pick(0), Goto(1)],
            &[Constant(1), SignExtend(0), End],
            &[Constant(1), ZeroExtend(65), End],
            &[Pick(usize::MAX)],
            &[],
        ] {
            assert_eq!(run(bad), None, "{bad:?}");
            assert!(Expression::new(bad.to_vec()).holds(&mut Fake));
        }
    }

    #[test]
    fn one_of_several_is_enough() {
        let e = |n| Expression::compare(Operand::General(1), super::Binary::Equal, n);
        assert!(Expression::any([e(5), e(101)]).holds(&mut Fake));
        assert!(!Expression::any([e(5), e(6)]).holds(&mut Fake));
        assert!(!Expression::any([]).holds(&mut Fake));
        assert!(!e(5).reads_memory());
        assert!(Expression::new(vec![Constant(1), Load(8), End]).reads_memory());
    }
}
