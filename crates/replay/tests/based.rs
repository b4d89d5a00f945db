//! Key frames that restate only what has changed since another one.

use hindsight_events::Event;
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{Error, Machine, Source, Stop, chain};
use hindsight_sample::*;
use std::sync::Arc;

/// `jmp` to itself: every instruction leaves all registers as they are.
const LOOP: &[u8] = &[0xeb, 0xfe];

fn frame(pos: u64) -> Owned {
    let cpu = CpuState {
        rip: PC,
        ..CpuState::default()
    };
    key_frame(pos, cpu, VecState::default())
}

fn begins(pos: u64, back: u64) -> Owned {
    event(pos, Event::Restate { ends: false, back })
}

fn ends(pos: u64) -> Owned {
    let back = 0;
    event(pos, Event::Restate { ends: true, back })
}

fn holds(pos: u64, addr: u64, bytes: &'static [u8]) -> Owned {
    event(pos, Event::Memory { addr, bytes })
}

fn zero(pos: u64, addr: u64) -> Owned {
    event(pos, Event::Zero { addr, len: 0x1000 })
}

/// Two key frames. The second one says that the byte at 0x2000 is zero or not there any more, and that the one at 0x3000
/// has become `third`.
fn chunks(third: &'static [u8]) -> Vec<Vec<u8>> {
    vec![
        encode(&[
            frame(0),
            begins(0, 0),
            holds(0, 0x1000, &[1]),
            holds(0, 0x2000, &[2]),
            ends(0),
            // The program writes it, and the kernel something else.
            holds(5, 0x3000, &[3]),
            holds(5, 0x5000, &[5]),
        ]),
        encode(&[
            frame(10),
            begins(10, 1),
            zero(10, 0x2000),
            holds(10, 0x3000, third),
            ends(10),
            zero(10, 0x5000),
            event(30, Event::RepChunk { iterations: 1 }),
        ]),
    ]
}

fn bytes(m: &Machine) -> [u8; 4] {
    [0x1000, 0x2000, 0x3000, 0x5000].map(|addr| {
        let mut byte = [0];
        m.read_window(addr, &mut byte);
        byte[0]
    })
}

/// The chunks from the second one on.
struct Second(Vec<Vec<u8>>, usize);

impl Source for Second {
    fn next_chunk(&mut self) -> Result<Option<Arc<Vec<u8>>>, Error> {
        self.1 += 1;
        Ok(self.0.get(self.1).cloned().map(Arc::new))
    }

    fn below(&self, back: u64, lay: &mut chain::Lay) -> Result<(), Error> {
        let look = |i: usize| (i < self.0.len()).then_some((10 * i as u64, true));
        let mut load = |i: usize| Ok(self.0.get(i).cloned().map(Arc::new));
        chain::below(&look, 1, back, &mut load, lay)
    }
}

#[test]
fn replay_that_comes_from_before_keeps_its_memory() {
    let mut m = machine(LOOP);
    m.compare_memory();
    m.from_keyframe(Box::new(chunks(&[3]).into_iter())).unwrap();
    assert_eq!(m.run_to(8).unwrap(), Stop::Position);
    assert_eq!(bytes(&m), [1, 2, 3, 5]);
    assert_eq!(m.run_to(20).unwrap(), Stop::Position);
    // The key frame changes nothing. What is said behind it does.
    assert_eq!(bytes(&m), [1, 2, 3, 0]);
}

#[test]
fn replay_that_begins_there_has_the_base_below() {
    let mut m = machine(LOOP);
    m.from_keyframe(Box::new(Second(chunks(&[3]), 0))).unwrap();
    assert_eq!(m.position(), 10);
    assert_eq!(m.run_to(20).unwrap(), Stop::Position);
    assert_eq!(bytes(&m), [1, 0, 3, 0]);
}

#[test]
fn another_content_is_a_difference() {
    let mut m = machine(LOOP);
    m.compare_memory();
    m.from_keyframe(Box::new(chunks(&[4]).into_iter())).unwrap();
    let e = m.run_to(20).unwrap_err().to_string();
    assert!(e.contains("memory at 0x3000"), "{e}");
}

#[test]
fn a_missing_base_is_an_error() {
    let mut m = machine(LOOP);
    let source = chunks(&[3]).into_iter().skip(1);
    let e = m.from_keyframe(Box::new(source)).unwrap_err();
    assert!(matches!(e, Error::MissingBase { back: 1, .. }), "{e}");
}
