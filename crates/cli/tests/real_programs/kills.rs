//! `kill -9` at any time leaves a readable trace of everything that had reached the rings.

use hindsight_lab::{Running, Scene, await_end, collector_of, kill, words};
use std::path::Path;
use std::time::Duration;

fn start(scene: &Scene, trace: &Path) -> (Running, i32) {
    let program = scene.path("endless");
    let running = scene.start(&mut scene.recording(trace, &words(&program, &[])));
    let pid = running.first_line().parse().unwrap();
    (running, pid)
}

/// Several moments. They are not random, so a failing run can be repeated.
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
    for wait in moments() {
        let trace = scene.path("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let (running, pid) = start(&scene, &trace);
        std::thread::sleep(wait);
        assert!(kill(collector_of(running.id()), libc::SIGKILL));
        // The program cannot be recorded any further. It ends by itself, with a message.
        await_end(pid);
        let done = running.finish();
        assert!(done.messages().contains("collector"), "{}", done.messages());
        if std::fs::metadata(&trace).is_ok_and(|m| m.len() > 0) {
            // In the first moments, perhaps nothing was executed.
            if scene.info(&trace)["instructions"] != 0 {
                scene.must_verify(&trace);
            }
        }
    }
}

/// A kill of the process that stands for the program means the program. The recording is finished.
#[test]
fn of_the_process_that_stands_for_the_program() {
    let scene = Scene::new();
    scene.compile("endless.c", &[]);
    for group in [false, true] {
        let trace = scene.path("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let (running, pid) = start(&scene, &trace);
        let collector = collector_of(running.id());
        let whom = if group { -running.id() } else { running.id() };
        assert!(kill(whom, libc::SIGKILL));
        await_end(pid);
        await_end(collector);
        drop(running);
        let info = scene.info(&trace);
        assert_eq!(info["complete"], true, "{info}");
        assert_eq!(info["ending"]["signal"], libc::SIGKILL, "{info}");
        scene.must_verify(&trace);
    }
}
