//! Repeated answers about the time.

use hindsight_lab::{Scene, words};

/// Asks of each way in the program.
const TIMES: u64 = 20_000;

#[test]
fn repeated_answers_cost_little_and_keep_their_order() {
    let s = Scene::new();
    let program = s.compile("clocks.c", &["-pthread"]);
    let record = |options: &[&str]| {
        let trace = s.path("clocks.hst");
        let mut c = s.hindsight(&["record", "--quiet", "-o"]);
        c.arg(&trace).args(options).arg("--");
        let done = s.run(c.args(words(&program, &[])));
        let out = done.text();
        assert_eq!(
            done.status.code(),
            Some(0),
            "{options:?}: {out} {}",
            done.messages()
        );
        s.must_verify(&trace);
        let changes: Vec<u64> = out.lines().map(|l| l.parse().unwrap()).collect();
        (changes, s.info(&trace))
    };
    // Far longer than one million instructions take on any machine: each way gets few answers, or two.
    let throttle = ["--clock-throttle", "1s"];
    for regime in ["quiet", "checked"] {
        let (changes, info) = record(&[&throttle[..], &["--regime", regime]].concat());
        // Until the length of the time stamp's unit is known, no answer is repeated.
        assert!(
            changes.iter().skip(1).all(|n| *n <= TIMES / 100),
            "{changes:?}"
        );
        assert_eq!(info["clock_throttle_ns"].as_u64(), Some(1_000_000_000));
    }
    let (repeated, little) = record(&["--clock-throttle", "100ms"]);
    let (all, much) = record(&[]);
    assert!(repeated[4] < all[4] / 20, "{repeated:?}, without {all:?}");
    assert_eq!(all[4], TIMES);
    let bytes = |info: &serde_json::Value| info["stream_bytes"].as_u64().unwrap();
    assert!(3 * bytes(&little) < bytes(&much), "{little} {much}");
    assert!(much["clock_throttle_ns"].is_null());
}
