//! Atomic operations between threads and processes, and the proof of their order.

use hindsight_events::ring::stripe_of;
use hindsight_events::{Decoder, Encoder, Event, MAX_EVENT};
use hindsight_lab::{Done, Scene, hex, words};
use hindsight_trace::{ChunkBuilder, Pushed, StreamId, StreamKind, Taken, Trace, Writer};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

fn check(scene: &Scene, trace: &Path) -> (Done, Value) {
    let args = ["replay", "--verify", "--check-order", "--json"];
    let done = scene.run(scene.hindsight(&args).arg(trace));
    let json: Value =
        serde_json::from_str(&done.text()).unwrap_or_else(|_| panic!("{}", done.messages()));
    let order = json["order"].clone();
    (done, order)
}

/// Records `atomics.c` with a scheme and proves its order. It has at least `least` atomic operations.
fn proven(scheme: &str, least: u64, all_decided: bool) -> Value {
    let scene = Scene::new();
    let program = scene.compile("atomics.c", &[]);
    proven_of(&scene, &program, scheme, least, all_decided)
}

fn proven_of(scene: &Scene, program: &Path, scheme: &str, least: u64, all_decided: bool) -> Value {
    let argv = words(program, &[scheme]);
    scene.same(&argv);
    let (done, order) = check(scene, &scene.path("trace.hst"));
    assert_eq!(done.status.code(), Some(0), "{scheme}: {order}");
    assert_eq!(order["wrong"], 0);
    assert!(
        order["operations"].as_u64().unwrap() >= least,
        "{scheme}: {order}"
    );
    if all_decided {
        assert_eq!(order["undecided"], 0, "{scheme}: {order}");
        assert_eq!(order["shared"], 0, "{scheme}: {order}");
    }
    order
}

#[test]
fn every_kind_of_instruction() {
    proven("kinds", 400_000, true);
    proven("split", 8_000, true);
}

#[test]
fn locks() {
    proven("ticket", 40_000, true);
    proven("spin", 40_000, true);
    proven("mutex", 80_000, true);
    proven("futex", 2_000, true);
}

#[test]
fn without_locks() {
    proven("seqlock", 40_000, true);
    proven("queue", 60_000, true);
    proven("stack", 80_000, true);
    // Values that are read in a race must be the ones that were used, or verification fails.
    proven("race", 10, true);
}

#[test]
fn processes_that_share_memory() {
    let order = proven("processes", 60_000, false);
    assert!(order["common"].as_u64().unwrap() >= 60_000, "{order}");
    assert_eq!(order["shared"], 0, "{order}");
    // One process is stopped again and again, then killed, in the midst of atomic operations.
    proven("killed", 60_000, false);
}

#[test]
fn what_c_libraries_offer() {
    let scene = Scene::new();
    let program = scene.compile("meeting.c", &[]);
    for scheme in [
        "broadcast",
        "signal",
        "semaphore",
        "barrier",
        "rwlock",
        "spin",
        "pair",
    ] {
        let order = proven_of(&scene, &program, scheme, 500, false);
        let sum = ["proven", "first", "stored", "undecided"].map(|n| order[n].as_u64().unwrap());
        assert_eq!(order["operations"], sum.iter().sum::<u64>(), "{order}");
    }
}

#[test]
fn what_other_languages_offer() {
    let scene = Scene::new();
    let program = scene.compile("latches.cpp", &["-std=c++20"]);
    proven_of(&scene, &program, "", 2_000, false);
    let program = scene.compile_rust("channels.rs");
    proven_of(&scene, &program, "", 2_000, false);
}

/// The chunks of a stream in wire form.
fn wire(trace: &Trace, stream: StreamId) -> Vec<Vec<u8>> {
    let chunks = trace.chunks(stream).iter();
    chunks.map(|c| trace.load(c).unwrap()).collect()
}

/// Calls `f` with each event of a stream.
fn events(trace: &Trace, stream: StreamId, mut f: impl FnMut(u64, &Event)) {
    for wire in wire(trace, stream) {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while at < wire.len() {
            let (pos, event, n) = decoder.decode(&wire[at..]).unwrap();
            f(pos, &event);
            at += n;
        }
    }
}

/// Copies a trace with other order numbers, and says that these locks were taken away.
fn renumber(trace: &Trace, to: &Path, numbers: &HashMap<u64, u64>, taken: &[Taken]) {
    let mut w = Writer::new(std::fs::File::create(to).unwrap(), trace.header()).unwrap();
    for m in trace.modules() {
        let content = trace.module_bytes(m.hash).unwrap();
        w.module(m.path.clone(), &content).unwrap();
    }
    taken.iter().for_each(|t| w.taken(t).unwrap());
    let info = |s: &StreamId| trace.stream_info(*s).unwrap();
    let mut streams = trace.streams();
    streams.iter().for_each(|s| w.begin(info(s)).unwrap());
    streams.sort_by_key(|s| info(s).kind != StreamKind::Image);
    for s in streams {
        let mut encoder = Encoder::default();
        let mut out = Vec::new();
        events(trace, s, |pos, event| {
            let mut buf = [0; MAX_EVENT];
            let changed = match event {
                Event::Seq { number } => Event::Seq {
                    number: *numbers.get(number).unwrap_or(number),
                },
                other => *other,
            };
            let n = encoder.encode(pos, &changed, &mut buf);
            out.extend_from_slice(&buf[..n]);
        });
        let (mut builder, mut at) = (ChunkBuilder::default(), 0);
        loop {
            let (n, pushed) = builder.push(&out[at..], |_, _| None);
            at += n;
            w.stream(s, &mut builder).unwrap();
            match pushed {
                Pushed::Full => {}
                _ => break assert_eq!(at, out.len()),
            }
        }
    }
    w.finish(trace.summary().unwrap().clone()).unwrap();
}

