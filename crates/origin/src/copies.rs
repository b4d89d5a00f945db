//! Which bytes an instruction only copies, found by trying it.
//!
//! The interpreter executes the instruction again and again, each time with other bytes in one register or one operand in memory. A
//! byte that it leaves is a copy of one that it found if both are the same each time. So no table says what instructions do: moves,
//! extensions, shuffles, exchanges and conditional moves are all found alike. Memory has no addresses here: the instruction's first
//! access is its first one whatever the address is. So bytes of registers that make addresses can be others, too.

mod string;
mod trial;

use crate::past::Step;
use crate::place::{Cell, Place};
use hindsight_isa::string::StringOp;
use hindsight_timeline::VecState;
use iced_x86::{Mnemonic, OpKind};
use std::ops::Range;
use string::string;
use trial::Trial;

/// Where bytes come from that an instruction leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gives {
    /// Some of the wanted bytes are copies, and so not all of these are [`Part::Made`].
    Copies(Vec<(Range<usize>, Part)>),
    /// The instruction itself says them.
    Constant,
    /// It computes them.
    Computed,
    /// It asks the processor.
    Processor,
    /// It cannot be tried, for this reason.
    Unknown(String),
}

/// Where some of the bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// They were here before.
    From(Place),
    /// The instruction made them, as the upper bytes of an extension.
    Made {
        /// From others. Otherwise it has them in itself.
        computed: bool,
    },
}

/// Where one byte comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Byte {
    Copy(Cell),
    Constant,
    Computed,
}

/// Where bytes come from that an instruction leaves in a place. All of the place was written, or else was there before.
/// `value` is what they are, as far as that is known.
pub(crate) fn gives(step: &Step, vec: &VecState, wanted: &Place, value: &[Option<u8>]) -> Gives {
    if let Some(op) = StringOp::decode(&step.code) {
        if left_otherwise(step, wanted, value) {
            return Gives::Unknown("it left something else".into());
        }
        return as_value(step, string(&op, step, wanted));
    }
    if asks_processor(step) {
        return Gives::Processor;
    }
    match Trial::new(step, vec) {
        Ok(mut trial) => match trial.sources(wanted, value) {
            Ok(bytes) => as_value(step, bytes),
            Err(why) => why,
        },
        Err(why) => why,
    }
}

/// Whether an instruction wrote other bytes to memory than these, as far as both are known.
fn left_otherwise(step: &Step, wanted: &Place, value: &[Option<u8>]) -> bool {
    let wrote = |at: u64| {
        let here = step.touches.iter().filter(|t| t.access.write);
        here.rev().find_map(|t| {
            let within = usize::try_from(at.wrapping_sub(t.access.address)).ok()?;
            t.bytes.as_ref()?.get(within).copied()
        })
    };
    wanted.cells().zip(value).any(|(cell, value)| match cell {
        Cell::Memory(at) => value.is_some() && wrote(at).is_some_and(|b| Some(b) != *value),
        Cell::Register(..) => false,
    })
}

/// Whether an instruction reads registers that belong to the processor's control.
fn asks_processor(step: &Step) -> bool {
    use Mnemonic::*;
    let i = &step.instruction;
    matches!(
        i.mnemonic(),
        Rdfsbase | Rdgsbase | Stmxcsr | Vstmxcsr | Fnstcw | Fnstsw | Sldt | Str | Smsw
    ) || i.mnemonic() == Mov
        && i.op1_kind() == OpKind::Register
        && i.op1_register().is_segment_register()
}

