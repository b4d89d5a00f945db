//! Searches for accesses where the fine level of the index is missing.

use hindsight_lab::{Scene, share};
use hindsight_timeline::{
    Cancel, Cursor, Depth, Direction, Error, Options, Scope, Stops, ThreadId, Timeline, Watch,
    WatchedValue, Watchpoint, index_path,
};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of one word that are written now and then, while their neighbours are written all the time.
const WORDS: &str = r#"
#include <stdlib.h>
static volatile struct { char busy, rare, same, early; unsigned last; } word;
static volatile unsigned long cells[CELLS];
int main(int argc, char **argv) {
    unsigned long x = 42, sum = 0, rounds = 1000 * atol(argv[1]);
    word.early = 7;
    for (unsigned long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        word.busy = x >> 40;
        if (i % 50000 == 37777) word.rare = x >> 50;
        if (i % 30000 == 4321) word.same = i / 200000;
        if (i == rounds / 2) word.last = 5;
        cells[(x >> 33) % (CELLS)] = sum;
        sum += word.busy;
    }
    return sum == 7;
}
"#;

/// So many cells are little memory for an interval of the coarse level, and so many are much: 16 and 64 pages.
const LITTLE: u64 = 1 << 13;
const MUCH: u64 = 1 << 15;

const INTERVAL: u64 = 25_000;
const COARSE: u64 = 200_000;

fn options(jobs: usize) -> Options {
    Options {
        interval: INTERVAL,
        coarse: COARSE,
        jobs,
        ..Options::default()
    }
}

fn record(s: &Scene, rounds: &str, cells: u64) -> std::path::PathBuf {
    let (source, program, trace) = (s.path("words.c"), s.path("words"), s.path("words.hst"));
    std::fs::write(&source, WORDS).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-static", &format!("-DCELLS={cells}"), "-o"])
        .arg(&program)
        .arg(&source);
    assert!(gcc.status().unwrap().success());
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), rounds.as_ref()]));
    assert!(run.status.code().is_some(), "{}", run.messages());
    trace
}

/// Makes the coarse level only.
fn build(trace: &Path) {
    let _ = std::fs::remove_file(index_path(trace));
    let t = Timeline::open(trace, options(0)).unwrap();
    let built = t.build_index(Depth::Coarse, &|_, _| {}, &Cancel::new());
    let status = built.unwrap();
    assert!(status.fine > 16 && status.fine_present == 0, "{status:?}");
}

/// The thread, its end, and where the word lies: its byte `busy` is written most often.
fn word(t: &Timeline) -> (ThreadId, u64, u64) {
    let thread = ThreadId(t.trace().threads()[0]);
    let end = t.threads().unwrap()[0].to;
    let mut c = t.cursor().unwrap();
    c.seek_count(thread, end / 2).unwrap();
    loop {
        let written = c
            .accesses()
            .unwrap()
            .into_iter()
            .find(|a| a.write && a.len == 1);
        if let Some(a) = written {
            return (thread, end, a.address);
        }
        c.step(Direction::Forward, Scope::Thread).unwrap();
    }
}

/// A run to the next or last access to some bytes: `changes` only counts writes that leave another value.
fn run(
    c: &mut Cursor,
    way: Direction,
    (address, len): (u64, u64),
    watch: Watch,
    changes: bool,
) -> String {
    let watchpoints = vec![Watchpoint {
        id: 3,
        address,
        len,
        watch,
        image: None,
    }];
    let values = match changes {
        false => Vec::new(),
        true => {
            let held = c.known_memory(address, len as usize).unwrap();
            let bytes = held.bytes.iter().map(|b| b.as_ref().map_or(0, |k| k.value));
            vec![WatchedValue {
                id: 3,
                bytes: bytes.collect(),
            }]
        }
    };
    let mut stops = Stops {
        watchpoints,
        values,
        ..Stops::default()
    };
    let stop = c.run(way, Scope::All, &mut stops).unwrap();
    format!(
        "{:?} {} {:?}\n",
        stop.reason,
        c.count(),
        c.registers().unwrap().rip
    )
}

/// The answers to searches in both directions, from several places, about bytes that are written all the time, now and then, and
/// next to never. Each question has a session of its own if `apart`.
fn answers(open: &dyn Fn() -> Timeline, apart: bool) -> String {
    let t = open();
    let (thread, end, base) = word(&t);
    let mut out = String::new();
    let mut c = t.cursor().unwrap();
    let mut other;
    let bytes = [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 4),
        (0, 8),
        (8, 8),
        (4096, 1),
    ];
    for (n, (at, len)) in bytes.into_iter().enumerate() {
        for place in [end, end / 3 * 2 + 1234 * n as u64, end / 3, 5000] {
            if apart {
                other = open();
                c = other.cursor().unwrap();
            }
            let its = base + at;
            c.seek_count(thread, place).unwrap();
            out += &format!("{:?}\n", c.last_write(its, len).unwrap());
            out += &format!("{:?}\n", c.first_use(its, len).unwrap());
            let read = c.find(Direction::Backward, its, len, Watch::Read);
            out += &format!("{:?}\n", read.unwrap());
            let mut list = c.writes(its, len, len as usize).unwrap();
            for _ in 0..3 {
                out += &format!("{:?}\n", list.next(&Cancel::new()).unwrap());
            }
            for way in [Direction::Backward, Direction::Forward] {
                for changes in [false, true] {
                    c.seek_count(thread, place).unwrap();
                    out += &run(&mut c, way, (its, len), Watch::Write, changes);
                    // From there to the one before or behind it.
                    out += &run(&mut c, way, (its, len), Watch::Write, changes);
                }
            }
        }
    }
    out
}

