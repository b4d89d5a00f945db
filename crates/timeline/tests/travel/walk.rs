//! A walk through a thread sees what single steps see.

use super::open;
use crate::interrupted::FAULTS;
use crate::questions::Rng;
use hindsight_lab::{Scene, words};
use hindsight_timeline::{Cancel, Error, Options, ThreadId, Timeline};
use iced_x86::{Decoder, DecoderOptions};
use std::path::Path;

#[test]
fn a_walk_sees_what_single_looks_see() {
    let scene = Scene::new();
    let threads = scene.compile("sharing.c", &["-pthread"]);
    let handlers = scene.compile("handlers.c", &[]);
    for argv in [
        words(Path::new("/bin/sh"), &["-c", "echo 1; ls / | wc -l"]),
        words(&threads, &[]),
        words(&handlers, &[]),
    ] {
        let (_, trace) = scene.record(&argv);
        let t = open(&trace, 0);
        let mut rng = Rng(3);
        let mut looked = 0;
        for thread in t.threads().unwrap() {
            let mut cursor = t.cursor().unwrap();
            let mut walk = t.walk(thread.id, Cancel::new()).unwrap();
            // Forwards and backwards, at the beginning and at the end.
            let length = thread.to - thread.from;
            let mut from = vec![thread.from, thread.to.saturating_sub(30).max(thread.from)];
            from.extend((0..6).map(|_| thread.from + rng.below(length.max(1))));
            for from in from {
                let until = (from + 40).min(thread.to);
                let mut next = from;
                walk.run((from, until), true, &mut |w| {
                    assert!(
                        w.count == next || w.count + 1 == next,
                        "{} after {next}",
                        w.count
                    );
                    next = w.count + 1;
                    looked += 1;
                    cursor.seek_count(thread.id, w.count).unwrap();
                    let rip = cursor.registers().unwrap().rip;
                    let all = cursor.accesses().unwrap();
                    for a in w.accesses {
                        let same = |o: &&hindsight_timeline::Access| {
                            (o.address, o.len) == (a.access.address, a.access.len)
                                && (o.read && a.access.read || o.write && a.access.write)
                        };
                        assert!(
                            all.iter().any(|o| same(&o)),
                            "{a:?} at {} is not in {all:?}",
                            w.count
                        );
                    }
                    // At a signal more than one instruction has this count.
                    if all.len() == w.accesses.len() && rip == w.pc {
                        let halves = all.iter().map(|o| o.read as usize + o.write as usize);
                        let halves: usize = halves.sum();
                        assert!(halves >= w.accesses.len());
                    }
                    let writes = w.accesses.iter().filter(|a| a.access.write);
                    for a in writes.filter(|a| a.bytes.is_some()).take(1) {
                        cursor.seek_count(thread.id, w.count + 1).unwrap();
                        let known = cursor
                            .known_memory(a.access.address, a.access.len as usize)
                            .unwrap();
                        let seen: Option<Vec<u8>> =
                            known.bytes.iter().map(|b| b.map(|b| b.value)).collect();
                        // Other threads may write there at the same time, and the kernel in a call.
                        if known.candidates.is_empty() && w.count + 1 < until {
                            assert!(
                                seen.is_none() || seen == a.bytes,
                                "{a:?} at {}: {seen:?}",
                                w.count
                            );
                        }
                    }
                    true
                })
                .unwrap();
                assert!(next >= until || length == 0, "{next} of {until}");
            }
        }
        assert!(looked > 100, "{looked}");
    }
}

#[test]
fn a_walk_ends_when_it_is_told_to() {
    let (_scene, trace) = hindsight_lab::example();
    let t = open(&trace, 0);
    let thread = t.threads().unwrap()[0].clone();
    let cancel = Cancel::new();
    let mut walk = t.walk(thread.id, cancel.clone()).unwrap();
    let mut seen = 0;
    walk.run((thread.from, thread.to), false, &mut |w| {
        assert!(w.accesses.is_empty());
        seen += 1;
        seen < 5
    })
    .unwrap();
    assert_eq!(seen, 5);
    cancel.cancel();
    let done = walk.run((thread.from, thread.to), false, &mut |_| true);
    assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
    assert!(
        t.walk(hindsight_timeline::ThreadId(999), Cancel::new())
            .is_err()
    );
}

/// An instruction: count, address, bytes, whether the kernel let the thread go on there.
type Seen = (u64, u64, Vec<u8>, bool);

