//! `hindsight diff`: programs whose runs part at a known place, for a known reason.

mod builds;
mod damaged;
mod errors;
mod example;
mod interrupted;
mod real;
mod small;

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Compiles a program of this test.
fn compile(s: &Scene, name: &str, to: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diff/c");
    let program = s.path(to);
    let status = std::process::Command::new("gcc")
        .args(["-g", "-O1", "-o"])
        .arg(&program)
        .arg(source.join(name))
        .args(options)
        .status();
    assert!(status.unwrap().success(), "cannot compile {name}");
    program
}

/// Records a program under a name.
fn record<S: AsRef<OsStr>>(s: &Scene, name: &str, argv: &[S]) -> PathBuf {
    record_with(s, name, argv, &[])
}

/// The same with variables in its environment.
fn record_with<S: AsRef<OsStr>>(
    s: &Scene,
    name: &str,
    argv: &[S],
    variables: &[(&str, &str)],
) -> PathBuf {
    let trace = s.path(name);
    let mut command = s.recording(&trace, argv);
    command.envs(variables.iter().copied());
    let done = s.run(&mut command);
    assert!(trace.exists(), "{}", done.messages());
    trace
}

fn diff(s: &Scene, a: &Path, b: &Path, options: &[&str]) -> Done {
    s.run(s.hindsight(&["diff"]).arg(a).arg(b).args(options))
}

/// What `--json` says; the recordings agree if `same`.
fn json(s: &Scene, a: &Path, b: &Path, options: &[&str], same: bool) -> Value {
    let done = diff(s, a, b, &[&["--json"], options].concat());
    let status = i32::from(!same);
    assert_eq!(
        done.status.code(),
        Some(status),
        "{}{}",
        done.text(),
        done.messages()
    );
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["same"], same, "{json:#}");
    json
}

/// The function of a place.
fn function(point: &Value) -> &str {
    point["frames"][0]["function"].as_str().unwrap_or("?")
}

/// The bytes of the value that decided, in each recording.
fn values(difference: &Value) -> [Vec<u8>; 2] {
    let bytes = |s: usize| {
        let all = difference["cause"]["values"][s]["bytes"].as_array();
        let all = all.unwrap_or_else(|| panic!("{difference:#}"));
        all.iter().map(|b| b.as_u64().unwrap() as u8).collect()
    };
    [bytes(0), bytes(1)]
}
