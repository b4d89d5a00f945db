//! Ways to steps of live programs.

use super::open;
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Candidates, RouteLimits};

/// What is not kept is played again, from other key frames on and cut in other ways. The answer is the same.
#[test]
fn a_way_does_not_depend_on_how_much_is_kept() {
    let s = Scene::new();
    let count = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo $i";
    let (done, trace) = s.record(&["/bin/sh", "-c", count]);
    assert_eq!(done.text(), "300\n");
    let t = open(&trace, 0);
    let thread = t.processes().unwrap()[0].threads[0];
    let to = t.thread(thread).unwrap().to;
    let mut ways = 0;
    for part in [31, 57, 83, 99] {
        let at = t.position(thread, to * part / 100).unwrap();
        for data in [1, 1000] {
            let way = |runs: usize| {
                let limits = RouteLimits { data, runs };
                t.route(at, limits, &Candidates::All, &Cancel::new())
            };
            match (way(1 << 27), way(128 * 30)) {
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
