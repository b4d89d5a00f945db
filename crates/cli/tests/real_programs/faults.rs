//! Programs that crash are recorded up to the faulting instruction, and die as they do natively. Programs that handle
//! their own faults work.

use hindsight_lab::{Scene, end, words};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

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

#[test]
fn vectors_that_are_compared_in_pairs() {
    let scene = Scene::new();
    let program = scene.compile("vectors.c", &["-O1", "-pthread"]);
    if !std::arch::is_x86_feature_detected!("avx512vl") {
        println!("this processor compares vectors in words: no pairs");
    }
    for what in ["faults", "dies", "aligned", "cells", "ticks", "threads"] {
        let argv = words(&program, &[what]);
        let native = scene.native(&argv);
        for predictor in ["window", "cache:4k"] {
            let trace = scene.path("vectors.hst");
            let options = ["--regime", "checked", "--predictor", predictor];
            let mut command = scene.hindsight(&["record", "--quiet", "-o"]);
            command.arg(&trace).args(options).arg("--").args(&argv);
            let recorded = scene.run(&mut command);
            assert_eq!(recorded.text(), native.text(), "{what}, {predictor}");
            assert_eq!(end(recorded.status), end(native.status), "{what}");
            scene.must_verify(&trace);
        }
    }
}

/// Whether a program that crashes leaves a core in its folder. The kernel may give it to a program, put it into another
/// folder, or make none. Tests that need one then say that they are skipped.
pub fn has_cores(scene: &Scene) -> bool {
    let mut shell = scene.command("/bin/sh");
    scene.run(shell.args(["-c", "ulimit -c unlimited; sh -c 'kill -SEGV $$'"]));
    let found = scene.path("core").exists();
    if !found {
        // Written past the harness, which captures the output of a test that succeeds.
        let _ = std::io::stderr().write_all(
            b"skipped: no cores are left here (/proc/sys/kernel/core_pattern, ulimit -c)\n",
        );
    }
    found
}

/// What gdb says of `asked` about the core that `command` leaves.
pub fn core(scene: &Scene, program: &Path, command: &[OsString], asked: &[&str]) -> String {
    let file = scene.path("core");
    let _ = fs::remove_file(&file);
    let mut shell = scene.command("/bin/sh");
    shell.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]);
    scene.run(shell.args(command));
    assert!(file.exists(), "no core of {}", program.display());
    let mut gdb = scene.command("gdb");
    gdb.args(["-nx", "-batch"]);
    for ask in ["set print frame-arguments none", "set print address off"]
        .iter()
        .chain(asked)
    {
        gdb.args(["-ex", ask]);
    }
    let told = scene.run(gdb.arg(program).arg(&file)).text();
    // Greetings with addresses come before the answers.
    let answers = told
        .lines()
        .skip_while(|l| !l.starts_with("rbx") && !l.starts_with("Thread "));
    answers.collect::<Vec<_>>().join("\n")
}

/// The words of a command that records `argv`.
fn recorded(scene: &Scene, trace: &Path, argv: &[OsString]) -> Vec<OsString> {
    recorded_with(scene, trace, &[], argv)
}

/// The same with options.
pub fn recorded_with(
    scene: &Scene,
    trace: &Path,
    options: &[&str],
    argv: &[OsString],
) -> Vec<OsString> {
    let mut recording = scene.hindsight(&["record", "--quiet", "-o"]);
    recording.arg(trace).args(options).arg("--").args(argv);
    let all = std::iter::once(recording.get_program()).chain(recording.get_args());
    all.map(OsString::from).collect()
}

#[test]
fn core_dumps_show_all_threads() {
    let scene = Scene::new();
    if !has_cores(&scene) {
        return;
    }
    let program = scene.compile("dying.c", &["-O1"]);
    let trace = scene.path("trace.hst");
    // Threads may come in any order. What must agree is the calls, and whose registers are known.
    let of = |text: String| {
        let known = |l: &&str| {
            l.starts_with('#') || l.contains("0x9876543210") || l.contains("114, 101, 103")
        };
        let mut lines: Vec<String> = text.lines().filter(known).map(String::from).collect();
        lines.iter_mut().for_each(|l| {
            if let Some((_, value)) = l.split_once(" = {") {
                *l = value.into();
            }
        });
        lines.sort();
        (lines, text)
    };
    for how in ["threads", "aside"] {
        let argv = words(&program, &["fault", how]);
        let asked = [
            "thread apply all info registers rbx r10 r11",
            "thread apply all print $xmm13.v16_int8",
            "thread apply all backtrace",
        ];
        let native = core(&scene, &program, &argv, &asked);
        let recorded = core(&scene, &program, &recorded(&scene, &trace, &argv), &asked);
        scene.must_verify(&trace);
        assert!(
            native.contains("spins (") && native.contains("waiting ("),
            "{native}"
        );
        let ((native, _), (recorded, text)) = (of(native), of(recorded));
        assert_eq!(recorded, native, "{how}: {text}");
        for value in ["0x1717 ", "0x1818 "] {
            assert!(text.contains(value), "{how}: {text}");
        }
    }
}

#[test]
fn core_dumps_are_the_programs() {
    let scene = Scene::new();
    if !has_cores(&scene) {
        return;
    }
    let program = scene.compile("dying.c", &["-O1"]);
    let trace = scene.path("trace.hst");
    for how in ["fault", "abort"] {
        let argv = words(&program, &[how]);
        let asked = [
            "info registers rbx r10 r11 r15 gs_base",
            "print $xmm13.v16_int8",
            "print $_siginfo.si_signo",
            "print $_siginfo.si_code",
            "print $_siginfo._sifields._sigfault.si_addr == 0x4440",
            "backtrace",
        ];
        let native = core(&scene, &program, &argv, &asked);
        let recorded = core(&scene, &program, &recorded(&scene, &trace, &argv), &asked);
        scene.must_verify(&trace);
        // At an abort, registers hold process and thread ids.
        let comparable = |text: String| match how {
            "fault" => text,
            _ => {
                let told = |l: &&str| l.starts_with(['$', '#']);
                text.lines().filter(told).collect::<Vec<_>>().join("\n")
            }
        };
        if how == "fault" {
            assert!(
                native.contains("0x1234567890") && native.contains("#1  main"),
                "{native}"
            );
        }
        assert_eq!(comparable(recorded), comparable(native), "{how}");
    }
}
