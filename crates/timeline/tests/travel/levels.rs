//! An index in two levels. Which parts of the fine level there are makes no difference for answers.

use crate::index::answer;
use hindsight_lab::Scene;
use hindsight_timeline::{
    Breakpoint, Cancel, Cursor, Dense, Depth, Direction, Filter, Options, Scope, Stops, ThreadId,
    Timeline, Watch, index_path, regs::RSP,
};
use std::fs;
use std::path::{Path, PathBuf};

const COARSE: u64 = 5000;

fn options() -> Options {
    Options {
        interval: 1000,
        coarse: COARSE,
        ..Options::default()
    }
}

pub fn open(trace: &Path) -> Timeline {
    Timeline::open(trace, options()).unwrap()
}

pub fn build(t: &Timeline) {
    t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
        .unwrap();
}

pub fn record(s: &Scene, rounds: &str) -> PathBuf {
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path(&format!("{rounds}.hst"));
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), rounds.as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

/// Registers and writers of the stack in many places, the calls of a function, and its last breakpoints.
pub fn answers(t: &Timeline) -> String {
    let mut c = t.cursor().unwrap();
    let thread = ThreadId(t.trace().threads()[0]);
    let end = t.threads().unwrap()[0].to;
    let mut out = answer(t);
    for n in 0..12 {
        c.seek_count(thread, end / 12 * n + 77).unwrap();
        let registers = c.registers().unwrap();
        let rsp = registers.gpr[4];
        let w = c.last_write(rsp, 8).unwrap();
        let m = c.memory(rsp, 200).unwrap();
        let values: Vec<_> = m
            .bytes
            .iter()
            .map(|b| b.as_ref().map(|k| k.value))
            .collect();
        let registers = registers.comparable();
        out += &format!("{registers:?} {w:?} {values:?}\n");
    }
    let rip = c.registers().unwrap().rip;
    for direction in [Direction::Backward, Direction::Forward] {
        let mut stops = Stops {
            breakpoints: vec![Breakpoint::at(0, rip)],
            ..Stops::default()
        };
        let stop = c.run(direction, Scope::All, &mut stops);
        out += &format!("{:?}\n", stop.unwrap());
    }
    let calls = t.calls(rip, &Filter::default(), &Cancel::new()).unwrap();
    out + &format!("{calls:?}\n")
}

/// The records of an index file: the kind, where it begins, and where it ends.
fn records(bytes: &[u8]) -> Vec<(u64, usize, usize)> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut at, mut out) = (32, Vec::new());
    while at < bytes.len() {
        let end = at + 48 + word(at + 24) as usize;
        out.push((word(at) >> 32, at, end));
        at = end;
    }
    out
}

const COARSE_PART: u64 = 2;
const FINE_PART: u64 = 4;

/// The file with only those records that `keep` wants.
fn only(bytes: &[u8], mut keep: impl FnMut(u64) -> bool) -> Vec<u8> {
    let kept = records(bytes).into_iter().filter(|r| keep(r.0));
    let kept: Vec<u8> = kept.flat_map(|r| bytes[r.1..r.2].to_vec()).collect();
    [&bytes[..32], &kept].concat()
}

#[test]
fn answers_do_not_depend_on_what_there_is_of_the_fine_level() {
    let s = Scene::new();
    let trace = record(&s, "40");
    let want = answers(&crate::open(&trace, 1000));
    let t = open(&trace);
    build(&t);
    let status = t.index_status();
    assert_eq!((status.present, status.problem), (status.parts, None));
    assert!(status.fine > 8, "{}", status.fine);
    assert_eq!(status.fine_present, status.fine);
    assert_eq!(answers(&t), want);
    let index = index_path(&trace);
    let whole = fs::read(&index).unwrap();
    let mut n = 0;
    let mut some = |kind| {
        n += 1;
        kind != FINE_PART || n % 2 == 0
    };
    let others = [
        only(&whole, |kind| kind != FINE_PART),
        only(&whole, &mut some),
        // A fine part is of no use without the coarse one.
        only(&whole, |kind| kind != COARSE_PART),
    ];
    for (i, bytes) in others.iter().enumerate() {
        fs::write(&index, bytes).unwrap();
        assert_eq!(answers(&open(&trace)), want, "{i}");
        // What is missing is added by two sessions at once.
        fs::write(&index, bytes).unwrap();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| assert_eq!(answers(&open(&trace)), want, "{i}"));
            }
            s.spawn(|| build(&open(&trace)));
        });
        let status = open(&trace).index_status();
        assert_eq!((status.present, status.problem), (status.parts, None));
        assert_eq!(status.fine_present, status.fine, "{i}");
    }
    // Damage in any of the levels.
    for (kind, from, to) in records(&whole) {
        if kind == FINE_PART || kind == COARSE_PART {
            let mut bytes = whole.clone();
            bytes[from + 40] ^= 1;
            bytes[to - 40] ^= 1;
            fs::write(&index, &bytes).unwrap();
            assert_eq!(answer(&open(&trace)), answer(&t));
        }
    }
}

