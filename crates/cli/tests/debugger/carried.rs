//! Values that are carried over calls that were not recorded, in gdb.

use crate::common::{expect, gdb, gdb_with};
use hindsight_lab::Scene;
use std::path::PathBuf;

/// A recording of a program without the C library that it calls.
fn part() -> (Scene, PathBuf) {
    let s = Scene::new();
    let program = s.compile("carried.c", &["-O0", "-g", "-fno-builtin"]);
    let trace = s.path("part.hst");
    let mut command = s.hindsight(&["record", "--quiet", "--only-module", "carried", "-o"]);
    let done = s.run(command.arg(&trace).arg("--").arg(&program));
    assert!(done.status.success(), "{}", done.messages());
    (s, trace)
}

#[test]
fn memory_is_completed_only_if_somebody_wants_that() {
    let (s, trace) = part();
    let deep = "break stage if n == 10\ncontinue\nup\n";
    let ask = |declared: &[&str], script: &str| {
        gdb_with(&s, &trace, declared, &format!("{deep}{script}"))
    };

    // What is carried is shown by `known` only.
    let out = ask(&[], "hindsight-assume\nprint kept\nknown kept\nbacktrace\n");
    let lies_behind = "carried over calls that were not recorded";
    expect(
        &out,
        &[
            "off: only",
            "Cannot access memory",
            lies_behind,
            "2a 00 00 00",
            "1 gap away: strlen()",
            "#1",
        ],
    );
    assert!(!out.contains("$1 = ") && !out.contains(" main ("), "{out}");
    // The first one is told of, and only that.
    let out = ask(
        &[],
        "hindsight-assume declared\nprint kept\nprint n\nknown kept\nbacktrace\nhindsight-assume off\nprint kept\n",
    );
    let told = "are not known, but carried by declaration, ";
    expect(
        &out,
        &[
            "declared: what is not known",
            "$1 = 42",
            "$2 = 41",
            "not known",
            lies_behind,
            "main ()",
            "off: only",
            "Cannot access memory",
        ],
    );
    assert_eq!(out.matches(told).count(), 1, "{out}");
    assert!(ask(&[], "hindsight-assume all\n").contains("all: it is `declared`"));

    // What this `printf` writes is not known: its format has `%n`. Somebody knows better.
    let other = "break stage if n == 7\ncontinue\nup\nhindsight-assume declared\nprint other\n";
    let straight = format!("{other}hindsight-assume straight\nprint other\nknown other\n");
    let out = gdb(&s, &trace, &straight);
    expect(
        &out,
        &[
            "Cannot access memory",
            "straight: ",
            "$1 = 0x",
            "assumed, as if",
        ],
    );
    assert!(out.contains("are not known, but assumed, "), "{out}");
    let file = s.path("my declarations");
    std::fs::write(&file, "[libc.so]\nprintf(stdio)\n").unwrap();
    let out = gdb_with(&s, &trace, &["--declared", file.to_str().unwrap()], other);
    // Where the stack lies decides what gdb reads first.
    expect(&out, &["$1 = 0x"]);
    expect(&out, &[told, "printf(stdio)"]);
    let missing = gdb_with(&s, &trace, &["--declared", "/nonexistent"], "");
    assert!(missing.contains("/nonexistent: No such file"), "{missing}");
}

#[test]
fn what_is_assumed_of_memory_does_not_decide_where_gdb_stops() {
    let (s, trace) = part();

    // Each stop tells of what is carried there.
    let out = gdb(
        &s,
        &trace,
        "break stage if n >= 5 && n <= 6\ncontinue\nhindsight-assume declared\nprint text[0]@4\nmonitor notes\n\
         continue\nprint text[0]@4\nmonitor notes\n",
    );
    expect(&out, &["$1 = \"key=\"", "(n=6)", "$2 = \"key=\""]);
    let told = "are not known, but carried by declaration, ";
    let (first, second) = out.split_once("(n=6)").unwrap();
    assert!(first.contains(told) && second.contains(told), "{out}");

    // gdb has read what is assumed of a variable. At other places its value is not known, either, and is another one.
    let out = gdb(
        &s,
        &trace,
        "break stage if n == 7\ncontinue\nhindsight-assume straight\nprint sum\nwatch sum\nseek begin\ncontinue\n\
         continue\n",
    );
    expect(
        &out,
        &[
            "$1 = ",
            "Old value = ",
            "New value = 0",
            "Old value = 0",
            "New value = 17",
        ],
    );
    // Without a move gdb stops where the program writes another value.
    let out = gdb(
        &s,
        &trace,
        "break stage if n == 7\ncontinue\nhindsight-assume straight\nwatch sum\nprint sum\ncontinue\nprint sum > $1\n",
    );
    expect(&out, &["$1 = ", "Old value = ", "New value = ", "$2 = 1"]);

    // What somebody writes is known from then on, also if it is what was carried.
    let out = gdb(
        &s,
        &trace,
        "break stage if n == 10\ncontinue\nup\nhindsight-assume declared\nprint kept\nhindsight-assume off\nprint kept\n\
         hindsight-assume declared\nset var kept = 42\nhindsight-assume off\nprint kept\n",
    );
    expect(&out, &["$1 = 42", "Cannot access memory", "$2 = 42"]);

    // A file of declarations may be a pipe.
    let mut command = s.command("bash");
    let script = "exec \"$0\" replay \"$1\" --declared <(echo '[libc.so]'; echo 'printf(stdio)') -- -nx -batch -ex 'break stage if n == 7' \
                  -ex continue -ex up -ex 'hindsight-assume declared' -ex 'print other' 2>&1";
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    let out = s
        .run(command.args(["-c", script, hindsight]).arg(&trace))
        .text();
    expect(&out, &["$1 = 0x"]);
}
