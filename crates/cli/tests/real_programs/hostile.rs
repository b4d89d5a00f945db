//! Programs that overwrite the memory that the recorder shares with its collector. The program may suffer. But the
//! recording ends, by itself or when it is told to, and what was recorded stays readable.
//!
//! `HINDSIGHT_FUZZ_SECONDS` is how long this tries (5 by default). `HINDSIGHT_FUZZ_SEED` is the first seed.

use hindsight_lab::{Running, Scene, kill, words};
use std::path::Path;
use std::time::{Duration, Instant};

/// A program that does not hang has ended after this time.
const USUAL: Duration = Duration::from_secs(10);

/// Everything that is left ends within this time when it is told to.
const TOLD: Duration = Duration::from_secs(60);

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |v| v.parse().unwrap())
}

/// Ends a recording whose program may hang, as a user would. Returns whether it had to be told.
fn end(running: &Running, seed: u64) -> bool {
    let begin = Instant::now();
    let mut told = 0;
    while running.is_running() {
        if begin.elapsed() > USUAL + Duration::from_secs(3 * told) {
            told += 1;
            kill(
                running.id(),
                if told == 1 {
                    libc::SIGINT
                } else {
                    libc::SIGTERM
                },
            );
        }
        assert!(
            begin.elapsed() < USUAL + TOLD,
            "HINDSIGHT_FUZZ_SEED={seed}: it does not end"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    told > 0
}

fn must_be_readable(scene: &Scene, trace: &Path, seed: u64) {
    if !trace.exists() {
        return;
    }
    for args in [&["info"][..], &["replay", "--verify"]] {
        let mut c = scene.hindsight(args);
        let done = scene.run(c.arg(trace));
        let says = done.messages();
        // Any answer is fine.
        let code = done.status.code().unwrap_or(-1);
        assert!(
            (0..100).contains(&code) && !says.contains("panicked"),
            "HINDSIGHT_FUZZ_SEED={seed}: {:?} {says}",
            done.status
        );
    }
}

#[test]
fn overwritten_memory_neither_breaks_nor_holds_up_the_collector() {
    let scene = Scene::new();
    let program = scene.compile("scribble.c", &[]);
    let begin = Instant::now();
    let time = Duration::from_secs(setting("HINDSIGHT_FUZZ_SECONDS", 5));
    for seed in setting("HINDSIGHT_FUZZ_SEED", 1).. {
        let trace = scene.path("trace.hst");
        let _ = std::fs::remove_file(&trace);
        // Few words, so that later ones matter, or very many.
        let times = [3, 30, 3000][seed as usize % 3].to_string();
        let argv = words(&program, &[&seed.to_string(), &times]);
        let running = scene.start(&mut scene.recording(&trace, &argv));
        let group = running.id();
        let told = end(&running, seed);
        let done = running.finish();
        // A program may be left that hangs in its recorder.
        kill(-group, libc::SIGKILL);
        println!(
            "seed {seed}, {times} words: {:?}, told: {told}",
            done.status
        );
        assert!(done.text().starts_with("found"), "{:?}", done.messages());
        let says = done.messages();
        assert!(
            !says.contains("panicked"),
            "HINDSIGHT_FUZZ_SEED={seed}: {says}"
        );
        must_be_readable(&scene, &trace, seed);
        if begin.elapsed() > time {
            break;
        }
    }
}

#[test]
fn who_the_collector_is_does_not_rest_on_what_the_program_can_write() {
    let scene = Scene::new();
    let program = scene.compile("misname.c", &[]);
    for _ in 0..3 {
        let (done, trace) = scene.record(&words(&program, &[]));
        let says = done.messages();
        assert_eq!(done.text(), "found\n", "{says}");
        assert_eq!(done.status.code(), Some(0), "{says}");
        must_be_readable(&scene, &trace, 0);
    }
}
