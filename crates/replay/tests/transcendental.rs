//! Transcendental instructions of the x87 give what the recording says, whatever the machine at hand gives.

use hindsight_events::{EndKind, Event};
use hindsight_isa::{Predictor, VecState};
use hindsight_replay::{Choice, Code, Machine, Model, Stop};
use hindsight_sample::*;
use std::sync::Arc;

#[rustfmt::skip]
const CODE: &[u8] = &[
    0xd9, 0xe8,             // fld1
    0xd9, 0xeb,             // fldpi
    0xd9, 0xf2,             // fptan
    0xd9, 0xf3,             // fpatan
    0x90,                   // nop
];
/// What no processor gives.
const GIVEN: [u8; 20] = *b"ten bytes.and others";
const TWO: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x40];

fn left(status: u16, tags: u8, registers: &'static [u8]) -> Event<'static> {
    Event::X87 {
        ilen: 2,
        status,
        tags,
        registers,
    }
}

fn machine(choice: Choice, transcendental: bool, results: Vec<Owned>) -> Machine<'static> {
    let model = Model {
        transcendental,
        ..Model::from(choice)
    };
    let code = Arc::new(Code::new(&mut [(0, PC, CODE)]).unwrap());
    let mut m = Machine::with(model, code, Predictor::WINDOW).unwrap();
    let end = Event::End {
        kind: EndKind::Exit,
        code: 0,
        message: b"",
    };
    let mut all = vec![key_frame(0, start(), VecState::default())];
    all.extend(results);
    all.push(event(5, end));
    let events = vec![encode(&all)];
    m.from_keyframe(Box::new(events.into_iter())).unwrap();
    m
}

fn registers(m: &Machine) -> Vec<[u8; 10]> {
    let v = m.vectors();
    v.st.iter().map(|st| *st.first_chunk().unwrap()).collect()
}

#[test]
fn results_are_those_of_the_recording() {
    for choice in [Choice::default(), Choice::Interpreter] {
        let results = vec![
            event(2, left(5 << 11 | 0x200, 0xe0, &GIVEN)),
            event(3, left(6 << 11 | 0x20, 0xc0, &TWO)),
        ];
        let mut m = machine(choice, true, results);
        assert_eq!(m.run_to(3).unwrap(), Stop::Position);
        let st = registers(&m);
        assert_eq!(st[0], GIVEN[..10]);
        assert_eq!(st[1], GIVEN[10..]);
        // One, below.
        assert_eq!(st[2][7..], [0x80, 0xff, 0x3f]);
        assert_eq!((m.vectors().fsw, m.vectors().ftw), (5 << 11 | 0x200, 0xe0));
        assert_eq!(m.run_to(4).unwrap(), Stop::Position);
        let st = registers(&m);
        assert_eq!(st[0], TWO, "{choice:?}");
        assert_eq!(st[7], GIVEN[..10], "it is empty, but still there");
        assert_eq!(m.run_to(5).unwrap(), Stop::Position);
    }
}

#[test]
fn results_of_another_instruction_are_refused() {
    let short = Event::X87 {
        ilen: 1,
        status: 0,
        tags: 0,
        registers: &TWO,
    };
    let wrong = [
        // fldpi is none of them, fptan has two results, and none is one byte long.
        (1, left(0, 0, &TWO)),
        (2, left(0, 0, &TWO)),
        (2, left(0, 0, b"")),
        (2, left(0, 0, &[0; 30])),
        (4, short),
    ];
    for choice in [Choice::default(), Choice::Interpreter] {
        for (pos, event_) in wrong {
            let mut results = vec![event(pos, event_)];
            if pos > 2 {
                results.insert(0, event(2, left(5 << 11, 0xe0, &GIVEN)));
                results.insert(1, event(3, left(6 << 11, 0xc0, &TWO)));
            }
            let e = machine(choice, true, results).run_to(5).unwrap_err();
            let text = e.to_string();
            assert!(text.contains("a transcendental instruction"), "{text}");
        }
    }
}

/// A recording that tells results, but not this one, is damaged. An older one tells none.
#[test]
fn results_that_are_missing() {
    for choice in [Choice::default(), Choice::Interpreter] {
        let e = machine(choice, true, Vec::new()).run_to(5).unwrap_err();
        assert!(e.to_string().contains("Fptan"), "{e}");
    }
    let e = machine(Choice::Interpreter, false, Vec::new())
        .run_to(5)
        .unwrap_err();
    assert!(e.to_string().contains("differ between processors"), "{e}");
}

/// Translated code then has the results of the machine at hand.
#[test]
#[cfg(target_arch = "x86_64")]
fn older_recordings_play_on_their_processor() {
    let mut m = machine(Choice::Native, false, Vec::new());
    assert_eq!(m.run_to(3).unwrap(), Stop::Position);
    let mut expected = [[0u8; 10]; 2];
    // SAFETY: stores two numbers. The stack is as it was.
    unsafe {
        std::arch::asm!(
            "fldpi", "fptan", "fstp tbyte ptr [{a}]", "fstp tbyte ptr [{a} + 10]",
            a = in(reg) expected.as_mut_ptr(),
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
    assert_eq!(registers(&m)[..2], expected);
    assert_eq!(m.run_to(5).unwrap(), Stop::Position);
}
