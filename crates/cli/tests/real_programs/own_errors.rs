//! Errors of the recorder itself: invariants that do not hold, faults in its own code; and its log.

use hindsight_lab::{Done, Running, Scene, words};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FAILED: i32 = 125;

/// A recording of `argv` in which an invariant of the recorder does not hold when `blocks` blocks have been translated.
fn violated(scene: &Scene, blocks: u32, argv: &[&str]) -> (Command, PathBuf) {
    let trace = scene.path("trace.hst");
    let blocks = format!("--violate-after={blocks}");
    let options = ["record", "--quiet", "--no-cache", &blocks, "-o"];
    let mut c = scene.hindsight(&options);
    c.arg(&trace).arg("--").args(argv);
    (c, trace)
}

fn lines<'a>(done: &'a [u8], with: &str) -> Vec<&'a str> {
    let text = std::str::from_utf8(done).unwrap();
    text.lines().filter(|l| l.contains(with)).collect()
}

/// What is said of a violated invariant, whatever else is.
fn must_tell(done: &Done) {
    assert_eq!(done.status.code(), Some(FAILED), "{}", done.messages());
    let said = done.messages();
    for part in [
        "internal error at recorder/src/code/cache/make.rs:",
        "this does not hold: for tests: this many blocks are not translated",
        "position ",
        "its last translated code: 0x",
        "to reproduce it",
        "; the recording ends there: ",
    ] {
        assert!(said.contains(part), "no \"{part}\" in {said}");
    }
}

#[test]
fn an_invariant_that_does_not_hold_ends_the_recording() {
    let scene = Scene::new();
    let (mut command, trace) = violated(&scene, 40, &["/bin/true"]);
    let done = scene.run(&mut command);
    must_tell(&done);
    assert!(lines(&done.stderr, "in the quiet regime").len() == 1);
    assert!(
        lines(&done.stderr, " debug] ").is_empty(),
        "nothing was logged"
    );
    // What came before is a recording.
    scene.must_verify(&trace);
    let info = scene.info(&trace).to_string();
    assert!(info.contains("this does not hold"), "{info}");
}

/// It happens while the code cache is locked, and others wait for that.
#[test]
fn one_thread_of_several_ends_them_all() {
    let scene = Scene::new();
    let program = scene.compile("threads.c", &[]);
    let program = program.to_str().unwrap();
    // How many blocks are translated before there are threads, and in all.
    let (mut whole, _) = violated(&scene, 0, &[program]);
    whole
        .env("HINDSIGHT_LOG", "code=trace,thread=debug")
        .env("HINDSIGHT_LOG_FILE", "log");
    let done = scene.run(&mut whole);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let log = fs::read(scene.path("log")).unwrap();
    let text = std::str::from_utf8(&log).unwrap();
    let (before, behind) = text.split_once("a thread joins 1 others").unwrap();
    let blocks = |part: &str| part.matches(" code trace] block of ").count() as u32;
    let (alone, together) = (blocks(before), blocks(behind));
    assert!(together > 30, "{alone}, {together}");
    let (mut command, trace) = violated(&scene, alone + together / 3, &[program]);
    let done = scene.run(&mut command);
    must_tell(&done);
    scene.must_verify(&trace);
}

#[test]
fn a_violation_prints_the_log() {
    let scene = Scene::new();
    let (mut command, _) = violated(&scene, 40, &["/bin/true"]);
    let done = scene.run(command.env("HINDSIGHT_LOG", "memory=debug,process=trace"));
    must_tell(&done);
    let mapped = lines(&done.stderr, " memory debug] mapped 0x");
    assert!(mapped.iter().any(|l| l.ends_with("/true")), "{mapped:?}");
    assert!(lines(&done.stderr, " memory info] the quiet regime begins").len() == 1);
    for other in [" code ", " stream ", " thread debug"] {
        assert!(lines(&done.stderr, other).is_empty(), "{other}");
    }
}