/// Takes bytes together that make up a value.
fn as_value(step: &Step, bytes: Vec<Byte>) -> Gives {
    let copies = bytes.iter().any(|b| matches!(b, Byte::Copy(_)));
    let computed = bytes.contains(&Byte::Computed);
    // The upper bytes of an extension follow from the others.
    if computed && !(copies && extends(step)) {
        return Gives::Computed;
    }
    if !copies {
        return Gives::Constant;
    }
    let mut runs: Vec<(Range<usize>, Part)> = Vec::new();
    for (i, b) in bytes.iter().enumerate() {
        let part = match *b {
            Byte::Copy(cell) => Part::From(Place::from(cell)),
            Byte::Constant => Part::Made { computed: false },
            Byte::Computed => Part::Made { computed: true },
        };
        let goes_on = match (runs.last_mut(), *b) {
            (Some((_, Part::From(place))), Byte::Copy(cell)) => place.push(cell),
            (Some((_, last)), _) => *last == part && !matches!(b, Byte::Copy(_)),
            (None, _) => false,
        };
        match runs.last_mut() {
            Some((range, _)) if goes_on => range.end += 1,
            _ => runs.push((i..i + 1, part)),
        }
    }
    Gives::Copies(runs)
}

/// Whether the instruction extends a number by its sign.
fn extends(step: &Step) -> bool {
    use Mnemonic::*;
    matches!(
        step.instruction.mnemonic(),
        Movsx
            | Movsxd
            | Cbw
            | Cwde
            | Cdqe
            | Pmovsxbw
            | Pmovsxbd
            | Pmovsxbq
            | Pmovsxwd
            | Pmovsxwq
            | Pmovsxdq
            | Vpmovsxbw
            | Vpmovsxbd
            | Vpmovsxbq
            | Vpmovsxwd
            | Vpmovsxwq
            | Vpmovsxdq
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::Touch;
    use hindsight_timeline::{Access, CpuState, regs};
    use iced_x86::Register;
    use iced_x86::{Decoder, DecoderOptions};

    fn step(code: &[u8], touches: &[(u64, &[u8], bool)]) -> Step {
        let mut cpu = CpuState::default();
        for (i, r) in (0u64..).zip(&mut cpu.gpr) {
            *r = 0x0f0f_0f0f_0f0f_0f0f * (i + 1);
        }
        cpu.rip = 0x1000;
        Step {
            count: 0,
            instruction: Decoder::with_ip(64, code, cpu.rip, DecoderOptions::NONE).decode(),
            code: code.to_vec(),
            cpu,
            touches: touches.iter().map(touch).collect(),
            entered: false,
        }
    }

    /// Where, what, and whether it was written.
    fn touch((address, bytes, write): &(u64, &[u8], bool)) -> Touch {
        let access = Access {
            address: *address,
            len: bytes.len() as u64,
            read: !write,
            write: *write,
            unknown: false,
        };
        Touch::new(access, Some(bytes.to_vec()))
    }

    fn register(register: Register, first: usize, len: usize) -> Place {
        Place::Register {
            register,
            first,
            len,
        }
    }

    fn of(step: &Step, place: &Place) -> Gives {
        gives(step, &VecState::default(), place, &vec![None; place.len()])
    }

    #[test]
    fn copies_and_what_is_computed_are_told_apart() {
        let from = |at, len, place| (at..at + len, Part::From(place));
        let rax = register(Register::RAX, 0, 8);
        // mov al, bl: the rest stays.
        let found = of(&step(&[0x88, 0xd8], &[]), &rax);
        let rest = from(1, 7, register(Register::RAX, 1, 7));
        let want = vec![from(0, 1, register(Register::RBX, 0, 1)), rest];
        assert_eq!(found, Gives::Copies(want));
        // mov eax, ebx clears the rest.
        let found = of(&step(&[0x89, 0xd8], &[]), &rax);
        let low = from(0, 4, register(Register::RBX, 0, 4));
        let want = vec![low, (4..8, Part::Made { computed: false })];
        assert_eq!(found, Gives::Copies(want));
        // lea rax, [rbx+rcx]; add rax, rbx; xor eax, eax; mov eax, 7; rdtsc
        for (code, want) in [
            (&[0x48, 0x8d, 0x04, 0x0b][..], Gives::Computed),
            (&[0x48, 0x01, 0xd8], Gives::Computed),
            (&[0x31, 0xc0], Gives::Constant),
            (&[0xb8, 7, 0, 0, 0], Gives::Constant),
            (&[0x0f, 0x31], Gives::Processor),
        ] {
            assert_eq!(of(&step(code, &[]), &rax), want, "{code:x?}");
        }
        // xchg rax, rbx; mov rax, [rbx]
        let found = of(&step(&[0x48, 0x93], &[]), &rax);
        let want = vec![from(0, 8, register(Register::RBX, 0, 8))];
        assert_eq!(found, Gives::Copies(want));
        let address = 0x0f0f_0f0f_0f0f_0f0f * 4;
        let load = step(&[0x48, 0x8b, 0x03], &[(address, &[1; 8], false)]);
        let want = vec![from(
            0,
            8,
            Place::Memory {
                at: address,
                len: 8,
            },
        )];
        assert_eq!(of(&load, &rax), Gives::Copies(want));
        // pshufb xmm0, xmm1, with zeros in xmm1: all are the first byte.
        let shuffle = step(&[0x66, 0x0f, 0x38, 0x00, 0xc1], &[]);
        let found = of(&shuffle, &register(Register::ZMM0, 0, 2));
        let first = register(Register::ZMM0, 0, 1);
        assert_eq!(
            found,
            Gives::Copies(vec![from(0, 1, first), from(1, 1, first)])
        );
        // fstp qword [rbx]: registers of the x87 are not tried.
        let store = step(&[0xdd, 0x1b], &[(address, &[0; 8], true)]);
        let memory = Place::Memory {
            at: address,
            len: 8,
        };
        let found = of(&store, &memory);
        assert!(
            matches!(found, Gives::Computed | Gives::Unknown(_)),
            "{found:?}"
        );
    }

    #[test]
    fn what_it_left_must_be_the_value() {
        let s = step(&[0x48, 0x89, 0xd8], &[]);
        let rax = register(Register::RAX, 0, 8);
        let value = s.cpu.gpr[regs::RBX].to_le_bytes().map(Some);
        let told = |value: &[Option<u8>]| gives(&s, &VecState::default(), &rax, value);
        assert!(matches!(told(&value), Gives::Copies(_)));
        let mut other = value;
        other[3] = Some(1);
        assert!(matches!(told(&other), Gives::Unknown(_)));
    }

    #[test]
    fn copies_that_overlap_repeat_what_they_began_with() {
        let movs = |from: u64, to: u64, len: usize, down: bool| {
            let bytes = vec![0; len];
            let touches = [(from, &bytes[..], false), (to, &bytes[..], true)];
            // rep movsb
            let mut s = step(&[0xf3, 0xa4], &touches);
            s.cpu.rflags = u64::from(down) << 10;
            s
        };
        let source = |s: &Step, at: u64| match of(s, &Place::Memory { at, len: 1 }) {
            Gives::Copies(all) => all[0].1,
            other => panic!("{other:?}"),
        };
        let memory = |at: u64| Part::From(Place::Memory { at, len: 1 });
        let apart = movs(0x100, 0x200, 16, false);
        assert_eq!(source(&apart, 0x20f), memory(0x10f));
        // Three bytes, again and again.
        let pattern = movs(0x100, 0x103, 16, false);
        for i in 0..16 {
            assert_eq!(source(&pattern, 0x103 + i), memory(0x100 + i % 3));
        }
        // Downwards, the same way up is no pattern, and the other one is.
        let moved = movs(0x100, 0x103, 16, true);
        assert_eq!(source(&moved, 0x103 + 9), memory(0x109));
        let pattern = movs(0x103, 0x100, 16, true);
        for i in 0..16 {
            let behind = 15 - i;
            assert_eq!(source(&pattern, 0x100 + i), memory(0x103 + 15 - behind % 3));
        }
    }
}
