//! Watched memory that is written but does not change.

use crate::questions::Rng;
use hindsight_lab::{Scene, share};
use hindsight_oracle::plain::{self as oracle, Log};
use hindsight_timeline::{
    Cursor, Direction, Reason, Scope, Stop, Stops, ThreadId, Watch, WatchedValue, Watchpoint,
};
use std::collections::BTreeMap;

/// The next stop at a watchpoint on `address`, which holds `value`.
fn next(c: &mut Cursor, direction: Direction, address: u64, value: &[u8]) -> Stop {
    let mut stops = Stops {
        watchpoints: vec![Watchpoint {
            id: 3,
            address,
            len: value.len() as u64,
            watch: Watch::Write,
            image: None,
        }],
        values: vec![WatchedValue {
            id: 3,
            bytes: value.to_vec(),
        }],
        ..Stops::default()
    };
    c.run(direction, Scope::Process, &mut stops).unwrap()
}

/// What memory holds when `count` instructions are completed. Before the first write it is the content from loading
/// (`loaded`), or zero.
fn held(log: &Log, loaded: &Loaded, address: u64, len: u64, count: u64) -> Vec<u8> {
    let first = |a| loaded.get(&a).copied().unwrap_or(0);
    let bytes = address..address + len;
    bytes
        .map(|a| log.byte(a, count).map_or_else(|| first(a), |b| b.0))
        .collect()
}

type Loaded = BTreeMap<u64, u8>;

#[test]
fn only_changes_stop() {
    let s = Scene::new();
    let program = s.compile("changes.c", &["-O1", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str()]));
    assert!(run.status.success(), "{}", run.messages());
    for interval in share([2000, 0], 2) {
        let t = crate::open(&trace, interval);
        let log = oracle::play(t.trace(), t.trace().threads()[0]);
        let mut c = t.cursor().unwrap();
        let mut r = Rng(5);
        // Addresses that the program writes often.
        let mut writes: BTreeMap<u64, u64> = BTreeMap::new();
        for a in log.accesses.iter().flatten().filter(|a| a.write) {
            *writes.entry(a.address).or_default() += 1;
        }
        let often: Vec<u64> = (writes.iter().filter(|w| *w.1 > 500))
            .map(|w| *w.0)
            .collect();
        // The content from the program's file, which is not logged.
        c.seek_count(ThreadId(log.thread), 0).unwrap();
        let mut loaded = Loaded::new();
        for a in &often {
            let known = c.memory(*a, 20).unwrap().bytes;
            let bytes = (*a..).zip(known);
            loaded.extend(bytes.filter_map(|(a, b)| Some((a, b?.value))));
        }
        let (mut stopped, mut passed, mut kernel) = (0, 0, 0);
        // Which addresses there are, and how often the kernel is the one, depends on the processor: so does the C library's code.
        let mut round = 0;
        while round < 200 || round < 2000 && (stopped <= 60 || passed <= 500 || kernel <= 2) {
            round += 1;
            let count = r.below(log.instructions() + 1);
            let address = often[r.below(often.len() as u64) as usize] + r.below(8);
            let len = 1 + r.below(12);
            let value = held(&log, &loaded, address, len, count);
            let direction = [Direction::Forward, Direction::Backward][r.below(2) as usize];
            let context = format!("round {round}: {direction:?} {address:#x}+{len} from {count}");
            c.seek_count(ThreadId(log.thread), count).unwrap();
            let stop = next(&mut c, direction, address, &value);
            // All instructions that brought in another value.
            let bytes = log.bytes.range(address..address + len);
            let mut accessed: Vec<u64> = bytes.flat_map(|b| b.1).map(|c| c.0 - 1).collect();
            accessed.sort_unstable();
            let changes = |n: &&u64| {
                held(&log, &loaded, address, len, **n) != held(&log, &loaded, address, len, **n + 1)
            };
            let all = log.touching(address, len, false, true);
            let want = match direction {
                Direction::Forward => (accessed.iter().filter(|n| **n >= count))
                    .find(changes)
                    .map(|n| n + 1),
                Direction::Backward => (accessed.iter().rev().filter(|n| **n < count))
                    .find(changes)
                    .copied(),
            };
            match (&stop.reason, want) {
                (
                    Reason::Watchpoint {
                        count: at,
                        kernel: false,
                        ..
                    },
                    Some(want),
                ) => {
                    assert_eq!(c.count(), want, "{context}");
                    let (from, to) = (count.min(want), count.max(want));
                    passed += all.iter().filter(|n| (from..to).contains(n)).count() - 1;
                    assert!(all.contains(at), "{context}");
                    stopped += 1;
                }
                (Reason::Watchpoint { .. }, Some(want)) => {
                    assert_eq!(c.count(), want, "{context}");
                    kernel += 1;
                }
                (Reason::End | Reason::Begin, None) => {}
                other => panic!("{context}: {other:?}"),
            }
        }
        assert!(
            stopped > 60 && passed > 500 && kernel > 2,
            "{stopped} {passed} {kernel}"
        );
    }
}
