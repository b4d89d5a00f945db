//! Verification of whole traces, and of damaged ones.

use hindsight_events::event::digest;
use hindsight_events::{EndKind, Event};
use hindsight_isa::state::VEC_STATE_LEN;
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_random::Rng;
use hindsight_replay::{Code, Error, Machine, Stop};
use hindsight_sample::*;
use hindsight_trace::{
    ChunkBuilder, Header, Pushed, StreamInfo, StreamKind, Summary, Text, Trace, Writer,
};
use hindsight_verify::{Checks, Options, Report, verify};
use std::sync::Arc;

/// Adds a word from memory to rax, 4 million times: 12 million instructions.
const LOOP: &[u8] = &[
    0x48, 0x03, 0x06, // add rax, [rsi]
    0x48, 0xff, 0xc9, // dec rcx
    0x75, 0xf8, // jnz
    0xb8, 0x3c, 0x00, 0x00, 0x00, // mov eax, 60
    0x0f, 0x05, // syscall
];
const ROUNDS: u64 = 4_000_000;

fn state(round: u64) -> CpuState {
    let mut s = CpuState {
        rip: PC,
        ..CpuState::default()
    };
    s.gpr[0] = 5 * round;
    s.gpr[1] = ROUNDS - round;
    s.gpr[6] = 0x1000;
    s
}

/// A recording of [`LOOP`] with a key frame every million rounds.
fn long_recording() -> Vec<Owned> {
    let mut events = Vec::new();
    for frame in 0..4 {
        let round = frame * 1_000_000;
        events.push(key_frame(3 * round, state(round), VecState::default()));
        events.push(patch(3 * round, 0x1000, [5, 0, 0, 0, 0, 0, 0, 0]));
    }
    let args = [0, 0x1000, 0, 0, 0, 0];
    events.push(event(3 * ROUNDS + 1, Event::Syscall { nr: 60, args }));
    events.push(event(
        3 * ROUNDS + 1,
        Event::End {
            kind: EndKind::Exit,
            code: 0,
            message: b"",
        },
    ));
    events
}

fn write_stream<W: std::io::Write>(w: &mut Writer<W>, stream: u32, mut wire: &[u8]) {
    let mut b = ChunkBuilder::default();
    loop {
        let (n, pushed) = b.push(wire, |_, _| None);
        wire = &wire[n..];
        w.stream(stream, &mut b).unwrap();
        match pushed {
            Pushed::Full => {}
            Pushed::More => break assert!(wire.is_empty()),
            Pushed::Common | Pushed::Bad => panic!("not events"),
        }
    }
}

fn begin<W: std::io::Write>(
    w: &mut Writer<W>,
    stream: u32,
    kind: StreamKind,
    image: u32,
    pid: i32,
) {
    w.begin(&StreamInfo {
        stream,
        kind,
        image,
        parent: image - 1,
        pid,
        tid: pid + stream as i32,
        command: Vec::new(),
        ..StreamInfo::default()
    })
    .unwrap();
}

