//! The virtual processor plays recordings that the tests make.

use hindsight_events::{EndKind, Event, GapReason};
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{AccessKind, Difference, Error, Gap, Machine, Stop, StreamEnd};
use hindsight_sample::*;

fn play(m: &mut Machine, events: &[Owned]) -> Result<Stop, Error> {
    m.from_keyframe(Box::new(vec![encode(events)].into_iter()))?;
    m.run_to(u64::MAX)
}

fn difference(events: &[Owned]) -> Difference {
    match play(&mut machine(CODE), events) {
        Err(Error::Difference(d)) => *d,
        other => panic!("no difference: {other:?}"),
    }
}

#[test]
fn plays_to_the_end() {
    let mut m = machine(CODE);
    let end = Stop::Ended(StreamEnd {
        kind: EndKind::Exit,
        code: 3,
        message: String::new(),
    });
    // The second time everything is already translated and linked.
    for _ in 0..2 {
        assert_eq!(play(&mut m, &recording()).unwrap(), end);
        assert_eq!(m.position(), 51);
        let r = m.registers();
        assert_eq!((r.gpr[0], r.gpr[3], r.gpr[5]), (60, 55, 55));
        let mut copied = [0; 100];
        m.read_window(0x5000, &mut copied);
        let word = |b: u8| [b, 0, 0, 0, 0, 0, 0, 0];
        assert!(copied[..64].chunks(8).all(|c| c == word(0x41)));
        assert!(copied[64..].chunks(8).all(|c| c == &word(0x42)[..c.len()]));
    }
    assert_eq!(m.executed(), 102);
}

#[test]
fn stops_at_every_position() {
    let mut whole = machine(CODE);
    let mut stepped = machine(CODE);
    stepped
        .from_keyframe(Box::new(vec![encode(&recording())].into_iter()))
        .unwrap();
    for pos in 0..51 {
        whole
            .from_keyframe(Box::new(vec![encode(&recording())].into_iter()))
            .unwrap();
        assert_eq!(whole.run_to(pos).unwrap(), Stop::Position);
        assert_eq!(stepped.run_to(pos).unwrap(), Stop::Position);
        assert_eq!(whole.position(), pos);
        assert_eq!(whole.registers(), stepped.registers(), "at {pos}");
        assert_eq!(whole.vectors(), stepped.vectors(), "at {pos}");
    }
    stepped.run_to(36).unwrap();
    whole
        .from_keyframe(Box::new(vec![encode(&recording())].into_iter()))
        .unwrap();
    whole.run_to(36).unwrap();
    assert_eq!(whole.registers().rip, RDTSC);
    assert_eq!(whole.next_event().unwrap(), Some(36));
}

#[test]
fn what_is_given_is_marked_however_it_comes() {
    let mut m = observing(CODE);
    m.from_keyframe(Box::new(vec![encode(&recording())].into_iter()))
        .unwrap();
    m.run_to(7).unwrap();
    let marks = |m: &Machine| {
        let mut out = [0; 8];
        m.read_marks(AccessKind::Reads, 0x1000, &mut out);
        out
    };
    assert_eq!(marks(&m), [0; 8]);
    m.settle().unwrap();
    assert_eq!(marks(&m), [0xff; 8]);
}

