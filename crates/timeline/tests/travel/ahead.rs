//! Questions to a recording that has no index: they begin at a key frame that restates memory.

use crate::questions::Rng;
use hindsight_lab::Scene;
use hindsight_oracle::plain::{self as oracle, Log, Why};
use hindsight_timeline::{
    Breakpoint, Depth, Direction, Filter, Ground, Kind, KindOf, Options, Scope, Stops, ThreadId,
    Timeline, index_path,
};
use std::fs;
use std::path::{Path, PathBuf};

const INTERVAL: u64 = 250;

fn record(s: &Scene, restate_every: &str) -> PathBuf {
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path("t.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--restate-every", restate_every, "-o"]);
    let run = s.run(record.arg(&trace).arg("--").arg(program).arg("40"));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

fn open(trace: &Path, interval: u64) -> Timeline {
    let options = Options {
        interval,
        ..Options::default()
    };
    Timeline::open(trace, options).unwrap()
}

/// Compares registers and the memory that one instruction accesses, of an instant, with a plain replay. Returns how many
/// bytes were known from a key frame.
fn ask(t: &Timeline, log: &Log, count: u64, addresses: &[u64]) -> usize {
    let mut c = t.cursor().unwrap();
    c.seek_count(ThreadId(log.thread), count).unwrap();
    assert_eq!(
        c.registers().unwrap().comparable(),
        log.states[count as usize].comparable(),
        "at {count}"
    );
    let mut restated = 0;
    for address in addresses {
        let m = c.known_memory(*address, 16).unwrap();
        for (i, b) in m.bytes.iter().enumerate() {
            let at = address + i as u64;
            let want = log.byte(at, count);
            let context = || format!("at {count}, byte {at:#x}: {b:?}, expected {want:?}");
            let Some((value, why)) = want else { continue };
            let k = b.unwrap_or_else(|| panic!("{}", context()));
            assert_eq!(k.value, value, "{}", context());
            match k.ground {
                Ground::Restated => restated += 1,
                Ground::Written => assert!(log.written(at, count), "{}", context()),
                Ground::Read | Ground::Module => assert_eq!(why, Why::Read, "{}", context()),
                _ => panic!("{}", context()),
            }
        }
    }
    restated
}

/// Addresses that the program accessed somewhere before an instant, without those of `left_out`.
fn before(log: &Log, count: u64, left_out: &[(u64, u64)], r: &mut Rng) -> Vec<u64> {
    let mut out = Vec::new();
    while out.len() < 4 {
        if let Some(a) = log.accesses[r.below(count) as usize].first()
            && !left_out
                .iter()
                .any(|(from, to)| (*from..*to).contains(&a.address))
        {
            out.push(a.address);
        }
    }
    out
}

#[test]
fn registers_and_memory_need_no_index_where_memory_is_restated() {
    let s = Scene::new();
    let trace = record(&s, "20000");
    let log = {
        let t = open(&trace, INTERVAL);
        oracle::play(t.trace(), t.trace().threads()[0])
    };
    let t = open(&trace, INTERVAL);
    let chunks = t.trace().chunks(log.thread).iter();
    let frames: Vec<u64> = chunks
        .filter(|c| c.keyframe && c.first_pos > 0)
        .map(|c| c.first_pos)
        .collect();
    // The kernel changes its own at any time, so no key frame tells it.
    let image = t.processes().unwrap()[0].image;
    let maps = t.mappings(image, t.range().unwrap().0).unwrap();
    let of_kernel = maps.iter().filter(|m| m.path.starts_with("[v"));
    let of_kernel: Vec<(u64, u64)> = of_kernel.map(|m| (m.start, m.end)).collect();
    drop(t);
    assert!(frames.len() > 2, "{frames:?}");
    let mut r = Rng(7);
    let (mut restated, mut made) = (0, 0);
    for i in 0..120 {
        let count = match i % 4 {
            // At a key frame, and just behind it.
            0 => frames[r.below(frames.len() as u64 - 1) as usize] + r.below(3),
            // Before the first key frame, the program's beginning tells memory.
            // The last part may be so short that it is indexed.
            _ => 3 * INTERVAL + r.below(frames[frames.len() - 1] - 3 * INTERVAL),
        };
        let addresses = before(&log, count, &of_kernel, &mut r);
        let _ = fs::remove_file(index_path(&trace));
        let t = open(&trace, INTERVAL);
        restated += ask(&t, &log, count, &addresses);
        let is_at_frame = frames.contains(&count);
        made += (t.index_status().present > 0 && !is_at_frame) as usize;
        // With the index, the answers are the same.
        if i % 10 == 0 {
            t.build_index(Depth::Full, &|_, _| {}, &Default::default())
                .unwrap();
            ask(&t, &log, count, &addresses);
            ask(&open(&trace, INTERVAL), &log, count, &addresses);
        }
    }
    assert!(restated > 500, "{restated}");
    assert_eq!(made, 0);
}

