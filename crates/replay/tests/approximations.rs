//! Approximations of reciprocals are those of the recorded processor, whatever the one at hand gives.

use hindsight_events::{EndKind, Event};
use hindsight_isa::approximate::{DIFFERENCES, Reciprocal};
use hindsight_isa::left_open::{DotProduct, DoubleShift};
use hindsight_isa::{Approximations, Finer, LeftOpen, Predictor, VecState};
use hindsight_replay::{Choice, Code, Machine, Model, Stop};
use hindsight_sample::*;
use std::sync::Arc;

/// Each reads xmm1.
#[rustfmt::skip]
const RECIPROCALS: &[u8] = &[
    0x0f, 0x53, 0xd1,       // rcpps xmm2, xmm1
    0xf3, 0x0f, 0x53, 0xd9, // rcpss xmm3, xmm1
    0x0f, 0x52, 0xe1,       // rsqrtps xmm4, xmm1
    0xf3, 0x0f, 0x52, 0xe9, // rsqrtss xmm5, xmm1
    0x90,                   // nop
];
const OPERANDS: [f32; 4] = [3.7, -1.25e-30, f32::INFINITY, 1.5e38];

/// A processor that is exact, which none is.
fn another() -> Arc<Approximations> {
    let it = Approximations::of(&[0; DIFFERENCES]).unwrap();
    assert_ne!(Some(&it), Approximations::here().as_ref());
    Arc::new(it)
}

fn play(choice: Choice, approximations: Option<Arc<Approximations>>) -> Machine<'static> {
    play_code(choice, RECIPROCALS, |model| {
        model.approximations = approximations;
    })
}

fn play_code(choice: Choice, code: &[u8], change: impl FnOnce(&mut Model)) -> Machine<'static> {
    play_with(choice, code, OPERANDS, change)
}

fn play_with(
    choice: Choice,
    code: &[u8],
    operands: [f32; 4],
    change: impl FnOnce(&mut Model),
) -> Machine<'static> {
    let mut model = Model::from(choice);
    change(&mut model);
    let code = Arc::new(Code::new(&mut [(0, PC, code)]).unwrap());
    let mut m = Machine::with(model, code, Predictor::WINDOW).unwrap();
    let mut vec = VecState::default();
    // What results leave as it was.
    vec.zmm[2..6].iter_mut().for_each(|z| z[..16].fill(0x11));
    for (to, from) in vec.zmm[1].chunks_mut(4).zip(operands) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let end = Event::End {
        kind: EndKind::Exit,
        code: 0,
        message: b"",
    };
    let events = vec![encode(&[key_frame(0, start(), vec), event(5, end)])];
    m.from_keyframe(Box::new(events.into_iter())).unwrap();
    m
}

fn results(m: &Machine) -> [[u32; 4]; 4] {
    let v = m.vectors();
    [2, 3, 4, 5].map(|n| {
        std::array::from_fn(|i| {
            let bytes = v.zmm[n][4 * i..4 * i + 4].try_into().unwrap();
            u32::from_le_bytes(bytes)
        })
    })
}

/// What those tables say.
fn expected(known: &Approximations) -> [[u32; 4]; 4] {
    let all = |what| OPERANDS.map(|x| known.of_number(what, x.to_bits()));
    let (numbers, roots) = (all(Reciprocal::Number), all(Reciprocal::Root));
    let one = |of: [u32; 4]| [of[0], 0x1111_1111, 0x1111_1111, 0x1111_1111];
    [numbers, one(numbers), roots, one(roots)]
}

#[test]
fn results_are_those_of_the_recorded_processor() {
    for known in [Some(another()), Approximations::here().map(Arc::new)] {
        let Some(known) = known else { continue };
        for choice in [Choice::default(), Choice::Interpreter] {
            let mut m = play(choice, Some(known.clone()));
            assert_eq!(m.run_to(4).unwrap(), Stop::Position);
            assert_eq!(results(&m), expected(&known), "{choice:?}");
        }
    }
}

/// An older recording does not say them.
#[test]
fn the_interpreter_does_not_guess() {
    let mut m = play(Choice::Interpreter, None);
    let e = m.run_to(4).unwrap_err().to_string();
    assert!(e.contains("Rcpps") && e.contains("differ"), "{e}");
}

/// vrcp14ps zmm2, zmm1; vrcp14sd xmm3, xmm1, xmm1; nop
#[rustfmt::skip]
const FINER: &[u8] = &[
    0x62, 0xf2, 0x7d, 0x48, 0x4c, 0xd1,
    0x62, 0xf2, 0xf5, 0x08, 0x4d, 0xd9,
    0x90,
];

/// The same for the finer ones. The line is flat: whatever the significand, results are one half and a bit.
#[test]
fn finer_results_are_those_of_the_recorded_processor() {
    let table = "16 65536".to_string() + &" 4096 0".repeat(64);
    let known = Finer::parse(&[&table[..]; 3].join(" ")).map(Arc::new);
    assert!(known.is_some() && known.as_deref() != Finer::here().as_ref());
    for choice in [Choice::default(), Choice::Interpreter] {
        let mut m = play_code(choice, FINER, |model| model.finer = known.clone());
        assert_eq!(m.run_to(2).unwrap(), Stop::Position, "{choice:?}");
        let v = m.vectors();
        assert_eq!(v.zmm[2][..4], 0x3e80_0080u32.to_le_bytes());
        let double = u64::from_le_bytes(*v.zmm[3].first_chunk().unwrap());
        assert_eq!(double & 0xf_ffff_ffff_ffff, 1 << 36);
    }
    let mut m = play_code(Choice::Interpreter, FINER, |model| model.finer = None);
    let e = m.run_to(2).unwrap_err().to_string();
    assert!(e.contains("Vrcp14ps") && e.contains("differ"), "{e}");
}

/// mov eax, 0x1234; mov ebx, 0xabcd; shld ax, bx, 24; dpps xmm1, xmm1, 0xff; nop
#[rustfmt::skip]
const LEFT_OPEN: &[u8] = &[
    0xb8, 0x34, 0x12, 0, 0,
    0xbb, 0xcd, 0xab, 0, 0,
    0x66, 0x0f, 0xa4, 0xd8, 24,
    0x66, 0x0f, 0x3a, 0x40, 0xc9, 0xff,
    0x90,
];

/// Where manuals leave results open, too. One of these is another processor than the one at hand.
#[test]
fn open_results_are_those_of_the_recorded_processor() {
    for (shift, first, dot, nan) in [
        (DoubleShift::First, 0xcd12, "0123", 1),
        (DoubleShift::Second, 0xcdab, "3210", 4),
    ] {
        let known = LeftOpen {
            double_shift: Some(shift),
            dot_product: DotProduct::parse(dot),
        };
        for choice in [Choice::default(), Choice::Interpreter] {
            let nans = [1, 2, 3, 4].map(|n| f32::from_bits(0x7fc0_0000 + n));
            let mut m = play_with(choice, LEFT_OPEN, nans, |model| model.left_open = known);
            assert_eq!(m.run_to(4).unwrap(), Stop::Position, "{choice:?}");
            assert_eq!(m.registers().gpr[0] & 0xffff, first, "{choice:?}");
            assert_eq!(m.vectors().zmm[1][0], nan, "{choice:?}");
        }
    }
    let mut m = play_code(Choice::Interpreter, LEFT_OPEN, |model| {
        model.left_open = LeftOpen::default();
    });
    let e = m.run_to(4).unwrap_err().to_string();
    assert!(e.contains("Shld") && e.contains("differ"), "{e}");
}
