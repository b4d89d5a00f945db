//! Ways to steps of live programs.

use super::open;
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Candidates, RouteLimits, ThreadId, Timeline};

/// The runs of instructions that a thread executes up to a step.
fn runs(t: &Timeline, thread: ThreadId, step: u64) -> usize {
    let mut count = 0;
    let mut runs = t.runs(thread, Cancel::new()).unwrap();
    runs.play((0, step), |_, taken| {
        count += taken.count();
        true
    })
    .unwrap();
    count
}

/// What is not kept is played again, from other key frames on and cut in other ways. The answer is the same.
#[test]
fn a_way_does_not_depend_on_how_much_is_kept() {
    let s = Scene::new();
    let count = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); done; echo $i";
    let (done, trace) = s.record(&["/bin/sh", "-c", count]);
    assert_eq!(done.text(), "100\n");
    let t = open(&trace, 0);
    let thread = t.processes().unwrap()[0].threads[0];
    let to = t.thread(thread).unwrap().to;
    let mut ways = 0;
    for part in [31, 57, 83, 99] {
        let step = to * part / 100;
        let at = t.position(thread, step).unwrap();
        let all = runs(&t, thread, step);
        // The first pass keeps the last fifth. Each pass behind it keeps as much, so that there are at least three of these.
        let few = all / 5;
        assert!(few > 128, "{few} runs are too few to be kept in blocks");
        for data in [1, 1000] {
            let way = |runs: usize| {
                let limits = RouteLimits { data, runs };
                t.route(at, limits, &Candidates::All, &Cancel::new())
            };
            match (way(1 << 27), way(few)) {
                (Ok(whole), Ok(part)) => {
                    assert_eq!(whole, part);
                    ways += 1;
                }
                (whole, part) => {
                    let says = |r: Result<_, hindsight_timeline::Error>| r.unwrap_err().to_string();
                    assert_eq!(says(whole), says(part));
                }
            }
        }
    }
    assert!(ways >= 4, "{ways}");
}
