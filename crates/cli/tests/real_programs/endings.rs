//! `record` ends when it is told to, whatever its program does.

use hindsight_lab::{Running, Scene, children, end, kill, run_behind_this_thread, state, words};
use std::path::{Path, PathBuf};

fn start(scene: &Scene, program: &Path, args: &[&str]) -> (Running, PathBuf) {
    let trace = scene.path("trace.hst");
    let running = scene.start(&mut scene.recording(&trace, &words(program, args)));
    assert_eq!(running.first_line(), "ready");
    (running, trace)
}

#[test]
fn a_program_that_does_not_take_the_signal_is_killed() {
    let scene = Scene::new();
    let program = scene.compile("stubborn.c", &[]);
    for signo in [libc::SIGTERM, libc::SIGINT] {
        for args in [
            &["ignore"][..],
            &["block"],
            &["ignore", "and run"],
            &["block", "and run"],
        ] {
            let (running, trace) = start(&scene, &program, args);
            assert!(kill(running.id(), signo));
            // With a fault it would never end. `finish` does not wait for ever.
            let done = running.finish();
            let says = done.messages();
            assert_eq!(end(done.status), (None, Some(libc::SIGKILL)), "{says}");
            assert!(says.contains("does not end at the signal"), "{says}");
            scene.must_verify(&trace);
        }
    }
}

#[test]
fn a_program_that_takes_the_signal_has_all_the_time_it_wants() {
    let scene = Scene::new();
    let program = scene.compile("stubborn.c", &[]);
    for (how, signo) in [("take", libc::SIGTERM), ("wait", libc::SIGINT)] {
        let (running, trace) = start(&scene, &program, &[how]);
        assert!(kill(running.id(), signo));
        let done = running.finish();
        assert_eq!(done.text(), "ready\nin order\n", "{}", done.messages());
        assert_eq!(end(done.status), (Some(7), None), "{}", done.messages());
        scene.must_verify(&trace);
    }
}

#[test]
fn who_outlives_the_program_holds_nobody_up() {
    let scene = Scene::new();
    let program = scene.compile("stubborn.c", &[]);
    let (running, trace) = start(&scene, &program, &["child"]);
    let group = running.id();
    assert!(kill(group, libc::SIGTERM));
    let done = running.finish();
    kill(-group, libc::SIGKILL);
    assert_eq!(end(done.status), (Some(0), None), "{}", done.messages());
    scene.must_verify(&trace);
}

/// A signal that `record` gets when its program has ended is for `record`, although it has not noticed that yet.
#[test]
fn a_signal_between_the_end_and_its_notice_is_not_lost() {
    let scene = Scene::new();
    let program = scene.compile("stubborn.c", &[]);
    for i in 0..4 {
        let go = scene.path(&format!("go{i}"));
        let (running, _) = start(&scene, &program, &["child", go.to_str().unwrap()]);
        let group = running.id();
        let parts = children(group).into_iter();
        let (parent, _) = parts.min_by_key(|(_, name)| name != "stubborn").unwrap();
        // While this thread looks, `record` gets next to no time: it finds the end and the signal together.
        run_behind_this_thread(group);
        std::fs::write(&go, "").unwrap();
        while state(parent).is_some_and(|s| s != 'Z') {}
        assert!(kill(group, libc::SIGTERM));
        let done = running.finish();
        kill(-group, libc::SIGKILL);
        assert_eq!(end(done.status), (Some(0), None), "{}", done.messages());
    }
}