/// A trace of program images, each with its code and the events of its threads. Streams are numbered from 1
/// and processes from 1000, in this order.
fn images(images: &[(&'static [u8], &[&[Owned]])]) -> Vec<u8> {
    let header = Header {
        predictor_bits: 32,
        argv: vec!["prog".into()],
        ..Header::default()
    };
    let mut w = Writer::new(Vec::new(), &header).unwrap();
    let mut r = Rng(9);
    let file: Vec<u8> = (0..50_000).map(|_| r.u64() as u8).collect();
    w.module(Text::from("/program"), &file).unwrap();
    let mut stream = 1;
    for (i, (code, threads)) in images.iter().enumerate() {
        let (image, pid) = (i as u32 + 1, i as i32 + 1000);
        let mapped = [
            event(
                0,
                Event::Map {
                    addr: PC & !0xfff,
                    len: 0x1000_0000,
                    prot: 5,
                    flags: 2,
                    offset: 0x1000 * image as u64,
                    object: 0,
                    path: b"/program",
                },
            ),
            event(
                0,
                Event::Code {
                    epoch: 0,
                    addr: PC,
                    bytes: code,
                },
            ),
        ];
        begin(&mut w, stream, StreamKind::Image, image, pid);
        write_stream(&mut w, stream, &encode(&mapped));
        stream += 1;
        for events in *threads {
            begin(&mut w, stream, StreamKind::Thread, image, pid);
            write_stream(&mut w, stream, &encode(events));
            stream += 1;
        }
    }
    w.finish(Summary::default()).unwrap().0
}

/// A trace of one thread, which is stream 2.
fn trace(code: &'static [u8], events: &[Owned]) -> Vec<u8> {
    images(&[(code, &[events])])
}

fn run(bytes: Vec<u8>, jobs: usize) -> Result<Report, Error> {
    verify(
        &Trace::from_bytes(bytes)?,
        &Options {
            jobs,
            count: true,
            ..Options::default()
        },
        &mut |done, total| assert!(done <= total),
    )
}

#[test]
fn verifies_with_any_number_of_jobs() {
    let bytes = trace(LOOP, &long_recording());
    for (jobs, parts) in [(1, 1), (2, 4)] {
        let r = run(bytes.clone(), jobs).unwrap();
        assert!(r.verified(), "{}", r.difference.unwrap());
        assert_eq!(
            (r.instructions, r.threads, r.parts),
            (3 * ROUNDS + 1, 1, parts)
        );
        // The last segment contains the system call. A segment counts as soon as it begins, even if it does
        // not end there.
        let counted = r.executed.unwrap();
        assert_eq!((counted.reads, counted.writes), (ROUNDS, 0));
        assert!(
            (ROUNDS..ROUNDS + 8).contains(&counted.segments),
            "{counted:?}"
        );
        assert_eq!(counted.indirect, 0);
        assert!(r.warnings.is_empty(), "{:?}", r.warnings);
        assert!(matches!(&r.ends[..], [(2, Some(end))] if end.kind == EndKind::Exit));
        assert!(
            r.events_by_name()
                .iter()
                .any(|e| e.0 == "key frame" && e.1 >= 4)
        );
    }
}

#[test]
fn reports_the_first_difference() {
    let mut events = long_recording();
    events[3] = patch(3_000_000, 0x1000, [6, 0, 0, 0, 0, 0, 0, 0]);
    events[5] = patch(6_000_000, 0x1000, [6, 0, 0, 0, 0, 0, 0, 0]);
    let bytes = trace(LOOP, &events);
    for jobs in [1, 3] {
        let r = run(bytes.clone(), jobs).unwrap();
        assert!(!r.verified());
        let d = r.difference.unwrap();
        assert_eq!(
            (d.stream, d.difference.position, d.difference.pc),
            (2, 6_000_000, PC)
        );
        assert!(d.difference.expected.starts_with("rax="), "{d}");
        let location = d.location.as_ref().unwrap();
        assert_eq!(
            (location.module.as_str(), location.offset),
            ("/program", 0x1000 + (PC & 0xfff))
        );
    }
}

/// What the program gave to the kernel, by its digest.
fn passed(digest: u32) -> Owned {
    let (addr, len) = (0x5000, 64);
    event(48, Event::Passed { addr, len, digest })
}

/// The report on a trace.
fn checked(trace: Vec<u8>, checks: Checks, jobs: usize) -> Report {
    let options = Options {
        jobs,
        checks,
        ..Options::default()
    };
    let t = Trace::from_bytes(trace).unwrap();
    verify(&t, &options, &mut |_, _| {}).unwrap()
}

/// Forges each thing that is compared, and checks who finds it.
#[test]
fn what_is_forged_is_found() {
    let copied: Vec<u8> = [0x41u64; 8].iter().flat_map(|w| w.to_le_bytes()).collect();
    let good = digest(&copied);
    let whole = || {
        let mut events = ordered([0, 2, 5, 6]);
        let call = events.iter().position(|e| e.0 == 48).unwrap();
        events.insert(call, passed(good));
        events
    };
    let place = |kind: &dyn Fn(&Event) -> bool| {
        let found = whole().iter().position(|(_, with)| {
            let mut is = false;
            with(&mut |e| is |= kind(e));
            is
        });
        found.unwrap()
    };
    let digest_at = place(&|e| matches!(e, Event::Digest { .. }));
    let call_at = place(&|e| matches!(e, Event::Syscall { nr: 1, .. }));
    let passed_at = place(&|e| matches!(e, Event::Passed { .. }));
    let numbers: Vec<usize> = (0..whole().len())
        .filter(|i| {
            let mut is = false;
            whole()[*i].1(&mut |e| is |= matches!(e, Event::Seq { .. }));
            is
        })
        .collect();
    let cpu = after_write().digest();
    let sums = |cpu, vec| event(49, Event::Digest { cpu, vec });
    let args = [4, 0x2fc0 + 100, 7, 0x1122_3344_5566_7788, 8, 9];
    type Case = (&'static str, Option<(usize, Owned)>, bool, bool);
    let cases: [Case; 7] = [
        ("nothing", None, false, false),
        ("registers", Some((digest_at, sums(cpu ^ 1, 0))), true, true),
        (
            "vector registers",
            Some((digest_at, sums(cpu, 1))),
            true,
            true,
        ),
        (
            "an argument",
            Some((call_at, event(48, Event::Syscall { nr: 1, args }))),
            true,
            false,
        ),
        ("output", Some((passed_at, passed(good ^ 1))), true, false),
        (
            "a number twice",
            Some((numbers[2], seq(48, 2))),
            true,
            false,
        ),
        (
            "a call that is none",
            Some((call_at, event(47, Event::Syscall { nr: 1, args }))),
            true,
            true,
        ),
    ];
    for (what, forged, full, digests) in cases {
        let mut events = whole();
        if let Some((at, event)) = forged {
            events[at] = event;
            // Events before it must not be due later.
            let pos = events[at].0;
            events[..at].iter_mut().for_each(|e| e.0 = e.0.min(pos));
        }
        let bytes = trace(CODE, &events);
        for (checks, finds) in [(Checks::Full, full), (Checks::Digests, digests)] {
            let r = checked(bytes.clone(), checks, 1);
            assert_eq!(!r.verified(), finds, "{what}, {checks:?}: {r:?}");
        }
    }
}

#[test]
fn what_is_forged_between_two_parts_of_a_stream_is_found() {
    let mut long = long_recording();
    let mut wrong = state(2_000_000);
    wrong.gpr[15] ^= 1;
    long[4] = key_frame(6_000_000, wrong, VecState::default());
    for checks in [Checks::Full, Checks::Digests] {
        for jobs in [1, 2] {
            let r = checked(trace(LOOP, &long), checks, jobs);
            assert_eq!(r.difference.unwrap().difference.position, 6_000_000);
        }
    }
}

#[test]
fn verification_has_its_own_time() {
    let bytes = images(&[(LOOP, &[&long_recording()])]);
    let t = Trace::from_bytes(bytes).unwrap();
    let r = verify(&t, &Options::default(), &mut |_, _| {}).unwrap();
    assert!(r.verified());
    // It plays twelve million instructions and makes five comparisons.
    assert!(
        r.verifying.as_nanos() > 0 && r.replaying > r.verifying,
        "{r:?}"
    );
}

/// Code that another image executed at the same address is not known in this image.
#[test]
fn translations_of_other_images_are_no_code() {
    let good = recording();
    for jobs in [1, 2] {
        let bytes = images(&[
            (CODE, &[&good]),
            (&CODE[..0x1f], &[&good]),
            (CODE, &[&good]),
        ]);
        let d = run(bytes, jobs).unwrap().difference.unwrap();
        assert_eq!(d.stream, 4, "{d}");
        assert!(
            d.difference.found.contains("the trace does not have"),
            "{d}"
        );
    }
}

#[test]
fn verifies_what_there_is_of_a_cut_trace() {
    let bytes = trace(CODE, &recording());
    for len in 0..bytes.len() {
        // The module's content takes most of the file.
        if len > 2000 && len < bytes.len() - 2000 {
            continue;
        }
        if let Ok(t) = Trace::from_bytes(bytes[..len].to_vec()) {
            let r = verify(
                &t,
                &Options {
                    jobs: 1,
                    ..Options::default()
                },
                &mut |_, _| {},
            )
            .unwrap();
            let equal = r.verified() || r.is_empty();
            assert!(equal && !r.warnings.is_empty(), "{len}: {r:?}");
        }
    }
}

#[test]
fn no_damage_goes_unnoticed() {
    let bytes = trace(CODE, &recording());
    let mut r = Rng(3);
    for _ in 0..500 {
        let mut b = bytes.clone();
        let at = match r.below(3) {
            0 => r.below(b.len() as u64),
            1 => r.below(2000),
            _ => b.len() as u64 - 1 - r.below(2000),
        };
        b[at as usize] ^= 1 << r.below(8);
        if let Ok(report) = run(b, 1) {
            let equal = report.verified() || report.is_empty();
            assert!(equal, "{}", report.difference.unwrap());
            assert!(!report.warnings.is_empty(), "byte {at}");
        }
    }
}

fn seq(pos: u64, number: u64) -> Owned {
    event(pos, Event::Seq { number })
}

/// The recording of [`CODE`] with these order numbers.
fn ordered(numbers: [u64; 4]) -> Vec<Owned> {
    let mut events = recording();
    let places = [(0, 0), (45, 6), (48, 9), (51, 12)];
    for ((pos, at), number) in places.into_iter().zip(numbers).rev() {
        events.insert(at, seq(pos, number));
    }
    events
}

#[test]
fn each_image_has_its_own_code() {
    let long = long_recording();
    let (a, b) = (ordered([0, 2, 5, 6]), ordered([1, 3, 4, 7]));
    // The thread was killed before it did anything or reported its end.
    let none = [seq(0, 8)];
    let cut = ordered([9, 10, 11, 12]);
    let bytes = images(&[
        (CODE, &[&a, &b, &none]),
        (LOOP, &[&long]),
        (CODE, &[&cut[..8]]),
    ]);
    for jobs in [1, 2, 5] {
        let r = run(bytes.clone(), jobs).unwrap();
        assert!(r.verified(), "{}", r.difference.unwrap());
        assert_eq!((r.threads, r.images), (5, 3));
        assert!(r.warnings.is_empty(), "{:?}", r.warnings);
        assert!(r.instructions > 3 * ROUNDS + 100 + 39);
        let sequence = r.events_by_name().into_iter().find(|e| e.0 == "sequence");
        assert_eq!(sequence, Some(("sequence", 11)));
    }
}

#[test]
fn the_first_difference_names_its_process() {
    let good = long_recording();
    let mut bad = long_recording();
    bad[3] = patch(3_000_000, 0x1000, [6, 0, 0, 0, 0, 0, 0, 0]);
    let r = run(
        images(&[(CODE, &[&recording()]), (LOOP, &[&good, &bad])]),
        2,
    )
    .unwrap();
    let d = r.difference.unwrap();
    assert_eq!((d.stream, d.difference.position), (5, 6_000_000));
    assert_eq!(d.who, "process 1001 (prog), thread 1006 (stream 5)");
    assert_eq!(d.location.unwrap().offset, 0x2000 + (PC & 0xfff));
}

#[test]
fn the_order_is_one() {
    let good = ordered([0, 2, 4, 6]);
    for (numbers, position) in [([1, 3, 4, 7], 48), ([1, 3, 3, 7], 48), ([9, 8, 10, 11], 45)] {
        let r = run(images(&[(CODE, &[&good, &ordered(numbers)])]), 1).unwrap();
        let d = r.difference.unwrap();
        assert_eq!((d.stream, d.difference.position), (3, position), "{d}");
        assert!(d.difference.expected.contains("order number"), "{d}");
    }
    // The same between two parts of a stream, which are replayed at the same time.
    let mut long = long_recording();
    long.insert(6, seq(9_000_000, 4));
    long.insert(1, seq(0, 5));
    for jobs in [1, 2] {
        let d = run(trace(LOOP, &long), jobs).unwrap().difference.unwrap();
        assert_eq!((d.stream, d.difference.position), (2, 9_000_000), "{d}");
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |v| v.parse().expect(name))
}

fn seed(usual: u64) -> u64 {
    setting("HINDSIGHT_FUZZ_SEED", usual)
}

fn rounds(usual: u64) -> u64 {
    setting("HINDSIGHT_FUZZ_ROUNDS", usual)
}

#[test]
fn damaged_events_end_in_a_result() {
    let good = encode(&recording());
    let code = Arc::new(Code::new(&mut [(0, PC, CODE)]).unwrap());
    let mut r = Rng(seed(0x1234_5678_9abc));
    let mut m = Machine::new(code, Predictor { bits: 16 }).unwrap();
    let mut outcomes = [0; 2];
    for _ in 0..rounds(20_000) {
        let mut wire = good.clone();
        for _ in 0..1 + r.below(3) {
            // Most bytes at the start are vector registers.
            let from = if r.below(4) == 0 {
                0
            } else {
                VEC_STATE_LEN as u64
            };
            let at = (from + r.below(wire.len() as u64 - from)) as usize;
            match r.below(3) {
                0 => wire[at] = r.u64() as u8,
                1 => wire[at] ^= 1 << r.below(8),
                _ => drop(wire.remove(at)),
            }
        }
        let played = m
            .from_keyframe(Box::new(vec![wire].into_iter()))
            .and_then(|()| {
                let target = m.position().saturating_add(10_000);
                m.run_to(target)
            });
        outcomes[played.is_ok() as usize] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn arbitrary_code_stays_confined() {
    let mut r = Rng(seed(0xfeed_beef_1234));
    let memory = vec![0xa5u8; 1 << 16];
    let exe = std::fs::read("/proc/self/exe").unwrap();
    let mut done = 0;
    for round in 0..rounds(400) {
        // Noise, and compiled code that is entered anywhere with unexpected registers. String instructions
        // are left out: with a large count they may take their time.
        let plain = |b: u8| if (0xa4..=0xaf).contains(&b) { 0x90 } else { b };
        let bytes: Vec<u8> = if round % 2 == 0 {
            (0..2048).map(|_| plain(r.u64() as u8)).collect()
        } else {
            let at = r.below(exe.len() as u64 - 2048) as usize;
            exe[at..at + 2048].iter().map(|b| plain(*b)).collect()
        };
        let code = Arc::new(Code::new(&mut [(0, PC, &bytes)]).unwrap());
        let mut m = Machine::new(
            code,
            Predictor {
                bits: if round % 4 == 0 { 32 } else { 14 },
            },
        )
        .unwrap();
        for _ in 0..50 {
            let mut s = CpuState {
                rip: PC + r.below(2000),
                rflags: r.u64() & 0xcd5,
                ..CpuState::default()
            };
            for g in s.gpr.iter_mut() {
                // Numbers of all kinds, also addresses of this process.
                *g = match r.below(4) {
                    0 => r.u64(),
                    1 => r.below(1000),
                    2 => memory.as_ptr() as u64 + r.below(1 << 16),
                    _ => &raw const done as u64,
                };
            }
            (s.fs_base, s.gs_base) = (r.u64() >> 17, r.u64() >> 17);
            let events = [
                key_frame(0, s, VecState::default()),
                event(1000, Event::CodeEpoch { epoch: 0 }),
            ];
            m.from_keyframe(Box::new(vec![encode(&events)].into_iter()))
                .unwrap();
            // It nearly always ends with an error. What counts is that it ends.
            done += matches!(m.run_to(1000), Ok(Stop::Position)) as u64;
        }
    }
    assert!(
        memory.iter().all(|b| *b == 0xa5),
        "replayed code reached memory that is not its own"
    );
}
