//! Conditions of breakpoints. gdb sends them as programs for a small stack machine. They become expressions, which run where
//! the breakpoint is met. Otherwise gdb would ask for registers and memory at each hit.
//!
//! gdb's manual describes the machine in its appendix "The GDB Agent Expression Mechanism".

use crate::state::arch::{self, General};
use hindsight_timeline::expression::{Binary, Expression, Operand, Step};
use std::collections::HashMap;

/// Turns gdb's conditions into one that holds where any of them holds. What is no valid program, or needs a vector register,
/// always holds: gdb evaluates conditions again where a run stops.
pub fn expression(conditions: &[Vec<u8>]) -> Expression {
    let all = conditions.iter().map(|c| program(c).unwrap_or_default());
    Expression::any(all.map(Expression::new))
}

/// The steps of a program. `None`: it is not valid.
fn program(code: &[u8]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    // The number of the step that begins at an offset.
    let mut begins: HashMap<usize, usize> = HashMap::new();
    let mut at = 0;
    while at < code.len() {
        begins.insert(at, steps.len());
        let op = code[at];
        at += 1;
        // Operands are big-endian.
        let mut operand = |n: usize| {
            let bytes = code.get(at..at + n)?;
            at += n;
            Some(bytes.iter().fold(0u64, |all, b| all << 8 | *b as u64))
        };
        match op {
            0x0e => steps.push(Step::IsZero),
            0x12 => steps.push(Step::Invert),
            0x16 => steps.push(Step::SignExtend(operand(1)? as u8)),
            0x2a => steps.push(Step::ZeroExtend(operand(1)? as u8)),
            // ref8, ref16, ref32, ref64
            0x17..=0x1a => steps.push(Step::Load(1 << (op - 0x17))),
            // if_goto, goto: to an offset, for now.
            0x20 => steps.push(Step::GotoIf(operand(2)? as usize)),
            0x21 => steps.push(Step::Goto(operand(2)? as usize)),
            // const8 to const64
            0x22..=0x25 => steps.push(Step::Constant(operand(1 << (op - 0x22))?)),
            0x26 => register(operand(2)? as usize, &mut steps)?,
            0x27 => steps.push(Step::End),
            0x28 => steps.push(Step::Pick(0)),
            0x29 => steps.push(Step::Drop),
            0x2b => steps.push(Step::Swap),
            0x32 => steps.push(Step::Pick(operand(1)? as usize)),
            0x33 => steps.push(Step::Rotate),
            _ => steps.push(Step::Binary(binary(op)?)),
        }
    }
    for step in &mut steps {
        if let Step::Goto(to) | Step::GotoIf(to) = step {
            *to = *begins.get(to)?;
        }
    }
    Some(steps)
}

/// Pushes a register, by its number in the target description.
fn register(number: usize, steps: &mut Vec<Step>) -> Option<()> {
    match arch::general_kind(number)? {
        General::Register(operand) => steps.push(Step::Register(operand)),
        General::Flags(set) => steps.extend([
            Step::Register(Operand::Flags),
            Step::Constant(set),
            Step::Binary(Binary::Or),
        ]),
        General::Constant(value) => steps.push(Step::Constant(value)),
    }
    Some(())
}

fn binary(op: u8) -> Option<Binary> {
    Some(match op {
        0x02 => Binary::Add,
        0x03 => Binary::Sub,
        0x04 => Binary::Mul,
        0x05 => Binary::DivSigned,
        0x06 => Binary::DivUnsigned,
        0x07 => Binary::RemSigned,
        0x08 => Binary::RemUnsigned,
        0x09 => Binary::ShiftLeft,
        0x0a => Binary::ShiftSigned,
        0x0b => Binary::ShiftUnsigned,
        0x0f => Binary::And,
        0x10 => Binary::Or,
        0x11 => Binary::Xor,
        0x13 => Binary::Equal,
        0x14 => Binary::LessSigned,
        0x15 => Binary::LessUnsigned,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates() {
        // if (*(int *) ($rsp + 4) == 5) 1 else $eflags & 1
        let code = [
            &[0x26, 0, 7, 0x22, 4, 0x02, 0x19, 0x16, 32, 0x22, 5, 0x13][..],
            &[0x20, 0, 22, 0x26, 0, 17, 0x22, 1, 0x0f, 0x27],
            &[0x22, 1, 0x27],
        ]
        .concat();
        let want = vec![
            Step::Register(Operand::General(4)),
            Step::Constant(4),
            Step::Binary(Binary::Add),
            Step::Load(4),
            Step::SignExtend(32),
            Step::Constant(5),
            Step::Binary(Binary::Equal),
            Step::GotoIf(14),
            Step::Register(Operand::Flags),
            Step::Constant(0x202),
            Step::Binary(Binary::Or),
            Step::Constant(1),
            Step::Binary(Binary::And),
            Step::End,
            Step::Constant(1),
            Step::End,
        ];
        assert_eq!(program(&code), Some(want));
        // cs, fs_base
        let steps = program(&[0x26, 0, 18, 0x26, 0, 58]).unwrap();
        let fs_base = Step::Register(Operand::FsBase);
        assert_eq!(steps, [Step::Constant(0x33), fs_base]);
    }

    #[test]
    fn refuses_nonsense() {
        // Unknown operation; cut operand; a vector register; a jump into an operand, and behind the end.
        for bad in [
            &[0xff][..],
            &[0x25, 1],
            &[0x26, 0, 40, 0x27],
            &[0x21, 0, 1],
            &[0x21, 0, 3],
        ] {
            assert_eq!(program(bad), None, "{bad:x?}");
        }
    }
}