#[test]
fn a_wrong_order_is_found() {
    // The word of a lock has the same values in whatever order the threads take turns. A ticket is new each time.
    found_if_wrong("ticket");
}

#[test]
fn a_wrong_order_of_processes_is_found() {
    // The processes count in a word that they share at different addresses.
    found_if_wrong("processes");
}

/// A contradiction counts as explained only if it lies under a lock that was taken away from somebody.
fn explained_only_there(scene: &Scene, trace: &Trace, numbers: &HashMap<u64, u64>) {
    let number = *numbers.keys().min().unwrap();
    let file = scene.path("taken.hst");
    let judged = |locks: &[usize]| {
        let taken = |lock: &usize| Taken {
            lock: *lock as u32,
            number,
        };
        let taken: Vec<Taken> = locks.iter().map(taken).collect();
        renumber(trace, &file, numbers, &taken);
        let (done, order) = check(scene, &file);
        let wrong = done.status.code() == Some(1);
        assert_eq!(wrong, order["wrong"] != 0, "{order}");
        let at = hex(&order["violation"]["bytes"]["address"]);
        (order, at.map(stripe_of))
    };
    // The program has few variables.
    let (mut locks, mut first) = (Vec::new(), judged(&[]).1);
    let order = loop {
        locks.push(first.expect("wrong as before"));
        assert!(locks.len() <= 4, "{locks:?}");
        let (order, next) = judged(&locks);
        match next {
            Some(_) => first = next,
            None => break order,
        }
    };
    assert_ne!(order["displaced"], 0, "{order}");
    let warning = order["warnings"][0].as_str().unwrap();
    assert!(warning.contains("256 parts of pages"), "{warning}");
    let other = (0..256).find(|l| !locks.contains(l)).unwrap();
    let (order, still) = judged(&[other]);
    assert!(still.is_some() && order["displaced"] == 0, "{order}");
}

fn found_if_wrong(scheme: &str) {
    let scene = Scene::new();
    let program = scene.compile("atomics.c", &[]);
    // The threads take turns differently in each run.
    for left in (0..10).rev() {
        let (_, file) = scene.record(&words(&program, &[scheme]));
        let trace = Trace::open(&file).unwrap();
        // The atomic operations of the two threads: their numbers and streams.
        let mut all = Vec::new();
        for s in &trace.threads()[1..] {
            events(&trace, *s, |_, event| {
                if let Event::Seq { number } = event {
                    all.push((*number, *s));
                }
            });
        }
        all.sort_unstable();
        // Where one thread takes over from the other for some time.
        let half = 40;
        let takes_over = |w: &&[(u64, StreamId)]| {
            let of = |part: &[(u64, StreamId)]| part.iter().filter(|(_, s)| *s == w[0].1).count();
            of(&w[..half]) > half / 2 && of(&w[half..]) < half / 2
        };
        // For some turns, the threads' beginnings and calls leave the order open. One turn that they do not is enough.
        let wrong = scene.path("wrong.hst");
        let mut found = false;
        let places = (0..all.len().saturating_sub(2 * half)).step_by(7);
        let turns = places
            .map(|i| &all[i..i + 2 * half])
            .filter(takes_over)
            .step_by(3);
        for turn in turns.take(12) {
            // Says that the second one's turn came first.
            let mut later: Vec<_> = turn.to_vec();
            later.sort_by_key(|(n, s)| (*s == turn[0].1, *n));
            let numbers = later
                .iter()
                .zip(turn)
                .map(|((old, _), (new, _))| (*old, *new))
                .collect();
            renumber(&trace, &wrong, &numbers, &[]);
            // Everything else is as it was.
            scene.must_verify(&wrong);
            let (done, order) = check(&scene, &wrong);
            found = order["wrong"].as_u64().unwrap() > 0;
            assert_eq!(done.status.code(), Some(found as i32), "{scheme}: {order}");
            if found {
                let number = order["violation"]["number"].as_u64().unwrap();
                assert!(
                    (turn[0].0..=turn[2 * half - 1].0 + 10).contains(&number),
                    "{scheme}: {order}"
                );
                explained_only_there(&scene, &trace, &numbers);
                break;
            }
        }
        if !found {
            assert!(left > 0, "{scheme}");
            continue;
        }
        // Renumbering without changes changes nothing.
        renumber(&trace, &wrong, &HashMap::new(), &[]);
        let (done, order) = check(&scene, &wrong);
        assert_eq!((done.status.code(), &order["wrong"]), (Some(0), &0.into()));
        return;
    }
}
