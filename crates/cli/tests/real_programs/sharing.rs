//! Threads and processes that are killed on their way, while others with the same memory go on; and the counts of them
//! all.

use hindsight_lab::{Scene, end, words};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of instructions that a recording says it has, and the number that its verification found.
fn counts(scene: &Scene, trace: &Path) -> (u64, u64) {
    let recorded = scene.info(trace)["instructions"].as_u64().unwrap();
    let mut c = scene.hindsight(&["replay", "--verify", "--json"]);
    let done = scene.run(c.arg(trace));
    assert_eq!(
        done.status.code(),
        Some(0),
        "{}{}",
        done.text(),
        done.messages()
    );
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    (recorded, report["instructions"].as_u64().unwrap())
}

fn must_agree(scene: &Scene, trace: &Path, what: &str) {
    let (recorded, verified) = counts(scene, trace);
    assert_eq!(recorded, verified, "{what}");
    assert!(recorded > 10_000);
}

/// Processes in the same memory are killed wherever they are. The others do not wait for them, and find nothing half
/// done.
#[test]
fn who_is_killed_amid_the_recorder_holds_nobody_up() {
    let scene = Scene::new();
    let program = scene.compile("sharing.c", &[]);
    for (how, rounds) in [("inside", "12"), ("outside", "25")] {
        for seed in ["1", "2", "3"] {
            let what = format!("{how} {seed}");
            let (done, trace) = scene.record(&words(&program, &[how, seed, rounds]));
            assert_eq!(done.text(), "end\n", "{what}: {}", done.messages());
            assert_eq!(
                end(done.status),
                (Some(0), None),
                "{what}: {}",
                done.messages()
            );
            must_agree(&scene, &trace, &what);
        }
    }
}

#[test]
fn who_shares_the_memory_of_a_process_outlives_it() {
    let scene = Scene::new();
    let program = scene.compile("sharing.c", &[]);
    for how in ["exit", "xecute", "abort"] {
        for seed in ["1", "2", "3"] {
            let argv = words(&program, &[how, seed]);
            let native = scene.native(&argv);
            let (done, trace) = scene.record(&argv);
            let what = format!("{how} {seed}: {}", done.messages());
            // Recording goes on until the last one has ended.
            assert_eq!(done.text(), "survived\n", "{what}");
            assert_eq!(end(done.status), end(native.status), "{what}");
            must_agree(&scene, &trace, &what);
        }
    }
}

#[test]
fn what_is_counted_is_what_is_verified() {
    let scene = Scene::new();
    let program = scene.compile("cutoff.c", &[]);
    for how in ["e", "k", "p"] {
        for wait in ["0", "3000", "40000", "110000"] {
            let (done, trace) = scene.record(&words(&program, &[how, wait]));
            let expected = match how {
                "e" => (Some(3), None),
                "k" => (None, Some(libc::SIGKILL)),
                _ => (Some(0), None),
            };
            assert_eq!(
                end(done.status),
                expected,
                "{how} {wait}: {}",
                done.messages()
            );
            must_agree(&scene, &trace, &format!("{how} {wait}"));
        }
    }
}

/// Nobody waits for processes that no longer exist, even if it is not known which processes there were.
#[test]
fn a_recording_ends_when_its_processes_do() {
    const KILLS: &str = "sleep 60 & sleep 0.05; kill -9 $!; true";
    let scene = Scene::new();
    let plain = ["sh", "-c", KILLS];
    let apart = [&["unshare", "-Urpf"][..], &plain].concat();
    if scene.native(&apart).status.code() != Some(0) {
        eprintln!("left out: namespaces of process ids are not allowed here");
        return;
    }
    // The best of some runs: the machine may have other work.
    let shortest = |argv: &[&str]| {
        let once = |_| {
            let begin = Instant::now();
            let (done, trace) = scene.record(argv);
            assert_eq!(end(done.status), (Some(0), None), "{}", done.messages());
            let took = begin.elapsed();
            scene.must_verify(&trace);
            took
        };
        (0..4).map(once).min().unwrap()
    };
    let (usual, took) = (shortest(&plain), shortest(&apart));
    // A few more programs are executed.
    assert!(
        took < 4 * usual + Duration::from_secs(1),
        "{took:?} instead of {usual:?}"
    );
}