#[test]
fn reports_where_it_differs() {
    // Another word in memory changes the system call's argument or the digest.
    let mut events = recording();
    events[2] = patch(7, 0x1000, [1, 2, 3, 4, 5, 6, 7, 80]);
    let d = difference(&events);
    assert_eq!((d.position, d.pc), (49, PC + 0x4f));

    let mut events = recording();
    events[8] = event(
        48,
        Event::Syscall {
            nr: 2,
            args: [0; 6],
        },
    );
    let d = difference(&events);
    assert_eq!((d.position, d.pc), (48, PC + 0x4d));

    // An instruction that needs an event does not find it.
    let mut events = recording();
    drop(events.remove(3));
    let d = difference(&events);
    assert_eq!((d.position, d.pc), (36, RDTSC));
    let mut events = recording();
    events.drain(8..10);
    assert_eq!(difference(&events).position, 48);

    // The event stands at the wrong instruction.
    let mut events = recording();
    events[3].0 = 35;
    assert_eq!(difference(&events).position, 35);
    let mut events = recording();
    events[6] = event(
        45,
        Event::RepChunk {
            iterations: 1 << 20,
        },
    );
    assert_eq!(difference(&events).position, 46);

    // The program jumps to unknown code.
    let mut events = recording();
    let mut s = start();
    s.rip = 0x1234;
    events[0] = key_frame(0, s, VecState::default());
    let err = play(&mut machine(CODE), &events).unwrap_err();
    assert!(matches!(
        err,
        Error::MissingCode {
            position: 0,
            pc: 0x1234
        }
    ));
}

#[test]
fn compares_at_key_frames() {
    let mut vec = VecState::default();
    vec.zmm[3][0] = 55;
    let mut events = recording();
    events.insert(10, key_frame(49, after_write(), vec));
    // The key frame empties the window, so the saved word must come again.
    events.insert(12, patch(49, RSP - 64, [0, 0, 0, 0, 0, 0, 0, 55]));
    let mut m = machine(CODE);
    assert!(matches!(play(&mut m, &events), Ok(Stop::Ended(_))));
    assert_eq!(m.registers().gpr[5], 55);

    vec.zmm[3][1] = 1;
    events[10] = key_frame(49, after_write(), vec);
    let d = difference(&events);
    assert_eq!(d.position, 49);
    assert!(
        d.expected.starts_with("zmm3=") && d.expected.ends_with("0137"),
        "{d}"
    );
    let mut other = after_write();
    other.gpr[12] = 1;
    events[10] = key_frame(49, other, vec);
    let d = difference(&events);
    assert_eq!(
        (d.expected.as_str(), d.found),
        ("r12=1", format!("r12={:x}", RSP - 16))
    );
}

#[test]
fn tells_a_cut_stream_from_an_ended_one() {
    let mut events = recording();
    events.truncate(10);
    let mut m = machine(CODE);
    assert_eq!(play(&mut m, &events).unwrap(), Stop::OutOfEvents);
    assert_eq!(m.position(), 49);
    // A recording may end within a system call.
    events.truncate(9);
    assert_eq!(play(&mut m, &events).unwrap(), Stop::OutOfEvents);
    assert_eq!(m.position(), 48);
}

#[test]
fn signals_change_the_state() {
    // `mov [rax], rax` faults at once. The handler is at the next instruction. It ends with a call of
    // rt_sigreturn, which continues behind the handler.
    let code = [
        0x48, 0x89, 0x00, 0xff, 0xc3, 0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0x83, 0xc3, 0x10, 0x0f, 0x0b,
    ];
    let state = |rip: u64, rbx| {
        let mut s = CpuState {
            rip: PC + rip,
            rflags: 4,
            ..CpuState::default()
        };
        s.gpr[3] = rbx;
        s
    };
    let set = |pos, s: CpuState| -> Owned {
        let (cpu, vec) = (s.to_bytes(), VecState::default().to_bytes());
        (
            pos,
            Box::new(move |f| {
                f(&Event::SetState {
                    cpu: &cpu,
                    vec: &vec,
                })
            }),
        )
    };
    let events = [
        key_frame(0, state(0, 1), VecState::default()),
        event(
            0,
            Event::Signal {
                signo: 11,
                code: 1,
                addr: 0,
            },
        ),
        set(0, state(3, 1)),
        event(
            2,
            Event::Syscall {
                nr: 15,
                args: [0; 6],
            },
        ),
        set(2, state(12, 7)),
        event(
            4,
            Event::Signal {
                signo: 4,
                code: 2,
                addr: PC + 15,
            },
        ),
        event(
            4,
            Event::End {
                kind: EndKind::Signal,
                code: 4,
                message: b"",
            },
        ),
    ];
    let mut m = machine(&code);
    assert!(matches!(
        play(&mut m, &events),
        Ok(Stop::Ended(StreamEnd {
            kind: EndKind::Signal,
            code: 4,
            ..
        }))
    ));
    assert_eq!(m.registers().gpr[3], 0x17);
    assert_eq!(m.registers().rip, PC + 15);
}

