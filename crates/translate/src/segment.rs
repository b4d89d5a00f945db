//! What is emitted in front of a segment:
//!
//! - the budget check of a replay;
//! - the counts of what is executed;
//! - the check that the guest's code has not changed.

use crate::asm;
use crate::kinds::ends_segment;
use crate::regs::{CNT, RCX, SCR, gpr};
use crate::translator::{Translator, slot};
use crate::{Input, flags};
use alloc::vec::Vec;
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind, runs};
use iced_x86::{FlowControl, Instruction, MemoryOperand, OpAccess};

impl Translator {
    /// Replay: sets `covered`, the end of what the next budget check covers. That is at least the
    /// segment that ends at `end`.
    ///
    /// Where the next segment needs flags, a budget check would be dear. So that segment is covered
    /// too. An exit between the two takes back its length.
    pub(crate) fn cover(&mut self, instrs: &[Instruction], end: usize) {
        self.covered = end;
        while let Some(next) = instrs.get(self.covered)
            && (self.changing || flags::before(next, self.needed[self.covered]) != 0)
        {
            self.covered += instrs[self.covered..]
                .iter()
                .position(ends_segment)
                .map_or(instrs.len() - self.covered, |n| n + 1);
        }
    }

    /// Emits the exits in the middle of what one budget check covers.
    pub(crate) fn early_exits(&mut self) {
        for (jump, rest, pc) in core::mem::take(&mut self.early) {
            let here = self.a.here();
            self.a.aim(jump, here);
            asm::count(&mut self.a, -(rest as i32));
            self.exit_to(&[0xe9], pc);
        }
    }

    /// Replay: adds the length of what is covered to the negative budget. If the sum reaches zero,
    /// execution leaves before the covered instructions.
    pub(crate) fn budget(&mut self, pc: u64, n: u16, live: u32) {
        let stub = if live == 0 {
            // add r11, n; jc. A block has fewer than 128 instructions.
            self.a.bytes(&[0x49, 0x83, 0xc3, n as u8]);
            self.a.jump_later(&[0x0f, 0x82])
        } else {
            asm::count(&mut self.a, n as i32);
            // Without changing flags: while the sum is negative, its upper half is all ones. One
            // more makes that zero.
            self.a.mov(SCR, RCX);
            self.a.mov(RCX, CNT);
            // bswap rcx; lea ecx, [rcx + 1]
            self.a.bytes(&[0x48, 0x0f, 0xc9, 0x8d, 0x49, 0x01]);
            let go = self.a.short(&[0xe3]);
            self.a.mov(RCX, SCR);
            let stub = self.a.jump_later(&[0xe9]);
            self.a.land(go);
            self.a.mov(RCX, SCR);
            stub
        };
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(stub, here);
        asm::count(&mut self.a, -(n as i32));
        let exit = self.a.exit();
        self.a
            .desc(exit, &Desc::new(DescKind::Budget, pc, 0), None, None);
        self.a.cold(false);
    }

    /// Logs a segment of `n` instructions at `pc`. The counter is already `ahead` instructions further than its first one.
    pub(crate) fn log_run(&mut self, pc: u64, n: u16, ahead: i32) {
        // The runtime refuses code at other addresses.
        let entry = runs::entry(pc, n).unwrap_or(0);
        // The entry names an address.
        self.a.bound = true;
        for half in 0..2 {
            // mov dword ptr fs:[r11d*8 + displacement], half
            self.a.bytes(&[0x64, 0x67, 0x42, 0xc7, 0x04, 0xdd]);
            let displacement = 4 * half - runs::SLOT as i32 * ahead;
            self.a.bytes(&displacement.to_le_bytes());
            self.a.bytes(&((entry >> (32 * half)) as u32).to_le_bytes());
        }
    }

    /// Adds what the instructions of a segment consist of to [`hindsight_isa::Ctx::executed`].
    pub(crate) fn add_counts(&mut self, instrs: &[Instruction]) {
        let (mut reads, mut writes, mut indirect) = (0, 0, 0);
        for i in instrs {
            indirect += is_indirect(i) as i32;
            if i.is_string_instruction() {
                continue;
            }
            for m in self.info.info(i).used_memory() {
                let (read, written) = match m.access() {
                    OpAccess::Read | OpAccess::CondRead => (1, 0),
                    OpAccess::Write | OpAccess::CondWrite => (0, 1),
                    OpAccess::ReadWrite | OpAccess::ReadCondWrite => (1, 1),
                    _ => (0, 0),
                };
                reads += read;
                writes += written;
            }
        }
        let all = [
            (d::READS, reads),
            (d::WRITES, writes),
            (d::SEGMENTS, 1),
            (d::INDIRECT, indirect),
        ];
        for (at, n) in all.into_iter().filter(|(_, n)| *n > 0) {
            self.a.unspill(SCR, at);
            self.a.lea(SCR, asm::based(SCR, n));
            self.a.spill(at, SCR);
        }
    }

    /// Compares the block's guest code with what was translated.
    pub(crate) fn self_check(&mut self, input: &Input) {
        let last = self.instrs[self.instrs.len() - 1];
        let len = (last.next_ip() - input.pc) as usize;
        self.a.bound = true;
        self.a.spill(slot::CHECK, RCX);
        let mut at = 0;
        let mut misses = Vec::new();
        while at < len {
            let size = [8, 4, 2, 1]
                .into_iter()
                .find(|s| at + s <= len && (input.pc as usize + at).is_multiple_of(*s))
                .unwrap_or(1);
            let mut want = [0; 8];
            want[..size].copy_from_slice(&input.code[at..at + size]);
            self.a.imm(SCR, input.pc + at as u64);
            self.a.load(RCX, size, asm::based(SCR, 0));
            self.a.imm(SCR, u64::from_le_bytes(want).wrapping_neg());
            self.a.lea(
                RCX,
                MemoryOperand::with_base_index(gpr(RCX, 8), gpr(SCR, 8)),
            );
            let same = self.a.short(&[0xe3]);
            misses.push(self.a.jump_later(&[0xe9]));
            self.a.land(same);
            at += size;
        }
        self.a.unspill(RCX, slot::CHECK);
        self.a.cold(true);
        let here = self.a.here();
        misses.into_iter().for_each(|m| self.a.aim(m, here));
        self.a.unspill(RCX, slot::CHECK);
        let exit = self.a.exit();
        self.a
            .desc(exit, &Desc::new(DescKind::Stale, input.pc, 0), None, None);
        self.a.cold(false);
    }
}

fn is_indirect(i: &Instruction) -> bool {
    matches!(
        i.flow_control(),
        FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
    )
}
