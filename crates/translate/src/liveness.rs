//! Which flags are needed behind each instruction of a block.

use crate::block::Translator;
use crate::{Input, Look, flags};
use iced_x86::{FlowControl, OpKind};

impl Translator {
    /// Fills `needed[k]` with the flags needed behind instruction `k`.
    pub(crate) fn liveness<'a>(&mut self, input: &Input, peek: &mut dyn FnMut(u64) -> &'a [u8]) {
        self.needed.clear();
        self.needed.resize(self.instrs.len(), flags::ALL);
        // Also where nothing is looked at: what the block before has left is not this one's.
        self.block.peeked.clear();
        self.block.looks.clear();
        self.block.looked.clear();
        if !self.checked() && !self.replay() {
            return;
        }
        // The block's own code is certain; what lies behind it is somebody else's.
        let own = self
            .instrs
            .last()
            .map_or(0, |i| i.next_ip().wrapping_sub(input.pc) as usize)
            .min(input.code.len());
        let peeked = &mut self.block.peeked;
        let (looks, looked) = (&mut self.block.looks, &mut self.block.looked);
        let mut at = |pc: u64| {
            if let Some(known) = input.peeked.get(peeked.len()) {
                peeked.push(*known);
                return flags::unpack(*known);
            }
            let off = pc.wrapping_sub(input.pc) as usize;
            let needed = if off < own {
                flags::peek(pc, &input.code[off..own]).0
            } else {
                let code = peek(pc);
                let (needed, len) = flags::peek(pc, code);
                looks.push(Look {
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
                _ => flags::ALL,
            };
            self.needed[k] = live;
            live = flags::before(i, live);
        }
    }
}
