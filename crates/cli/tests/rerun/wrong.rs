//! What cannot be run again says so, in one line.

use super::rerun;
use hindsight_lab::Scene;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What is said, which must be one line.
fn refused(s: &Scene, trace: &Path, words: &[&str]) -> String {
    let done = s.run(s.hindsight(&["rerun"]).arg(trace).args(words));
    let said = done.messages();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn what_is_not_there_is_named() {
    let s = Scene::new();
    let said = refused(&s, &s.path("nowhere.hst"), &[]);
    assert!(said.contains("nowhere.hst"), "{said}");
    let (_, trace) = s.record(&["true"]);
    let said = refused(&s, &trace, &["./no-program"]);
    assert!(
        said.contains("cannot start") && said.contains("no-program"),
        "{said}"
    );
    fs::write(s.path("text"), "no recording").unwrap();
    let said = refused(&s, &s.path("text"), &[]);
    assert!(said.contains("text"), "{said}");
}

#[test]
fn another_program_goes_too_far_away() {
    let s = Scene::new();
    fs::write(s.path("numbers"), "3\n1\n2\n").unwrap();
    let (_, trace) = s.record(&["sort", "numbers"]);
    let (done, report) = rerun(&s, &trace, &["--", "sh", "-c", "read x; echo $x"]);
    assert_eq!(report["verdict"], "diverged", "{report:#}");
    assert_eq!(done.status.code(), Some(5));
    let why = report["why"].as_str().unwrap();
    assert!(
        why.contains("it asks for more than is recorded: read(0"),
        "{why}"
    );
    assert!(report["percent"].as_f64().unwrap() < 100.0);
    assert!(
        report["divergence"]["now"]["call"].is_string(),
        "{report:#}"
    );
}

#[test]
fn a_cut_recording_ends_where_it_ends() {
    let s = Scene::new();
    let numbers: String = (0..200_000u32)
        .map(|n| format!("{}\n", n * 7919 % 5003))
        .collect();
    fs::write(s.path("numbers"), numbers).unwrap();
    let (_, trace) = s.record(&["cat", "numbers", "numbers", "numbers"]);
    let whole = fs::read(&trace).unwrap();
    fs::write(&trace, &whole[..whole.len() * 2 / 3]).unwrap();
    let done = s.run(s.hindsight(&["rerun", "--quiet"]).arg(&trace));
    let said = done.messages();
    assert!(matches!(done.status.code(), Some(2 | 5)), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("recording") || last.contains("recorded"),
        "{said}"
    );
}

#[test]
fn the_first_call_that_does_not_match_may_end_the_run() {
    let s = Scene::new();
    let (_, trace) = s.record(&["cat", "/etc/hostname"]);
    let done =
        s.run(
            s.hindsight(&["rerun", "--stop"])
                .arg(&trace)
                .args(["--", "cat", "/etc/passwd"]),
        );
    assert_eq!(done.status.code(), Some(5));
    let said = done.messages();
    assert!(
        said.contains("the first call that does not match"),
        "{said}"
    );
    assert!(said.contains("\"/etc/passwd\""), "{said}");
    assert!(said.contains("\"/etc/hostname\""), "{said}");
    assert_eq!(done.text(), "");
}

/// What was looked at must be what is opened. No file is opened by a path that another process may change in between.
#[test]
fn paths_that_others_change_lead_nowhere() {
    let s = Scene::new();
    let program = s.compile("rerun/shared.c", &["-O1"]);
    fs::write(s.path("file"), "content").unwrap();
    let made = s.command("mkfifo").arg(s.path("fifo")).status();
    assert!(made.unwrap().success());
    let (_, trace) = s.record(&[&program]);
    let mut command = s.hindsight(&["rerun"]);
    let done = s.run(command.arg(&trace).arg(&program).arg("now"));
    assert_eq!(done.messages().lines().next(), Some("0 /file"));
}

/// Nor is a program loaded by such a path.
#[test]
fn paths_that_others_change_load_nothing() {
    let s = Scene::new();
    let program = s.compile("rerun/loads.c", &["-O1"]);
    let (_, trace) = s.record(&[&program]);
    let program = program.to_str().unwrap();
    for word in ["shared", "made"] {
        let (_, report) = rerun(&s, &trace, &[program, word]);
        assert_eq!(report["end"], "exit status 3", "{word}: {report:#}");
    }
    let (_, report) = rerun(&s, &trace, &[program]);
    assert_eq!(report["end"], "exit status 0", "{report:#}");
}

/// What is mapped to be read is as it was recorded. What is executed is this machine's.
#[test]
fn recorded_bytes_are_not_mapped_as_code() {
    let s = Scene::new();
    let program = s.compile("rerun/maps.c", &["-O1"]);
    let program = program.to_str().unwrap();
    fs::write(s.path("file"), "then").unwrap();
    let (_, trace) = s.record(&[program, "file"]);
    let mut command = s.hindsight(&["rerun", "--quiet"]);
    command.arg(&trace).args([program, "file", "execute"]);
    assert_eq!(s.run(&mut command).status.code(), Some(0));
    fs::write(s.path("file"), "now!").unwrap();
    let (_, report) = rerun(&s, &trace, &[program, "file"]);
    assert_eq!(report["verdict"], "no-failure", "{report:#}");
    let said = s.run(&mut command).messages();
    assert!(
        said.contains("it would execute the recorded content"),
        "{said}"
    );
}

/// Waits for something.
fn soon<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "it does not come"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that computes for ever does not outlive the half that reads the recording.
#[test]
fn the_program_ends_with_what_reads_the_recording() {
    let s = Scene::new();
    let (_, trace) = s.record(&["sh", "-c", "exit 0"]);
    let mut command = s.hindsight(&["rerun"]);
    command
        .arg(&trace)
        .args(["sh", "-c", "while :; do :; done"]);
    let mut running = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let pid = running.0.id();
    // The confined half is a child of the first thread, and the program one of another.
    let children = |is_first: bool| -> Option<i32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut tasks = tasks.map(|t| t.unwrap().file_name().into_string().unwrap());
        tasks.find_map(|t| {
            let all = fs::read_to_string(format!("/proc/{pid}/task/{t}/children")).ok()?;
            let first = all.split_whitespace().next()?.parse().ok();
            first.filter(|_| (t == pid.to_string()) == is_first)
        })
    };
    let (half, program) = soon(|| children(true).zip(children(false)));
    // It has read its script, and makes no more calls.
    let computes = || {
        let state = fs::read_to_string(format!("/proc/{program}/stat")).ok()?;
        let mut fields = state.rsplit(')').next()?.split_whitespace();
        let ticks: u32 = fields.nth(11)?.parse().ok()?;
        (ticks > 20).then_some(())
    };
    soon(computes);
    // SAFETY: it sends a signal to a process that this test has made.
    assert_eq!(unsafe { libc::kill(half, libc::SIGKILL) }, 0);
    let status = soon(|| running.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(2));
    soon(|| (!Path::new(&format!("/proc/{program}")).exists()).then_some(()));
}

/// How often a program asks for the time does not count. But one that does nothing else is ended, and one that waits for a time
/// comes to it.
#[test]
fn a_program_that_asks_for_the_time_for_ever_is_ended() {
    let s = Scene::new();
    let program = s.compile("rerun/clock.c", &[]);
    let program = program.to_str().unwrap();
    let (_, trace) = s.record(&[program]);
    for how in ["waits", "often"] {
        let (_, report) = rerun(&s, &trace, &[program, how]);
        assert_eq!(report["verdict"], "no-failure", "{how}: {report:#}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("time goes faster there"), "{how}: {notes}");
    }
    let (done, report) = rerun(&s, &trace, &[program, "ever"]);
    assert_eq!(done.status.code(), Some(5), "{report:#}");
    assert_eq!(report["verdict"], "diverged", "{report:#}");
    let why = report["why"].as_str().unwrap();
    assert!(why.contains("asked for the time 100000 times"), "{why}");
}
