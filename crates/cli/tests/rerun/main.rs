//! `hindsight rerun`: programs get recorded inputs, and it is told what became of their failures.

mod any;
mod fixes;
mod point;
mod same;
mod threads;
mod verdicts;
mod wrong;

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;

/// Runs a program again; how that went, and the report.
fn rerun<S: AsRef<OsStr>>(s: &Scene, trace: &Path, words: &[S]) -> (Done, Value) {
    let mut command = s.hindsight(&["rerun", "--json"]);
    command.arg(trace).args(words);
    let done = s.run(&mut command);
    let report = serde_json::from_slice(&done.stdout);
    let report = report.unwrap_or_else(|e| panic!("{e}: {}", done.messages()));
    (done, report)
}
