//! Key frames that restate only what has changed since another one.

use hindsight_events::{Decoder, Event};
use hindsight_isa::Predictor;
use hindsight_lab::{Scene, words};
use hindsight_replay::{Code, Machine, Stop, excerpt, stream};
use hindsight_timeline::{Options, ThreadId, Timeline};
use hindsight_trace::Trace;
use std::sync::Arc;

const PAGE: usize = 4096;
const PAGES: usize = 24;

/// The state and the memory of the program's pages.
#[derive(PartialEq)]
struct Held {
    rip: u64,
    gpr: [u64; 16],
    /// Of each page that is mapped: its number and content.
    pages: Vec<(usize, Vec<u8>)>,
}

fn held(m: &Machine, arena: u64) -> Held {
    let page = |i: usize| {
        let mut bytes = vec![0; PAGE];
        m.read_window(arena + (i * PAGE) as u64, &mut bytes);
        bytes
    };
    let mapped = page(0);
    let cpu = m.registers();
    Held {
        rip: cpu.rip,
        gpr: cpu.gpr,
        pages: (0..PAGES)
            .filter(|i| mapped[*i] != 0)
            .map(|i| (i, page(i)))
            .collect(),
    }
}

/// The base of the key frame in a chunk: how many key frames before it. `None`: it restates nothing.
fn base(t: &Trace, thread: u32, chunk: usize) -> Option<u64> {
    let wire = t.load(&t.chunks(thread)[chunk]).unwrap();
    let (mut d, mut at) = (Decoder::default(), 0);
    for _ in 0..3 {
        let (_, event, n) = d.decode(&wire[at..])?;
        at += n;
        if let Event::Restate { ends: false, back } = event {
            return Some(back);
        }
    }
    None
}

/// Records `restated.c` with a key frame after every so many instructions. Replay that begins at one of them must have the
/// memory that replay from the beginning has, and must come to the same end.
fn begin_everywhere(every: &str) -> usize {
    let s = Scene::new();
    let program = s.compile("restated.c", &["-O1", "-static"]);
    let file = s.path("file");
    let content: Vec<u8> = (0..8 * PAGE).map(|i| (i / 7 + i / PAGE) as u8).collect();
    std::fs::write(&file, content).unwrap();
    let argv = words(&program, &[file.to_str().unwrap()]);
    let trace = s.path("t.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--restate-every", every, "-o"]);
    let done = s.run(record.arg(&trace).arg("--").args(&argv));
    assert!(done.status.success(), "{}", done.messages());
    let printed = done.text();
    let at = printed.lines().last().unwrap().trim_start_matches("at 0x");
    let arena = u64::from_str_radix(at, 16).unwrap();
    let options = Options {
        interval: 200_000,
        jobs: 2,
        unsaved: true,
        ..Options::default()
    };
    let timeline = Timeline::open(&trace, options).unwrap();
    let t = timeline.trace();
    let thread = t.threads()[0];
    let chunks = t.chunks(thread);
    let code = Arc::new(Code::from_trace(t, t.stream_info(thread).unwrap().image).unwrap());
    let machine = || Machine::new(Arc::clone(&code), Predictor::WINDOW).unwrap();
    let (mut linear, mut other) = (machine(), machine());
    linear.from_keyframe(stream(t, thread)).unwrap();
    linear.compare_memory();
    let mut cursor = timeline.cursor().unwrap();
    let (mut based, mut number) = (0, 0);
    for (i, c) in chunks.iter().enumerate().filter(|(_, c)| c.keyframe) {
        number += 1;
        let Some(back) = base(t, thread, i) else {
            assert_eq!(c.first_pos, 0);
            continue;
        };
        based += (back != 0) as usize;
        assert_eq!(linear.run_to(c.first_pos).unwrap(), Stop::Position);
        linear.settle().unwrap();
        let rest = || excerpt(t, thread, i..chunks.len(), false);
        other.from_keyframe(rest()).unwrap();
        other.settle().unwrap();
        let [want, found] = [&linear, &other].map(|m| held(m, arena));
        for (a, b) in want.pages.iter().zip(&found.pages) {
            let differs = a.1.iter().zip(&b.1).position(|(a, b)| a != b);
            assert_eq!(
                (b.0, differs),
                (a.0, None),
                "key frame {number} in chunk {i}"
            );
        }
        assert!(want == found, "key frame {number} in chunk {i}");
        // The rest of the program reads all of it. Every one of its results must be right.
        if number % 20 == 0 {
            other.compare_memory();
            assert!(matches!(other.run_to(u64::MAX).unwrap(), Stop::Ended(_)));
        }
        if number % 40 == 0 {
            cursor.seek_count(ThreadId(thread), c.first_pos).unwrap();
            for (i, page) in want.pages.iter().take(2) {
                let addr = arena + (i * PAGE) as u64;
                let known = cursor.memory(addr, PAGE).unwrap().bytes;
                for (k, (byte, value)) in known.iter().zip(page).enumerate() {
                    let byte = byte.as_ref().map_or(*value, |b| b.value);
                    assert_eq!(byte, *value, "{:#x} at {}", addr + k as u64, c.first_pos);
                }
            }
        }
    }
    for jobs in ["1", "8"] {
        let mut verify = s.hindsight(&["replay", "--verify", "--jobs", jobs]);
        let done = s.run(verify.arg(&trace));
        assert!(done.status.success(), "{}", done.text() + &done.messages());
    }
    based
}

#[test]
fn memory_at_key_frames_is_that_of_a_plain_replay() {
    let based = begin_everywhere("5000");
    assert!(based > 100, "{based}");
    let based = begin_everywhere("33333");
    assert!(based > 10, "{based}");
}