#[test]
fn faults_become_errors() {
    // The code divides ecx by zero.
    let events = [
        key_frame(
            0,
            CpuState {
                rip: PC,
                ..CpuState::default()
            },
            VecState::default(),
        ),
        event(9, Event::CodeEpoch { epoch: 0 }),
    ];
    let err = play(
        &mut machine(&[
            0x90, 0xf7, 0xf1, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
        ]),
        &events,
    )
    .unwrap_err();
    let Error::Difference(d) = err else {
        panic!("{err}")
    };
    assert_eq!(
        (d.position, d.pc, d.found.as_str()),
        (1, PC + 1, "an arithmetic exception")
    );
}

#[test]
fn keeps_the_upper_halves_of_vectors() {
    if !is_x86_feature_detected!("avx2") {
        return;
    }
    // The code is `vpaddq ymm1, ymm1, ymm1` in a loop.
    let code = [0xc5, 0xf5, 0xd4, 0xc9, 0xeb, 0xfa];
    let mut vec = VecState::default();
    vec.zmm[1][24] = 1;
    let mut events = vec![key_frame(
        0,
        CpuState {
            rip: PC,
            ..CpuState::default()
        },
        vec,
    )];
    // The patches make it leave translated code often.
    events.extend((1..80).map(|i| patch(i, 0x1000, [i; 8])));
    let mut m = machine(&code);
    m.from_keyframe(Box::new(vec![encode(&events)].into_iter()))
        .unwrap();
    m.run_to(79).unwrap();
    let word = u64::from_le_bytes(m.vectors().zmm[1][24..32].try_into().unwrap());
    assert_eq!(word, 1 << 40);
}

#[test]
fn new_code_takes_effect_with_its_epoch() {
    // The code is `mov eax, 1; jmp back`, later `mov eax, 2; jmp back`.
    let old = [0xb8, 1, 0, 0, 0, 0xeb, 0xf9];
    let new = [2];
    let code = hindsight_replay::Code::new(&mut [(0, PC, &old), (3, PC + 1, &new)]).unwrap();
    let mut m = Machine::new(std::sync::Arc::new(code), hindsight_isa::Predictor::WINDOW).unwrap();
    let events = [
        key_frame(
            0,
            CpuState {
                rip: PC,
                ..CpuState::default()
            },
            VecState::default(),
        ),
        event(100, Event::CodeEpoch { epoch: 3 }),
        event(200, Event::CodeEpoch { epoch: 2 }),
        event(300, Event::CodeEpoch { epoch: 2 }),
    ];
    m.from_keyframe(Box::new(vec![encode(&events)].into_iter()))
        .unwrap();
    for (pos, eax) in [(100, 1), (199, 2), (299, 1)] {
        m.run_to(pos).unwrap();
        assert_eq!(m.registers().gpr[0], eax, "at {pos}");
    }
}

/// A recording with a gap: from the call of the function at 33 to address 37, which the thread reaches after
/// a hundred instructions.
fn with_gap(end: Event<'static>) -> Vec<Owned> {
    let mut events = recording();
    events.truncate(3);
    let reason = GapReason::Module;
    events.push(event(33, Event::GapBegin { reason }));
    let (nr, args) = (57, [0; 6]);
    events.push(event(60, Event::Syscall { nr, args }));
    events.push(event(60, Event::SyscallRet { ret: 5 }));
    let (name, bytes) = (1, &b"mark"[..]);
    events.push(event(61, Event::Mark { name, bytes }));
    let reason = GapReason::Stopped;
    events.push(event(62, Event::GapBegin { reason }));
    events.push(event(133, end));
    events.push(event(140, Event::RepChunk { iterations: 0 }));
    events
}