#[test]
fn parts_make_room_for_others_and_nothing_is_refused() {
    let s = Scene::new();
    let trace = record(&s, "40");
    let want = answers(&crate::open(&trace, 1000));
    let index = index_path(&trace);
    build(&open(&trace));
    let all = fs::read(&index).unwrap();
    let coarse = only(&all, |kind| kind != FINE_PART).len() as u64;
    let whole = all.len() as u64;
    let its = records(&all).into_iter().filter(|r| r.0 == FINE_PART);
    let largest = its.map(|r| r.2 - r.1).max().unwrap() as u64;
    // Half of the fine level, next to nothing of it, not even the coarse level.
    for most in [(coarse + whole) / 2, coarse + 100, coarse / 2] {
        // Where nothing fits there is none.
        let _ = fs::remove_file(&index);
        let tight = || {
            let options = Options {
                index_size: most,
                fine_size: 1,
                fine_memory: 1,
                // Parts that are made at the same time hold room for each other.
                jobs: 1,
                ..options()
            };
            Timeline::open(&trace, options).unwrap()
        };
        let t = tight();
        build(&t);
        let made = t.index_status();
        let limit = most + made.fine as u64;
        assert!(made.bytes <= limit);
        let no_room = made.problem.as_ref().is_some_and(|p| p.contains("no room"));
        assert_eq!(no_room, made.present < made.parts, "{made:?}");
        assert_eq!(answers(&t), want, "{most}");
        assert_eq!(answers(&tight()), want, "{most}");
        assert!(
            fs::metadata(&index).map_or(0, |m| m.len()) <= limit,
            "{most}"
        );
        if most > coarse {
            assert_eq!(made.present, made.parts);
            assert!(made.fine_present < made.fine, "{most}");
            // Parts that did not fit left room for others.
            assert!(made.bytes + largest > limit, "{made:?}, of {limit}");
        }
    }
    // Parts near the beginning take the room of others when questions need them. Those near the end are made first.
    fs::remove_file(&index).unwrap();
    let options = Options {
        index_size: coarse + (whole - coarse) / 6,
        fine_size: 1,
        ..options()
    };
    let t = Timeline::open(&trace, options.clone()).unwrap();
    build(&t);
    let before = fs::read(&index).unwrap();
    let thread = ThreadId(t.trace().threads()[0]);
    let mut c = t.cursor().unwrap();
    // All writes to what is written there, so its part is needed, too.
    let mut at = COARSE * 3 / 2;
    let address = loop {
        c.seek_count(thread, at).unwrap();
        let written = c.accesses().unwrap().into_iter().find(|a| a.write);
        match written {
            Some(a) => break a.address,
            None => at += 1,
        }
    };
    c.seek_count(thread, 2 * COARSE).unwrap();
    // The first questions are answered without it.
    for _ in 0..12 {
        let mut writes = c.writes(address, 1, 8).unwrap();
        while writes.next(&Cancel::new()).unwrap().is_some() {}
    }
    assert_eq!(
        Timeline::open(&trace, options)
            .unwrap()
            .index_status()
            .problem,
        None
    );
    let begins = |bytes: &[u8]| {
        let all = records(bytes).into_iter().filter(|r| r.0 == FINE_PART);
        let from = |r: (u64, usize, usize)| {
            u64::from_le_bytes(bytes[r.1 + 8..r.1 + 16].try_into().unwrap())
        };
        all.map(from).min().unwrap()
    };
    let after = fs::read(&index).unwrap();
    assert!(begins(&before) > 2 * COARSE, "{}", begins(&before));
    assert!(begins(&after) < 2 * COARSE, "{}", begins(&after));
}

