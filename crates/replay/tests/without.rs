//! The native processor on a machine without AVX-512, with the interpreter for what needs that. In a process of its own: what is left
//! out is left out for all machines.

use hindsight_events::{EndKind, Event};
use hindsight_isa::regs::{RAX, RCX, RDI};
use hindsight_isa::{Predictor, VecState};
use hindsight_replay::{AccessKind, Choice, Code, Machine, Stop, differing, leave_out};
use hindsight_sample::*;
use std::sync::Arc;

/// Uses the upper half of a register beside instructions of SSE and AVX, and a high register and a mask all the time.
#[rustfmt::skip]
const WIDE: &[u8] = &[
    0x62, 0xe2, 0x7d, 0x48, 0x7c, 0xc0, //  1: vpbroadcastd zmm16, eax
    0x62, 0xa1, 0x75, 0x40, 0xfe, 0xc8, //     vpaddd zmm17, zmm17, zmm16
    0x62, 0xe1, 0xfe, 0x48, 0x7f, 0x0f, //     vmovdqu64 [rdi], zmm17
    0xc5, 0xf8, 0x92, 0xc8,             //     kmovw k1, eax
    0xba, 3, 0, 0, 0,                   //     mov edx, 3
    0xf0, 0x48, 0x0f, 0xc1, 0x57, 8,    //     lock xadd [rdi+8], rdx
    0x62, 0xb1, 0xfd, 0xc9, 0x6f, 0xc9, //     vmovdqa64 zmm1{k1}{z}, zmm17
    0x66, 0x0f, 0xfe, 0xc9,             //     paddd xmm1, xmm1
    0xc5, 0xf5, 0xfe, 0xd1,             //     vpaddd ymm2, ymm1, ymm1
    0xc5, 0xf5, 0xfe, 0xca,             //     vpaddd ymm1, ymm1, ymm2
    0x62, 0xe1, 0x6d, 0x40, 0xfe, 0xd1, //     vpaddd zmm18, zmm18, zmm1
    0x05, 1, 1, 1, 1,                   //     add eax, 0x1010101
    0xff, 0xc9,                         //     dec ecx
    0x75, 0xbe,                         //     jnz 1b
    0x90,                               //     nop
];
const XADD: u64 = PC + 0x1b;
const ROUNDS: u64 = 40;
const EACH: u64 = 14;

fn play(choice: Choice, observing: bool) -> Machine<'static> {
    leave_out(&["avx512f"]).unwrap();
    let code = Arc::new(Code::new(&mut [(0, PC, WIDE)]).unwrap());
    let mut m = match observing {
        true => Machine::observing(choice, code).unwrap(),
        false => Machine::with(choice, code, Predictor::WINDOW).unwrap(),
    };
    begin(&mut m);
    m
}

fn begin(m: &mut Machine) {
    let mut cpu = start();
    cpu.gpr[RAX] = 0x0102_0304;
    cpu.gpr[RCX] = ROUNDS;
    cpu.gpr[RDI] = 0x5000;
    let mut vec = VecState::default();
    vec.zmm[17] = std::array::from_fn(|i| i as u8 * 3);
    vec.zmm[5] = [0x77; 64];
    let end = Event::End {
        kind: EndKind::Exit,
        code: 3,
        message: b"",
    };
    let events = [key_frame(0, cpu, vec), event(ROUNDS * EACH + 1, end)];
    let events = vec![encode(&events)];
    m.from_keyframe(Box::new(events.into_iter())).unwrap();
}

fn assert_same(a: &Machine, b: &Machine) {
    let (a, b) = [a, b].map(|m| (m.registers(), m.vectors())).into();
    assert_eq!(differing((&a.0, &a.1), (&b.0, &b.1)), None);
}

#[test]
fn registers_are_the_same_at_every_position() {
    let mut mixed = play(Choice::Native, false);
    let mut other = play(Choice::Interpreter, false);
    // Steps of every length, so that runs begin and end in each state.
    for step in [1, 2, 3, 5, 13, 14, 29, 200] {
        for m in [&mut mixed, &mut other] {
            begin(m);
        }
        let mut pos = 0;
        while pos < ROUNDS * EACH {
            pos = (pos + step).min(ROUNDS * EACH);
            for m in [&mut mixed, &mut other] {
                assert_eq!(m.run_to(pos).unwrap(), Stop::Position);
                assert_eq!(m.position(), pos);
            }
            assert_same(&mixed, &other);
        }
        assert_ne!(mixed.vectors().zmm[18], [0; 64]);
        // It holds something in its upper half, which stays.
        assert_eq!(mixed.vectors().zmm[5], [0x77; 64]);
    }
}

#[test]
fn access_marks_are_the_same() {
    let mut mixed = play(Choice::Native, true);
    let mut other = play(Choice::Interpreter, true);
    for m in [&mut mixed, &mut other] {
        m.run_to(ROUNDS * EACH).unwrap();
    }
    let marks = |m: &Machine| {
        let mut out = [[0; 96]; 2];
        for (kind, out) in [AccessKind::Reads, AccessKind::Writes]
            .into_iter()
            .zip(&mut out)
        {
            m.read_marks(kind, 0x4ff0, out);
        }
        out
    };
    assert_eq!(marks(&mixed), marks(&other));
    assert_eq!(marks(&mixed)[1].iter().filter(|m| **m != 0).count(), 64);
}

/// Each of them is announced, also one that the interpreter would execute on its way.
#[test]
fn it_stops_before_every_atomic_operation() {
    let mut m = play(Choice::Native, false);
    m.watch(None);
    let mut met = 0;
    while m.run_to(ROUNDS * EACH).unwrap() == Stop::Break {
        assert_eq!(m.registers().rip, XADD);
        met += 1;
    }
    assert_eq!(met, ROUNDS);
}