fn gap_end() -> Event<'static> {
    let mut values = [0; 20];
    (values[3], values[4], values[16], values[17]) = (77, RSP, RDTSC + 2, 0x40);
    Event::GapEnd {
        mask: 1 << 3 | 1 << 4 | 1 << 16 | 1 << 17,
        values,
        parts: 1 << 2 | 1 << 48,
        vec: &[9; 16 + 64],
    }
}

#[test]
fn nothing_is_executed_in_gaps() {
    let mut m = machine(CODE);
    let begin = |m: &mut Machine| {
        let wire = vec![encode(&with_gap(gap_end()))];
        m.from_keyframe(Box::new(wire.into_iter())).unwrap();
    };
    begin(&mut m);
    assert_eq!(m.run_to(33).unwrap(), Stop::Position);
    let before = (m.registers(), m.vectors());
    for at in [34, 60, 61, 90, 132] {
        assert_eq!(m.run_to(at).unwrap(), Stop::Position);
        assert!(m.in_gap());
        assert_eq!((m.position(), m.executed()), (at, 33));
        assert_eq!((m.registers(), m.vectors()), before, "at {at}");
    }
    assert_eq!(m.run_to(133).unwrap(), Stop::Position);
    assert!(!m.in_gap());
    assert_eq!(m.skipped(), 100);
    for whole in [false, true] {
        if whole {
            begin(&mut m);
        }
        assert_eq!(m.run_to(135).unwrap(), Stop::Position);
        let (r, v) = (m.registers(), m.vectors());
        assert_eq!((r.gpr[3], r.gpr[4], r.gpr[11]), (77, RSP, 10));
        assert_eq!(r.gpr[5], before.0.gpr[5]);
        assert_eq!(v.zmm[2][..17], [&[9; 16][..], &[0]].concat());
        assert_eq!((v.k[7], v.zmm[3]), (0x0909_0909_0909_0909, before.1.zmm[3]));
    }
    begin(&mut m);
    m.run_to(40).unwrap();
    m.leave_gap(100).unwrap();
    assert_eq!((m.position(), m.in_gap()), (100, true));
    m.leave_gap(1000).unwrap();
    assert_eq!((m.position(), m.in_gap()), (133, false));
}

#[test]
fn resumes_at_any_place_around_gaps() {
    // At the end of the gap other events are due before and behind it.
    let mut events = with_gap(gap_end());
    events.insert(8, event(133, Event::CodeEpoch { epoch: 0 }));
    events.insert(10, patch(133, RSP & !63, [5; 8]));
    events.insert(11, event(133, Event::CodeEpoch { epoch: 0 }));
    let whole = || Box::new(vec![encode(&events)].into_iter());
    let mut m = machine(CODE);
    let mut resumed = machine(CODE);
    for at in 30..138 {
        m.from_keyframe(whole()).unwrap();
        m.run_to(at).unwrap();
        let state = m.state();
        let gap = match at {
            34..133 => Gap::Within,
            133 => Gap::Behind,
            _ => Gap::Outside,
        };
        assert_eq!((state.position, state.gap), (at, gap));
        resumed.resume(whole(), &state).unwrap();
        let pages = [0x1000, RSP & !63, FS];
        for page in pages {
            let mut bytes = [0; 64];
            m.read_window(page, &mut bytes);
            resumed.write_window(page, &bytes);
        }
        assert_eq!(resumed.state(), state, "at {at}");
        for end in [133, 138] {
            assert_eq!(m.run_to(end).unwrap(), Stop::Position);
            assert_eq!(resumed.run_to(end).unwrap(), Stop::Position);
            assert_eq!(resumed.state(), m.state(), "from {at} to {end}");
        }
    }
}

