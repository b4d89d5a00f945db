//! Emits what stands for an instruction of AVX-512 (see `instead.rs`). Only what computes flags changes any.

use crate::asm::ctx;
use crate::instead::{AND, Both, Compare, EQUAL_BYTES, Element, OR, Way, XOR, element};
use crate::operand::Mem;
use crate::plan::mem_op;
use crate::regs::{SCR, gpr, number};
use crate::translator::Translator;
use hindsight_isa::ctx::d;
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

const LOAD: Both = [Code::VEX_Vmovdqu_xmm_xmmm128, Code::VEX_Vmovdqu_ymm_ymmm256];
const STORE: Both = [Code::VEX_Vmovdqu_xmmm128_xmm, Code::VEX_Vmovdqu_ymmm256_ymm];

/// Bytes of a vector register in [`hindsight_isa::High`].
const REGISTER: i32 = 64;

/// What one instruction is emitted with.
#[derive(Clone, Copy)]
struct Lent {
    /// Vector registers that the guest lends, by number.
    registers: [u32; 3],
    /// How many of them.
    count: usize,
    /// Index in a [`Both`]: vectors have 32 bytes or more, not 16.
    long: usize,
    /// Vectors have 64 bytes, and this is about their upper half.
    upper: bool,
    /// Vectors have 64 bytes.
    whole: bool,
    /// The memory operand.
    memory: Option<Mem>,
    /// Borrowed general purpose registers, for a mask.
    general: [u8; 3],
}

impl Lent {
    /// Registers that `i` does not name.
    fn of(i: &Instruction, way: &Way) -> Lent {
        let named = |n: &u32| {
            (0..i.op_count()).any(|o| {
                i.op_kind(o) == OpKind::Register
                    && i.op_register(o).is_vector_register()
                    && i.op_register(o).number() as u32 == *n
            })
        };
        let mut free = (0..16).rev().filter(|n| !named(n));
        let registers = [0; 3].map(|_| free.next().unwrap_or(0));
        let any = |is: fn(Register) -> bool| {
            (0..i.op_count()).any(|o| i.op_kind(o) == OpKind::Register && is(i.op_register(o)))
        };
        let whole = any(Register::is_zmm);
        let count = match way {
            Way::ToGeneral(_)
            | Way::MaskToGeneral(_)
            | Way::MaskFromGeneral(_)
            | Way::MaskMove(_) => 0,
            Way::Move | Way::Pair(_) if i.op_mask() != Register::None => 3,
            Way::Move | Way::FromGeneral(_) | Way::Broadcast(..) => 1,
            Way::Triple(..) => 3,
            _ => 2,
        };
        Lent {
            registers,
            count,
            long: (whole || any(Register::is_ymm)) as usize,
            upper: false,
            whole,
            memory: None,
            general: [0; 3],
        }
    }

    /// One of them, as long as vectors are.
    fn get(&self, n: usize) -> Register {
        part(self.registers[n], self.long)
    }

    /// The memory operand, or the half that this is about.
    fn cell(&self) -> Option<MemoryOperand> {
        Some(self.memory?.plus(32 * self.upper as i64).cell)
    }

    /// Where a register that the machine does not have is in the context block, or the half that this is about.
    fn high(&self, n: usize) -> i32 {
        high(n) + 32 * self.upper as i32
    }

    /// One of them, the low 16 bytes.
    fn low(&self, n: usize) -> Register {
        part(self.registers[n], 0)
    }
}

fn part(n: u32, long: usize) -> Register {
    match long {
        0 => Register::XMM0 + n,
        _ => Register::YMM0 + n,
    }
}

/// The highest bits of the elements in 8 bytes, by the logarithm of an element's size.
const HIGHEST: [u64; 4] = [
    0x8080_8080_8080_8080,
    0x8000_8000_8000_8000,
    0x8000_0000_8000_0000,
    1 << 63,
];

/// Where a register that the machine does not have is in the context block.
fn high(n: usize) -> i32 {
    d::HIGH + (n as i32 - 16) * REGISTER
}

fn mask(r: Register) -> i32 {
    d::MASKS + 8 * r.number() as i32
}

impl Translator {
    /// Emits what stands for `i`, in which r10 and r11 have already been renamed. The scratch register is free once a memory
    /// operand and general purpose registers are read.
    pub(crate) fn instead(&mut self, way: Way, i: &Instruction) {
        let lent = Lent::of(i, &way);
        let slots = || (0..lent.count).map(|n| (d::LENT + 32 * n as i32, lent.registers[n]));
        for (at, n) in slots() {
            self.a.mr(STORE[1], ctx(at), part(n, 1));
        }
        if self.halves_instead(way, i, lent).is_none() {
            return self.unsupported();
        }
        for (at, n) in slots() {
            self.a.rm(LOAD[1], part(n, 1), ctx(at));
        }
    }

