//! Atomic operations between threads and processes.

use crate::harness::{Scene, words};

const SCHEMES: [&str; 12] = [
    "kinds",
    "split",
    "ticket",
    "spin",
    "seqlock",
    "queue",
    "stack",
    "futex",
    "mutex",
    "race",
    "processes",
    // One of several processes is stopped again and again, then killed, amid atomic operations.
    "killed",
];

#[test]
fn atomic_operations_of_every_kind() {
    let scene = Scene::new();
    let program = scene.compile("atomics.c", &[]);
    for scheme in SCHEMES {
        scene.same(&words(&program, &[scheme]));
    }
}
