//! `hindsight resume`: what a process does that was made of an instant is what the recorded one did from there on.

mod asked;
mod certain;
mod forked;
mod mapped;
mod programs;
mod refused;
mod threads;

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

/// The program that goes on from its call of `getppid`.
fn resumed(s: &Scene) -> String {
    let program = s.compile("resumed.c", &["-O1", "-lm", "-pthread"]);
    program.to_str().unwrap().to_owned()
}

/// Records a program where it maps no shared files: in the locale `C`.
fn record<S: AsRef<OsStr>>(s: &Scene, argv: &[S]) -> (Done, PathBuf) {
    let trace = s.path("trace.hst");
    let_time_pass();
    let done = s.run(s.recording(&trace, argv).env("LC_ALL", "C"));
    (done, trace)
}

/// The times of files lag, so what the scene has just written is certainly older than a recording only after some time.
fn let_time_pass() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

/// The folders of copies in the scene, which is where temporary files are made.
fn copies(s: &Scene) -> Vec<String> {
    let all = std::fs::read_dir(s.path("")).unwrap();
    let names = all.map(|e| e.unwrap().file_name().into_string().unwrap());
    names
        .filter(|n| n.starts_with("hindsight-resume-"))
        .collect()
}

/// The position of the Nth call of a kind in a recording, from 0.
fn call(s: &Scene, trace: &Path, name: &str, n: usize) -> String {
    let mut command = s.hindsight(&["events", "--json", "--kind", "syscall"]);
    let done = s.run(command.arg(trace));
    let events: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    let events = events.into_iter();
    let mut found = events.filter(|e| e["name"] == name);
    let event = found.nth(n);
    let event = event.unwrap_or_else(|| panic!("no call {n} of {name}: {}", done.messages()));
    event["position"].as_str().unwrap().to_owned()
}

/// Goes on from a place.
fn resume<S: AsRef<OsStr>>(s: &Scene, trace: &Path, place: &str, options: &[S]) -> Done {
    let mut command = s.hindsight(&["resume", "--yes"]);
    command.env("TMPDIR", s.path(""));
    s.run(command.args(options).arg(trace).arg(place))
}

/// Fails unless the recorded output is what it was before the place, and then what the process prints.
fn continues(recorded: &Done, before: &str, resumed: &Done) {
    let (all, rest) = (recorded.text(), resumed.text());
    assert_eq!(all, format!("{before}{rest}"), "{}", resumed.messages());
    assert_eq!(
        hindsight_lab::end(recorded.status),
        hindsight_lab::end(resumed.status)
    );
}
