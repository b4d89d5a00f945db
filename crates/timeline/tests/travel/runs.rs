//! The log of what a machine executes says what single steps see.

use super::open;
use crate::interrupted::FAULTS;
use crate::questions::Rng;
use hindsight_lab::{Scene, words};
use hindsight_timeline::{Cancel, Options, Processor, ThreadId, Timeline};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::path::Path;

/// An instruction: count, address, bytes, whether a handler begins there.
type Seen = (u64, u64, Vec<u8>, bool);

/// What single steps see.
fn steps(t: &Timeline, thread: ThreadId, range: (u64, u64)) -> Vec<Seen> {
    let mut out = Vec::new();
    let mut walk = t.walk(thread, Cancel::new()).unwrap();
    walk.run(range, true, &mut |w| {
        let i = Decoder::new(64, w.code, DecoderOptions::NONE).decode();
        // The call that ends a handler counts as a place where the kernel lets the thread go on, too.
        let handler = w.entered && i.mnemonic() != Mnemonic::Syscall;
        out.push((w.count, w.pc, w.code[..i.len()].to_vec(), handler));
        true
    })
    .unwrap();
    out
}

/// What runs say, taken apart.
fn from_runs(t: &Timeline, thread: ThreadId, ranges: &[(u64, u64)]) -> Vec<Seen> {
    let mut out = Vec::new();
    let mut all = t.runs(thread, Cancel::new()).unwrap();
    for range in ranges {
        all.play(*range, |e, runs| {
            let (mut count, mut entered) = (e.count, e.entries.last().is_some_and(|e| e.handler));
            for run in runs {
                if count == e.count
                    && let Some(last) = e.entries.last()
                {
                    assert_eq!(last.pc, run.pc());
                }
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
        let [t, interpreted] = [Processor::Native, Processor::Interpreter].map(|processor| {
            let options = Options {
                processor,
                unsaved: true,
                ..Options::default()
            };
            Timeline::open(&trace, options).unwrap()
        });
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
                for t in [&t, &interpreted] {
                    let said = from_runs(t, thread.id, &[(from, middle), (middle, until)]);
                    let differs = seen.iter().zip(&said).find(|(a, b)| a != b);
                    assert_eq!(differs, None, "{told}");
                    assert_eq!(seen.len(), said.len(), "{told}");
                }
                all += seen.len();
                entered += seen.iter().filter(|s| s.3).count();
                parts += seen.windows(2).filter(|w| w[0].0 == w[1].0).count();
            }
        }
        assert!(all > 1000, "{told}");
    }
    assert!(
        entered > 6 && parts > 4,
        "{entered} entries, {parts} interrupted"
    );
}

#[test]
fn a_thread_that_is_not_there_has_no_runs() {
    let (_scene, trace) = hindsight_lab::example();
    let t = open(&trace, 0);
    assert!(t.runs(ThreadId(999), Cancel::new()).is_err());
}
