//! String instructions that plain code executes by itself.
//!
//! With a repetition prefix the processor may be interrupted, or meet a fault, between two iterations. A
//! fault's place is known from the count that the instruction began with, which stands in the context
//! block. A signal waits until the instruction is done, which is executed step by step for that: so only
//! short ones stay here, and what is longer goes to the runtime, where getting there costs little.

use crate::block::{Translator, slot};
use crate::regs::RCX;
use hindsight_isa::string::{Kind, Repeat, Segment, StringOp};
use hindsight_isa::{Ctx, DescKind};

/// Whether plain code executes the string instruction with this code itself.
pub(crate) fn is_native(code: &[u8]) -> bool {
    StringOp::decode(code).is_some_and(|op| {
        matches!(op.kind, Kind::Movs | Kind::Stos | Kind::Lods)
            && op.segment == Segment::Flat
            && !op.addr32
    })
}

/// Iterations that the string instruction at the host's `code`, in plain translated code, has completed
/// when it raises a fault with `rcx` in that register; `None`: it is none, or one without repetition.
pub fn completed(code: &[u8], ctx: &Ctx, rcx: u64) -> Option<u64> {
    let op = StringOp::decode(code).filter(|op| op.repeat != Repeat::No)?;
    debug_assert!(!op.addr32);
    Some(ctx.spill[slot::index(slot::CHECK)].wrapping_sub(rcx))
}

impl Translator {
    /// The instruction at hand as it is, if it makes less than 256 iterations.
    pub(crate) fn native_string(&mut self) {
        let (bytes, len) = (self.cur.bytes, self.cur.len as usize);
        let repeats = StringOp::decode(&bytes[..len]).is_some_and(|op| op.repeat != Repeat::No);
        if !repeats {
            return self.a.bytes(&bytes[..len]);
        }
        self.a.spill(slot::CHECK, RCX);
        // movzx r10d, cl; not r10; lea rcx, [rcx + r10 + 1]: zero if the count has one byte. jrcxz
        self.a.bytes(&[0x44, 0x0f, 0xb6, 0xd1, 0x49, 0xf7, 0xd2]);
        self.a.bytes(&[0x4a, 0x8d, 0x4c, 0x11, 0x01]);
        let short = self.a.short(&[0xe3]);
        self.a.unspill(RCX, slot::CHECK);
        self.runtime(DescKind::Slow, 0, true);
        let done = self.a.short(&[0xeb]);
        self.a.land(short);
        self.a.unspill(RCX, slot::CHECK);
        self.a.bytes(&bytes[..len]);
        self.a.land(done);
    }
}
