//! A sample of the random questions that `hindsight-bench questions` asks. The programs have threads, signals,
//! processes and mappings.

use hindsight_lab::{Scene, share};
use hindsight_oracle::questions::{Plan, run};
use std::path::Path;
use std::time::Duration;

/// Programs, and options for recording them.
const RECORDINGS: [(&str, &[&str]); 6] = [
    ("threads.c", &[]),
    ("threads.c", &["--chaos", "3"]),
    ("signals.c", &[]),
    (
        "signals.c",
        &["--regime", "checked", "--keyframe-interval", "20000"],
    ),
    ("memory.c", &[]),
    ("memory.c", &["--regime", "checked"]),
];

#[test]
fn random_questions_are_answered_as_a_plain_replay_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/travel/c");
    let mut wrong = Vec::new();
    // Each seed belongs to a recording, whichever share it is in.
    for (i, (source, options)) in share(RECORDINGS.into_iter().enumerate(), 3) {
        let s = Scene::new();
        let (program, trace) = (s.path("program"), s.path("program.hst"));
        let mut gcc = std::process::Command::new("gcc");
        gcc.args(["-O1", "-w", "-static", "-pthread", "-o"])
            .arg(&program);
        assert!(gcc.arg(folder.join(source)).status().unwrap().success());
        let mut record = s.hindsight(&["record", "--quiet"]);
        record.args(options).arg("-o").arg(&trace).arg("--");
        let done = s.run(record.arg(&program));
        assert!(done.status.success(), "{}", done.messages());
        let plan = Plan {
            seed: 1 + i as u64,
            rounds: 48,
            limit: Duration::from_secs(60),
            most: 20_000_000,
        };
        if run(&trace, &plan).unwrap() != Some(true) {
            wrong.push((source, options));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