/// The file grows with the number of coarse intervals where all of the fine level is wanted. Questions add to it later.
#[test]
fn all_of_the_fine_level_has_room_of_its_own() {
    let s = Scene::new();
    let trace = record(&s, "40");
    let want = answers(&crate::open(&trace, 1000));
    let index = index_path(&trace);
    let t = open(&trace);
    build(&t);
    let all = fs::read(&index).unwrap();
    let coarse = only(&all, |kind| kind != FINE_PART).len() as u64;
    let fine = t.index_status().fine as u64;
    drop(t);
    fs::remove_file(&index).unwrap();
    let options = Options {
        index_size: coarse * 5 / 4,
        // Without these it would have room for little more than the coarse level.
        fine_size: all.len() as u64 / fine,
        ..options()
    };
    let limit = options.index_size + (fine + 1) * options.fine_size;
    let again = || Timeline::open(&trace, options.clone()).unwrap();
    build(&again());
    let made = again().index_status();
    assert!(made.fine > 8 && made.fine_present == made.fine, "{made:?}");
    assert!(options.index_size < made.bytes && made.bytes <= limit);
    // What a question adds makes nothing else go.
    assert_eq!(answers(&again()), want);
    let now = again().index_status();
    assert_eq!(now.fine_present, made.fine);
    assert!(made.bytes < now.bytes && now.bytes <= limit, "calls");
}

#[test]
fn a_range_of_interest_is_denser_in_the_fine_level() {
    let s = Scene::new();
    let trace = record(&s, "120");
    let t = open(&trace);
    let want = answers(&t);
    let [from, until] = [40.0, 45.0].map(|p| t.percent(p, None).unwrap());
    let range = Dense {
        from,
        until,
        interval: 1024,
    };
    let coarse = Options {
        interval: 3000,
        coarse: 10_000,
        ..Options::default()
    };
    let _ = fs::remove_file(index_path(&trace));
    let t = Timeline::open(&trace, coarse).unwrap();
    let made = |t: &Timeline| t.interest(range, &|_, _| {}, &Cancel::new()).unwrap();
    assert!(made(&t) > 0);
    assert_eq!(made(&t), 0, "it is there");
    assert_eq!(answers(&t), want);
}

/// The size of the coarse level, and of one part of the fine level, does not depend on what else is recorded.
#[test]
fn the_index_grows_as_the_recording_does() {
    let s = Scene::new();
    let sizes = ["60", "120", "240"].map(|rounds| {
        let t = open(&record(&s, rounds));
        build(&t);
        let bytes = fs::read(index_path(t.path())).unwrap();
        let length = t.threads().unwrap()[0].to;
        let of = |kind: u64| {
            let all = records(&bytes).into_iter().filter(|r| r.0 == kind);
            all.map(|r| r.2 - r.1).collect::<Vec<_>>()
        };
        let coarse: usize = of(COARSE_PART).iter().sum();
        let fine = of(FINE_PART);
        (length, coarse, fine.iter().sum::<usize>() / fine.len())
    });
    for pair in sizes.windows(2) {
        let grown = |a: u64, b: u64| b as f64 / a as f64;
        let length = grown(pair[0].0, pair[1].0);
        assert!(length > 1.5, "{sizes:?}");
        let coarse = grown(pair[0].1 as u64, pair[1].1 as u64);
        assert!(coarse < 1.2 * length, "{sizes:?}");
        let fine = grown(pair[0].2 as u64, pair[1].2 as u64);
        assert!((0.6..1.6).contains(&fine), "{sizes:?}");
    }
}

/// Works through memory again and again, so that a replay gets page after page.
const PAGES: &str = r#"
#include <stdlib.h>
int main(void) {
    static volatile unsigned long cells[1 << 19];
    unsigned long x = 42, sum = 0;
    for (long i = 0; i < 1500000; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long at = (x >> 33) % (1 << 19);
        // Some are only read, and some are written in part.
        if (x >> 63) sum += cells[at];
        else if (x >> 62) ((volatile char *) cells)[at * 8 + 3] = x >> 40;
        else cells[at] = x;
    }
    return sum == 7;
}
"#;

