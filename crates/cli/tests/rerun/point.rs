//! `--until-failure-point`: the program stops where the recorded one failed.

use super::rerun;
use hindsight_lab::{Done, Scene};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// What gdb is asked: where it stands, what the program has read, and whether system calls are made.
const ASKS: &str = "handle SIGSTOP nostop noprint nopass\nset print elements 4\nbacktrace\nframe function main\nprint text\nprint (long)syscall(110)\nkill\nquit\n";

/// The program, which reads `input`, and its recording.
fn recorded(s: &Scene, how: &str, input: &str) -> (PathBuf, PathBuf) {
    let program = s.compile("rerun/point.c", &["-O1", "-g"]);
    fs::write(s.path("input"), input).unwrap();
    let trace = s.path("point.hst");
    let mut record = s.recording(&trace, &[program.to_str().unwrap(), how]);
    s.run(record.stdin(File::open(s.path("input")).unwrap()));
    (program, trace)
}

fn until_failure(s: &Scene, trace: &Path, words: &[&str]) -> Done {
    fs::write(s.path("commands"), ASKS).unwrap();
    let mut command = s.hindsight(&["rerun", "--quiet", "--until-failure-point"]);
    command.stdin(File::open(s.path("commands")).unwrap());
    s.run(command.arg(trace).args(words))
}

#[test]
fn it_stops_behind_the_last_call_before_the_failure() {
    let s = Scene::new();
    for how in ["fails", "asserts"] {
        let (program, trace) = recorded(&s, how, "0\n");
        let program = program.to_str().unwrap();
        // Output that it gives to tell of the failure does not count.
        for now in [how, "fixed"] {
            let done = until_failure(&s, &trace, &[program, now]);
            let (text, said) = (done.text(), done.messages());
            assert!(text.contains("read (fd="), "{how} {now}: {text}{said}");
            assert!(text.contains("$1 = \"0\\n"), "{how} {now}: {text}{said}");
            // Nothing is done for real.
            assert!(text.contains("$2 = -1"), "{how} {now}: {text}{said}");
            assert!(said.contains("main at "), "{said}");
            assert!(said.contains("the recorded one failed in "), "{said}");
        }
    }
}

/// The last calls of the recorded program are not made any more.
#[test]
fn a_program_that_does_not_come_there_is_told() {
    let s = Scene::new();
    let (_, trace) = recorded(&s, "fails", "0\n");
    let done = until_failure(&s, &trace, &["/bin/true"]);
    let said = done.messages();
    assert!(
        said.contains("did not come to the last call that the recorded program made"),
        "{said}"
    );
    assert_eq!(done.text(), "");
}

#[test]
fn what_cannot_be_is_said() {
    let s = Scene::new();
    let (_, trace) = recorded(&s, "succeeds", "4\n");
    let done = until_failure(&s, &trace, &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("did not fail (exit status 0)"),
        "{}",
        done.messages()
    );
    let (_, trace) = recorded(&s, "fails", "0\n");
    let mut command = s.hindsight(&["rerun", "--until-failure-point"]);
    let done = s.run(command.env("PATH", "/nonexistent").arg(&trace));
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        done.messages().contains("no gdb in PATH"),
        "{}",
        done.messages()
    );
    // Without the option nothing stops.
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["verdict"], "same-failure", "{report:#}");
}
