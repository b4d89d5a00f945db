//! Which access marks an instruction need not make, because an earlier one in the block makes them.
//!
//! A budget check covers a run of instructions. They execute from the beginning of the run. If
//! execution stops inside, or an event that may change marks interrupts it, it continues in another
//! block. So what has been marked stays marked to the end of the run. Within a segment, later
//! writes may be marked ahead: one address serves for all writes through the same register.

use crate::addresses::{Address, Registers};
use crate::kinds::ends_segment;
use crate::mark_groups::{Lead, Together};
use crate::observe::{accesses, inline, is_accessed};
use crate::plan::{Plan, plan};
use crate::regs;
use crate::translator::Translator;
use alloc::vec::Vec;
use hindsight_isa::ctx::{CNT_REG, SCR_REG};
use iced_x86::{Instruction, Register, UsedMemory};

/// Most bytes from the first to the last mark that one address serves. Fewer than the slack of an
/// access map.
const REACH: i64 = 256;

/// What is known while a run is gone through: the registers, and what has been marked.
#[derive(Default)]
struct Walk {
    registers: Registers,
    marked: Vec<(bool, Address, usize)>,
}

impl Walk {
    /// Whether a mark of this kind has been made. From now on it has.
    fn mark(&mut self, write: bool, address: Address, size: usize) -> bool {
        let same = |m: &&(bool, Address, usize)| (m.0, m.1) == (write, address) && m.2 >= size;
        let had = self.marked.iter().any(|m| same(&m));
        if !had {
            self.marked.push((write, address, size));
        }
        had
    }
}

impl Translator {
    /// Finds out which marks of these instructions are made by which. A budget check covers them.
    pub(crate) fn marks_together(&mut self, instrs: &[Instruction], start: usize, end: usize) {
        let mut out = Together::default();
        let mut walk = Walk::default();
        // The first lead of the current segment.
        let mut open = 0;
        for (k, i) in instrs.iter().enumerate().take(end).skip(start) {
            let i = &Self::plain_form(i);
            let info = self.info.info(i);
            let list: Vec<UsedMemory> = info
                .used_memory()
                .iter()
                .filter(is_accessed)
                .copied()
                .collect();
            let leaves = matches!(plan(i, info), Plan::Slow | Plan::Syscall | Plan::Raise(_))
                || i.is_string_instruction()
                || !list.is_empty() && !inline(&self.lacking, i, info.used_memory());
            if leaves {
                // The runtime may change marks.
                walk.marked.clear();
                open = out.leads.len();
            } else if let [m] = &list[..]
                && i.op_mask() == Register::None
                && let Some(address) = walk.registers.address(m)
            {
                let (reads, writes) = accesses(m);
                let size = m.memory_size().size();
                if reads && walk.mark(false, address, size) {
                    out.done[0] |= 1 << k;
                }
                if writes
                    && (walk.mark(true, address, size)
                        || out.add_write(open, k, address, size, &walk))
                {
                    out.done[1] |= 1 << k;
                }
            }
            walk.registers.pass(i, info);
            if ends_segment(i) {
                open = out.leads.len();
            }
        }
        self.together = out;
    }

    /// Whether what instruction `k` reads, or writes, is already marked.
    pub(crate) fn is_marked(&self, k: usize, write: bool) -> bool {
        self.together.done[write as usize] & (1 << k) != 0
    }

    /// If other writes are marked together with that of instruction `k`, marks all of them and
    /// returns true.
    pub(crate) fn mark_together(&mut self, k: usize) -> bool {
        let lead = self.together.leads.iter().find(|l| l.at == k);
        let Some(lead) = lead.filter(|l| l.writes.len() > 1) else {
            return false;
        };
        let base = regs::gpr(lead.value.register, 8);
        let mut writes = lead.writes.clone();
        writes.sort_unstable();
        let first = writes[0].0;
        let marks = self.write_marks_from(base, first as i32);
        let mut done = first;
        for (at, size) in writes {
            let end = at + size as i64;
            let from = at.max(done);
            if end > from {
                self.emit_access_marks(marks, (from - first) as usize, (end - from) as usize);
                done = end;
            }
        }
        true
    }
}

impl Together {
    /// Lets a write be marked by an earlier one of the segment, whose leads begin at `open`. If
    /// there is none, the write becomes a lead for later ones.
    fn add_write(
        &mut self,
        open: usize,
        at: usize,
        address: Address,
        size: usize,
        walk: &Walk,
    ) -> bool {
        let Some(value) = address.base.filter(|v| {
            let r = v.register as usize;
            address.index.is_none()
                && address.segment == Register::None
                && r != SCR_REG
                && r != CNT_REG
        }) else {
            return false;
        };
        for lead in self.leads[open..].iter_mut().filter(|l| l.value == value) {
            let offset = address.displacement.wrapping_sub(lead.sum);
            let ends = lead
                .writes
                .iter()
                .map(|(at, size)| (*at, at + *size as i64));
            let mine = (offset, offset.saturating_add(size as i64));
            let (from, to) = ends.fold(mine, |a, b| (a.0.min(b.0), a.1.max(b.1)));
            if to.saturating_sub(from) <= REACH && i32::try_from(from).is_ok() {
                lead.writes.push((offset, size));
                return true;
            }
        }
        let sum = walk.registers.sums[value.register as usize];
        self.leads.push(Lead {
            at,
            value,
            writes: [(address.displacement.wrapping_sub(sum), size)].into(),
            sum,
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Policy};
    use hindsight_isa::Predictor;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn what_is_marked_before_or_ahead_is_not_marked_again() {
        let code: &[&[u8]] = &[
            &[0x55],                         // push rbp: marks both pushes
            &[0x53],                         // push rbx
            &[0x48, 0x89, 0x44, 0x24, 0x08], // mov [rsp+8], rax: where the first push wrote
            &[0x48, 0x8b, 0x4c, 0x24, 0x08], // mov rcx, [rsp+8]
            &[0x8b, 0x44, 0x24, 0x08],       // mov eax, [rsp+8]: part of it
            &[0x48, 0x89, 0x03],             // mov [rbx], rax
            &[0x48, 0x8b, 0x1b],             // mov rbx, [rbx]
            &[0x48, 0x89, 0x03],             // mov [rbx], rax: elsewhere
            &[0xf3, 0xa4],                   // rep movsb: the runtime marks
            &[0x48, 0x89, 0x03],             // mov [rbx], rax
            &[0x74, 0x00],                   // je: what follows may not be executed
            &[0x48, 0x89, 0x43, 0x08],       // mov [rbx+8], rax
            &[0x48, 0x89, 0x03],             // mov [rbx], rax: marked before the branch
        ];
        let bytes = code.concat();
        let instrs: Vec<Instruction> = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE)
            .iter()
            .collect();
        assert_eq!(instrs.len(), code.len());
        let mut t = Translator::new(Policy {
            mode: Mode::Replay,
            predictor: Predictor::WINDOW,
            wide_checks: false,
        });
        t.marks_together(&instrs, 0, instrs.len());
        assert_eq!(t.together.done, [1 << 4, 1 << 1 | 1 << 2 | 1 << 12]);
        let leads: Vec<(usize, usize)> = t
            .together
            .leads
            .iter()
            .map(|l| (l.at, l.writes.len()))
            .collect();
        assert_eq!(leads, [(0, 2), (5, 1), (7, 1), (9, 1), (11, 1)]);
        assert_eq!(t.together.leads[0].writes, [(-8, 8), (-16, 8)]);
    }
}
