//! Signals to the group of a recorded program, and to the process that stands for it; stopping and going on.

use hindsight_lab::{
    Running, Scene, await_stopped, children, collector_of, end, is_witness, kill, words,
};
use std::path::PathBuf;
use std::time::Duration;

fn scene() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let program = scene.compile("signals/groups.c", &[]);
    (scene, program)
}

#[test]
fn a_program_may_signal_its_group() {
    let (scene, program) = scene();
    let last = libc::SIGRTMAX();
    for signo in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSEGV,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGSTKFLT,
        libc::SIGCHLD,
        libc::SIGTSTP,
        libc::SIGXCPU,
        libc::SIGPWR,
        libc::SIGRTMIN(),
        last,
    ] {
        let done = scene.same(&words(&program, &["handle", &signo.to_string()]));
        assert_eq!(done.text(), "1\n", "{signo}: {}", done.messages());
    }
    // The signals between the standard ones and SIGRTMIN belong to the C library.
    for signo in [libc::SIGTERM, libc::SIGUSR1, libc::SIGXCPU, last] {
        let done = scene.same(&words(&program, &["die", &signo.to_string()]));
        assert_eq!(end(done.status), (None, Some(signo)));
    }
}

#[test]
fn what_the_group_gets_is_not_passed_on() {
    let (scene, program) = scene();
    let done = scene.same(&words(&program, &["count"]));
    assert_eq!(done.text(), "20\n");
}

/// Starts to record a program that waits for signals. Returns it with its trace.
fn listening(scene: &Scene, program: &std::path::Path) -> (Running, PathBuf) {
    let trace = scene.path("trace.hst");
    let running = scene.start(&mut scene.recording(&trace, &words(program, &["listen"])));
    running.first_line();
    (running, trace)
}

/// Waits until the program has written this many lines.
fn await_lines(running: &Running, n: usize) {
    for _ in 0..2000 {
        if running.so_far().lines().count() >= n {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{}", running.so_far());
}

#[test]
fn each_signal_from_outside_comes_once() {
    let (scene, program) = scene();
    let (running, trace) = listening(&scene, &program);
    let signals = [libc::SIGUSR1, libc::SIGRTMIN(), libc::SIGTERM];
    let mut lines = 1;
    for signo in signals.into_iter().cycle().take(12) {
        let whom = if lines % 2 == 0 {
            -running.id()
        } else {
            running.id()
        };
        assert!(kill(whom, signo));
        lines += 1;
        await_lines(&running, lines);
    }
    // If a signal came twice, it would have come by now.
    std::thread::sleep(Duration::from_millis(50));
    assert!(kill(running.id(), libc::SIGUSR2));
    let done = running.finish();
    assert!(done.text().ends_with("\n13 -1\n"), "{}", done.text());
    scene.must_verify(&trace);
}

#[test]
fn a_queued_value_is_passed_on() {
    let (scene, program) = scene();
    let (running, _) = listening(&scene, &program);
    let value = libc::sigval {
        sival_ptr: 4321 as *mut libc::c_void,
    };
    // SAFETY: sends a signal.
    unsafe { libc::sigqueue(running.id(), libc::SIGUSR2, value) };
    assert_eq!(running.finish().text(), "ready\n1 4321\n");
}

#[test]
fn a_signal_to_the_parent_goes_to_who_started_the_recording() {
    let (scene, program) = scene();
    let line = "trap 'echo told' USR1; \"$@\"; echo $?";
    for recorded in [false, true] {
        let trace = scene.path("trace.hst");
        let argv = words(&program, &["parent"]);
        let mut shell = scene.command("/bin/sh");
        shell.args(["-c", line, "sh"]);
        if recorded {
            let recording = scene.recording(&trace, &argv);
            shell
                .arg(recording.get_program())
                .args(recording.get_args());
        } else {
            shell.args(&argv);
        }
        let done = scene.run(&mut shell);
        assert_eq!(done.text(), "signalled\ntold\n0\n", "{}", done.messages());
    }
}

/// The recorded program itself.
fn program_of(front: i32) -> i32 {
    let mut all = children(front).into_iter().map(|(pid, _)| pid);
    let collector = collector_of(front);
    all.find(|pid| *pid != collector && !is_witness(*pid))
        .unwrap()
}

#[test]
fn a_program_that_stops_is_seen_to_stop() {
    let (scene, program) = scene();
    for signo in [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN] {
        for to_group in [false, true] {
            let argv = words(&program, &["stop", &signo.to_string()]);
            let trace = scene.path("trace.hst");
            let running = scene.start(&mut scene.recording(&trace, &argv));
            running.first_line();
            // Natively it stops only if somebody outside could continue its group. Here somebody in another group
            // could.
            await_stopped(running.id(), true);
            let whom = if to_group {
                -running.id()
            } else {
                running.id()
            };
            assert!(kill(whom, libc::SIGCONT));
            let done = running.finish();
            assert_eq!(done.status.code(), Some(4), "{}", done.messages());
            assert_eq!(done.text(), "ready\ngoes on\n");
            scene.must_verify(&trace);
        }
    }
}

#[test]
fn a_program_that_another_one_continues_is_seen_to_go_on() {
    let (scene, program) = scene();
    let done = scene.same(&words(&program, &["helped"]));
    assert_eq!(done.text(), "goes on\n");
}

#[test]
fn who_stops_or_ends_the_process_that_was_started_means_the_program() {
    let (scene, program) = scene();
    let (running, trace) = listening(&scene, &program);
    let pid = program_of(running.id());
    for _ in 0..2 {
        assert!(kill(running.id(), libc::SIGSTOP));
        await_stopped(pid, true);
        assert!(kill(running.id(), libc::SIGCONT));
        await_stopped(pid, false);
    }
    // The program is killed while it is stopped. The process that stands for it does not stay.
    assert!(kill(pid, libc::SIGSTOP));
    await_stopped(running.id(), true);
    assert!(kill(pid, libc::SIGKILL));
    let done = running.finish();
    assert_eq!(end(done.status), (None, Some(libc::SIGKILL)));
    scene.must_verify(&trace);
}

#[test]
fn threads_of_a_group_stop_and_go_on_together() {
    let scene = Scene::new();
    let program = scene.compile("signals/herd.c", &["-O1", "-pthread"]);
    let done = scene.same(&words(&program, &["stops"]));
    assert_eq!(
        done.text().lines().next(),
        Some("120 moved, 30 stopped, 0 awake, 30 went on")
    );
}
