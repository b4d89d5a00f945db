//! Code that would leave its window, or has instructions that translated code never has.

use hindsight_events::Event;
use hindsight_isa::VecState;
use hindsight_replay::{Error, Stop};
use hindsight_sample::*;

/// Stores whose operand is given by prefixes alone. If the segment prefix were copied, the register would
/// lead to this process's own memory.
#[test]
fn masked_moves_in_a_segment_stay_in_the_window() {
    let codes: [&[u8]; 4] = [
        &[0x64, 0x66, 0x0f, 0xf7, 0xc1], // maskmovdqu fs:[rdi], xmm0, xmm1
        &[0x66, 0x64, 0x0f, 0xf7, 0xc1], // the same
        &[0x64, 0xc5, 0xf9, 0xf7, 0xc1], // vmaskmovdqu
        &[0x36, 0x64, 0x66, 0x0f, 0xf7, 0xc1], // with a segment prefix that means nothing
    ];
    let avx = std::arch::is_x86_feature_detected!("avx");
    for code in codes.into_iter().filter(|c| avx || c[1] != 0xc5) {
        let victim = Box::new([0x11u8; 64]);
        let own: u64;
        // SAFETY: the thread's block begins with its own address.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) own, options(readonly, nostack)) };
        let mut s = start();
        s.gpr[7] = (victim.as_ptr() as u64).wrapping_sub(own);
        let mut v = VecState::default();
        v.zmm[0][..16].copy_from_slice(b"ABCDEFGHIJKLMNOP");
        v.zmm[1][..16].fill(0xff);
        let code = [code, &[0x90, 0x90]].concat();
        for mut m in [machine(&code), observing(&code)] {
            let at = s.fs_base.wrapping_add(s.gpr[7]);
            let events = [
                key_frame(0, s, v),
                event(
                    2,
                    Event::Syscall {
                        nr: 0,
                        args: [0; 6],
                    },
                ),
            ];
            m.from_keyframe(Box::new(vec![encode(&events)].into_iter()))
                .unwrap();
            assert_eq!(m.run_to(2).unwrap(), Stop::Position);
            let mut cells = [0; 16];
            m.read_window(at, &mut cells);
            assert_eq!((&cells, *victim), (b"ABCDEFGHIJKLMNOP", [0x11; 64]));
        }
    }
}

/// A refused instruction ends a replay when it is reached, and not before.
#[test]
fn what_is_refused_is_named_where_it_is_reached() {
    // nop, nop, fstp st(0) in an encoding that nobody has documented
    let code = [0x90, 0x90, 0xd9, 0xd8, 0x90, 0x90];
    let events = [
        key_frame(0, start(), VecState::default()),
        event(
            5,
            Event::Syscall {
                nr: 0,
                args: [0; 6],
            },
        ),
    ];
    let mut m = machine(&code);
    m.from_keyframe(Box::new(vec![encode(&events)].into_iter()))
        .unwrap();
    assert_eq!(m.run_to(2).unwrap(), Stop::Position);
    match m.run_to(4) {
        Err(Error::Unsupported { position, pc, what }) => {
            assert_eq!((position, pc), (2, PC + 2));
            assert!(
                what.contains("d9 d8") && what.contains("not an allowed instruction"),
                "{what}"
            );
        }
        other => panic!("not refused: {other:?}"),
    }
}