    fn halves_instead(&mut self, way: Way, i: &Instruction, mut t: Lent) -> Option<()> {
        if mem_op(i).is_some() {
            t.memory = Some(self.mem(i)?);
        }
        if i.op_mask() != Register::None && !matches!(way, Way::Compare(_)) {
            // Not the scratch register, which may hold a part of the address.
            t.general = [0; 3].map(|_| self.borrow_reg());
        }
        self.do_instead(way, i, &t)?;
        if t.whole {
            t.upper = true;
            self.do_instead(way, i, &t)?;
        }
        Some(())
    }

    fn do_instead(&mut self, way: Way, i: &Instruction, t: &Lent) -> Option<()> {
        let x = t.get(0);
        match way {
            Way::Move => {
                let from = self.vector(i, 1, t, 0)?;
                if from != x {
                    // What is beyond it in the register must not come along.
                    self.a.rr(LOAD[t.long], x, from);
                }
                self.merge(i, t)?;
                return self.result(i, t);
            }
            Way::FromGeneral(size) => {
                self.load_lent(t.low(0), number(i.op_register(1))?, size);
                return self.result(i, t);
            }
            Way::Broadcast(size, code) => {
                self.load_lent(t.low(0), number(i.op_register(1))?, size);
                self.a.rr(code[t.long], x, t.low(0));
                return self.result(i, t);
            }
            Way::Pair(code) => {
                let [a, b] = self.two(i, t)?;
                self.three(code[t.long], x, a, b);
                self.merge(i, t)?;
                return self.result(i, t);
            }
            Way::Triple(steps, first) => {
                let mut all = [x; 3];
                for n in [2, 1, 0] {
                    all[n] = self.vector(i, n as u32, t, n)?;
                }
                let [(one, with), (two, rest)] = steps;
                let spare = t.get(first);
                self.three(one[t.long], spare, all[first], all[with]);
                self.three(two[t.long], x, spare, all[rest]);
                return self.result(i, t);
            }
            Way::Compare(c) => return self.compare_instead(&c, i, t),
            Way::ToGeneral(size) => {
                let (to, from) = (number(i.op_register(0))?, i.op_register(1).number());
                match from {
                    16.. => self.a.load(to, size, ctx(high(from))),
                    _ if size == 8 => {
                        let code = Code::VEX_Vmovq_rm64_xmm;
                        self.a.rr(code, gpr(to, 8), part(from as u32, 0));
                    }
                    _ => {
                        let code = Code::VEX_Vmovd_rm32_xmm;
                        self.a.rr(code, gpr(to, 4), part(from as u32, 0));
                    }
                }
            }
            Way::MaskToGeneral(size) => {
                let to = number(i.op_register(0))?;
                self.a.load(to, size, ctx(mask(i.op_register(1))));
            }
            Way::MaskFromGeneral(size) => {
                let (code, scr) = match size {
                    1 => (Code::Movzx_r32_rm8, 4),
                    2 => (Code::Movzx_r32_rm16, 4),
                    4 => (Code::Mov_r32_rm32, 4),
                    _ => (Code::Mov_r64_rm64, 8),
                };
                let from = gpr(number(i.op_register(1))?, size);
                self.a.rr(code, gpr(SCR, scr), from);
                self.a.spill(mask(i.op_register(0)), SCR);
            }
            Way::MaskMove(size) => {
                self.a.load(SCR, size, ctx(mask(i.op_register(1))));
                self.a.spill(mask(i.op_register(0)), SCR);
            }
            Way::MaskPair(code, size) => {
                self.masks(i, [1, 2], size, t);
                self.three(code, t.low(0), t.low(0), t.low(1));
                self.store_mask(i, t);
            }
            Way::MaskUnpack(code, size) => {
                self.masks(i, [1, 2], size, t);
                self.three(code, t.low(0), t.low(1), t.low(0));
                self.store_mask(i, t);
            }
            Way::MaskTest(common, size) => {
                self.masks(i, [0, 1], size, t);
                if !common {
                    // All bits that are set, against all that there are.
                    self.three(OR[0], t.low(0), t.low(0), t.low(1));
                    let ones = Code::VEX_Vpcmpeqb_xmm_xmm_xmmm128;
                    self.three(ones, t.low(1), t.low(1), t.low(1));
                    let cut = Code::VEX_Vpsrldq_xmm_xmm_imm8;
                    let cut = Instruction::with3(cut, t.low(1), t.low(1), 16 - size as u32);
                    self.a.put(&cut.ok()?);
                }
                self.a.rr(Code::VEX_Vptest_xmm_xmmm128, t.low(0), t.low(1));
            }
        }
        Some(())
    }

