//! A memory operand in its two forms: the guest's own, and its cell.

use crate::asm::{self, based, ctx};
use crate::regs::{self, gpr};
use crate::translator::Translator;
use hindsight_isa::ctx::{APART, d};
use iced_x86::{Code, Instruction, MemoryOperand, Register};

/// Both forms of one operand.
#[derive(Clone, Copy)]
pub struct Mem {
    /// The guest's own memory.
    pub real: MemoryOperand,
    /// The cell in the window.
    pub cell: MemoryOperand,
    /// The address, if it is a constant.
    pub fixed: Option<u64>,
}

impl Mem {
    /// The operand `n` bytes further on.
    pub fn plus(&self, n: i64) -> Mem {
        let mut m = *self;
        m.fixed = m.fixed.map(|a| a.wrapping_add(n as u64));
        for o in [&mut m.real, &mut m.cell] {
            o.displacement += n;
            if o.base.size() == 4 && o.base != Register::None {
                // Addresses of 32 bits wrap.
                o.displacement = o.displacement as i32 as i64;
            }
            if n != 0 && o.displ_size == 0 {
                // One byte, if the value fits.
                o.displ_size = 1;
            }
        }
        m
    }

    /// Whether general purpose register `n` takes part in either form.
    pub fn uses(&self, n: u8) -> bool {
        [self.real, self.cell]
            .iter()
            .any(|m| regs::number(m.base) == Some(n) || regs::number(m.index) == Some(n))
    }
}

/// Makes `m` the memory operand of `i`.
pub fn apply(i: &mut Instruction, m: &MemoryOperand) {
    i.set_segment_prefix(m.segment_prefix);
    i.set_memory_base(m.base);
    i.set_memory_index(m.index);
    i.set_memory_index_scale(m.scale);
    i.set_memory_displacement64(m.displacement as u64);
    i.set_memory_displ_size(m.displ_size);
}

fn to32(r: Register) -> Register {
    match regs::number(r) {
        Some(n) => gpr(n, 4),
        None => r,
    }
}

impl Translator {
    /// The operand `m` with its segment's base: in a temporary, segment base plus base plus index.
    /// `fixed` is what is added to the segment's base, if that is a constant.
    fn with_segment(
        &mut self,
        segment: Register,
        mut m: MemoryOperand,
        fixed: Option<u64>,
    ) -> Option<MemoryOperand> {
        let t = self.scratch();
        let field = match segment {
            Register::FS => d::FS_BASE,
            _ => d::GS_BASE,
        };
        self.a.unspill(t, field);
        let tr = gpr(t, 8);
        if let Some(at) = fixed {
            i32::try_from(at as i64).ok()?;
            (m.displacement, m.displ_size) = (at as i64, 8);
        } else {
            if m.base != Register::None {
                // In this order, since rsp cannot be an index.
                self.a.lea(t, MemoryOperand::with_base_index(m.base, tr));
            }
            if m.index != Register::None && !m.index.is_vector_register() {
                self.a.lea(
                    t,
                    MemoryOperand::with_base_index_scale(tr, m.index, m.scale),
                );
                m.index = Register::None;
                m.scale = 1;
            }
        }
        m.base = tr;
        Some(m)
    }

    /// Both forms of the explicit memory operand of `i`, in which r10 and r11 have already been
    /// renamed. `None` for the few combinations that are not supported.
    pub fn mem(&mut self, i: &Instruction) -> Option<Mem> {
        let (base, index) = (i.memory_base(), i.memory_index());
        let seg = match i.segment_prefix() {
            s @ (Register::FS | Register::GS) => s,
            _ => Register::None,
        };
        let disp = i.memory_displacement64();
        let vsib = index.is_vector_register();
        let ip = matches!(base, Register::RIP | Register::EIP);
        let absolute = ip || (base == Register::None && index == Register::None);
        let addr32 = matches!(base.size(), 4) && base != Register::None && !ip
            || (!vsib && index != Register::None && index.size() == 4);
        let mut m = MemoryOperand {
            segment_prefix: Register::None,
            base,
            index,
            scale: i.memory_index_scale(),
            displacement: disp as i64,
            displ_size: i.memory_displ_size(),
            is_broadcast: false,
        };
        // A constant address in the instruction does not move with the block. An address relative
        // to a segment does not depend on where the block is.
        self.a.bound |= absolute && base != Register::RIP && (ip || seg == Register::None);
        let fixed = absolute.then_some(if ip { i.ip_rel_memory_address() } else { disp });
        if seg != Register::None {
            if addr32 {
                return None;
            }
            m = self.with_segment(seg, m, fixed)?;
        } else if let Some(at) = fixed {
            if !self.replay() {
                let t = self.scratch();
                self.a.guest_address(t, at);
                m = MemoryOperand {
                    base: gpr(t, 8),
                    index: Register::None,
                    displacement: 0,
                    displ_size: 0,
                    ..m
                };
            }
            if self.policy.predictor.bits == 32 {
                let cell = asm::fixed_cell(at);
                return Some(Mem {
                    real: m,
                    cell,
                    fixed,
                });
            } else if self.replay() {
                // Cells of a small predictor do not move as addresses do.
                self.a.bound = true;
                let cell = self.policy.predictor.cell(at);
                return Some(Mem {
                    real: m,
                    cell: ctx(cell as i32 - APART),
                    fixed,
                });
            }
        }
        if m.displ_size == 4 && m.base.size() == 8 {
            m.displ_size = 8;
        }
        let cell = self.cell_of(&m)?;
        Some(Mem {
            real: m,
            cell,
            fixed: fixed.filter(|_| seg == Register::None),
        })
    }

    /// The cell of `m`, which has no segment.
    pub fn cell_of(&mut self, m: &MemoryOperand) -> Option<MemoryOperand> {
        if self.policy.mode == crate::Mode::Plain {
            return Some(*m);
        }
        let bits = self.policy.predictor.bits;
        if bits == 32 {
            let displ_size = match m.displ_size {
                8 => 4,
                0 if m.base == Register::None => 4,
                // One byte, if the value fits.
                0 => 1,
                size => size,
            };
            return Some(MemoryOperand {
                segment_prefix: Register::GS,
                base: to32(m.base),
                index: to32(m.index),
                displacement: (m.displacement as i32).wrapping_sub(APART) as i64,
                displ_size,
                ..*m
            });
        }
        if m.index.is_vector_register() {
            return None;
        }
        let t = self.scratch();
        self.a.lea(t, *m);
        if bits == 16 {
            self.a.rr(Code::Movzx_r32_rm16, gpr(t, 4), gpr(t, 2));
        } else {
            let pext = Instruction::with3(
                Code::VEX_Pext_r64_r64_rm64,
                gpr(t, 8),
                gpr(t, 8),
                ctx(d::CELL_MASK),
            );
            self.a.put(&pext.ok()?);
        }
        Some(MemoryOperand {
            segment_prefix: Register::GS,
            ..based(t, -APART)
        })
    }

    /// Both forms of `[rsp + disp]`.
    pub fn stack(&mut self, disp: i32) -> Mem {
        let real = based(regs::RSP, disp);
        // An operand with a base register always has a cell form.
        let cell = self.cell_of(&real).unwrap_or(real);
        Mem {
            real,
            cell,
            fixed: None,
        }
    }
}
