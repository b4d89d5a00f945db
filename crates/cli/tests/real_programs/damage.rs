//! Damaged traces of real programs give an error or a verified beginning. They never cause a crash or a hang.

use hindsight_lab::{Scene, words};
use std::fs;

fn trace() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let program = scene.compile("hello.c", &["-static"]);
    let (done, trace) = scene.record(&words(&program, &["0"]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let bytes = fs::read(trace).unwrap();
    (scene, bytes)
}

/// Status of a verification: verified, different, unreadable, or nothing left to verify. Any other end is a crash.
fn judged(scene: &Scene, bytes: &[u8], what: &str) -> i32 {
    let damaged = scene.path("damaged.hst");
    fs::write(&damaged, bytes).unwrap();
    let done = scene.verify(&damaged);
    let code = done.status.code().filter(|c| (0..=3).contains(c));
    let code = code.unwrap_or_else(|| panic!("{what}: {:?}: {}", done.status, done.messages()));
    assert!(
        !done.messages().contains("panicked"),
        "{what}: {}",
        done.messages()
    );
    code
}

#[test]
fn cut_anywhere() {
    let (scene, bytes) = trace();
    for i in 0..40 {
        let length = bytes.len() * i / 40 + i % 7;
        let code = judged(&scene, &bytes[..length], &format!("cut at {length}"));
        assert_ne!(code, 1, "a cut at {length} is no difference");
    }
    assert_eq!(judged(&scene, &bytes, "whole"), 0);
}

#[test]
fn changed_anywhere() {
    let (scene, bytes) = trace();
    for i in 0..60 {
        let at = bytes.len() * i / 60 + i % 11;
        let mut changed = bytes.clone();
        changed[at % bytes.len()] ^= 1 << (i % 8);
        judged(&scene, &changed, &format!("changed at {at}"));
    }
}

#[test]
fn not_a_trace() {
    let scene = Scene::new();
    assert_eq!(judged(&scene, b"", "empty"), 2);
    assert_eq!(judged(&scene, &[0; 100_000], "zeros"), 2);
    assert_eq!(judged(&scene, b"#!/bin/sh\necho hello\n", "script"), 2);
    let done = scene.verify(&scene.path("nonexistent"));
    assert_eq!(done.status.code(), Some(2), "{}", done.messages());
}

#[test]
fn verification_compares_what_it_is_asked_for() {
    let (scene, bytes) = trace();
    let trace = scene.path("whole.hst");
    fs::write(&trace, bytes).unwrap();
    let verify = |how: &str| scene.run(scene.hindsight(&["replay", how, "--json"]).arg(&trace));
    for (how, checks) in [
        ("--verify", "full"),
        ("--verify=full", "full"),
        ("--verify=digests", "digests"),
    ] {
        let done = verify(how);
        assert_eq!(done.status.code(), Some(0), "{how}: {}", done.messages());
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["checks"], checks);
        let times = &report["processor_seconds"];
        assert!(times["replay"].as_f64().unwrap() > 0.0, "{report}");
        assert!(times["verification"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!(verify("--verify=some").status.code(), Some(2));
    let done = scene.verify(&trace);
    assert!(done.text().contains("verification 0."), "{}", done.text());
}