#[test]
fn gaps_that_make_no_sense_are_refused() {
    let refused = |events: &[Owned]| match play(&mut machine(CODE), events) {
        Err(Error::Corrupt { what, .. }) => what,
        other => panic!("accepted: {other:?}"),
    };
    let mut events = with_gap(gap_end());
    events.truncate(3);
    events.push(event(33, gap_end()));
    events.push(event(40, Event::RepChunk { iterations: 0 }));
    assert!(refused(&events).contains("never began"));
    for extra in [
        patch(70, 0x1000, [1; 8]),
        regs(70, 0, &[(0, 1)]),
        key_frame(70, start(), VecState::default()),
    ] {
        let mut events = with_gap(gap_end());
        events.insert(8, extra);
        assert!(refused(&events).contains("within a gap"));
    }
    for (parts, vec) in [(1, &[0; 15][..]), (1 << 51, &[]), (0, &[1])] {
        let end = Event::GapEnd {
            mask: 0,
            values: [0; 20],
            parts,
            vec,
        };
        assert!(refused(&with_gap(end)).contains("behind a gap"));
    }
    // A trace that is cut in a gap.
    let events = with_gap(gap_end());
    let stop = play(&mut machine(CODE), &events[..7]).unwrap();
    assert_eq!(stop, Stop::OutOfEvents);
}

/// Operands of all forms, including registers and bases for which translated code has no register.
#[test]
fn marks_are_where_operands_are() {
    use iced_x86::{Encoder, Instruction, MemoryOperand, Register::*};
    let mut state = start();
    for (k, r) in state.gpr.iter_mut().enumerate() {
        *r = 0x5000_0000_0000 + 0x10_1000 * (k as u64 + 1);
    }
    state.fs_base = 0x7f00_ffff_f000;
    let value = |r| match r {
        None => 0,
        r => state.gpr[r as usize - RAX as usize],
    };
    let bases = [None, RAX, RSP, RBP, R10, R11, R13];
    let indexes = [None, RCX, RBP, R10, R11, R12];
    let mut tried = 0;
    for (base, index) in bases.into_iter().flat_map(|b| indexes.map(|i| (b, i))) {
        let scales: &[u32] = if index == None { &[1] } else { &[1, 2, 8] };
        for (scale, disp) in scales
            .iter()
            .flat_map(|s| [0, 0x18, -0x40, 0x1234].map(|d| (*s, d)))
        {
            for (segment, write) in [(None, false), (None, true), (FS, false), (FS, true)] {
                if base == None && index == None && disp < 0 {
                    continue;
                }
                let size = if base == None { 4 } else { (disp != 0) as u32 };
                let size = if base == None && index == None {
                    8
                } else {
                    size
                };
                let m = MemoryOperand::new(base, index, scale, disp, size, false, segment);
                let i = match write {
                    false => Instruction::with2(iced_x86::Code::Mov_r64_rm64, RDX, m),
                    true => Instruction::with2(iced_x86::Code::Mov_rm64_r64, m, RDX),
                }
                .unwrap();
                let mut e = Encoder::new(64);
                e.encode(&i, PC).unwrap();
                let mut code = e.take_buffer();
                code.extend([0x90, 0x90, 0x0f, 0x05]);
                let from = if segment == FS { state.fs_base } else { 0 };
                let address = from
                    .wrapping_add(value(base))
                    .wrapping_add(value(index).wrapping_mul(scale as u64))
                    .wrapping_add(disp as u64);
                let mut m = observing(&code);
                let begin = key_frame(0, state, VecState::default());
                let end = event(
                    3,
                    Event::End {
                        kind: EndKind::Exit,
                        code: 0,
                        message: b"",
                    },
                );
                m.from_keyframe(Box::new(vec![encode(&[begin, end])].into_iter()))
                    .unwrap();
                assert_eq!(m.run_to(2).unwrap(), Stop::Position);
                for kind in [AccessKind::Reads, AccessKind::Writes] {
                    let mut marks = [0; 24];
                    m.read_marks(kind, address.wrapping_sub(8), &mut marks);
                    let wanted = (kind == AccessKind::Writes) == write;
                    let is = marks.map(|m| m != 0);
                    let ought = std::array::from_fn(|k| wanted && (8..16).contains(&k));
                    assert_eq!(is, ought, "{i:?} {kind:?}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 1500, "{tried}");
}
