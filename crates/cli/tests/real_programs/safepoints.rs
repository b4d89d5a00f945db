//! Loops that never come to the recorder by themselves have key frames all the same, and the program does not notice.

use hindsight_lab::{Scene, words};
use std::path::Path;

/// Replays a recording from each of its key frames. Returns their number, that of all threads together.
fn key_frames(scene: &Scene, trace: &Path) -> u64 {
    // So many jobs that each key frame begins a part.
    let mut c = scene.hindsight(&["replay", "--verify", "--jobs", "100", "--json"]);
    let done = scene.run(c.arg(trace));
    assert!(done.status.success(), "{}", done.text() + &done.messages());
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    report["parts"].as_u64().unwrap()
}

/// Records a loop. It must print the same as natively, and have this many key frames.
fn must_have(options: &[&str], args: &[&str], wanted: u64) {
    let scene = Scene::new();
    let program = scene.compile("loops.c", &["-O1", "-pthread"]);
    let argv = words(&program, args);
    let native = scene.native(&argv);
    let trace = scene.path("t.hst");
    let mut record = scene.hindsight(&["record", "--quiet"]);
    let done = scene.run(
        record
            .args(options)
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .args(&argv),
    );
    assert!(done.status.success(), "{}", done.messages());
    assert_eq!(done.text(), native.text(), "{options:?} {args:?}");
    let found = key_frames(&scene, &trace);
    assert!(found >= wanted, "{options:?} {args:?}: {found}");
}

/// Key frames are due all the time. How often a thread is summoned depends on the machine's speed.
const CHECKED: [&str; 4] = ["--regime", "checked", "--keyframe-interval", "10000000"];
const QUIET: [&str; 4] = ["--regime", "quiet", "--restate-every", "10000000"];

#[test]
fn loops_have_key_frames() {
    must_have(&CHECKED, &["alone", "2000"], 3);
    must_have(&QUIET, &["alone", "2000"], 3);
}

#[test]
fn so_have_loops_that_signals_interrupt() {
    must_have(&CHECKED, &["signals", "1000"], 5);
    must_have(&QUIET, &["signals", "1000"], 5);
}

#[test]
fn so_has_each_thread_and_calls_go_on() {
    must_have(&CHECKED, &["threads", "1000"], 5);
}

#[test]
fn calls_behind_a_long_loop_go_on() {
    must_have(&CHECKED, &["between", "12"], 1);
    must_have(&QUIET, &["between", "12"], 1);
}

/// There is no limit on memory. Only the first key frame restates all of it.
#[test]
fn processes_with_much_memory_have_key_frames() {
    let scene = Scene::new();
    let program = scene.compile("large.c", &["-O1"]);
    let argv = words(&program, &["520", "30"]);
    let native = scene.native(&argv);
    let trace = scene.path("t.hst");
    let mut record = scene.hindsight(&["record", "--quiet", "--restate-every", "10000000", "-o"]);
    let done = scene.run(record.arg(&trace).arg("--").args(&argv));
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    let mut c = scene.hindsight(&["replay", "--verify", "--jobs", "2", "--json"]);
    let done = scene.run(c.arg(&trace));
    assert!(done.status.success(), "{}", done.text() + &done.messages());
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(report["parts"].as_u64() > Some(2), "{report}");
    // Events before compression. 64 pages change between two key frames, of which each restates what has changed since
    // an older one.
    let info = scene.info(&trace);
    let streams = info["streams"].as_array().unwrap();
    let raw: u64 = streams.iter().filter_map(|s| s["raw_bytes"].as_u64()).sum();
    assert!((520 << 20..600 << 20).contains(&raw), "{raw}");
}
