//! Flags that are kept in the context block up to an indirect branch.
//!
//! Where such a branch leads is not known, so all flags are needed behind it, though nearly no target looks at
//! them. Between the last instruction that touches the flags and the branch they are kept in a form that
//! costs little: what they were made from. Checks there are free to change them. The branch finds only
//! targets that need no flags ([`crate::Block::takes_flags`]); on the way to any other they are made again.

use crate::asm::ctx;
use crate::block::Translator;
use crate::plan::{Plan, plan};
use crate::regs::{self, CNT, RAX, RCX, SCR, gpr, number};
use hindsight_isa::Kept;
use hindsight_isa::ctx::{SEARCH_KEPT, d, table};
use hindsight_isa::kept::From;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpAccess, OpKind};

impl Translator {
    /// Decides from which instruction on the flags are kept, if the block ends with an indirect branch behind
    /// reads that have to be checked: keeping them costs less than checks without them.
    pub(crate) fn keep_flags(&mut self) {
        self.kept_from = usize::MAX;
        let instrs = core::mem::take(&mut self.instrs);
        let mut reads = 0;
        let mut from = instrs.len();
        for (k, i) in instrs.iter().enumerate().rev() {
            if !self.leaves_flags(i, k + 1 == instrs.len()) {
                break;
            }
            let memory = self.info.info(i).used_memory().iter();
            reads += memory.filter(|m| m.access() == OpAccess::Read).count();
            from = k;
        }
        if reads > 0 && from < instrs.len() {
            self.kept_from = from;
            (self.kept, self.kept_reg) = self.origin(&instrs[..from]);
        }
        self.instrs = instrs;
    }

    /// Whether `i` has nothing to do with the flags and its translation does not ask the runtime to
    /// execute it. The last instruction must be an indirect branch.
    fn leaves_flags(&mut self, i: &Instruction, last: bool) -> bool {
        let flow = i.flow_control();
        let indirect = matches!(
            flow,
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::IndirectCall
        );
        if last != indirect || !last && flow != FlowControl::Next {
            return false;
        }
        if i.rflags_read() | i.rflags_modified() != 0 {
            return false;
        }
        match plan(i, self.info.info(i)) {
            Plan::Branch => last,
            Plan::Nop
            | Plan::Plain
            | Plan::Lea
            | Plan::Load
            | Plan::GprRead
            | Plan::Store
            | Plan::Read(_)
            | Plan::VecLoad(_)
            | Plan::Push
            | Plan::Pop
            | Plan::Leave => !last,
            _ => false,
        }
    }

    /// What the flags behind `instrs` can be made from, and the register that holds it.
    fn origin(&mut self, instrs: &[Instruction]) -> (Kept, u8) {
        let other = (Kept::AX, RAX);
        for (k, i) in instrs.iter().enumerate().rev() {
            if i.rflags_modified() == 0 {
                continue;
            }
            let Some((kept, reg)) = made_from(i) else {
                return other;
            };
            let changed = instrs[k + 1..].iter().any(|i| {
                let used = self.info.info(i).used_registers().iter();
                used.filter(|r| number(r.register()) == Some(reg))
                    .any(|r| !matches!(r.access(), OpAccess::Read | OpAccess::CondRead))
            });
            return if changed { other } else { (kept, reg) };
        }
        other
    }

    /// Puts what the guest's flags are made from into the context block, between two instructions.
    pub(crate) fn put_flags(&mut self) {
        if self.kept.from != From::Ax {
            return self.a.spill(d::FLAGS, self.kept_reg);
        }
        self.put_ax();
    }

    /// Puts the flags into the context block as [`Kept::AX`]. Uses the scratch register.
    pub(crate) fn put_ax(&mut self) {
        self.a.mov(SCR, RAX);
        // lahf; seto al
        self.a.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
        self.a.store(ctx(d::FLAGS), RAX, 2);
        self.a.mov(RAX, SCR);
    }

