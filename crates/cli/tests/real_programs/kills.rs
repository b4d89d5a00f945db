//! `kill -9` at any time leaves a readable trace of all that had reached the rings.

use crate::harness::{Running, Scene, await_end, kill, words};
use std::path::Path;
use std::time::Duration;

fn start(scene: &Scene, trace: &Path) -> (Running, i32) {
    let program = scene.path("endless");
    let running = scene.start(&mut scene.recording(trace, &words(&program, &[])));
    let pid = running.first_line().parse().unwrap();
    (running, pid)
}

/// Different moments without a random source: a run that fails can be repeated.
fn moments() -> impl Iterator<Item = Duration> {
    (0..5).map(|i| Duration::from_millis(3 + 67 * i * i))
}

#[test]
fn of_the_program() {
    let scene = Scene::new();
    scene.compile("endless.c", &[]);
    for wait in moments() {
        let trace = scene.path("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let (running, pid) = start(&scene, &trace);
        std::thread::sleep(wait);
        assert!(kill(pid, libc::SIGKILL));
        let done = running.finish();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&done.status),
            Some(libc::SIGKILL)
        );
        scene.info(&trace);
        scene.must_verify(&trace);
    }
}

#[test]
fn of_the_collector() {
    let scene = Scene::new();
    scene.compile("endless.c", &[]);
    for (i, wait) in moments().enumerate() {
        let trace = scene.path("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let (mut running, pid) = start(&scene, &trace);
        std::thread::sleep(wait);
        assert!(kill(running.id(), libc::SIGKILL));
        // Once left as a zombie, whose number still exists: only its silence shows that it is dead.
        if i > 0 {
            running.reap();
        }
        // The program cannot go on recording; it ends, with a message, by itself.
        await_end(pid);
        let done = running.finish();
        assert!(done.messages().contains("collector"), "{}", done.messages());
        if std::fs::metadata(&trace).is_ok_and(|m| m.len() > 0) {
            scene.info(&trace);
            scene.must_verify(&trace);
        }
    }
}