/// Memory that the program is about to use here and there, and what it holds and who wrote it, seen from elsewhere.
fn seen_from_elsewhere(t: &Timeline) -> String {
    let mut c = t.cursor().unwrap();
    let thread = ThreadId(t.trace().threads()[0]);
    let end = t.threads().unwrap()[0].to;
    let mut out = String::new();
    for n in 0..24 {
        c.seek_count(thread, end / 25 * (n + 1)).unwrap();
        let address = loop {
            match c.accesses().unwrap().first() {
                Some(a) => break a.address & !7,
                None => c.step(Direction::Forward, Scope::Thread).unwrap(),
            };
        };
        for m in [n + 5, n + 11] {
            c.seek_count(thread, end / 25 * (m % 24 + 1) + 333).unwrap();
            let w = c.last_write(address, 8).unwrap();
            let r = c.find(Direction::Backward, address + 3, 1, Watch::Access);
            let next = c.first_use(address, 8).unwrap();
            let memory = c.known_memory(address, 8).unwrap();
            let values: Vec<_> = memory
                .bytes
                .iter()
                .map(|b| b.as_ref().map(|k| k.value))
                .collect();
            out += &format!("{w:?} {:?} {next:?} {values:?}\n", r.unwrap());
        }
    }
    out
}

/// Marks are taken in the middle of coarse intervals where a replay gets many pages.
#[test]
fn marks_may_be_taken_in_the_middle_of_a_coarse_interval() {
    let s = Scene::new();
    let trace = crate::borders::record(&s, PAGES, &[]);
    let want = seen_from_elsewhere(&crate::open(&trace, 200_000));
    let options = Options {
        interval: 100_000,
        coarse: 800_000,
        ..Options::default()
    };
    let t = Timeline::open(&trace, options).unwrap();
    let built = t.build_index(Depth::Coarse, &|_, _| {}, &Cancel::new());
    let status = built.unwrap();
    assert!(status.fine > 16, "it has no levels: {status:?}");
    assert_eq!(seen_from_elsewhere(&t), want);
}

/// Far behind the beginning of a coarse interval that accesses much memory, a machine without marks runs there from that beginning.
/// So no part of the fine level is made for a few questions.
#[test]
fn places_far_in_large_coarse_intervals_need_no_fine_part() {
    let s = Scene::new();
    let trace = crate::borders::record(&s, PAGES, &[]);
    let other = crate::open(&trace, 200_000);
    let _ = fs::remove_file(index_path(&trace));
    let options = Options {
        interval: 20_000,
        coarse: 800_000,
        ..Options::default()
    };
    let t = Timeline::open(&trace, options).unwrap();
    let built = t.build_index(Depth::Coarse, &|_, _| {}, &Cancel::new());
    assert!(built.unwrap().fine > 16);
    let thread = ThreadId(t.trace().threads()[0]);
    let [mut c, mut plain] = [&t, &other].map(|t| t.cursor().unwrap());
    let mut asked = 0;
    for interval in [12u64, 4, 15, 9] {
        for into in [700_000, 500_000, 600_000] {
            let count = interval * 800_000 + into;
            for c in [&mut c, &mut plain] {
                c.seek_count(thread, count).unwrap();
            }
            let address = loop {
                if let Some(a) = c.accesses().unwrap().first() {
                    break a.address & !7;
                }
                for c in [&mut c, &mut plain] {
                    c.step(Direction::Forward, Scope::Thread).unwrap();
                }
            };
            let [its, want] = [&mut c, &mut plain].map(|c| {
                // The last 64 bytes of the stack and what the instruction accesses.
                let known = |c: &mut Cursor, at, len| {
                    let m = c.known_memory(at, len).unwrap();
                    m.bytes
                        .iter()
                        .map(|b| b.as_ref().map(|k| k.value))
                        .collect::<Vec<_>>()
                };
                let r = c.registers().unwrap();
                let memory = [known(c, address, 64), known(c, r.gpr[RSP], 64)];
                (c.count(), r.comparable(), memory)
            });
            assert_eq!(its, want, "{count}");
            asked += 1;
        }
    }
    assert_eq!(asked, 12);
    assert_eq!(t.index_status().fine_present, 0);
}
