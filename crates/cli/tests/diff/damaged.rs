//! Recordings that were changed: the command says so or answers, and ends.

use super::{compile, diff, record};
use hindsight_lab::Scene;
use hindsight_random::Rng;
use std::fs;

#[test]
fn changed_recordings_do_no_harm() {
    let s = Scene::new();
    let program = compile(&s, "threads.c", "threads", &["-pthread"]);
    fs::write(s.path("input"), b"one two three\n".repeat(20)).unwrap();
    let argv = [program.as_os_str(), "input".as_ref()];
    let trace = record(&s, "1.hst", &argv);
    let whole = fs::read(&trace).unwrap();
    let mut rng = Rng(20);
    for round in 0..40 {
        let mut bytes = whole.clone();
        match round % 4 {
            // Cut anywhere.
            0 => bytes.truncate(rng.below(whole.len() as u64) as usize),
            _ => {
                for _ in 0..=rng.below(4) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
            }
        }
        let changed = s.path("changed.hst");
        fs::write(&changed, bytes).unwrap();
        for (a, b) in [(&trace, &changed), (&changed, &trace)] {
            let done = diff(&s, a, b, &["--limit", "3"]);
            let code = done.status.code();
            assert!(
                code.is_some_and(|c| c <= 2),
                "round {round}: {code:?} {}",
                done.messages()
            );
            assert!(
                !done.messages().contains("panicked"),
                "round {round}: {}",
                done.messages()
            );
        }
        let _ = fs::remove_file(s.path("changed.hsx"));
    }
}