#[test]
fn answers_do_not_depend_on_processors_nor_on_the_fine_level() {
    answers_are_the_same_with(LITTLE);
}

/// Coarse intervals that access much memory are short, and their frames have it.
#[test]
fn nor_on_how_much_memory_the_intervals_access() {
    answers_are_the_same_with(MUCH);
    let s = Scene::new();
    let intervals = [LITTLE, MUCH].map(|cells| {
        let trace = record(&s, "320", cells);
        build(&trace);
        let t = Timeline::open(&trace, options(1)).unwrap();
        let threads = t.threads().unwrap();
        t.index_status().fine as f64 / (threads[0].to as f64 / COARSE as f64)
    });
    assert!(intervals[0] < 1.5 && intervals[1] > 2.0, "{intervals:?}");
}

/// What is there of the index when questions come.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// The coarse level. What is made for one question is there for the next one.
    All,
    /// The coarse level. Nothing more is there for any of them.
    Coarse,
    /// Not even the coarse level, and parts make room for each other.
    Little,
}

fn answers_are_the_same_with(cells: u64) {
    let s = Scene::new();
    let trace = record(&s, "320", cells);
    let want = answers(&|| crate::open(&trace, INTERVAL * 4), false);
    assert!(want.contains("Watchpoint"));
    let kept = [Kept::All, Kept::Coarse, Kept::Little];
    let cases = kept.into_iter().flat_map(|k| [(k, 1), (k, 4)]);
    for (kept, jobs) in share(cases, 3) {
        build(&trace);
        let options = match kept {
            Kept::All => options(jobs),
            Kept::Coarse => Options {
                unsaved: true,
                fine_memory: 1,
                ..options(jobs)
            },
            Kept::Little => {
                std::fs::remove_file(index_path(&trace)).unwrap();
                Options {
                    index_size: 1 << 20,
                    fine_memory: 1,
                    ..options(jobs)
                }
            }
        };
        let apart = matches!(kept, Kept::Coarse);
        let open = || Timeline::open(&trace, options.clone()).unwrap();
        assert!(answers(&open, apart) == want, "{kept:?}, {jobs}");
    }
}

/// The first question in an interval makes no part of the fine level. Who asks again and again gets it.
#[test]
fn a_part_of_the_fine_level_is_made_where_many_questions_come() {
    let s = Scene::new();
    let trace = record(&s, "320", LITTLE);
    build(&trace);
    let t = Timeline::open(&trace, options(2)).unwrap();
    let (thread, end, base) = word(&t);
    let mut c = t.cursor().unwrap();
    c.seek_count(thread, end).unwrap();
    let written = c.last_write(base + 3, 1).unwrap().unwrap();
    assert!(written.count < end / 100);
    let made = |t: &Timeline| t.index_status().fine_present;
    assert_eq!(made(&t), 0);
    for n in 0..40 {
        c.seek_count(thread, end / 4 + n % 2 * 3 * INTERVAL)
            .unwrap();
        c.last_write(base + 4 * n, 1).unwrap();
    }
    assert!((1..8).contains(&made(&t)), "{}", made(&t));
}

/// A search that is cancelled while several processors play ends at once, and can be asked again.
#[test]
fn a_search_can_be_cancelled_at_any_time() {
    let s = Scene::new();
    let trace = record(&s, "1000", LITTLE);
    build(&trace);
    let want = {
        let t = Timeline::open(&trace, options(4)).unwrap();
        let (thread, end, base) = word(&t);
        let mut c = t.cursor().unwrap();
        c.seek_count(thread, end).unwrap();
        let all = c
            .find(Direction::Backward, base + 3, 1, Watch::Write)
            .unwrap();
        assert!(all.unwrap().count < end / 100);
        all
    };
    for after in share([1, 5, 25], 3) {
        let t = Timeline::open(
            &trace,
            Options {
                unsaved: true,
                ..options(4)
            },
        )
        .unwrap();
        let told = std::sync::Arc::new((AtomicUsize::new(0), Cancel::new()));
        let (thread, end, base) = word(&t);
        let mut c = t.cursor().unwrap();
        c.seek_count(thread, end).unwrap();
        let seen = std::sync::Arc::clone(&told);
        t.tell_progress(move |n| {
            if n.is_some() && seen.0.fetch_add(1, Relaxed) + 1 >= after {
                seen.1.cancel();
            }
        });
        let mut list = c.writes(base + 3, 1, 1).unwrap();
        let begun = Instant::now();
        let found = list.next(&told.1);
        let took = begun.elapsed();
        assert!(matches!(found, Err(Error::Cancelled)), "{after}: {found:?}");
        assert!(took < Duration::from_secs(5), "{after}: {took:?}");
        assert_eq!(
            c.find(Direction::Backward, base + 3, 1, Watch::Write)
                .unwrap(),
            want
        );
    }
}
