//! Which flags are needed behind each instruction of a block.

use crate::translator::Translator;
use crate::{Input, Lookahead, flags};
use iced_x86::{FlowControl, OpKind};

/// How many stretches of code, one behind the other, are looked at for
/// [`crate::Block::takes_flags`].
const LOOKS: u32 = 5;

impl Translator {
    /// Fills `needed[k]` with the flags that are needed behind instruction `k`.
    ///
    /// - Behind an indirect branch all flags are needed, or none where they are lazy (see
    ///   [`crate::lazy_flags`]).
    /// - Behind an instruction that is translated alone all flags are needed.
    pub(crate) fn liveness<'a>(&mut self, input: &Input, peek: &mut dyn FnMut(u64) -> &'a [u8]) {
        self.needed.clear();
        self.needed.resize(self.instrs.len(), flags::ALL);
        // Cleared even if nothing is looked at: the last block's must not remain.
        self.block.peeked.clear();
        self.block.looks.clear();
        self.block.looked.clear();
        self.lazy_from = usize::MAX;
        self.block.takes_flags = false;
        let counts = self.checked() || self.replay();
        if !counts || self.alone {
            return;
        }
        if self.checked() {
            self.choose_lazy_flags();
        }
        // The block's own code is certain, unless it is changing. The code behind its exits belongs
        // to other blocks.
        let changing = self.changing;
        let own = self
            .instrs
            .last()
            .map_or(0, |i| i.next_ip().wrapping_sub(input.pc) as usize)
            .min(input.code.len());
        let peeked = &mut self.block.peeked;
        let (looks, looked) = (&mut self.block.looks, &mut self.block.looked);
        let mut at = |pc: u64| {
            if changing {
                return flags::ALL;
            }
            if let Some(known) = input.peeked.get(peeked.len()) {
                peeked.push(*known);
                return flags::unpack(*known);
            }
            let off = pc.wrapping_sub(input.pc) as usize;
            let needed = if off < own {
                let seen = flags::peek(pc, &input.code[off..own], flags::ALL);
                seen.needed | seen.undecided
            } else {
                let code = peek(pc);
                let seen = flags::peek(pc, code, flags::ALL);
                let (needed, len) = (seen.needed | seen.undecided, seen.len);
                looks.push(Lookahead {
                    distance: off as i64,
                    len: len as u8,
                });
                looked.extend_from_slice(&code[..len]);
                needed
            };
            peeked.push(flags::pack(needed));
            needed
        };
        let mut live = flags::ALL;
        for (k, i) in self.instrs.iter().enumerate().rev() {
            let last = k + 1 == self.instrs.len();
            live = match i.flow_control() {
                FlowControl::Next if last => at(i.next_ip()),
                FlowControl::Next => live,
                FlowControl::UnconditionalBranch | FlowControl::Call
                    if i.op0_kind() == OpKind::NearBranch64 =>
                {
                    at(i.near_branch64())
                }
                FlowControl::ConditionalBranch if i.op0_kind() == OpKind::NearBranch64 => {
                    at(i.near_branch64()) | if last { at(i.next_ip()) } else { live }
                }
                _ if self.lazy_from < usize::MAX => 0,
                _ => flags::ALL,
            };
            self.needed[k] = live;
            live = flags::before(i, live);
            if k == self.lazy_from {
                live = flags::ALL;
            }
        }
        // Writable code may change at any time, and only the block itself notices.
        self.block.takes_flags = input.self_check
            || changing
            || live != 0
                && (!input.peeked.is_empty()
                    || self.may_need(input.pc, flags::ALL, LOOKS, input, peek));
    }

    /// Whether some flags in `of` may be needed at `pc`, as far as can be seen. Looks at most at
    /// `looks` further stretches of code, one behind the other.
    fn may_need<'a>(
        &mut self,
        pc: u64,
        of: u32,
        looks: u32,
        input: &Input,
        peek: &mut dyn FnMut(u64) -> &'a [u8],
    ) -> bool {
        let distance = pc.wrapping_sub(input.pc);
        let own = self.instrs.last().map_or(0, |i| i.next_ip() - input.pc);
        let seen = if distance < own {
            let code = &input.code[..input.code.len().min(own as usize)];
            flags::peek(pc, code.get(distance as usize..).unwrap_or(&[]), of)
        } else {
            let code = peek(pc);
            let seen = flags::peek(pc, code, of);
            let len = seen.len;
            self.block.looks.push(Lookahead {
                distance: distance as i64,
                len: len as u8,
            });
            self.block.looked.extend_from_slice(&code[..len]);
            seen
        };
        if seen.needed != 0 {
            return true;
        }
        if seen.undecided == 0 {
            return false;
        }
        let known = seen.next.iter().flatten().count() > 0 && seen.len > 0 && looks > 0;
        !known
            || seen
                .next
                .into_iter()
                .flatten()
                .any(|n| self.may_need(n, seen.undecided, looks - 1, input, peek))
    }
}