/// Searches for what is near need no index.
#[test]
fn what_happened_just_before_is_found_without_an_index() {
    let s = Scene::new();
    let trace = record(&s, "20000");
    let other = crate::open(&trace, INTERVAL);
    other
        .build_index(Depth::Full, &|_, _| {}, &Default::default())
        .unwrap();
    let mut indexed = other.cursor().unwrap();
    let thread = ThreadId(other.trace().threads()[0]);
    let end = other.threads().unwrap()[0].to;
    let (mut near, mut r) = (0, Rng(5));
    for i in 0..60 {
        let count = 3 * INTERVAL + r.below(end - 3 * INTERVAL);
        let _ = fs::remove_file(index_path(&trace));
        let t = open(&trace, INTERVAL);
        let mut c = t.cursor().unwrap();
        let answers = [&mut c, &mut indexed].map(|c| {
            c.seek_count(thread, count).unwrap();
            let rsp = c.registers().unwrap().gpr[4];
            let rip = c.registers().unwrap().rip;
            let mut out = match i % 3 {
                0 => format!("{:?}", c.last_write(rsp, 8).unwrap()),
                1 => format!("{:?}", c.step_over(Direction::Backward).unwrap()),
                _ => {
                    let mut stops = Stops {
                        breakpoints: vec![Breakpoint::at(0, rip)],
                        ..Stops::default()
                    };
                    let way = [Direction::Backward, Direction::Forward][i as usize / 3 % 2];
                    format!("{:?}", c.run(way, Scope::Thread, &mut stops).unwrap())
                }
            };
            out += &format!(" {}", c.count());
            out
        });
        near += (t.index_status().present == 0) as usize;
        assert_eq!(answers[0], answers[1], "at {count}");
    }
    assert!(near > 20, "{near}");
}

/// A walk to and fro through the whole recording, without an index and with what the questions make of it.
#[test]
fn a_walk_finds_what_a_plain_replay_finds() {
    let s = Scene::new();
    let trace = record(&s, "9000");
    let t = open(&trace, INTERVAL);
    let log = oracle::play(t.trace(), t.trace().threads()[0]);
    // The index of this one is complete.
    let other = crate::open(&trace, INTERVAL);
    other
        .build_index(Depth::Full, &|_, _| {}, &Default::default())
        .unwrap();
    let mut indexed = other.cursor().unwrap();
    let mut c = t.cursor().unwrap();
    let mut r = Rng(3);
    for i in 0..200u64 {
        let far = r.below(log.instructions());
        let here = c.count();
        let count = match i % 5 {
            0 => far,
            1 => here.saturating_sub(r.below(3 * INTERVAL)),
            2 => (here + r.below(12 * INTERVAL)).min(log.instructions()),
            3 => here.saturating_sub(1),
            _ => (here + 1).min(log.instructions()),
        };
        c.seek_count(ThreadId(log.thread), count).unwrap();
        assert_eq!(
            c.registers().unwrap().comparable(),
            log.states[count as usize].comparable(),
            "at {count}, from {here}"
        );
        let rsp = log.states[count as usize].gpr[4];
        let m = c.memory(rsp, 64).unwrap();
        for (i, b) in m.bytes.iter().enumerate() {
            if let Some((value, _)) = log.byte(rsp + i as u64, count) {
                assert_eq!(
                    b.unwrap().value,
                    value,
                    "{rsp:#x}+{i} at {count}, from {here}"
                );
            }
        }
        if i % 20 == 7 {
            indexed.seek_count(ThreadId(log.thread), count).unwrap();
            let [found, want] = [&mut c, &mut indexed].map(|c| c.last_write(rsp, 8).unwrap());
            assert_eq!(
                format!("{found:?}"),
                format!("{want:?}"),
                "{rsp:#x} at {count}"
            );
        }
    }
}

