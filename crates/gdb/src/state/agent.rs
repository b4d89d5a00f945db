//! Conditions of breakpoints. gdb sends them as programs for a small stack machine, and they run here. Otherwise gdb
//! would ask for registers and memory at each hit.
//! gdb's manual describes the machine in its appendix "The GDB Agent Expression Mechanism".

use hindsight_timeline::View;

/// Steps after which a program is stopped.
const MAX_STEPS: usize = 10_000;
const MAX_STACK: usize = 1000;

/// A condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program(pub Vec<u8>);

/// What a program looks at.
pub trait Context {
    /// A register by its number in the target description.
    fn register(&mut self, number: usize) -> Option<u64>;
    /// Whether all of the memory is known.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool;
}

impl Program {
    /// The value on top of the stack at the program's end. `None`: the program is not valid, divides by zero, or needs
    /// memory or registers that are not known.
    pub fn run(&self, context: &mut dyn Context) -> Option<u64> {
        let code = &self.0;
        let mut stack: Vec<u64> = Vec::new();
        let mut pc = 0;
        for _ in 0..MAX_STEPS {
            let op = *code.get(pc)?;
            pc += 1;
            // Operands are big-endian.
            let operand = |n: usize| {
                let bytes = code.get(pc..pc + n)?;
                Some(bytes.iter().fold(0u64, |acc, b| acc << 8 | *b as u64))
            };
            match op {
                0x02..=0x0b | 0x0f..=0x11 | 0x13..=0x15 => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    stack.push(binary(op, a, b)?);
                }
                0x0e => {
                    let a = stack.pop()?;
                    stack.push((a == 0) as u64);
                }
                0x12 => {
                    let a = stack.pop()?;
                    stack.push(!a);
                }
                // ext, zero_ext
                0x16 | 0x2a => {
                    let bits = operand(1)? as u32;
                    pc += 1;
                    let a = stack.pop()?;
                    let unused = 64u32.checked_sub(bits).filter(|u| *u < 64)?;
                    stack.push(match op {
                        0x16 => ((a << unused) as i64 >> unused) as u64,
                        _ => a << unused >> unused,
                    });
                }
                // ref8, ref16, ref32, ref64
                0x17..=0x1a => {
                    let n = 1 << (op - 0x17);
                    let mut buf = [0; 8];
                    if !context.read(stack.pop()?, &mut buf[..n]) {
                        return None;
                    }
                    stack.push(u64::from_le_bytes(buf));
                }
                // if_goto, goto
                0x20 | 0x21 => {
                    let target = operand(2)? as usize;
                    pc += 2;
                    if op == 0x21 || stack.pop()? != 0 {
                        pc = target;
                    }
                }
                // const8 to const64
                0x22..=0x25 => {
                    let n = 1 << (op - 0x22);
                    stack.push(operand(n)?);
                    pc += n;
                }
                0x26 => {
                    let n = operand(2)? as usize;
                    pc += 2;
                    stack.push(context.register(n)?);
                }
                0x27 => return stack.pop(),
                0x28 => stack.push(*stack.last()?),
                0x29 => drop(stack.pop()?),
                0x2b => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    stack.extend([b, a]);
                }
                // pick
                0x32 => {
                    let n = operand(1)? as usize;
                    pc += 1;
                    let at = stack.len().checked_sub(n + 1)?;
                    stack.push(stack[at]);
                }
                // rot
                0x33 => {
                    let (c, b, a) = (stack.pop()?, stack.pop()?, stack.pop()?);
                    stack.extend([c, a, b]);
                }
                _ => return None,
            }
            if stack.len() > MAX_STACK {
                return None;
            }
        }
        None
    }
}

fn binary(op: u8, a: u64, b: u64) -> Option<u64> {
    let (sa, sb) = (a as i64, b as i64);
    let shift = |f: &dyn Fn(u32) -> u64, big: u64| if b < 64 { f(b as u32) } else { big };
    Some(match op {
        0x02 => a.wrapping_add(b),
        0x03 => a.wrapping_sub(b),
        0x04 => a.wrapping_mul(b),
        0x05 => sa.checked_div(sb)? as u64,
        0x06 => a.checked_div(b)?,
        0x07 => sa.checked_rem(sb)? as u64,
        0x08 => a.checked_rem(b)?,
        0x09 => shift(&|n| a << n, 0),
        0x0a => shift(&|n| (sa >> n) as u64, (sa >> 63) as u64),
        0x0b => shift(&|n| a >> n, 0),
        0x0f => a & b,
        0x10 => a | b,
        0x11 => a ^ b,
        0x13 => (a == b) as u64,
        0x14 => (sa < sb) as u64,
        _ => (a < b) as u64,
    })
}

/// The state at a breakpoint.
pub struct At<'a>(pub &'a mut dyn View);

impl Context for At<'_> {
    fn register(&mut self, number: usize) -> Option<u64> {
        let cpu = self.0.registers();
        // Conditions run very often, and they seldom need vector registers.
        crate::state::arch::general(&cpu, number).or_else(|| {
            let vec = Box::new(self.0.vectors());
            let orig_rax = u64::MAX;
            crate::state::arch::State { cpu, vec, orig_rax }.integer(number)
        })
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool {
        self.0.read(addr, buf).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Context for Fake {
        fn register(&mut self, n: usize) -> Option<u64> {
            (n < 10).then_some(100 + n as u64)
        }
        fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool {
            buf.fill(addr as u8);
            addr < 0x100
        }
    }

    fn run(code: &[u8]) -> Option<u64> {
        Program(code.to_vec()).run(&mut Fake)
    }

    #[test]
    fn evaluates() {
        // 5 - 3
        assert_eq!(run(&[0x22, 5, 0x22, 3, 0x03, 0x27]), Some(2));
        // reg 7 == 107
        assert_eq!(run(&[0x26, 0, 7, 0x22, 107, 0x13, 0x27]), Some(1));
        // *(short *) 0x42, sign-extended from 8 bits after 0x80 more
        assert_eq!(run(&[0x22, 0x42, 0x18, 0x27]), Some(0x4242));
        assert_eq!(run(&[0x22, 0x80, 0x16, 8, 0x27]), Some(0x80u8 as i8 as u64));
        assert_eq!(run(&[0x23, 1, 0x80, 0x2a, 8, 0x27]), Some(0x80));
        // -8 / 2, and by zero
        assert_eq!(
            run(&[0x22, 0, 0x22, 8, 0x03, 0x22, 2, 0x05, 0x27]),
            Some(-4i64 as u64)
        );
        assert_eq!(run(&[0x22, 1, 0x22, 0, 0x05, 0x27]), None);
        // if (1) goto 7 (const8 9), else const8 8
        assert_eq!(
            run(&[0x22, 1, 0x20, 0, 8, 0x22, 8, 0x27, 0x22, 9, 0x27]),
            Some(9)
        );
        assert_eq!(
            run(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x29, 0x29, 0x27]),
            Some(3)
        );
        assert_eq!(run(&[0x22, 1, 0x22, 2, 0x32, 1, 0x27]), Some(1));
    }

    #[test]
    fn refuses_nonsense() {
        // Unknown register and memory; endless loop; empty stack; truncated; endless growth.
        for bad in [
            &[0x26, 0, 50, 0x27][..],
            &[0x23, 9, 9, 0x17, 0x27],
            &[0x21, 0, 0],
            &[0x27],
            &[0x25, 1],
            &[0x22, 1, 0x28, 0x21, 0, 2],
            &[0xff],
            &[],
        ] {
            assert_eq!(run(bad), None, "{bad:x?}");
        }
    }
}
