//! Programs with bugs. Each is recorded where it fails. Then it is run again as it is, with the right fix, with a wrong one, and
//! with the right one among edits that have nothing to do with it.

use super::rerun;
use hindsight_lab::planted::{is_right, planted};
use hindsight_lab::{Scene, end};
use serde_json::Value;
use std::fs;

/// Records a program that has a bug, and runs it again with what is made of it. The reports.
fn proved(source: &str) -> Vec<Value> {
    let s = Scene::new();
    let p = planted(source);
    p.put_input(&s);
    let own = p.build(&s, 0);
    let (done, trace) = s.record(&own);
    assert_eq!(end(done.status), p.end, "{}", done.messages());
    // What is there now is something else.
    fs::write(s.path("input"), "nothing\n").unwrap();
    let each = |fix: usize| {
        let words = match fix {
            0 => own.clone(),
            _ => p.build(&s, fix),
        };
        let (done, report) = rerun(&s, &trace, &[&["--".to_owned()], &words[..]].concat());
        let all = format!("{words:?}: {report:#}");
        let verdict = report["verdict"].as_str().unwrap();
        assert!(is_right(fix, verdict), "{fix}: {all}");
        let status = match verdict {
            "no-failure" => 0,
            "same-failure" => 1,
            _ => 3,
        };
        assert_eq!(done.status.code(), Some(status), "{all}");
        // Without unrelated edits everything up to the failure agrees. A script under another name is asked for here.
        let here = report["answered_here"].as_u64().unwrap();
        let is_script = source.ends_with(".py");
        assert!(is_script || (here > 0) == (fix == 3), "{all}");
        if fix == 0 {
            assert_eq!(report["agrees"], true, "{all}");
        }
        report
    };
    (0..4).map(each).collect()
}

#[test]
fn a_null_pointer() {
    let reports = proved("null.c");
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
    let reports = proved("assertion.c");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

/// Two threads hand numbers to each other, so their order is fixed.
#[test]
fn an_assertion_in_one_of_two_threads() {
    let reports = proved("threads/hands.c");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
    // A failure that is gone counts, since the recorded program has shown that its order is kept.
    let notes = reports[1]["notes"].to_string();
    assert!(notes.contains("run again too, and agrees"), "{notes}");
}

#[test]
fn a_division_by_zero() {
    proved("divide.c");
}

#[test]
fn a_message_and_a_status() {
    let reports = proved("message.c");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn memory_given_back_twice() {
    proved("twice.c");
}

#[test]
fn an_endless_recursion() {
    let reports = proved("deep.c");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn an_endless_loop() {
    let reports = proved("hang.c");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn a_size_that_is_too_large() {
    proved("large.c");
}

#[test]
fn an_overwritten_stack() {
    proved("smashed.c");
}

#[test]
fn an_exception_that_nobody_catches() {
    let reports = proved("range.cpp");
    assert_eq!(reports[2]["verdict"], "same-failure", "{:#}", reports[2]);
}

#[test]
fn a_panic_in_rust() {
    proved("bounds.rs");
}

#[test]
fn a_null_pointer_in_an_extension_of_python() {
    proved("extension/words.c");
}

#[test]
fn an_exception_in_python() {
    let reports = proved("missing.py");
    assert_eq!(reports[2]["verdict"], "other-failure", "{:#}", reports[2]);
}

/// A script that is changed where it is.
#[test]
fn a_script_is_read_as_it_is_here() {
    let s = Scene::new();
    let p = planted("missing.py");
    p.put_input(&s);
    let words = p.build(&s, 0);
    let (_, trace) = s.record(&words);
    fs::remove_file(s.path("input")).unwrap();
    for fix in 0..4 {
        let changed = p.build(&s, fix);
        fs::rename(&changed[1], &words[1]).unwrap();
        let mut command = s.hindsight(&["rerun", "--json", "--here", &words[1]]);
        let done = s.run(command.arg(&trace));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        let verdict = report["verdict"].as_str().unwrap();
        assert!(is_right(fix, verdict), "{fix}: {report:#}");
    }
}
