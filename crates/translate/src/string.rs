//! String instructions that translated code executes itself.
//!
//! Between two iterations of a repeated instruction, a fault or a signal may come.
//!
//! - Fault: the context block has the count that the instruction began with. That tells how many
//!   iterations are complete.
//! - Signal: it waits until the instruction is done, which is stepped through for that. So only
//!   short repetitions stay here. Long ones go to the runtime, where the way there matters little.
//!
//! Plain code has the instructions as they are. Where reads are checked, an iteration is a load, a
//! comparison and a `stos`, which knows the direction. After each iteration the guest's registers
//! are as between two iterations of the instruction. On a misprediction the runtime does the rest
//! of the instruction.

use crate::asm::based;
use crate::regs::{RAX, RCX, RDI, RSI, SCR, gpr};
use crate::translator::{Translator, slot};
use crate::{Mode, Policy, flags};
use hindsight_isa::ctx::{APART, d};
use hindsight_isa::string::{Kind, Repeat, SegmentRegister, StringOp};
use hindsight_isa::{Ctx, Desc, DescKind, LazyFlags};
use iced_x86::{Code, MemoryOperand};

/// Whether translated code executes the string instruction with these bytes itself.
pub(crate) fn is_native(code: &[u8], policy: Policy) -> bool {
    let Some(op) = StringOp::decode(code) else {
        return false;
    };
    let kind = match policy.mode {
        Mode::Plain => matches!(op.kind, Kind::Movs | Kind::Stos | Kind::Lods),
        Mode::Record => matches!(op.kind, Kind::Movs | Kind::Stos) && policy.predictor.bits == 32,
        Mode::Replay => false,
    };
    kind && op.segment == SegmentRegister::Flat && !op.addr32
}

/// Iterations that a string instruction has completed when translated code faults in it, or leaves
/// in the middle of it. `code` has its bytes, `rcx` the value of that register. `None` if it is no
/// string instruction, or has no repetition.
pub fn completed(code: &[u8], ctx: &Ctx, rcx: u64) -> Option<u64> {
    let op = StringOp::decode(code).filter(|op| op.repeat != Repeat::No)?;
    debug_assert!(!op.addr32);
    Some(ctx.spill[slot::index(slot::CHECK)].wrapping_sub(rcx))
}

impl Translator {
    /// Emits the current instruction. It is executed here if it has less than 256 iterations.
    pub(crate) fn native_string(&mut self) {
        let (bytes, len) = (self.cur.bytes, self.cur.len as usize);
        let Some(op) = StringOp::decode(&bytes[..len]) else {
            return self.unsupported();
        };
        let long = (op.repeat != Repeat::No).then(|| self.unless_short());
        if self.checked() {
            self.iterate(&op);
        } else {
            self.emit_string(&op);
        }
        if let Some(long) = long {
            self.leave_string(long, false, |t| t.a.unspill(RCX, slot::CHECK));
        }
    }

    /// Emits the instruction itself, without prefixes that mean nothing.
    fn emit_string(&mut self, op: &StringOp) {
        match op.repeat {
            Repeat::No => {}
            Repeat::Equal => self.a.bytes(&[0xf3]),
            Repeat::NotEqual => self.a.bytes(&[0xf2]),
        }
        match op.size {
            2 => self.a.bytes(&[0x66]),
            8 => self.a.bytes(&[0x48]),
            _ => {}
        }
        let opcode = match op.kind {
            Kind::Movs => 0xa4,
            Kind::Cmps => 0xa6,
            Kind::Stos => 0xaa,
            Kind::Lods => 0xac,
            Kind::Scas => 0xae,
        };
        self.a.bytes(&[opcode + (op.size > 1) as u8]);
    }

    /// Saves the count, and jumps if that is 256 or more. Returns the jump's fixup. Where it leads,
    /// rcx must be restored.
    fn unless_short(&mut self) -> usize {
        self.a.spill(slot::CHECK, RCX);
        // movzx r10d, cl; not r10; lea rcx, [rcx + r10 + 1]: zero if the count is below 256. jrcxz
        self.a.bytes(&[0x44, 0x0f, 0xb6, 0xd1, 0x49, 0xf7, 0xd2]);
        self.a.bytes(&[0x4a, 0x8d, 0x4c, 0x11, 0x01]);
        let short = self.a.short(&[0xe3]);
        let long = self.a.jump_later(&[0xe9]);
        self.a.land(short);
        self.a.unspill(RCX, slot::CHECK);
        long
    }

    /// Has the runtime execute the rest of the instruction (`begun`) or all of it. The fixup `jump`
    /// leads to the exit, where `before` restores registers. Execution continues here.
    fn leave_string(&mut self, jump: usize, begun: bool, before: impl FnOnce(&mut Self)) {
        let back = self.a.here();
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(jump, here);
        before(self);
        let exit = self.a.exit();
        let mut desc = Desc::new(DescKind::Slow, self.cur.pc, self.cur.ahead);
        desc.size = begun as u8;
        desc.ilen = self.cur.len;
        desc.bytes = self.cur.bytes;
        self.a.desc(exit, &desc, Some(back), None);
        self.a.cold(false);
    }

    /// `movs` or `stos` on memory and cells, iteration by iteration.
    fn iterate(&mut self, op: &StringOp) {
        let size = op.size as usize;
        let repeats = op.repeat != Repeat::No;
        let copies = op.kind == Kind::Movs;
        let live = copies && self.cur.before & flags::ALL != 0;
        if live {
            self.put_ax();
            self.cur.lazy_flags = Some(LazyFlags::AX);
        }
        if copies {
            self.borrow_this(RAX);
        }
        let cell = |r: u8| MemoryOperand {
            base: gpr(r, 4),
            segment_prefix: iced_x86::Register::GS,
            ..based(r, -APART)
        };
        let again = self.a.here().at;
        let end = repeats.then(|| self.a.short(&[0xe3]));
        let miss = copies.then(|| {
            self.a.load(RAX, size, based(RSI, 0));
            self.a.cmp(RAX, size, cell(RSI));
            self.a.jump_later(&[0x0f, 0x85])
        });
        self.a.mov(SCR, RDI);
        self.a.bytes(match size {
            1 => &[0xaa],
            2 => &[0x66, 0xab],
            4 => &[0xab],
            _ => &[0x48, 0xab],
        });
        self.a.store(cell(SCR), RAX, size);
        if copies {
            // rsi goes as far as rdi went.
            self.a.rr(Code::Add_r64_rm64, gpr(RSI, 8), gpr(RDI, 8));
            self.a.rr(Code::Sub_r64_rm64, gpr(RSI, 8), gpr(SCR, 8));
        }
        if let Some(end) = end {
            self.a.lea(RCX, based(RCX, -1));
            let back = again as i32 - (self.a.here().at as i32 + 2);
            debug_assert!(back >= -128);
            self.a.bytes(&[0xeb, back as u8]);
            self.a.land(end);
        }
        let restore = move |t: &mut Self| {
            if live {
                t.take_ax();
            }
            if copies {
                t.a.unspill(RAX, d::SPILL);
            }
        };
        restore(self);
        self.cur.lazy_flags = None;
        self.cur.released = self.cur.nvictims;
        if let Some(miss) = miss {
            self.leave_string(miss, repeats, restore);
        }
    }
}
