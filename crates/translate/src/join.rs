//! Vectors read next to each other in a loop, which are compared with the predictor as one.
//!
//! A comparison of vectors and its branch take four operations of the processor for each vector, more than what a loop over arrays does with it.
//! Compilers unroll such loops, so that one instruction reads what lies directly before or behind what another has
//! read. The first of them, the *lead*, then compares what both read; the other takes it from the cells.
//!
//! That is right as long as what the other reads could as well have been read with the lead:
//!
//! * Between the two nothing else accesses memory, whose cells could be the same, and nothing leads elsewhere or to the runtime.
//! * A surprise of either is recorded at the lead. Replay patches the cells there.
//! * If memory of the second cannot be read, the lead faults, which it must not. The runtime knows by
//!   [`crate::MapEntry::joined`], and has no reads joined from then on.
//! * The second is never entered with what the lead has compared some time ago: whoever leaves translated code between the two
//!   comes back by a block that begins there.
//! * Neither demands that its operand is aligned: the form of an instruction that has a register for it does not.
//!
//! Only before a branch that leads to the block's beginning: elsewhere such reads are mostly of what has just been written
//! in pieces, which a processor cannot forward to a read of more.

use crate::addresses::{Address, Registers};
use crate::block::{Translator, ends_segment, names_wide};
use crate::operand::Mem;
use crate::plan::{Plan, plan};
use alloc::vec::Vec;
use iced_x86::{Instruction, OpKind, Register, UsedMemory};

/// An instruction that compares more than it reads.
struct Lead {
    /// Its number in the block.
    at: usize,
    /// Where what is compared begins, from what it reads.
    offset: i64,
    /// Bytes that are compared.
    size: usize,
}

/// An instruction that reads what its lead has compared.
#[derive(Clone, Copy)]
pub(crate) struct Second {
    /// Its number in the block.
    at: usize,
    /// It reads the upper half of that.
    pub upper: bool,
}

/// Which reads of a block are joined.
#[derive(Default)]
pub(crate) struct Joins {
    leads: Vec<Lead>,
    seconds: Vec<Second>,
}

impl Joins {
    /// Whether instruction `k` compares more than it reads.
    pub fn leads(&self, k: usize) -> bool {
        self.leads.iter().any(|l| l.at == k)
    }

    /// What instruction `k` reads, if another has compared that.
    pub fn second(&self, k: usize) -> Option<Second> {
        self.seconds.iter().find(|s| s.at == k).copied()
    }
}

/// Bytes that `i` reads, if it does nothing else with memory than to read a vector, wherever that is.
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
    /// Finds the reads to join in the block at `pc` that consists of `instrs`.
    pub(crate) fn find_joins(&mut self, pc: u64, instrs: &[Instruction]) -> Joins {
        let mut out = Joins::default();
        let leads_back = |i: &Instruction| {
            ends_segment(i) && i.op0_kind() == OpKind::NearBranch64 && i.near_branch_target() == pc
        };
        let usual = self.policy.wide_checks && self.policy.predictor.bits == 32;
        let Some(end) = instrs
            .iter()
            .rposition(leads_back)
            .filter(|_| self.join && usual)
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
                    (Some(lead), Some(second)) if out.join(lead, second) => None,
                    _ => read,
                };
            }
            registers.pass(i, info);
        }
        out
    }

    /// What the instruction at hand compares, of which it reads `size` bytes at `m`.
    pub(crate) fn compared_with(&self, m: &Mem, size: usize) -> (Mem, usize) {
        match self.joins.leads.iter().find(|l| l.at == self.cur.index) {
            Some(l) => (m.plus(l.offset), l.size),
            None => (*m, size),
        }
    }
}

/// Whether reads may be joined across `i`.
fn passes(i: &Instruction, p: Plan) -> bool {
    matches!(p, Plan::Plain | Plan::Lea | Plan::Nop) && !ends_segment(i) && !names_wide(i)
}

/// Whether the operand `m` at `a` is in no segment and not constant.
fn follows(m: &UsedMemory, a: &Address) -> bool {
    a.segment == Register::None
        && m.base() != Register::RIP
        && a.base.or(a.index.map(|x| x.0)).is_some()
}

impl Joins {
    /// Joins two reads (number, address, size), if they are next to each other.
    fn join(
        &mut self,
        (at, lead, size): (usize, Address, usize),
        (k, second, other): (usize, Address, usize),
    ) -> bool {
        let behind = second.behind(&lead).unwrap_or_default();
        if other != size || behind.unsigned_abs() != size as u64 {
            return false;
        }
        self.leads.push(Lead {
            at,
            offset: behind.min(0),
            size: 2 * size,
        });
        self.seconds.push(Second {
            at: k,
            upper: behind > 0,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Mode, Policy};
    use hindsight_isa::Predictor;

    type Leads = Vec<(usize, i64, usize)>;
    type Seconds = Vec<(usize, bool)>;

    /// Numbers, offsets and sizes of the leads in a block, and numbers of the seconds and whether they read upper
    /// halves.
    fn joined(code: &[u8]) -> (Leads, Seconds) {
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
        let leads = t.joins.leads.iter().map(|l| (l.at, l.offset, l.size));
        let seconds = t.joins.seconds.iter().map(|s| (s.at, s.upper));
        (leads.collect(), seconds.collect())
    }

    #[test]
    fn pairs_of_an_unrolled_loop_are_compared_as_one() {
        let code: &[&[u8]] = &[
            &[0x66, 0x41, 0x0f, 0x10, 0x14, 0x31], // movupd xmm2, [r9+rsi]
            &[0x66, 0x41, 0x0f, 0x10, 0x4c, 0x31, 0x10], // movupd xmm1, [r9+rsi+10h]
            &[0x66, 0x41, 0x0f, 0x10, 0x44, 0x31, 0x20], // movupd xmm0, [r9+rsi+20h]: of no pair
            &[0x66, 0x0f, 0x10, 0x7f, 0x10],       // movupd xmm7, [rdi+10h]
            &[0x48, 0x83, 0xc7, 0x20],             // add rdi, 20h
            &[0x66, 0x0f, 0x10, 0x7f, 0xe0],       // movupd xmm7, [rdi-20h]: where rdi was
            &[0x66, 0x0f, 0x10, 0x0c, 0x32],       // movupd xmm1, [rdx+rsi]
            &[0x0f, 0x11, 0x47, 0xf0],             // movups [rdi-10h], xmm0
        ];
        let body = code.concat();
        let back = |n: usize| [0x75, (n as u8 + 2).wrapping_neg()];
        let (leads, seconds) = joined(&[&body[..], &back(body.len())].concat());
        assert_eq!(leads, [(0, 0, 32), (3, -16, 32)]);
        assert_eq!(seconds, [(1, true), (5, false)]);
        // To the second instruction, so not a loop of this block.
        let (leads, _) = joined(&[&body[..], &back(body.len() - 6)].concat());
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
        for (between, joins) in between {
            let mut code = [&lead[..], between, &second].concat();
            code.extend([0x75, (code.len() as u8 + 2).wrapping_neg()]);
            assert_eq!(joined(&code).0.len(), *joins, "{between:x?}");
        }
        // vmovaps ymm0, [rdi]; vmovaps ymm1, [rdi+20h]
        let aligned = [0xc5, 0xfc, 0x28, 0x07, 0xc5, 0xfc, 0x28, 0x4f, 0x20];
        assert_eq!(joined(&[&aligned[..], &[0x75, 0xf5]].concat()).0, []);
    }
}
