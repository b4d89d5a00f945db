//! `hindsight resume`: what a process does that was made of an instant is what the recorded one did from there on.

mod programs;
mod refused;

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;

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
