//! Fused vectors: two adjacent vector reads of a loop are compared with their cells as one.
//!
//! A comparison of vectors and its branch take four operations of the processor. A loop over arrays
//! needs fewer for its own work on a vector. Compilers unroll such loops. So one instruction often
//! reads what lies directly before or behind what another has read. The first of the two, the
//! *lead*, compares what both read. The second takes its operand from the register in which that
//! was compared, or from the cells.
//!
//! That is right as long as the lead could have read what the second reads:
//!
//! - Between the two, no other instruction accesses memory, which could share the cells. None
//!   branches or goes to the runtime.
//! - A misprediction of either is recorded at the lead. Replay patches the cells there.
//! - If the second's memory cannot be read, the lead faults although it must not. The runtime sees
//!   that by [`crate::MapEntry::fused`], and fuses no reads from then on.
//! - The second never runs with an old comparison of the lead. Whoever leaves translated code
//!   between the two comes back through a block that begins there.
//! - Neither demands an aligned operand: the form with a register has no such demand.
//!
//! Reads are fused only in front of a branch back to the block's beginning. Elsewhere they mostly
//! read what has just been written in pieces. A processor cannot forward such pieces to a larger
//! read.

use crate::addresses::{Address, Registers};
use crate::fused_reads::FusedReads;
use crate::kinds::{ends_segment, names_wide};
use crate::operand::Mem;
use crate::plan::{Plan, plan};
use crate::translator::Translator;
use iced_x86::{Instruction, OpKind, Register, UsedMemory};

/// Bytes of the vector that `i` reads. `None` if it does anything else with memory, or demands an
/// alignment.
fn reads_vector(i: &Instruction, p: Plan) -> Option<usize> {
    use iced_x86::Mnemonic::*;
    let aligned = matches!(
        i.mnemonic(),
        Vmovaps | Vmovapd | Vmovdqa | Vmovdqa32 | Vmovdqa64 | Vmovntdqa
    );
    match p {
        Plan::VecLoad(n) | Plan::Read(n) if matches!(n, 16 | 32) && !aligned && !names_wide(i) => {
            Some(n)
        }
        _ => None,
    }
}

impl Translator {
    /// Finds the reads to fuse in the block at `pc` that consists of `instrs`.
    pub(crate) fn find_fused_reads(&mut self, pc: u64, instrs: &[Instruction]) -> FusedReads {
        let mut out = FusedReads::default();
        let leads_back = |i: &Instruction| {
            ends_segment(i) && i.op0_kind() == OpKind::NearBranch64 && i.near_branch_target() == pc
        };
        let usual = self.policy.wide_checks && self.policy.predictor.bits == 32;
        let Some(end) = instrs
            .iter()
            .rposition(leads_back)
            .filter(|_| self.fuse && usual)
        else {
            return out;
        };
        let mut registers = Registers::default();
        // The last access to memory, if it may be a lead.
        let mut previous: Option<(usize, Address, usize)> = None;
        for (k, i) in instrs[..end].iter().enumerate() {
            let info = self.info.info(i);
            let p = plan(i, info);
            if !passes(i, p) {
                let read = match (reads_vector(i, p), info.used_memory()) {
                    (Some(size), [m]) => registers
                        .address(m)
                        .filter(|a| follows(m, a))
                        .map(|a| (k, a, size)),
                    _ => None,
                };
                previous = match (previous, read) {
                    (Some(lead), Some(second)) if out.fuse(lead, second) => None,
                    _ => read,
                };
            }
            registers.pass(i, info);
        }
        out
    }

    /// What the current instruction compares: operand and size. It reads `size` bytes at `m`
    /// itself.
    pub(crate) fn compared_with(&self, m: &Mem, size: usize) -> (Mem, usize) {
        match self
            .fused_reads
            .leads
            .iter()
            .find(|l| l.at == self.cur.index)
        {
            Some(l) => (m.plus(l.offset), l.size),
            None => (*m, size),
        }
    }
}

/// Whether reads may be fused across `i`.
fn passes(i: &Instruction, p: Plan) -> bool {
    matches!(p, Plan::Plain | Plan::Lea | Plan::Nop) && !ends_segment(i) && !names_wide(i)
}

