//! Lazy flags in front of an indirect branch.
//!
//! Nobody knows what the code at the branch's target does with the flags. So all of them are
//! needed, though nearly no target reads any. Checks in front of the branch would have to preserve
//! them. Therefore translated code stores them behind the last instruction that touches them. It
//! stores the value that they are computed from, which is cheap. Checks may then change the flags.
//!
//! The branch itself finds only targets that need no flags ([`crate::Block::takes_flags`]). On the
//! way to any other target the flags are computed again.

use crate::asm::ctx;
use crate::plan::{Plan, plan};
use crate::regs::{self, CNT, RAX, RCX, SCR, gpr, number};
use crate::translator::Translator;
use hindsight_isa::LazyFlags;
use hindsight_isa::ctx::{SEARCH_LAZY, d, table};
use hindsight_isa::lazy_flags::Origin;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpAccess, OpKind};

impl Translator {
    /// Decides from which instruction on the flags are lazy. They are if the block ends with an
    /// indirect branch behind reads that must be checked. Storing the flags then costs less than
    /// checks that preserve them.
    pub(crate) fn choose_lazy_flags(&mut self) {
        self.lazy_from = usize::MAX;
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
            self.lazy_from = from;
            (self.lazy_flags, self.lazy_register) = self.origin(&instrs[..from]);
        }
        self.instrs = instrs;
    }

    /// Whether `i` neither reads nor changes flags, and its translation does not have the runtime
    /// execute it. The last instruction must be an indirect branch, and no other may be a branch.
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

    /// What the flags behind `instrs` can be computed from, and the register that holds it.
    fn origin(&mut self, instrs: &[Instruction]) -> (LazyFlags, u8) {
        let other = (LazyFlags::AX, RAX);
        for (k, i) in instrs.iter().enumerate().rev() {
            if i.rflags_modified() == 0 {
                continue;
            }
            let Some((lazy, reg)) = made_from(i) else {
                return other;
            };
            let changed = instrs[k + 1..].iter().any(|i| {
                let used = self.info.info(i).used_registers().iter();
                used.filter(|r| number(r.register()) == Some(reg))
                    .any(|r| !matches!(r.access(), OpAccess::Read | OpAccess::CondRead))
            });
            return if changed { other } else { (lazy, reg) };
        }
        other
    }

    /// Stores the value that the guest's flags are computed from. Goes between two instructions.
    pub(crate) fn store_flags(&mut self) {
        if self.lazy_flags.from != Origin::Ax {
            return self.a.spill(d::FLAGS, self.lazy_register);
        }
        self.put_ax();
    }

    /// Stores the flags as [`LazyFlags::AX`]. Uses the scratch register.
    pub(crate) fn put_ax(&mut self) {
        self.a.mov(SCR, RAX);
        // lahf; seto al
        self.a.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
        self.a.store(ctx(d::FLAGS), RAX, 2);
        self.a.mov(RAX, SCR);
    }

    /// Restores the flags that [`Translator::put_ax`] has stored. Overwrites rax.
    pub(crate) fn take_ax(&mut self) {
        self.a.load(RAX, 2, ctx(d::FLAGS));
        // add al, 127 (overflows if al is 1); sahf
        self.a.bytes(&[0x04, 0x7f, 0x9e]);
    }

    /// Jumps to the translation of the address in the scratch register, where flags are lazy. `at`
    /// is the displacement of the lookup table. Its first entries have only targets that need no
    /// flags.
    pub(crate) fn find_lazily(&mut self, at: i32) {
        self.a.spill(crate::translator::slot::CHECK, RCX);
        // movzx ecx, r10w; shl ecx, 4
        self.a.bytes(&[0x41, 0x0f, 0xb7, 0xca, 0xc1, 0xe1, 4]);
        // add r10, gs:[rcx + at]; jne
        self.a.at(&[0x65, 0x4c, 0x03, 0x91], at);
        let miss = self.a.jump_later(&[0x0f, 0x85]);
        // mov r10, gs:[rcx + at + 8]
        self.a.at(&[0x65, 0x4c, 0x8b, 0x91], at + 8);
        self.a.unspill(RCX, crate::translator::slot::CHECK);
        // jmp r10
        self.a.bytes(&[0x41, 0xff, 0xe2]);
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(miss, here);
        // sub r10, gs:[rcx + at]
        self.a.at(&[0x65, 0x4c, 0x2b, 0x91], at);
        let search = match self.lazy_flags.from {
            Origin::Ax => SEARCH_LAZY,
            _ => {
                self.compute_flags();
                table::CHECKED
            }
        };
        self.search(search);
        self.a.cold(false);
    }

    /// Computes the flags by repeating what made them, in rcx.
    fn compute_flags(&mut self) {
        let LazyFlags { from, size, by } = self.lazy_flags;
        let size = size as usize;
        self.a.unspill(RCX, d::FLAGS);
        let r = gpr(RCX, size);
        let mut put = |code: [Code; 4]| {
            let code = code[size.trailing_zeros() as usize];
            let i = match from {
                Origin::Logic => Instruction::with2(code, r, r),
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
            Origin::Logic => put([Test_rm8_r8, Test_rm16_r16, Test_rm32_r32, Test_rm64_r64]),
            Origin::Sum => {
                put(sub);
                put(add);
            }
            Origin::Difference => {
                put(add);
                put(sub);
            }
            Origin::Comparison => put(sub),
            Origin::Ax => {}
        }
    }
}

/// Hardware number of the register that is operand `op` of `i`. `None` for AH, BH, CH and DH, and
/// for the registers that the translator uses.
pub(crate) fn whole(i: &Instruction, op: u32) -> Option<u8> {
    let r = i.op_register(op);
    let known = i.op_kind(op) == OpKind::Register && !regs::is_high_byte(r);
    number(r).filter(|n| known && *n != SCR && *n != CNT)
}

/// What the flags behind `i` can be computed from: how, and from which register's value.
fn made_from(i: &Instruction) -> Option<(LazyFlags, u8)> {
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
        And | Or | Xor => Origin::Logic,
        Test if whole(i, 1) == Some(reg) => Origin::Logic,
        Add if immediate => Origin::Sum,
        Sub if immediate => Origin::Difference,
        Cmp if immediate => Origin::Comparison,
        _ => return None,
    };
    let lazy = LazyFlags {
        from,
        size: i.op_register(0).size() as u8,
        by: if immediate { i.immediate(1) as i32 } else { 0 },
    };
    Some((lazy, reg))
}
