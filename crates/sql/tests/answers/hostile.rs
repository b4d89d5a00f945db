//! Recordings that somebody has changed.

use super::ask::*;
use hindsight_random::Rng;
use std::fs;

#[test]
fn a_changed_recording_gives_an_answer_or_an_error() {
    let a = accounts();
    let whole = fs::read(&a.trace).unwrap();
    let changed = a.scene.path("changed.hst");
    let question = "select count(*) from events; select max(length(arguments)) from syscalls; select count(*) from output;
        select * from stack('50%'); select count(value) from writes where time < 20000; select * from calls('pay') limit 3";
    let mut rng = Rng(5);
    for i in 0..24 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(4) {
            // The beginning has what is parsed first.
            let reach = if rng.one_in(2) {
                4096
            } else {
                bytes.len() as u64
            };
            let at = rng.below(reach.min(bytes.len() as u64)) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        fs::write(&changed, &bytes).unwrap();
        let done = asked(&a.scene, &changed, &[question]);
        let said = done.messages();
        assert!(
            matches!(done.status.code(), Some(0 | 2)),
            "{i}: {:?} {said}",
            done.status
        );
        assert!(!said.contains("panicked"), "{i}: {said}");
    }
}

#[test]
fn a_changed_recording_is_written_or_is_an_error() {
    let s = several();
    let whole = fs::read(s.scene.path("a.hst")).unwrap();
    let changed = s.scene.path("fails.hst");
    let mut rng = Rng(23);
    for i in 0..12 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(4) {
            let reach = [4096, bytes.len() as u64][i % 2];
            let at = rng.below(reach.min(bytes.len() as u64)) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        fs::write(&changed, &bytes).unwrap();
        let to = s.scene.path(&format!("to-{i}"));
        let to = to.to_str().unwrap();
        for args in [
            &[
                "sql",
                "*.hst",
                "select recording, count(*) from events group by 1",
            ][..],
            &[
                "tables",
                "*.hst",
                "--to",
                to,
                "--tables",
                "small,profile,calls('pay')",
            ],
            &["convert", "fails.hst", "--to", "lcov"],
            &["convert", "fails.hst", "--to", "firefox"],
            &["convert", "fails.hst", "--to", "perfetto", "--calls", "pay"],
        ] {
            let mut command = s.scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
            let done = s.scene.run(command.args(args));
            let said = done.messages();
            assert!(
                matches!(done.status.code(), Some(0 | 2)),
                "{i} {args:?}: {:?} {said}",
                done.status
            );
            assert!(!said.contains("panicked"), "{i} {args:?}: {said}");
            // Whoever reads of several is told which one it is.
            let names_it = said.contains("fails") || done.status.success();
            assert!(names_it || args[0] == "convert", "{i} {args:?}: {said}");
        }
    }
}
