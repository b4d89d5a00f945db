//! Asynchronous signals reach the program, at exact places.

use hindsight_lab::{Scene, end, words};

#[test]
fn timers_do_not_disturb() {
    let scene = Scene::new();
    for (options, period) in [
        (&["-O2"][..], "1000"),
        (&["-O3", "-march=x86-64-v3"], "200"),
        (&["-O0"], "100"),
    ] {
        let program = scene.compile("timers.c", options);
        scene.same(&words(&program, &[period]));
    }
}

#[test]
fn waiting_calls_are_interrupted_and_restarted() {
    let scene = Scene::new();
    let program = scene.compile("waiting.c", &[]);
    scene.same(&words(&program, &[]));
}

#[test]
fn masks_queues_stacks_and_frames() {
    let scene = Scene::new();
    let program = scene.compile("sigstate.c", &["-O1"]);
    assert_eq!(scene.same(&words(&program, &[])).text(), "done\n");
}

fn interrupted(args: &[&str], signo: i32, to_group: bool) {
    let scene = Scene::new();
    let program = scene.compile("interrupt.c", &[]);
    let argv = words(&program, args);
    let trace = scene.path("trace.hst");
    let mut native = scene.command(&argv[0]);
    let mut recording = scene.recording(&trace, &argv);
    let [plain, recorded] = [native.args(&argv[1..]), &mut recording].map(|command| {
        let running = scene.start(command);
        assert_eq!(running.first_line(), "ready");
        if to_group {
            running.signal_group(signo);
        } else {
            hindsight_lab::kill(running.id(), signo);
        }
        running.finish()
    });
    assert_eq!(recorded.text(), plain.text(), "{}", recorded.messages());
    assert_eq!(end(recorded.status), end(plain.status));
    scene.must_verify(&trace);
}

#[test]
fn control_c_is_handled() {
    interrupted(&["handle"], libc::SIGINT, true);
    interrupted(&["handle", "and pause"], libc::SIGINT, true);
}

#[test]
fn control_c_kills() {
    interrupted(&[], libc::SIGINT, true);
}

#[test]
fn termination_of_the_recorder_is_passed_on() {
    interrupted(&["handle"], libc::SIGTERM, false);
    interrupted(&[], libc::SIGTERM, false);
}

#[test]
fn what_lies_below_the_stack_pointer_stays() {
    let scene = Scene::new();
    let program = scene.compile("signals/herd.c", &["-O1", "-pthread"]);
    for args in [&["zone"][..], &["zone", "alone"]] {
        let done = scene.same(&words(&program, args));
        assert_eq!(done.text(), "spoiled 0, all traps 1\n", "{args:?}");
    }
}
