//! Programs with several threads.

use super::rerun;
use hindsight_lab::Scene;
use serde_json::Value;
use std::path::Path;

/// The recorded program is run again, and agrees to its end.
fn agrees(s: &Scene, trace: &Path, verdict: &str) {
    let (_, report) = rerun::<&str>(s, trace, &[]);
    assert_eq!(report["agrees"], true, "{report:#}");
    assert_eq!(report["verdict"], verdict, "{report:#}");
}

#[test]
fn a_thread_is_made_and_joined() {
    let s = Scene::new();
    let program = s.compile("threads.c", &[]);
    let (_, trace) = s.record(&[&program]);
    agrees(&s, &trace, "no-failure");
}

/// Threads wait for conditions and at a barrier. Who does which job makes no call, so it does not matter.
#[test]
fn two_threads_share_a_queue() {
    let s = Scene::new();
    let program = s.compile("rerun/threads/jobs.c", &[]);
    let program = program.to_str().unwrap();
    let (done, trace) = s.record(&[program, "2", "100"]);
    assert_eq!(done.text(), "5050 5050\n");
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["verdict"], "no-failure", "{report:#}");
    // More jobs are other output.
    let (_, report) = rerun(&s, &trace, &[program, "2", "101"]);
    assert_eq!(report["outputs"][0]["now"], "5151 5151", "{report:#}");
    let notes = report["notes"].as_array().unwrap();
    let is_told = |n: &Value| n.as_str().unwrap().contains("several threads");
    assert!(notes.iter().any(is_told), "{report:#}");
}

#[test]
fn threads_end_and_wait_in_many_ways() {
    let s = Scene::new();
    let program = s.compile("rerun/threads/ends.c", &[]);
    for (how, verdict) in [
        // A thread that waits, or reads, is left when the process ends.
        ("waits", "same-failure"),
        ("reads", "same-failure"),
        ("fails", "same-failure"),
        ("late", "no-failure"),
        ("first", "no-failure"),
        ("child", "no-failure"),
        ("spins", "no-failure"),
    ] {
        let (_, trace) = s.record(&[program.to_str().unwrap(), how]);
        agrees(&s, &trace, verdict);
    }
}

/// Nobody knows what a thread does that is not recorded.
#[test]
fn a_thread_that_is_not_recorded_goes_too_far() {
    let s = Scene::new();
    let program = s.compile("threads.c", &[]);
    let (_, trace) = s.record(&["true"]);
    let (done, report) = rerun(&s, &trace, &[program.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(5), "{report:#}");
    let why = report["why"].as_str().unwrap();
    assert!(why.contains("starts a thread"), "{why}");
}

/// A process that has several threads loads another program.
#[test]
fn a_thread_that_loads_a_program_is_refused() {
    let s = Scene::new();
    let program = s.compile("rerun/threads/ends.c", &[]);
    let (_, trace) = s.record(&[program.to_str().unwrap(), "loads"]);
    let done = s.run(s.hindsight(&["rerun", "--json"]).arg(&trace));
    let said = done.messages();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("loads another program"), "{said}");
}

/// Threads that wait are moved to another word, and signals go to one thread of several.
#[test]
fn threads_are_moved_and_get_signals() {
    let s = Scene::new();
    for (name, out) in [("moved", "awake: 3"), ("sent", "1 2 3")] {
        let program = s.compile(&format!("rerun/threads/{name}.c"), &[]);
        let (done, trace) = s.record(&[program.to_str().unwrap()]);
        assert!(done.text().trim_end().ends_with(out), "{}", done.text());
        // How often a thread sleeps until others have come depends on their order, which is not kept there.
        let (_, report) = rerun::<&str>(&s, &trace, &[]);
        assert_eq!(report["verdict"], "no-failure", "{report:#}");
        assert_eq!(report["outputs"].as_array().unwrap().len(), 0, "{report:#}");
    }
}

/// A signal to a thread that waits for another one does not come, so all wait, and the recorded ones did not. That is no failure of
/// the program, although the recorded one was ended by a signal.
#[test]
fn a_wait_that_is_not_recorded_is_not_taken_for_the_recorded_end() {
    let s = Scene::new();
    let program = s.compile("rerun/threads/taken.c", &[]);
    let (done, trace) = s.record(&[program.to_str().unwrap()]);
    assert_eq!(done.text(), "come\n");
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    let (verdict, outputs) = (&report["verdict"], &report["outputs"]);
    let is_whole = outputs.as_array().unwrap().is_empty();
    let wanted = if is_whole { "same-failure" } else { "diverged" };
    assert_eq!(verdict, wanted, "{report:#}");
}
