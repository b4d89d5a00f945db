//! Programs with bugs. Each is recorded where it fails. Then it is run again as it is, with the right fix, with a wrong one, and
//! with the right one among edits that have nothing to do with it.

use super::rerun;
use hindsight_lab::{Scene, end, programs};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the report must say of the program as it is, and of the three fixes.
const VERDICTS: [(&str, i32); 4] = [
    ("same-failure", 1),
    ("no-failure", 0),
    // The failure, or another one.
    ("failure", 1),
    ("no-failure", 0),
];

fn check(s: &Scene, trace: &Path, fix: usize, words: &[&str]) -> Value {
    let (done, report) = rerun(s, trace, words);
    let all = format!("{words:?}: {report:#}");
    let (verdict, status) = VERDICTS[fix];
    let got = report["verdict"].as_str().unwrap();
    match fix {
        2 => assert!(["same-failure", "other-failure"].contains(&got), "{all}"),
        _ => {
            assert_eq!(got, verdict, "{all}");
            assert_eq!(done.status.code(), Some(status), "{all}");
        }
    }
    assert_eq!(
        report["answered_here"].as_u64().unwrap() > 0,
        fix == 3,
        "{all}"
    );
    // Without unrelated edits everything up to the failure agrees.
    if fix == 0 {
        assert_eq!(report["agrees"], true, "{all}");
    }
    report
}

/// A program in C or C++ that fails by this end.
fn compiled(name: &str, input: &str, failure: (Option<i32>, Option<i32>)) -> (Scene, Vec<Value>) {
    let s = Scene::new();
    let stem = Path::new(name).file_stem().unwrap().to_str().unwrap();
    let build = |fix: usize| -> PathBuf {
        let options = [
            format!("-DFIX={fix}"),
            "-O1".into(),
            "-fstack-protector-all".into(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let built = s.compile(&format!("rerun/{name}"), &options);
        let own = s.path(&format!("{stem}-{fix}"));
        fs::rename(built, &own).unwrap();
        own
    };
    fs::write(s.path("input"), input).unwrap();
    let (done, trace) = s.record(&[build(0).to_str().unwrap(), "input"]);
    assert_eq!(end(done.status), failure, "{}", done.messages());
    // What is there now is something else.
    fs::write(s.path("input"), "nothing\n").unwrap();
    let reports = (0..4).map(|fix| check(&s, &trace, fix, &[build(fix).to_str().unwrap()]));
    let reports = reports.collect();
    (s, reports)
}

const SEGV: (Option<i32>, Option<i32>) = (None, Some(libc::SIGSEGV));
const ABRT: (Option<i32>, Option<i32>) = (None, Some(libc::SIGABRT));

#[test]
fn a_null_pointer() {
    let (_, reports) = compiled("null.c", "one: 1\ntwo: 22\nthree\nfour: 4444\n", SEGV);
    let at = reports[0]["failed_at"].as_str().unwrap();
    assert!(at.contains("main") || at.contains("strlen"), "{at}");
    assert_eq!(reports[0]["fails_at"], reports[0]["failed_at"]);
    // The first call that does not match is told from both sides.
    let d = &reports[3]["divergence"];
    assert!(d["now"]["stack"].to_string().contains("null.c"), "{d:#}");
    assert!(d["recorded"]["position"].is_string(), "{d:#}");
    assert!(d["recorded"]["stack"].to_string().contains("main"), "{d:#}");
}

#[test]
fn an_assertion() {
    let (_, reports) = compiled("assertion.c", "10\n-5\n-20\n7\n", ABRT);
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

/// Two threads hand numbers to each other, so their order is fixed.
#[test]
fn an_assertion_in_one_of_two_threads() {
    let (_, reports) = compiled("threads/hands.c", "10\n-5\n-20\n7\n", ABRT);
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
    // A failure that is gone counts, since the recorded program has shown that its order is kept.
    let notes = reports[1]["notes"].to_string();
    assert!(notes.contains("run again too, and agrees"), "{notes}");
}

#[test]
fn a_division_by_zero() {
    compiled("divide.c", "4\n6\n=\n=\n8\n=\n", (None, Some(libc::SIGFPE)));
}

#[test]
fn a_message_and_a_status() {
    let (_, reports) = compiled("message.c", "4\n-1\n+6\n", (Some(2), None));
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn memory_given_back_twice() {
    compiled("twice.c", "one\n-\n-\ntwo\n", ABRT);
}

#[test]
fn an_endless_recursion() {
    let (_, reports) = compiled("deep.c", "1 2\n2 3\n3 1\n", SEGV);
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn an_endless_loop() {
    let (_, reports) = compiled("hang.c", "0\n", (None, Some(libc::SIGALRM)));
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn a_size_that_is_too_large() {
    compiled("large.c", "100\n-5\n200\n", (Some(1), None));
}

#[test]
fn an_overwritten_stack() {
    compiled(
        "smashed.c",
        "short\na name that is much too long to fit anywhere at all\nlast\n",
        ABRT,
    );
}

#[test]
fn an_exception_that_nobody_catches() {
    let (_, reports) = compiled("range.cpp", "0\n2\n3\n1\n", ABRT);
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn a_panic_in_rust() {
    let s = Scene::new();
    let build = |fix: &str| -> PathBuf {
        let program = s.path(&format!("bounds-{fix}"));
        let source = programs().join("rerun/bounds.rs");
        let mut rustc = Command::new("rustc");
        rustc
            .args(["-O", "-g", "--edition", "2024", "-o"])
            .arg(&program);
        let status = rustc.arg(source).env("FIX", fix).status().expect("rustc");
        assert!(status.success());
        program
    };
    fs::write(s.path("input"), "a b\nc d\ne\nf g\n").unwrap();
    let (done, trace) = s.record(&[build("0").to_str().unwrap(), "input"]);
    assert_eq!(done.status.code(), Some(101), "{}", done.messages());
    fs::remove_file(s.path("input")).unwrap();
    for fix in 0..4 {
        check(
            &s,
            &trace,
            fix,
            &[build(&fix.to_string()).to_str().unwrap()],
        );
    }
}

#[test]
fn an_exception_in_python() {
    let s = Scene::new();
    let template = fs::read_to_string(programs().join("rerun/missing.py")).unwrap();
    let write = |name: &str, fix: usize| {
        let text = template.replace("FIX = 0", &format!("FIX = {fix}"));
        fs::write(s.path(name), text).unwrap();
    };
    write("script.py", 0);
    fs::write(s.path("input"), "one\ntwo\nthree\none\n").unwrap();
    let (done, trace) = s.record(&["/usr/bin/python3", "script.py", "input"]);
    assert_eq!(done.status.code(), Some(1), "{}", done.messages());
    fs::remove_file(s.path("input")).unwrap();
    for (fix, (verdict, status)) in [
        (0, ("same-failure", 1)),
        (1, ("no-failure", 0)),
        (2, ("other-failure", 3)),
        (3, ("no-failure", 0)),
    ] {
        // The script is changed where it is.
        write("script.py", fix);
        let here = s.path("script.py");
        let mut command = s.hindsight(&["rerun", "--json", "--here"]);
        let done = s.run(command.arg(&here).arg(&trace));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["verdict"], verdict, "{fix}: {report:#}");
        assert_eq!(done.status.code(), Some(status), "{fix}: {report:#}");
    }
    // Or it is another one.
    write("fixed.py", 1);
    let (_, report) = rerun(&s, &trace, &["--", "/usr/bin/python3", "fixed.py", "input"]);
    assert_eq!(report["verdict"], "no-failure", "{report:#}");
}
