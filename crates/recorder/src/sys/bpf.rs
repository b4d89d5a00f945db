//! Classic BPF as seccomp uses it: which filters the kernel accepts, and what they return.

/// `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Class, kind and operand.
    pub code: u16,
    /// How many instructions to skip if the condition holds, and if it does not.
    pub jump: [u8; 2],
    /// The constant.
    pub k: u32,
}

/// The most instructions of one filter.
pub const MOST: usize = 4096;

/// What a filter looks at: `struct seccomp_data`, in words of 4 bytes.
pub type Data = [u32; 16];

/// Number of words in a filter's own memory.
const CELLS: usize = 16;

// Classes of instructions, and kinds within them.
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const X: u16 = 8;
const DIV: u16 = 0x30;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
const RET_A: u16 = 0x16;

/// Whether the kernel accepts the filter.
pub fn is_valid(code: &[Instruction]) -> bool {
    if code.is_empty() || code.len() > MOST {
        return false;
    }
    // For each instruction: the words of memory that were stored to on all ways that lead there.
    let mut known = alloc::vec![!0u16; code.len()];
    let mut stored = 0u16;
    for (at, i) in code.iter().enumerate() {
        stored &= known[at];
        let left = code.len() - at - 1;
        let cell = |k: u32| (k as usize) < CELLS;
        let fine = match i.code {
            c if c == LD | ABS => i.k.is_multiple_of(4) && i.k < 64,
            c if c == LD | LEN || c == LDX | LEN => true,
            c if c == LD | IMM || c == LDX | IMM => true,
            c if c == LD | MEM || c == LDX | MEM => cell(i.k) && stored >> i.k & 1 != 0,
            ST | STX => cell(i.k),
            TAX | TXA | RET | RET_A => true,
            c if c & 7 == ALU => arithmetic_is_valid(c, i.k),
            JMP => (i.k as usize) < left,
            c if c & 7 == JMP => {
                let kind = c & 0xf0;
                c & 0xff00 == 0
                    && matches!(kind, 0x10 | 0x20 | 0x30 | 0x40)
                    && i.jump.iter().all(|j| (*j as usize) < left)
            }
            _ => false,
        };
        if !fine {
            return false;
        }
        if matches!(i.code, ST | STX) {
            stored |= 1 << i.k;
        } else if i.code & 7 == JMP {
            let to: &[usize] = match i.code {
                JMP => &[i.k as usize],
                _ => &[i.jump[0] as usize, i.jump[1] as usize],
            };
            for t in to {
                known[at + 1 + t] &= stored;
            }
            stored = !0;
        }
    }
    code.last().is_some_and(|i| i.code & 7 == RET)
}

fn arithmetic_is_valid(code: u16, k: u32) -> bool {
    let constant = code & X == 0;
    match code & 0xf0 {
        _ if code & 0xff00 != 0 => false,
        DIV => !constant || k != 0,
        LSH | RSH => !constant || k < 32,
        NEG => constant,
        0x00 | 0x10 | 0x20 | 0x40 | 0x50 | 0xa0 => true,
        _ => false,
    }
}

/// Runs a filter on `data`. [`is_valid`] has accepted it.
pub fn run(code: &[Instruction], data: &Data) -> u32 {
    let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
    let mut cells = [0u32; CELLS];
    // Jumps lead forward only, so this ends.
    while let Some(i) = code.get(at) {
        at += 1;
        let cell = i.k as usize % CELLS;
        let operand = if i.code & X != 0 { x } else { i.k };
        match i.code {
            c if c == LD | ABS => a = data[i.k as usize / 4 % 16],
            c if c == LD | LEN => a = 64,
            c if c == LDX | LEN => x = 64,
            c if c == LD | IMM => a = i.k,
            c if c == LDX | IMM => x = i.k,
            c if c == LD | MEM => a = cells[cell],
            c if c == LDX | MEM => x = cells[cell],
            ST => cells[cell] = a,
            STX => cells[cell] = x,
            TAX => x = a,
            TXA => a = x,
            RET => return i.k,
            RET_A => return a,
            JMP => at += i.k as usize,
            c if c & 7 == JMP => {
                let holds = match c & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at += i.jump[!holds as usize] as usize;
            }
            c => {
                a = match c & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    DIV => match a.checked_div(operand) {
                        Some(q) => q,
                        None => return 0,
                    },
                    0x40 => a | operand,
                    0x50 => a & operand,
                    LSH => a << (operand & 31),
                    RSH => a >> (operand & 31),
                    NEG => a.wrapping_neg(),
                    _ => a ^ operand,
                };
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op(code: u16, yes: u8, no: u8, k: u32) -> Instruction {
        Instruction {
            code,
            jump: [yes, no],
            k,
        }
    }

    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0001;
    const JEQ: u16 = JMP | 0x10;

    /// The usual kind of filter: one system call fails, all others are allowed.
    fn one_call(nr: u32) -> [Instruction; 4] {
        [
            op(LD | ABS, 0, 0, 0),
            op(JEQ, 0, 1, nr),
            op(RET, 0, 0, ERRNO),
            op(RET, 0, 0, ALLOW),
        ]
    }

    #[test]
    fn a_filter_of_one_call_refuses_that_call_only() {
        let filter = one_call(39);
        assert!(is_valid(&filter));
        let data = |nr| {
            let mut d = Data::default();
            d[0] = nr;
            d
        };
        assert_eq!(run(&filter, &data(39)), ERRNO);
        assert_eq!(run(&filter, &data(40)), ALLOW);
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let end = op(RET, 0, 0, ALLOW);
        let bad = [
            vec![],
            // No return at the end.
            vec![op(LD | IMM, 0, 0, 1)],
            // A jump behind the end.
            vec![op(JEQ, 0, 1, 0), end],
            // An offset that is no word, and one behind the data.
            vec![op(LD | ABS, 0, 0, 2), end],
            vec![op(LD | ABS, 0, 0, 64), end],
            // A word of memory that nothing has stored to, and one that does not exist.
            vec![op(LD | MEM, 0, 0, 3), end],
            vec![op(ST, 0, 0, 16), end],
            // Division by a constant zero, and a shift that is too long.
            vec![op(ALU | DIV, 0, 0, 0), end],
            vec![op(ALU | LSH, 0, 0, 32), end],
        ];
        for (i, filter) in bad.iter().enumerate() {
            assert!(!is_valid(filter), "filter {i} was accepted");
        }
        let long = vec![end; MOST + 1];
        assert!(!is_valid(&long) && is_valid(&long[1..]));
    }

    #[test]
    fn division_by_a_zero_in_x_ends_with_the_harshest_answer() {
        let filter = [
            op(LDX | IMM, 0, 0, 0),
            op(ALU | DIV | X, 0, 0, 0),
            op(RET, 0, 0, ALLOW),
        ];
        assert!(is_valid(&filter));
        assert_eq!(run(&filter, &Data::default()), 0);
    }

    proptest! {
        /// Whatever is accepted ends, and touches only its own memory.
        #[test]
        fn accepted_filters_run(
            code in proptest::collection::vec((0u16..0x100, 0u8..4, 0u8..4, 0u32..70), 1..12),
            data in proptest::array::uniform16(any::<u32>()),
        ) {
            let mut code: Vec<_> = code.into_iter().map(|(c, y, n, k)| op(c, y, n, k)).collect();
            code.push(op(RET_A, 0, 0, 0));
            if is_valid(&code) {
                run(&code, &data);
            }
        }
    }
}
