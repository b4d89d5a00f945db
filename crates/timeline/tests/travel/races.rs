//! Memory for which threads race. Its candidates do not depend on the index. What a thread reads later is among them.

use crate::open;
use crate::questions::Rng;
use hindsight_lab::Scene;
use hindsight_timeline::{
    Candidate, Cursor, Direction, Filter, Kind, KindOf, Memory, Scope, ThreadId, Timeline, Unnamed,
    Watch, Why,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Two threads access the same bytes in turns. Atomic operations order them only now and then. A thread often reads
/// what it has written.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
#include <sys/syscall.h>
volatile unsigned char bytes[64] __attribute__((aligned(64)));
volatile unsigned turn; int order;
static void *work(void *p) {
    unsigned long me = (unsigned long) p, r = 77 * me + 1;
    for (int i = 0; i < 12; i++) {
        while (turn % 2 != me);
        for (int k = 0; k < 8; k++) {
            r = r * 6364136223846793005ul + 1442695040888963407ul;
            unsigned at = r >> 40 & 63, what = r >> 50 & 7;
            if (what < 2) bytes[at] = (me << 6) + i;
            else if (what < 3) *(volatile unsigned *) (bytes + (at & 60)) = i * 0x01010101u + me;
            else if (what < 7) bytes[at], bytes[at ^ 1];
            else *(volatile unsigned long *) (bytes + (at & 56));
        }
        if (i % 4 == 3) __sync_fetch_and_add(&order, 1);
        turn++;
    }
    return 0;
}
int main() {
    pthread_t t;
    syscall(SYS_close, -77, bytes);
    pthread_create(&t, 0, work, (void *) 1);
    work(0);
    pthread_join(t, 0);
    return 0;
}
"#;

pub fn compile(s: &Scene, name: &str, text: &str) -> PathBuf {
    let (file, program) = (s.path(&format!("{name}.c")), s.path(name));
    std::fs::write(&file, text).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-w", "-static", "-pthread", "-o"]);
    assert!(gcc.arg(&program).arg(&file).status().unwrap().success());
    program
}

pub fn record(s: &Scene) -> PathBuf {
    let (program, trace) = (compile(s, "races", PROGRAM), s.path("races.hst"));
    let run = s.run(&mut s.recording(&trace, &[&program]));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

/// The address of the bytes.
pub fn bytes(t: &Timeline) -> u64 {
    let filter = Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: vec![3],
        ..Filter::default()
    };
    let all = t.events(&filter).unwrap().into_iter();
    let mut said = all.filter_map(|h| match h.kind {
        Kind::Syscall { args, .. } if args[0] as i32 == -77 => Some(args[1]),
        _ => None,
    });
    said.next().unwrap()
}

/// For each byte: its known value, its candidates, and the threads that wrote further values.
type Values = Vec<(Option<u8>, BTreeSet<u8>, BTreeSet<ThreadId>)>;

fn values(m: &Memory) -> Values {
    let of = |i: usize| {
        let at = m.address + i as u64;
        let covers = |c: &&Candidate| c.address <= at && at - c.address < c.bytes.len() as u64;
        let all = m.candidates.iter().filter(covers);
        let candidates = all.map(|c| c.bytes[(at - c.address) as usize]).collect();
        let unnamed = m
            .unnamed
            .iter()
            .filter(|u| u.address <= at && at - u.address < u.len);
        let unnamed = unnamed.map(|u| u.thread).collect();
        (m.bytes[i].map(|b| b.value), candidates, unnamed)
    };
    (0..m.bytes.len()).map(of).collect()
}

/// An answer without candidates. The same bytes are known, and it says where there may be other values.
fn same_at_a_glance(quick: &Memory, all: &Memory) {
    let known = |m: &Memory| -> Vec<_> { m.bytes.iter().map(|b| b.map(|k| k.value)).collect() };
    assert_eq!(known(quick), known(all), "{quick}{all}");
    let may = |at: u64| {
        quick
            .unnamed
            .iter()
            .any(|u| at.wrapping_sub(u.address) < u.len)
    };
    for c in all
        .candidates
        .iter()
        .filter(|c| !quick.candidates.contains(c))
    {
        assert_eq!(c.why, Why::Race, "{quick}{all}");
        // Some bytes of it may be those that are known. They are no other values.
        for (at, byte) in (c.address..).zip(&c.bytes) {
            let held = quick.bytes[(at - quick.address) as usize];
            let same = held.is_some_and(|k| k.value == *byte);
            assert!(same || may(at), "{c}: {quick}{all}");
        }
    }
    for u in &all.unnamed {
        let there = |v: &&Unnamed| v.thread == u.thread && v.address <= u.address;
        let covers = |v: &Unnamed| u.address + u.len <= v.address + v.len;
        // A byte may be known because everybody left the same value. It is not said who else may have written it
        // before.
        let from = u.address.saturating_sub(quick.address) as usize;
        let mut its = quick.bytes.iter().skip(from).take(u.len as usize);
        assert!(
            quick.unnamed.iter().filter(there).any(covers) || its.all(Option::is_some),
            "{quick}{all}"
        );
    }
}

#[test]
fn what_races_may_have_left_is_the_same_in_every_index_and_holds_what_is_read() {
    // The threads run beside each other in a different way in each recording.
    let mut met = [0; 3];
    for _ in 0..5 {
        let s = Scene::new();
        let found = races_agree(&record(&s));
        met = std::array::from_fn(|i| met[i] + found[i]);
        let [raced, read, unnamed] = met;
        if raced > 50 && read > 10 && unnamed > 0 {
            return;
        }
    }
    panic!("raced, read, unnamed: {met:?}");
}

/// Compares answers about a recording. Returns the numbers of bytes with several values, of bytes that were read, and
/// of bytes with further writers.
fn races_agree(trace: &Path) -> [usize; 3] {
    let mut r = Rng(5);
    let longest = open(trace, 0).threads().unwrap().iter().map(|t| t.to).max();
    let all = [0, longest.unwrap() / 100].map(|i| open(trace, i));
    let at = bytes(&all[0]);
    let mut cursors: Vec<Cursor> = all.iter().map(|t| t.cursor().unwrap()).collect();
    let threads = all[0].threads().unwrap();
    let (mut raced, mut read, mut unnamed) = (0, 0, 0);
    for n in 0..40 {
        let t = &threads[r.below(2) as usize];
        let (mut thread, mut count) = (t.id, t.from + r.below(t.to - t.from));
        let c = &mut cursors[0];
        if n % 2 == 0 {
            c.seek_count(thread, count).unwrap();
            let found = c.find(Direction::Forward, at, 64, Watch::Read);
            if let Some(f) = found.unwrap() {
                (thread, count) = (f.thread, f.count);
            }
        }
        let mut answers = Vec::new();
        for c in &mut cursors {
            c.seek_count(thread, count).unwrap();
            let all = c.memory(at, 64).unwrap();
            same_at_a_glance(&c.known_memory(at, 64).unwrap(), &all);
            assert_eq!((c.thread(), c.count()), (thread, count));
            answers.push(values(&all));
        }
        assert_eq!(answers[1], answers[0], "thread {thread} at {count}");
        raced += answers[0].iter().filter(|a| !a.1.is_empty()).count();
        unnamed += answers[0].iter().filter(|a| !a.2.is_empty()).count();
        // What it reads there.
        let c = &mut cursors[0];
        let accesses = c.accesses().unwrap().into_iter();
        let reads = accesses.filter(|a| a.read && !a.write && a.touches(at, 64));
        let reads: Vec<_> = reads.collect();
        c.step(Direction::Forward, Scope::Thread).unwrap();
        for byte in reads.iter().flat_map(|a| a.address..a.address + a.len) {
            let (known, candidates, _) = &answers[0][(byte - at) as usize];
            let value = c.memory(byte, 1).unwrap().bytes[0].unwrap().value;
            read += 1;
            assert!(
                known.is_none_or(|k| k == value) || candidates.contains(&value),
                "thread {thread} at {count} reads {value:x?} at {byte:#x}: {known:?}, {candidates:?}"
            );
        }
    }
    [raced, read, unnamed]
}
