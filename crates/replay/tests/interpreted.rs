//! The interpreter plays the recordings that the tests make, as the native processor does.

use hindsight_isa::Predictor;
use hindsight_replay::{Choice, Code, Error, Machine, Stop, differing};
use hindsight_sample::*;
use std::sync::Arc;

fn interpreted(code: &[u8]) -> Machine<'static> {
    let code = Code::new(&mut [(0, PC, code)]).unwrap();
    Machine::with(Choice::Interpreter, Arc::new(code), Predictor::WINDOW).unwrap()
}

fn begin(m: &mut Machine, events: &[Owned]) {
    m.from_keyframe(Box::new(vec![encode(events)].into_iter()))
        .unwrap();
}

/// Those besides the status flags, of which the native processor has only the ones that are used.
fn registers_that_differ(a: &Machine, b: &Machine) -> Option<(String, String)> {
    differing(
        (&a.registers(), &a.vectors()),
        (&b.registers(), &b.vectors()),
    )
}

#[test]
fn both_processors_have_the_same_registers_at_every_position() {
    let (mut native, mut other) = (machine(CODE), interpreted(CODE));
    for _ in 0..2 {
        begin(&mut native, &recording());
        begin(&mut other, &recording());
        for pos in 0..=51 {
            assert_eq!(
                native.run_to(pos).unwrap(),
                other.run_to(pos).unwrap(),
                "at {pos}"
            );
            assert_eq!(native.position(), other.position());
            assert_eq!(registers_that_differ(&native, &other), None, "at {pos}");
        }
        let end = (native.run_to(100).unwrap(), other.run_to(100).unwrap());
        assert_eq!(end.0, end.1);
        assert!(matches!(end.0, Stop::Ended(_)));
    }
    assert_eq!(other.executed(), 102);
    let mut cells = [[0; 100]; 2];
    native.read_window(0x5000, &mut cells[0]);
    other.read_window(0x5000, &mut cells[1]);
    assert_eq!(cells[0], cells[1]);
}

#[test]
fn it_stops_at_breaks() {
    let (mut native, mut other) = (machine(CODE), interpreted(CODE));
    for m in [&mut native, &mut other] {
        begin(m, &recording());
        m.set_breaks(vec![RDTSC]);
        assert_eq!(m.run_to(u64::MAX).unwrap(), Stop::Break);
    }
    assert_eq!(native.position(), other.position());
    assert_eq!(registers_that_differ(&native, &other), None);
    assert!(matches!(other.run_to(u64::MAX).unwrap(), Stop::Ended(_)));
}

#[test]
fn what_it_does_not_support_is_named_with_its_position() {
    // nop; fsin
    let mut m = interpreted(&[0x90, 0xd9, 0xfe]);
    begin(&mut m, &recording());
    match m.run_to(u64::MAX) {
        Err(Error::Unsupported { position, pc, what }) => {
            assert_eq!((position, pc), (1, PC + 1));
            assert!(what.contains("Fsin"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    // A division by zero has no event.
    let mut m = interpreted(&[0x31, 0xc9, 0xf7, 0xf1]);
    begin(&mut m, &recording());
    match m.run_to(u64::MAX) {
        Err(Error::Difference(d)) => assert_eq!((d.position, d.pc), (1, PC + 2)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_only_the_native_processor_can_do_is_refused() {
    let asks: [fn(&mut Machine); 2] = [|m| m.count(), |m| m.watch(None)];
    for ask in asks {
        let mut m = interpreted(CODE);
        ask(&mut m);
        begin(&mut m, &recording());
        assert!(matches!(m.run_to(1), Err(Error::Unsupported { .. })));
    }
}
