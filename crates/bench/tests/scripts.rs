//! `scripts/test` with names of tests, against a `cargo` that only says what it was told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const CARGO: &str = r#"#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
*--list) printf 'place::parses: test\nplace::prints: test\nspeed: benchmark\n\n2 tests, 1 benchmark\n' ;;
esac
"#;

/// Runs the script; returns what it left, and how it called `cargo`.
fn run(args: &[&str]) -> (Output, Vec<String>) {
    let dir = TempDir::new().unwrap();
    let cargo = dir.path().join("cargo");
    fs::write(&cargo, CARGO).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let calls = dir.path().join("calls");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let path = std::env::var("PATH").unwrap();
    let done = Command::new(script)
        .args(args)
        .env("PATH", format!("{}:{path}", dir.path().display()))
        .env("CALLS", &calls)
        .output()
        .unwrap();
    let calls = fs::read_to_string(calls).unwrap_or_default();
    (done, calls.lines().map(String::from).collect())
}

#[test]
fn tests_that_match_run() {
    let (done, calls) = run(&["parses", "place::pri"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(
        calls,
        [
            "test -q --workspace --tests -- --list",
            "test -q --workspace --tests -- parses place::pri"
        ]
    );
    let (_, calls) = run(&["-p", "hindsight-timeline", "--test", "travel", "prints"]);
    assert_eq!(
        calls[1],
        "test -q -p hindsight-timeline --test travel -- prints"
    );
}

#[test]
fn a_name_that_no_test_has_fails() {
    for names in [
        &["prases"][..],
        &["parses", "prases"],
        &["speed"],
        &["tests"],
    ] {
        let (done, calls) = run(names);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        let wrong = names.last().unwrap();
        assert!(said.contains(&format!("no test has \"{wrong}\"")), "{said}");
        assert_eq!(calls.len(), 1, "nothing runs");
    }
}

#[test]
fn what_is_no_name_is_refused() {
    for args in [
        &["--ful"][..],
        &["-p", "hindsight-cli"],
        &["-p"],
        &["a b"],
        &["parses", ""],
    ] {
        let (done, calls) = run(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {done:?}");
        assert!(calls.is_empty(), "{args:?}: {calls:?}");
    }
}