    /// Makes the flags again from what [`Translator::put_ax`] has put away. Overwrites rax.
    pub(crate) fn take_ax(&mut self) {
        self.a.load(RAX, 2, ctx(d::FLAGS));
        // add al, 127: overflow, if al is one; sahf
        self.a.bytes(&[0x04, 0x7f, 0x9e]);
    }

    /// Jumps to the translation of the address in the scratch register, where the flags are kept; `at` is
    /// the table of targets. Only those that do not need the flags are in their first place.
    pub(crate) fn find_freely(&mut self, at: i32) {
        self.a.spill(crate::block::slot::CHECK, RCX);
        // movzx ecx, r10w; shl ecx, 4
        self.a.bytes(&[0x41, 0x0f, 0xb7, 0xca, 0xc1, 0xe1, 4]);
        // add r10, gs:[rcx + at]; jne
        self.a.at(&[0x65, 0x4c, 0x03, 0x91], at);
        let miss = self.a.jump_later(&[0x0f, 0x85]);
        // mov r10, gs:[rcx + at + 8]
        self.a.at(&[0x65, 0x4c, 0x8b, 0x91], at + 8);
        self.a.unspill(RCX, crate::block::slot::CHECK);
        // jmp r10
        self.a.bytes(&[0x41, 0xff, 0xe2]);
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(miss, here);
        // sub r10, gs:[rcx + at]
        self.a.at(&[0x65, 0x4c, 0x2b, 0x91], at);
        let search = match self.kept.from {
            From::Ax => SEARCH_KEPT,
            _ => {
                self.make_flags();
                table::CHECKED
            }
        };
        self.search(search);
        self.a.cold(false);
    }

    /// Makes the flags by doing once more what made them, in rcx.
    fn make_flags(&mut self) {
        let Kept { from, size, by } = self.kept;
        let size = size as usize;
        self.a.unspill(RCX, d::FLAGS);
        let r = gpr(RCX, size);
        let mut put = |code: [Code; 4]| {
            let code = code[size.trailing_zeros() as usize];
            let i = match from {
                From::Logic => Instruction::with2(code, r, r),
                _ => Instruction::with2(code, r, by),
            };
            match i {
                Ok(i) => self.a.put(&i),
                Err(_) => self.a.failed = true,
            }
        };
        use Code::*;
        let add = [Add_rm8_imm8, Add_rm16_imm16, Add_rm32_imm32, Add_rm64_imm32];
        let sub = [Sub_rm8_imm8, Sub_rm16_imm16, Sub_rm32_imm32, Sub_rm64_imm32];
        match from {
            From::Logic => put([Test_rm8_r8, Test_rm16_r16, Test_rm32_r32, Test_rm64_r64]),
            From::Sum => {
                put(sub);
                put(add);
            }
            From::Difference => {
                put(add);
                put(sub);
            }
            From::Comparison => put(sub),
            From::Ax => {}
        }
    }
}

/// The number of the register that is operand `op` of `i`: not one that the translator uses, nor the second byte of
/// one.
pub(crate) fn whole(i: &Instruction, op: u32) -> Option<u8> {
    let r = i.op_register(op);
    let known = i.op_kind(op) == OpKind::Register && !regs::is_high_byte(r);
    number(r).filter(|n| known && *n != SCR && *n != CNT)
}

/// What the flags that `i` leaves can be made from: how, and from which register's contents behind it.
fn made_from(i: &Instruction) -> Option<(Kept, u8)> {
    use Mnemonic::*;
    let reg = whole(i, 0)?;
    let immediate = matches!(
        i.op_kind(1),
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    );
    let from = match i.mnemonic() {
        And | Or | Xor => From::Logic,
        Test if whole(i, 1) == Some(reg) => From::Logic,
        Add if immediate => From::Sum,
        Sub if immediate => From::Difference,
        Cmp if immediate => From::Comparison,
        _ => return None,
    };
    let kept = Kept {
        from,
        size: i.op_register(0).size() as u8,
        by: if immediate { i.immediate(1) as i32 } else { 0 },
    };
    Some((kept, reg))
}
