//! `maskmovq`, `maskmovdqu` and `vmaskmovdqu`. Their memory operand is at rdi. Their encoding names
//! only its segment and address size, by prefixes. The same is true only of string instructions.

use crate::Mode;
use crate::regs::{RDI, SCR, gpr};
use crate::translator::Translator;
use hindsight_isa::ctx::d;
use iced_x86::{Instruction, MemoryOperand, OpKind, Register};

impl Translator {
    /// Emits the instruction on memory, on the cells, or on both, as the mode needs. The emitted
    /// code has the prefixes that it needs, and none of the guest's.
    pub(crate) fn masked_move(&mut self, i: &Instruction) {
        let segment = match i.segment_prefix() {
            Register::FS => Some(d::FS_BASE),
            Register::GS => Some(d::GS_BASE),
            _ => None,
        };
        let short = i.op0_kind() == OpKind::MemorySegEDI;
        match segment {
            Some(_) if short => return self.unsupported(),
            Some(base) => {
                self.borrow_this(RDI);
                self.a.unspill(SCR, base);
                let sum = MemoryOperand::with_base_index(gpr(RDI, 8), gpr(SCR, 8));
                self.a.lea(RDI, sum);
            }
            None => {}
        }
        if !self.replay() {
            self.put_masked(i, Register::None, i.op0_kind());
        }
        if self.policy.mode == Mode::Plain {
            return;
        }
        if segment.is_none() {
            self.borrow_this(RDI);
        }
        let real = MemoryOperand::with_base(gpr(RDI, if short { 4 } else { 8 }));
        let Some(cell) = self.cell_of(&real) else {
            return self.unsupported();
        };
        let address = MemoryOperand {
            segment_prefix: Register::None,
            ..cell
        };
        self.a.lea(RDI, address);
        self.put_masked(i, Register::GS, OpKind::MemorySegRDI);
    }

    /// Emits the instruction on memory at rdi or edi in `segment`.
    fn put_masked(&mut self, i: &Instruction, segment: Register, at: OpKind) {
        let mut i = *i;
        i.set_op0_kind(at);
        i.set_segment_prefix(segment);
        self.a.put(&i);
    }
}
