//! How much memory index and travel take. It is measured in a process of its own, and must not exceed what is stated here.

use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Depth, Options, ThreadId, Timeline, index_path};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What index and travel take besides what follows from the program's memory, in MiB: translated code, buffers, what stays
/// unpacked of the index, and parts of the fine level.
const CONSTANT: [u64; 2] = [320, 640];
/// The coarse level of the index takes this many times the program's memory: its cells, two kinds of marks, a copy to compare
/// with, and what changed in an interval. A part of the fine level takes more while a question makes it: each of its intervals
/// here accesses all of memory, and two or three of them wait with their marks.
const TIMES: [u64; 2] = [6, 12];

/// The same for an index with one level, of a program that reads and writes all over its memory: cells, marks, what pages held,
/// and what is read of intervals while they are joined. The intervals themselves lie in files: with two or three of them, packed,
/// it would be more.
const ONE_LEVEL: [u64; 2] = [400, 7];

/// The coarse level of a program with 128 MiB or more that writes all over its memory, and hardly reads: its cells and the marks of
/// writes. What it held at the last border lies in a file.
const LARGE: [u64; 2] = [320, 2];

/// Writes at random into memory of some MiB, so many million times. With a third argument it reads there, too.
const PROGRAM: &str = r#"
#include <stdlib.h>
int main(int argc, char **argv) {
    unsigned long n = atol(argv[1]) << 17, times = atol(argv[2]) * 1000000, x = 42;
    volatile unsigned long *cells = malloc(n * 8);
    for (unsigned long i = 0; i < n; i++) cells[i] = i;
    for (unsigned long i = 0; i < times; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        cells[(x >> 33) % n] = argc > 3 ? cells[(x >> 33) % n] + x : x;
    }
    return cells[5] == 7;
}
"#;

const TRACE: &str = "HINDSIGHT_TEST_MEMORY_OF";
const TASK: &str = "HINDSIGHT_TEST_MEMORY_TASK";

fn options(task: &str) -> Options {
    let (interval, coarse, index_size) = match task {
        // No thread is long enough for levels, and the file has room for one interval that accesses all of memory.
        "one level" => (16 << 20, 1 << 40, 160 << 20),
        _ => (2 << 20, 8 << 20, 0),
    };
    Options {
        interval,
        coarse,
        index_size,
        jobs: 2,
        ..Options::default()
    }
}

/// Runs in a process of its own, and prints its peak in KiB.
#[test]
#[ignore = "the other tests here run it"]
fn child() {
    let trace = PathBuf::from(std::env::var_os(TRACE).unwrap());
    let task = std::env::var(TASK).unwrap();
    let t = Timeline::open(&trace, options(&task)).unwrap();
    if task != "travel" {
        let status = t.build_index(Depth::Coarse, &|_, _| {}, &Cancel::new());
        let status = status.unwrap();
        let levels = task == "index";
        assert!(
            if levels {
                status.fine > 8
            } else {
                status.fine == 0
            },
            "{status:?}"
        );
    } else {
        let mut c = t.cursor().unwrap();
        let thread = ThreadId(t.trace().threads()[0]);
        let end = t.threads().unwrap()[0].to;
        for n in 0..6 {
            // Here and there, each in another coarse interval.
            let at = end / 7 * (n * 5 % 6 + 1) + 977;
            c.seek_count(thread, at).unwrap();
            let registers = c.registers().unwrap();
            c.known_memory(registers.gpr[4], 64).unwrap();
            c.last_write(registers.gpr[4] & !7, 8).unwrap();
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: u64 = (line.unwrap().split_whitespace().next().unwrap())
        .parse()
        .unwrap();
    println!("peak {kib}");
}

/// The peak of a process that does this with a recording, in MiB.
fn peak(trace: &Path, task: &str) -> u64 {
    let mut me = Command::new(std::env::current_exe().unwrap());
    me.args(["--exact", "memory::child", "--ignored", "--nocapture"]);
    let done = me.env(TRACE, trace).env(TASK, task).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{task}: {said}");
    let (_, kib) = said.split_once("peak ").expect("the child's peak");
    let kib: u64 = kib.split_whitespace().next().unwrap().parse().unwrap();
    kib >> 10
}

/// A recording of the program.
fn recorded(s: &Scene, mib: u64, millions: u64, more: &[&str]) -> PathBuf {
    let source = s.path("memory.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let program = s.path("memory");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(&program).arg(&source);
    assert!(gcc.status().unwrap().success());
    let trace = s.path(&format!("{mib}-{millions}.hst"));
    let mut arguments = vec![program, mib.to_string().into(), millions.to_string().into()];
    arguments.extend(more.iter().map(PathBuf::from));
    let run = s.run(&mut s.recording(&trace, &arguments));
    assert_eq!(run.status.code(), Some(0), "{}", run.messages());
    trace
}

/// The peaks of the index, of travel without it, and of travel with it.
fn peaks(s: &Scene, mib: u64, millions: u64) -> [u64; 3] {
    let trace = recorded(s, mib, millions, &[]);
    let cold = peak(&trace, "travel");
    let _ = std::fs::remove_file(index_path(&trace));
    let out = [peak(&trace, "index"), cold, peak(&trace, "travel")];
    std::fs::remove_file(&trace).unwrap();
    std::fs::remove_file(index_path(&trace)).unwrap();
    out
}

fn stated(mib: u64) -> [u64; 3] {
    [0, 1, 1].map(|i| CONSTANT[i] + TIMES[i] * mib)
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_recording() {
    let s = Scene::new();
    let all = [48, 96].map(|millions| peaks(&s, 8, millions));
    eprintln!("{all:?} MiB, stated {:?}", stated(8));
    for one in all {
        assert!(
            one.iter().zip(stated(8)).all(|(is, may)| *is <= may),
            "{all:?}"
        );
    }
    // Both fill what is bounded, or nearly. From there on index and travel grow by what a few buffers take. How many
    // instructions a million turns are depends on the processor.
    for (before, behind) in all[0].into_iter().zip(all[1]) {
        assert!(behind <= before * 9 / 8 + 64, "{all:?}");
    }
}

#[test]
fn memory_grows_with_the_program_as_stated() {
    let s = Scene::new();
    let all = [16, 64].map(|mib| (mib, peaks(&s, mib, 24)));
    eprintln!("{all:?} MiB");
    for (mib, one) in all {
        let may = stated(mib);
        assert!(
            one.iter().zip(may).all(|(is, may)| *is <= may),
            "{all:?}, not {may:?}"
        );
    }
}

#[test]
fn what_a_large_program_held_takes_no_memory() {
    let (s, mib) = (Scene::new(), 256);
    let trace = recorded(&s, mib, 3, &[]);
    let is = peak(&trace, "index");
    let may = LARGE[0] + LARGE[1] * mib;
    eprintln!("{is} MiB, stated {may}");
    assert!(is <= may, "{is} MiB, not {may}");
}

#[test]
fn memory_of_one_level_grows_with_the_program_as_stated() {
    let (s, mib) = (Scene::new(), 96);
    let trace = recorded(&s, mib, 8, &["read"]);
    let is = peak(&trace, "one level");
    let may = ONE_LEVEL[0] + ONE_LEVEL[1] * mib;
    eprintln!("{is} MiB, stated {may}");
    assert!(is <= may, "{is} MiB, not {may}");
}