/// What single steps see.
fn steps(t: &Timeline, thread: ThreadId, range: (u64, u64)) -> Vec<Seen> {
    let mut out = Vec::new();
    let mut walk = t.walk(thread, Cancel::new()).unwrap();
    walk.run(range, true, &mut |w| {
        let i = Decoder::new(64, w.code, DecoderOptions::NONE).decode();
        out.push((w.count, w.pc, w.code[..i.len()].to_vec(), w.entered));
        true
    })
    .unwrap();
    out
}

/// What runs say, taken apart.
fn from_runs(t: &Timeline, thread: ThreadId, ranges: &[(u64, u64)]) -> Vec<Seen> {
    let mut out = Vec::new();
    let mut all = t.runs(thread, Cancel::new()).unwrap().unwrap();
    for range in ranges {
        all.play(*range, |e, runs| {
            let (mut count, mut entered) = (e.count, e.entered);
            for run in runs {
                let mut code = vec![0; 15 * run.instructions() as usize];
                let n = e.code(run.pc(), &mut code);
                let mut decoder = Decoder::with_ip(64, &code[..n], run.pc(), DecoderOptions::NONE);
                for _ in 0..run.instructions() {
                    let at = decoder.position();
                    let i = decoder.decode();
                    let bytes = code[at..decoder.position()].to_vec();
                    out.push((count, i.ip(), bytes, std::mem::take(&mut entered)));
                    count += 1;
                }
            }
            true
        })
        .unwrap();
    }
    out
}

#[test]
fn runs_say_what_single_steps_see() {
    let scene = Scene::new();
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../mark");
    let faults = scene.path("faults.c");
    std::fs::write(&faults, FAULTS).unwrap();
    let program = |name: &str, options: &[&str]| words(&scene.compile(name, options), &[]);
    let programs = [
        (
            vec![],
            words(Path::new("/bin/sh"), &["-c", "echo 1; ls / | wc -l"]),
        ),
        (vec![], program("sharing.c", &["-pthread"])),
        (vec![], program("handlers.c", &[])),
        (vec![], program("marks.c", &["-pthread", include])),
        (
            vec![],
            program("patching.c", &["-O1", "-pthread", "-Wl,-z,execstack"]),
        ),
        (vec![], program(faults.to_str().unwrap(), &[])),
        (vec!["--skip-module", "libc*"], program("forks.c", &[])),
        (vec!["--regime=checked"], program("handlers.c", &[])),
    ];
    let (mut entered, mut parts) = (0, 0);
    for (options, argv) in programs {
        let trace = scene.path("t.hst");
        let mut command = scene.hindsight(&["record", "--quiet"]);
        let run = command.args(&options).arg("-o").arg(&trace);
        let done = scene.run(run.arg("--").args(&argv));
        let told = format!("{argv:?}: {}", done.messages());
        let options = Options {
            unsaved: true,
            ..Options::default()
        };
        let t = Timeline::open(&trace, options).unwrap();
        let (mut all, mut rng) = (0, Rng(7));
        for thread in t.threads().unwrap() {
            // The beginning, anywhere, and the end. It goes on in the middle.
            let length = thread.to - thread.from;
            let part = length.min(20_000);
            let last = thread.to - part;
            for from in [
                thread.from,
                last.min(thread.from + rng.below(length.max(1))),
                last,
            ] {
                let (middle, until) = (from + part / 3, from + part);
                let seen = steps(&t, thread.id, (from, until));
                let said = from_runs(&t, thread.id, &[(from, middle), (middle, until)]);
                let differs = seen.iter().zip(&said).find(|(a, b)| a != b);
                assert_eq!(differs, None, "{told}");
                assert_eq!(seen.len(), said.len(), "{told}");
                all += seen.len();
                entered += seen.iter().filter(|s| s.3).count();
                parts += seen.windows(2).filter(|w| w[0].0 == w[1].0).count();
            }
        }
        assert!(all > 1000, "{told}");
    }
    assert!(
        entered > 10 && parts > 4,
        "{entered} entries, {parts} interrupted"
    );
}

#[test]
fn only_the_native_processor_tells_runs() {
    let (_scene, trace) = hindsight_lab::example();
    let options = Options {
        processor: hindsight_timeline::Processor::Interpreter,
        unsaved: true,
        ..Options::default()
    };
    let t = Timeline::open(&trace, options).unwrap();
    let thread = t.threads().unwrap()[0].id;
    assert!(t.runs(thread, Cancel::new()).unwrap().is_none());
    let t = open(&trace, 0);
    assert!(t.runs(ThreadId(999), Cancel::new()).is_err());
}