#[test]
fn a_log_file_has_all_processes_and_the_program_finds_nothing_new() {
    let scene = Scene::new();
    let log = scene.path("recorder.log");
    fs::write(&log, "old\n").unwrap();
    let argv = ["/bin/sh", "-c", "env | sort; ls /proc/self/fd; ulimit -n"];
    let set = |c: &mut Command| {
        c.env("HINDSIGHT_LOG", "all=trace")
            .env("HINDSIGHT_LOG_FILE", "recorder.log");
    };
    let mut native = scene.command(argv[0]);
    set(native.args(&argv[1..]));
    let native = scene.run(&mut native);
    let trace = scene.path("trace.hst");
    let mut recorded = scene.recording(&trace, &argv);
    set(&mut recorded);
    let recorded = scene.run(&mut recorded);
    assert_eq!(recorded.text(), native.text());
    assert_eq!(recorded.messages(), "");
    scene.must_verify(&trace);
    let log = fs::read(&log).unwrap();
    assert!(!log.starts_with(b"old"));
    for part in [
        " process info] made a copy of this process: ",
        " process info] executes /usr/bin/sort",
        " calls trace] call 59 (execve)",
        " signals debug] signal 17 arrives",
        " code trace] block of ",
        " process info] the process ends with 0",
    ] {
        let part = part.replace("/usr/bin", "");
        let part = part.replace("executes /sort", "executes ");
        assert!(!lines(&log, &part).is_empty(), "no \"{part}\"");
    }
}

#[test]
fn standard_error_can_have_the_log() {
    let scene = Scene::new();
    let trace = scene.path("trace.hst");
    let mut recording = scene.recording(&trace, &["/bin/true"]);
    recording
        .env("HINDSIGHT_LOG", "boot=info")
        .env("HINDSIGHT_LOG_FILE", "-");
    let done = scene.run(&mut recording);
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(
        lines(&done.stderr, "boot info] the program begins").len(),
        1
    );
    scene.must_verify(&trace);
}

#[test]
fn bad_values_are_refused_before_the_program_begins() {
    let scene = Scene::new();
    let trace = scene.path("trace.hst");
    let long = "x".repeat(300);
    for (levels, file, message) in [
        (
            "memroy=debug",
            "",
            "areas: all, sys, stream, thread, memory",
        ),
        ("memory=loud", "", "levels: error, warn, info, debug, trace"),
        ("memory", "", "\"memory\" is not AREA=LEVEL"),
        ("", "log", "HINDSIGHT_LOG does not say what to log"),
        ("all=info", "none/log", "cannot write "),
        ("all=info", &long, "at most 255"),
    ] {
        let mut recording = scene.recording(&trace, &["/bin/echo", "began"]);
        recording
            .env("HINDSIGHT_LOG", levels)
            .env("HINDSIGHT_LOG_FILE", file);
        let done = scene.run(&mut recording);
        assert_eq!(done.status.code(), Some(FAILED), "{}", done.messages());
        assert_eq!(done.text(), "");
        assert!(done.messages().contains(message), "{}", done.messages());
    }
}

/// Address of a symbol of the program that a process runs.
fn symbol(pid: i32, name: &str) -> u64 {
    let image = format!("/proc/{pid}/exe");
    let nm = Command::new("nm").arg(image).output().unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let line = text.lines().find(|l| l.ends_with(&format!(" {name}")));
    u64::from_str_radix(&line.unwrap()[..16], 16).unwrap()
}

/// The recorded program: the child whose image lies where the recorder does.
fn recorded(front: &Running) -> i32 {
    let children = hindsight_lab::children(front.id());
    let maps = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut pids = children.into_iter().map(|(pid, _)| pid);
    pids.find(|pid| maps(pid).contains("\n680000") || maps(pid).starts_with("680000"))
        .unwrap()
}

/// Somebody puts an instruction that does not exist where the recorder makes the program's system calls.
#[test]
fn a_fault_in_the_recorders_code_is_told_with_its_function() {
    const UD2: [u8; 2] = [0x0f, 0x0b];
    let scene = Scene::new();
    let trace = scene.path("trace.hst");
    let cat = words(Path::new("/bin/cat"), &[]);
    let mut command = scene.recording(&trace, &cat);
    command
        .env("HINDSIGHT_LOG", "boot=info")
        .stdin(Stdio::piped());
    let mut running = scene.start(&mut command);
    let mut input = running.input();
    input.write_all(b"one\n").unwrap();
    assert_eq!(running.first_line(), "one");
    let pid = recorded(&running);
    let stub = symbol(pid, "hindsight_stub");
    let memory = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .unwrap();
    memory.write_all_at(&UD2, stub).unwrap();
    input.write_all(b"two\n").unwrap();
    drop(input);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(FAILED), "{}", done.messages());
    let fault = format!("fault 4 at {stub:#x}");
    assert!(done.messages().contains(&fault), "{}", done.messages());
    let told = lines(&done.stderr, "the recording ends there");
    assert!(
        told.len() == 1 && told[0].contains("in the recorder's hindsight_stub"),
        "{told:?}"
    );
    assert_eq!(
        lines(&done.stderr, "boot info] the program begins").len(),
        1
    );
    scene.must_verify(&trace);
}
