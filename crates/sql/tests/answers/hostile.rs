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
