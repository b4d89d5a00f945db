//! String instructions, which recorder and all virtual processors share (`hindsight_isa::string`).

use crate::Memory;
use crate::core::{Core, slot};
use crate::fault::Fault;
use crate::op::{Flow, Op, Run, bit};
use hindsight_isa::string::{Kind, Regs, Repeat, SegmentRegister, StringMemory, StringOp};
use iced_x86::{Instruction, Mnemonic, Register};

/// Most bytes that one instruction can process in a recorded program.
const LONGEST: u64 = 1 << 36;
/// No program has memory at this address or above.
const USER_END: u64 = 1 << 56;

struct Cells<'m, M> {
    memory: &'m mut M,
    most: u64,
}

/// Where a string instruction would have had a fault, which is an event.
struct OutOfBounds;

fn check(addr: u64) -> Result<(), OutOfBounds> {
    match addr < USER_END {
        true => Ok(()),
        false => Err(OutOfBounds),
    }
}

impl<M: Memory> StringMemory for Cells<'_, M> {
    type Stop = OutOfBounds;

    fn chunk(&mut self, done: u64) -> Result<u64, OutOfBounds> {
        match done > self.most {
            true => Err(OutOfBounds),
            false => Ok(u64::MAX),
        }
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), OutOfBounds> {
        check(addr)?;
        self.memory.read(addr, buf);
        Ok(())
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), OutOfBounds> {
        check(addr)?;
        self.memory.write(addr, buf);
        Ok(())
    }
}

const KINDS: [Kind; 5] = [Kind::Movs, Kind::Stos, Kind::Lods, Kind::Cmps, Kind::Scas];
const REPEATS: [Repeat; 3] = [Repeat::No, Repeat::Equal, Repeat::NotEqual];

/// `a` is the kind, `b` the repetition, `c` the bytes of an element.
fn string<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let op = StringOp {
        kind: KINDS[o.a as usize % 5],
        size: o.c,
        repeat: REPEATS[o.b as usize % 3],
        addr32: o.has(bit::SHORT),
        segment: SegmentRegister::Flat,
        len: o.len,
    };
    let gpr = std::array::from_fn(|i| c.gpr[i]);
    let flags = c.flags.bits() | c.other_flags;
    let mut regs = Regs::of(&gpr, flags);
    let mut cells = Cells {
        memory: m,
        most: LONGEST / o.c as u64,
    };
    let base = c.gpr[(o.segment & 31) as usize];
    let done = op.execute(&mut regs, base, 0, &mut cells);
    let mut new = gpr;
    regs.store(&mut new);
    c.gpr[..16].copy_from_slice(&new);
    if matches!(op.kind, Kind::Cmps | Kind::Scas) {
        c.set_rflags(regs.rflags);
    }
    match done {
        Ok(()) => Flow::Next,
        Err(OutOfBounds) => {
            c.fault = Some(Fault::Exception(14));
            Flow::Fault
        }
    }
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    if !i.is_string_instruction() {
        return Option::None;
    }
    let (kind, size) = match i.mnemonic() {
        Movsb => (0, 1),
        Movsw => (0, 2),
        Movsd => (0, 4),
        Movsq => (0, 8),
        Stosb => (1, 1),
        Stosw => (1, 2),
        Stosd => (1, 4),
        Stosq => (1, 8),
        Lodsb => (2, 1),
        Lodsw => (2, 2),
        Lodsd => (2, 4),
        Lodsq => (2, 8),
        Cmpsb => (3, 1),
        Cmpsw => (3, 2),
        Cmpsd => (3, 4),
        Cmpsq => (3, 8),
        Scasb => (4, 1),
        Scasw => (4, 2),
        Scasd => (4, 4),
        Scasq => (4, 8),
        _ => return Option::None,
    };
    (o.a, o.c) = (kind, size);
    o.b = match (i.has_rep_prefix(), i.has_repne_prefix()) {
        (true, _) => 1,
        (_, true) => 2,
        _ => 0,
    };
    o.segment = match i.segment_prefix() {
        Register::FS => slot::FS,
        Register::GS => slot::GS,
        _ => slot::ZERO,
    };
    let short = (0..i.op_count()).any(|n| {
        use iced_x86::OpKind::*;
        matches!(
            i.op_kind(n),
            MemorySegESI | MemorySegEDI | MemoryESEDI | MemorySegSI | MemorySegDI | MemoryESDI
        )
    });
    if short {
        o.bits |= bit::SHORT;
    }
    Some(string)
}