/// The index that is made in the background is the one that questions make, whatever is asked meanwhile.
#[test]
fn questions_and_the_background_make_the_same_index() {
    let s = Scene::new();
    let trace = record(&s, "9000");
    let ask = |t: &Timeline, n: u64| {
        let mut c = t.cursor().unwrap();
        let end = t.threads().unwrap()[0].to;
        c.seek_count(ThreadId(t.trace().threads()[0]), end / 40 * n)
            .unwrap();
        let rsp = c.registers().unwrap().gpr[4];
        format!("{rsp:#x} {:?}", c.last_write(rsp, 8).unwrap())
    };
    let want: Vec<String> = {
        let t = crate::open(&trace, INTERVAL);
        (1..40).rev().map(|n| ask(&t, n)).collect()
    };
    let t = open(&trace, INTERVAL);
    let background = t.index_in_background();
    let found: Vec<String> = (1..40)
        .rev()
        .map(|n| {
            let _asking = t.asking();
            ask(&t, n)
        })
        .collect();
    assert_eq!(found, want);
    background.wait();
    let status = t.index_status();
    assert_eq!(status.present, status.parts);
    // One that is dropped at once ends.
    fs::remove_file(index_path(&trace)).unwrap();
    drop(open(&trace, INTERVAL).index_in_background());
}

/// Maps memory in several ways, fills it before, and says where it is. Its calls of `close` tell addresses.
const MAPS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile long sink;
static void work(void) { for (int i = 0; i < 30000; i++) sink += i; }
static void tell(int what, void *p) { syscall(SYS_close, -77, what, p); }
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    char *a = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *b = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *c = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none = mmap(0, 8192, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(a, 'a', 8192);
    memset(b, 'b', 8192);
    memset(c, 'c', 8192);
    tell(0, none);
    work();
    char *f = mmap(0, 8192, 3, MAP_PRIVATE, fd, 0);
    tell(1, f);
    mmap(a, 8192, 3, MAP_PRIVATE | MAP_FIXED, fd, 0);
    tell(2, a);
    madvise(b, 8192, MADV_DONTNEED);
    tell(3, b);
    char *m = mremap(c, 8192, 65536, MREMAP_MAYMOVE);
    tell(4, m);
    work();
    return f[0] + a[0] + b[0] + m[0] == 0;
}
"#;

/// Just behind a call that maps memory, a key frame from before it does not tell that memory.
#[test]
fn what_is_mapped_at_the_instant_itself_is_not_what_a_key_frame_said() {
    let s = Scene::new();
    let (file, source) = (s.path("file"), s.path("maps.c"));
    fs::write(&file, [b'f'; 8192]).unwrap();
    fs::write(&source, MAPS).unwrap();
    let program = s.path("maps");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-static", "-o"])
        .arg(&program)
        .arg(&source);
    assert!(gcc.status().unwrap().success());
    let trace = s.path("t.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--restate-every", "9000", "-o"]);
    let done = s.run(record.arg(&trace).arg("--").arg(&program).arg(&file));
    assert!(done.status.success(), "{}", done.messages());
    for interval in [250, 100_000_000] {
        let _ = fs::remove_file(index_path(&trace));
        let t = open(&trace, interval);
        let filter = Filter {
            kinds: vec![KindOf::Syscall],
            ..Filter::default()
        };
        let calls = t.events(&filter).unwrap();
        let mut c = t.cursor().unwrap();
        let mut before = 0;
        for h in calls {
            let Kind::Syscall { args, number, .. } = h.kind else {
                continue;
            };
            if number != 3 || args[0] as i32 != -77 {
                // The instant behind the call before the one that tells.
                before = t.locate(h.position).unwrap().count + 1;
                continue;
            }
            let thread = ThreadId(t.trace().threads()[0]);
            let held = |c: &mut hindsight_timeline::Cursor, count: u64| -> Vec<Option<u8>> {
                c.seek_count(thread, count).unwrap();
                let m = c.known_memory(args[2], 16).unwrap();
                m.bytes.iter().map(|b| b.map(|k| k.value)).collect()
            };
            let told = t.locate(h.position).unwrap().count;
            let want = [None, Some(b'f'), Some(b'f'), Some(0), Some(b'c')][args[1] as usize];
            let later = held(&mut c, told + 1);
            // Of memory that was moved it need not be known.
            let moved = args[1] == 4 && later == [None; 16];
            assert!(moved || later == [want; 16], "{}: {later:?}", args[1]);
            let then = held(&mut c, before);
            let right = |b: &Option<u8>| b.is_none() || *b == want;
            assert!(then.iter().all(right), "{} at {before}: {then:?}", args[1]);
        }
    }
}