    /// `op to, a, b`.
    fn three(&mut self, code: Code, to: Register, a: Register, b: Register) {
        match Instruction::with3(code, to, a, b) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.a.failed = true,
        }
    }

    /// The register that holds operand `op`: its own, or number `n` of those that are lent.
    fn vector(&mut self, i: &Instruction, op: u32, t: &Lent, n: usize) -> Option<Register> {
        let to = t.get(n);
        let from = match i.op_kind(op) {
            OpKind::Memory => t.cell()?,
            _ => match i.op_register(op).number() {
                own @ ..16 => return Some(part(own as u32, t.long)),
                own => ctx(t.high(own)),
            },
        };
        self.a.rm(LOAD[t.long], to, from);
        Some(to)
    }

    /// The last two operands. The second of them may be in memory.
    fn two(&mut self, i: &Instruction, t: &Lent) -> Option<[Register; 2]> {
        let b = self.vector(i, 2, t, 1)?;
        let a = self.vector(i, 1, t, 0)?;
        Some([a, b])
    }

    /// Stores the first of the lent registers to the first operand. Beyond a short vector it is zero.
    fn result(&mut self, i: &Instruction, t: &Lent) -> Option<()> {
        let x = t.get(0);
        if i.op_kind(0) == OpKind::Memory {
            self.a.mr(STORE[t.long], t.cell()?, x);
            return Some(());
        }
        match i.op_register(0).number() {
            to @ ..16 => self.a.rr(LOAD[t.long], part(to as u32, t.long), x),
            to => {
                let x = part(t.registers[0], 1);
                self.a.mr(STORE[1], ctx(t.high(to)), x);
                if !t.whole {
                    self.three(XOR[0], t.low(0), t.low(0), t.low(0));
                    self.a.mr(STORE[1], ctx(high(to) + 32), x);
                }
            }
        }
        Some(())
    }

    /// Elements of the result that a mask leaves out become what they were, or zero.
    fn merge(&mut self, i: &Instruction, t: &Lent) -> Option<()> {
        if i.op_mask() == Register::None {
            return Some(());
        }
        let old = match i.zeroing_masking() {
            true => {
                self.three(XOR[0], t.low(2), t.low(2), t.low(2));
                t.get(2)
            }
            false => self.vector(i, 0, t, 2)?,
        };
        // Each bit of the mask becomes the highest one of an element.
        let Element { size, blend } = element(i.mnemonic())?;
        let [left, highest, spread] = t.general;
        if !t.upper {
            self.a.unspill(left, mask(i.op_mask()));
            self.a.imm(highest, HIGHEST[size.trailing_zeros() as usize]);
        }
        for n in 0..2 << t.long {
            let left = gpr(left, 8);
            let code = Code::VEX_Pdep_r64_r64_rm64;
            self.three(code, gpr(spread, 8), left, gpr(highest, 8));
            let turn = Instruction::with3(Code::VEX_Rorx_r64_rm64_imm8, left, left, 8 / size);
            self.a.put(&turn.ok()?);
            self.a.spill(d::SCRATCH + 8 * n, spread);
        }
        self.a.rm(LOAD[t.long], t.get(1), ctx(d::SCRATCH));
        let blend = Instruction::with4(blend[t.long], t.get(0), old, t.get(0), t.get(1));
        self.a.put(&blend.ok()?);
        Some(())
    }

    fn compare_instead(&mut self, c: &Compare, i: &Instruction, t: &Lent) -> Option<()> {
        let [a, b] = self.two(i, t)?;
        let (x, y) = (t.get(0), t.get(1));
        match (c.of, c.zero) {
            (Some(of), true) => {
                self.three(of[t.long], x, a, b);
                self.three(XOR[0], t.low(1), t.low(1), t.low(1));
                self.three(c.equal[t.long], x, x, y);
            }
            (Some(of), false) => {
                self.three(of[t.long], y, a, b);
                self.three(c.equal[t.long], x, a, y);
            }
            (None, _) => self.three(c.equal[t.long], x, a, b),
        }
        if c.negated {
            self.three(XOR[0], t.low(1), t.low(1), t.low(1));
            self.three(EQUAL_BYTES[t.long], x, x, y);
        }
        self.a.rr(c.bits[t.long], gpr(SCR, 4), x);
        if i.op_mask() != Register::None {
            self.load_lent(t.low(0), SCR, 8);
            self.a.unspill(SCR, mask(i.op_mask()));
            self.load_lent(t.low(1), SCR, 8);
            self.three(AND[0], t.low(0), t.low(0), t.low(1));
            self.store_mask(i, t);
        } else {
            self.a.spill(mask(i.op_register(0)), SCR);
        }
        Some(())
    }

    /// Loads two mask registers of so many bytes into the lent registers.
    fn masks(&mut self, i: &Instruction, ops: [u32; 2], size: usize, t: &Lent) {
        for (n, op) in ops.into_iter().enumerate() {
            self.a.load(SCR, size, ctx(mask(i.op_register(op))));
            self.load_lent(t.low(n), SCR, 8);
        }
    }

    fn load_lent(&mut self, to: Register, from: u8, size: usize) {
        let code = match size {
            8 => Code::VEX_Vmovq_xmm_rm64,
            _ => Code::VEX_Vmovd_xmm_rm32,
        };
        self.a.rr(code, to, gpr(from, size));
    }

    /// The low 8 bytes of the first lent register become the mask that `i` sets.
    fn store_mask(&mut self, i: &Instruction, t: &Lent) {
        self.a.rr(Code::VEX_Vmovq_rm64_xmm, gpr(SCR, 8), t.low(0));
        self.a.spill(mask(i.op_register(0)), SCR);
    }
}
