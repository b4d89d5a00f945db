//! The cost of a question about memory that nobody accessed. It must not exceed that for known memory.

use hindsight_lab::Scene;
use hindsight_timeline::{Ground, Options, Timeline};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
const char text[] = "what never changes";
volatile long done;
__attribute__((noinline)) long sum(int n) {
    long all = 0;
    for (int i = 0; i < n; i++) all += i * 7;
    return all;
}
int main(int argc, char **argv) {
    printf("%p %p\n", (void *) text, (void *) main);
    done = sum(10);
    for (volatile int i = 0; i < atoi(argv[1]); i++) done += i;
    return 0;
}
"#;

fn record(s: &Scene, options: &[&str], rounds: &str) -> (PathBuf, Vec<u64>) {
    let (source, program) = (s.path("cheap.c"), s.path("cheap"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-g", "-O0", "-o"]).arg(&program).arg(&source);
    assert!(gcc.status().unwrap().success());
    let trace = s.path("cheap.hst");
    let mut command = s.hindsight(&["record", "--quiet"]);
    command.args(options).arg("-o").arg(&trace).arg("--");
    let run = s.run(command.arg(&program).arg(rounds));
    assert!(run.status.success(), "{}", run.messages());
    let hex = |w: &str| u64::from_str_radix(w.trim_start_matches("0x"), 16).unwrap();
    let text = run.text();
    (trace, text.split_whitespace().map(hex).collect())
}

/// Opens a recording without an index. Counts the instructions that are played to make parts of one.
fn counting(trace: &std::path::Path) -> (Timeline, Arc<AtomicU64>) {
    let options = Options {
        unsaved: true,
        ..Options::default()
    };
    let t = Timeline::open(trace, options).unwrap();
    let played = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&played);
    t.tell_progress(move |n| {
        count.fetch_max(n.unwrap_or(0), Relaxed);
    });
    (t, played)
}

#[test]
fn what_cannot_be_there_and_what_files_say_is_not_searched_for() {
    let s = Scene::new();
    let (trace, places) = record(&s, &["--regime", "checked"], "60000");
    let (t, played) = counting(&trace);
    let mut c = t.cursor().unwrap();
    let end = t.range().unwrap().1;
    c.seek(end).unwrap();
    let sp = c.registers().unwrap().gpr[4];
    // Nothing was ever mapped at these addresses.
    for address in [
        0,
        0x123456,
        sp & !0xffff_ffff_ffff,
        1 << 46,
        u64::MAX - 4096,
    ] {
        for m in [
            c.memory(address, 64).unwrap(),
            c.known_memory(address, 64).unwrap(),
        ] {
            assert_eq!(m.bytes, [None; 64], "{address:#x}");
            assert!(m.candidates.is_empty());
        }
    }
    // Constants and code that the program did not read.
    let text = c.memory(places[0], 18).unwrap();
    assert_eq!(text.whole().unwrap(), b"what never changes");
    let code = c.known_memory(places[1], 64).unwrap();
    for b in text.bytes.iter().chain(&code.bytes) {
        assert_eq!(b.unwrap().ground, Ground::Module);
    }
    assert_eq!(played.load(Relaxed), 0, "instructions were played");
}

/// After the last recorded instruction, a thread's gap has no end.
#[test]
fn where_nothing_is_recorded_any_more_there_is_an_answer() {
    let s = Scene::new();
    let (trace, _) = record(&s, &["--from", "sum"], "10");
    let (t, _) = counting(&trace);
    let (begin, end) = t.range().unwrap();
    let mut c = t.cursor().unwrap();
    let half = t.find("50%".parse().unwrap(), None).unwrap();
    for place in [begin, half, end] {
        c.seek(place).unwrap();
        let r = c.registers().unwrap();
        for address in [r.gpr[4], r.gpr[4].wrapping_sub(64), r.rip, 0x1000] {
            assert_eq!(c.memory(address, 16).unwrap().bytes.len(), 16);
        }
    }
    for arguments in [["at", "end"], ["backtrace", "end"], ["at", "50%"]] {
        let mut command = s.hindsight(&[arguments[0]]);
        let done = s.run(command.arg(&trace).arg(arguments[1]));
        assert!(done.status.success(), "{}", done.messages());
    }
}