/// Whether the operand `m` at `a` has a register, but no segment.
fn follows(m: &UsedMemory, a: &Address) -> bool {
    a.segment == Register::None
        && m.base() != Register::RIP
        && a.base.or(a.index.map(|x| x.0)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Mode, Policy};
    use alloc::vec::Vec;
    use hindsight_isa::Predictor;

    type Leads = Vec<(usize, i64, usize)>;
    type Seconds = Vec<(usize, bool)>;

    /// For each lead in a block: number, offset, size. For each second: number, and whether it
    /// reads the upper half.
    fn fused(code: &[u8]) -> (Leads, Seconds) {
        let mut t = Translator::new(Policy {
            mode: Mode::Record,
            predictor: Predictor::WINDOW,
            wide_checks: true,
        });
        let input = Input {
            pc: 0x1000,
            code,
            max_instrs: 64,
            self_check: false,
            peeked: &[],
        };
        t.translate(&input, &mut |_| &[]).unwrap();
        let leads = t.fused_reads.leads.iter().map(|l| (l.at, l.offset, l.size));
        let seconds = t.fused_reads.seconds.iter().map(|s| (s.at, s.upper));
        (leads.collect(), seconds.collect())
    }

    #[test]
    fn pairs_of_an_unrolled_loop_are_compared_as_one() {
        let code: &[&[u8]] = &[
            &[0x66, 0x41, 0x0f, 0x10, 0x14, 0x31], // movupd xmm2, [r9+rsi]
            &[0x66, 0x41, 0x0f, 0x10, 0x4c, 0x31, 0x10], // movupd xmm1, [r9+rsi+10h]
            &[0x66, 0x41, 0x0f, 0x10, 0x44, 0x31, 0x20], // movupd xmm0, [r9+rsi+20h]: in no pair
            &[0x66, 0x0f, 0x10, 0x7f, 0x10],       // movupd xmm7, [rdi+10h]
            &[0x48, 0x83, 0xc7, 0x20],             // add rdi, 20h
            &[0x66, 0x0f, 0x10, 0x7f, 0xe0],       // movupd xmm7, [rdi-20h]: where rdi was
            &[0x66, 0x0f, 0x10, 0x0c, 0x32],       // movupd xmm1, [rdx+rsi]
            &[0x0f, 0x11, 0x47, 0xf0],             // movups [rdi-10h], xmm0
        ];
        let body = code.concat();
        let back = |n: usize| [0x75, (n as u8 + 2).wrapping_neg()];
        let (leads, seconds) = fused(&[&body[..], &back(body.len())].concat());
        assert_eq!(leads, [(0, 0, 32), (3, -16, 32)]);
        assert_eq!(seconds, [(1, true), (5, false)]);
        // A branch to the second instruction: no loop of this block.
        let (leads, _) = fused(&[&body[..], &back(body.len() - 6)].concat());
        assert_eq!(leads, []);
    }

    #[test]
    fn nothing_is_passed_that_matters() {
        let lead = [0xc5, 0xfd, 0x10, 0x07]; // vmovupd ymm0, [rdi]
        let second = [0xc5, 0xfd, 0x10, 0x4f, 0x20]; // vmovupd ymm1, [rdi+20h]
        let between: &[(&[u8], usize)] = &[
            (&[], 1),
            (&[0xc5, 0xfd, 0x58, 0xc0], 1), // vaddpd ymm0, ymm0, ymm0
            (&[0x48, 0x83, 0xc6, 0x40], 1), // add rsi, 40h
            (&[0x48, 0x8b, 0x06], 0),       // mov rax, [rsi]
            (&[0x48, 0x89, 0x06], 0),       // mov [rsi], rax
            (&[0x48, 0x01, 0xf7], 0),       // add rdi, rsi
            (&[0x0f, 0xa2], 0),             // cpuid: the runtime
            (&[0x74, 0x00], 0),             // je
            (&[0x62, 0x01, 0x85, 0x40, 0xef, 0xff], 0), // vpxorq zmm31, zmm31, zmm31
        ];
        for (between, fused_reads) in between {
            let mut code = [&lead[..], between, &second].concat();
            code.extend([0x75, (code.len() as u8 + 2).wrapping_neg()]);
            assert_eq!(fused(&code).0.len(), *fused_reads, "{between:x?}");
        }
        // vmovaps ymm0, [rdi]; vmovaps ymm1, [rdi+20h]
        let aligned = [0xc5, 0xfc, 0x28, 0x07, 0xc5, 0xfc, 0x28, 0x4f, 0x20];
        assert_eq!(fused(&[&aligned[..], &[0x75, 0xf5]].concat()).0, []);
    }
}
