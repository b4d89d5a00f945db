//! Programs that crash are recorded up to the faulting instruction and die as they would natively;
//! programs that handle their own faults work.

use crate::harness::{Scene, words};

fn dies(how: &str, signo: i32) {
    let scene = Scene::new();
    let program = scene.compile("crash.c", &["-O1"]);
    let done = scene.same(&words(&program, &[how]));
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&done.status),
        Some(signo),
        "{how}"
    );
}

#[test]
fn segmentation_faults() {
    for how in [
        "read",
        "write",
        "jump",
        "noncanonical",
        "noexec",
        "privileged",
    ] {
        dies(how, libc::SIGSEGV);
    }
}

#[test]
fn stack_overflow() {
    dies("overflow", libc::SIGSEGV);
}

#[test]
fn other_faults() {
    dies("divide", libc::SIGFPE);
    dies("illegal", libc::SIGILL);
    dies("breakpoint", libc::SIGTRAP);
    dies("bus", libc::SIGBUS);
}

#[test]
fn signals_it_sends_itself() {
    dies("abort", libc::SIGABRT);
    dies("term", libc::SIGTERM);
    dies("pipe", libc::SIGPIPE);
    dies("alarm", libc::SIGALRM);
}

#[test]
fn sigkill_from_itself_leaves_a_readable_trace() {
    let scene = Scene::new();
    let program = scene.compile("crash.c", &["-O1"]);
    let (done, trace) = scene.record(&words(&program, &["kill"]));
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&done.status),
        Some(libc::SIGKILL)
    );
    assert_eq!(done.text(), "about to: kill\n");
    scene.info(&trace);
    scene.must_verify(&trace);
}

#[test]
fn own_handlers() {
    let scene = Scene::new();
    for options in [&["-O1"][..], &["-O2", "-static"]] {
        let program = scene.compile("handlers.c", options);
        scene.same(&words(&program, &[]));
    }
}
