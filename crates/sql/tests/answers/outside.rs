//! Against other tools, and from `hindsight`.

use super::ask::*;
use hindsight_lab::{Scene, words};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn system_calls_are_those_that_strace_sees() {
    let scene = Scene::new();
    let argv = words(
        Path::new("/bin/sh"),
        &["-c", "cd /; test -e /no/such/file; echo out; exit 4"],
    );
    let listed = scene.path("strace.out");
    let mut strace = scene.command("strace");
    strace.arg("-o").arg(&listed).args(&argv);
    assert_eq!(scene.run(&mut strace).status.code(), Some(4));
    let mut seen: BTreeMap<(String, bool), u64> = BTreeMap::new();
    for line in fs::read_to_string(&listed).unwrap().lines() {
        let Some((name, rest)) = line.split_once('(') else {
            continue;
        };
        // The first one started the program.
        if name != "execve" {
            let failed = rest.contains(" = -1 ");
            *seen.entry((name.into(), failed)).or_default() += 1;
        }
    }
    let (done, trace) = scene.record(&argv);
    assert_eq!(done.status.code(), Some(4));
    let question = "select name, error is not null failed, count(*) n from syscalls group by 1, 2";
    let mut found: BTreeMap<(String, bool), u64> = BTreeMap::new();
    for r in rows(&scene, &trace, question) {
        let key = (
            r["name"].as_str().unwrap().to_owned(),
            r["failed"].as_bool().unwrap(),
        );
        found.insert(key, r["n"].as_u64().unwrap());
    }
    // How often memory is asked for depends on where it was given. The recorder has no restartable sequences.
    let counted = |m: &BTreeMap<(String, bool), u64>| -> Vec<_> {
        let of = m.iter().filter(|((n, _), _)| n != "brk" && n != "rseq");
        of.map(|(k, n)| (k.clone(), *n)).collect()
    };
    assert_eq!(counted(&found), counted(&seen));
}

#[test]
fn hindsight_hands_over() {
    let a = accounts();
    // The two executables stand beside each other.
    let beside = Path::new(env!("CARGO_BIN_EXE_hindsight-sql")).with_file_name("hindsight");
    assert!(beside.exists(), "cargo build -p hindsight-cli makes it");
    let trace = a.trace.to_str().unwrap();
    let mut command = a.scene.command(&beside);
    command.args(["sql", trace, "select count(*) n from calls('pay')", "--csv"]);
    let done = a.scene.run(&mut command);
    assert_eq!(done.text(), "n\n200\n", "{}", done.messages());
    // Alone it says what is missing.
    let alone = a.scene.path("hindsight");
    fs::copy(&beside, &alone).unwrap();
    let mut command = a.scene.command(&alone);
    command
        .env("PATH", "/usr/bin:/bin")
        .args(["sql", trace, "select 1"]);
    let done = a.scene.run(&mut command);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("hindsight-sql"),
        "{}",
        done.messages()
    );
}

#[test]
fn the_process_that_answers_is_confined() {
    let a = accounts();
    // The engine reads files where it may: here there are none.
    for question in [
        "create external table t stored as csv location '/etc/passwd'",
        "select * from '/etc/hostname.csv'",
    ] {
        assert!(!a.wrong(question).contains("root:"));
    }
}
