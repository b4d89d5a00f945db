//! What is not recorded yet ends with a clear message and a readable trace.

use crate::harness::{Scene, words};

fn refused(name: &str, mentions: &str) {
    let scene = Scene::new();
    let program = scene.compile(name, &[]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert_eq!(done.status.code(), Some(125), "{}", done.messages());
    assert_eq!(done.text(), "before\n");
    assert!(done.messages().contains(mentions), "{}", done.messages());
    scene.info(&trace);
    scene.must_verify(&trace);
}

#[test]
fn child_processes() {
    refused("forks.c", "process");
}

#[test]
fn threads() {
    refused("threads.c", "thread");
}

#[test]
fn single_steps() {
    refused("steps.c", "unsupported instruction Popfq");
}
