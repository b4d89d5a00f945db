//! Calls and returns of functions, and what the kernel writes.

use crate::open;
use hindsight_lab::{Scene, hex};
use hindsight_oracle::plain as oracle;
use hindsight_timeline::{
    Cancel, Cursor, Depth, Direction, Filter, Reason, Scope, Stops, ThreadId, Timeline, Watch,
    Watchpoint,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
#include <setjmp.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
jmp_buf out; volatile double result; char buffer[64];
__attribute__((noinline)) long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) double scale(short s, float f, double d, const char *name) { return s * f * d + name[0]; }
__attribute__((noinline)) void leap(int n) { if (n) leap(n - 1); else longjmp(out, 7); }
__attribute__((noinline)) void nothing(unsigned char c) { __asm__ volatile(""); }
static void *work(void *p) { for (int i = 0; i < 200; i++) nothing(i); return 0; }
int main(int argc, char **argv) {
    long sum = fib(7);
    result = scale(-3, 1.5f, 0.25, "x");
    if (!setjmp(out)) leap(5);
    for (int i = 0; i < 3; i++) nothing(i);
    int p[2]; pipe(p);
    write(p[1], "from the kernel", 16);
    read(p[0], buffer, 16);
    buffer[2] = '!';
    if (argc > 1) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); pthread_join(t, 0); }
    return sum == 13 && !memcmp(buffer, "fr!m", 4) ? 0 : 1;
}
"#;

fn compile(s: &Scene) -> PathBuf {
    let file = s.path("calls.c");
    std::fs::write(&file, PROGRAM).unwrap();
    let program = s.path("calls");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args([
        "-g",
        "-O1",
        "-fno-ipa-cp",
        "-fno-ipa-sra",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
    ])
    .args(["-w", "-static", "-pthread", "-o"])
    .arg(&program)
    .arg(&file);
    assert!(gcc.status().unwrap().success());
    program
}

fn record(s: &Scene, options: &[&str], arguments: &[&str]) -> PathBuf {
    let (program, trace) = (compile(s), s.path("calls.hst"));
    let mut command = s.hindsight(&["record", "--quiet"]);
    command.args(options).arg("-o").arg(&trace).arg("--");
    let run = s.run(command.arg(&program).args(arguments));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

fn ask(s: &Scene, trace: &Path, function: &str) -> Value {
    let done = s.run(s.hindsight(&["calls", "--json"]).arg(trace).arg(function));
    assert!(done.status.success(), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn calls_are_those_of_a_plain_replay() {
    let s = Scene::new();
    let trace = record(
        &s,
        &["--keyframe-interval", "3000", "--regime", "checked"],
        &[],
    );
    let t = open(&trace, 500);
    let id = t.threads().unwrap()[0].id;
    let log = oracle::play(t.trace(), id.0);
    let names = ["fib", "leap", "nothing", "main"];
    let address = |name| hex(&ask(&s, &trace, name)["calls"][0]["address"]).unwrap();
    are_found_together(&trace, &names.map(address));
    for name in names {
        let address = address(name);
        let state = |i: usize| (log.states[i].rip, log.states[i].gpr[4]);
        let mut wanted = Vec::new();
        for i in (0..log.states.len()).filter(|i| log.states[*i].rip == address) {
            let sp = log.states[i].gpr[4];
            // The last write there is the push of the call.
            let byte = |k: u64| log.byte(sp + k, i as u64).map_or(0, |b| b.0);
            let to = u64::from_le_bytes(std::array::from_fn(|k| byte(k as u64)));
            let end = (i + 1..log.states.len()).find(|j| state(*j) == (to, sp + 8));
            wanted.push((i as u64, end.map(|j| (j as u64, log.states[j].gpr[0]))));
        }
        assert!(!wanted.is_empty(), "{name}");
        // Without an index, and with a fine one in several stretches.
        let fine = open(&trace, 500);
        fine.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
            .unwrap();
        for timeline in [open(&trace, 0), fine] {
            let found = timeline.calls(address, &Filter::default(), &Cancel::new());
            let found: Vec<_> = (found.unwrap().iter())
                .map(|c| (c.count, c.returned.map(|r| (r.count, r.value))))
                .collect();
            assert_eq!(found, wanted, "{name}");
        }
        stops(&t, id, address, &wanted);
        std::fs::remove_file(hindsight_timeline::index_path(&trace)).unwrap();
    }
}

/// Functions that are looked for together have the calls that each has alone.
fn are_found_together(trace: &Path, functions: &[u64]) {
    for interval in [0, 500] {
        let fresh = || {
            let t = open(trace, interval);
            if interval > 0 {
                t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
                    .unwrap();
            }
            t
        };
        let all = fresh()
            .calls_of(functions, &Filter::default(), &Cancel::new())
            .unwrap();
        assert!(all.is_sorted_by_key(|c| c.position));
        for f in functions {
            let here: Vec<_> = all.iter().filter(|c| c.function == *f).cloned().collect();
            let alone = fresh().calls(*f, &Filter::default(), &Cancel::new());
            assert_eq!(here, alone.unwrap(), "{f:#x}");
        }
        let sum = |f: &u64| all.iter().filter(|c| c.function == *f).count();
        assert_eq!(functions.iter().map(sum).sum::<usize>(), all.len());
    }
}

/// Stops at calls and returns, forwards and backwards.
fn stops(t: &Timeline, id: ThreadId, function: u64, wanted: &[(u64, Option<(u64, u64)>)]) {
    let mut places: Vec<(u64, bool)> = wanted.iter().map(|w| (w.0, true)).collect();
    places.extend(wanted.iter().filter_map(|w| Some((w.1?.0, false))));
    places.sort_unstable();
    // Several calls may end with the same return.
    places.dedup();
    let mut c = t.cursor().unwrap();
    let run = |c: &mut Cursor, direction| {
        let mut stops = Stops {
            calls: vec![function],
            returns: vec![function],
            ..Stops::default()
        };
        c.run(direction, Scope::Thread, &mut stops).unwrap()
    };
    let (begin, end) = (t.thread(id).unwrap().from, t.thread(id).unwrap().to);
    for direction in [Direction::Forward, Direction::Backward] {
        let from = match direction {
            Direction::Forward => begin,
            Direction::Backward => end,
        };
        c.seek_count(id, from).unwrap();
        let mut seen = Vec::new();
        loop {
            let call = match run(&mut c, direction).reason {
                Reason::Call { .. } => true,
                Reason::Return { value, .. } => {
                    assert_eq!(c.registers().unwrap().gpr[0], value);
                    false
                }
                Reason::Begin | Reason::End => break,
                other => panic!("{other:?}"),
            };
            seen.push((c.count(), call));
        }
        if direction == Direction::Backward {
            seen.reverse();
        }
        assert_eq!(seen, places, "{direction:?}");
    }
}

#[test]
fn calls_have_arguments_and_results() {
    let s = Scene::new();
    let trace = record(&s, &[], &["two threads"]);
    let fib = ask(&s, &trace, "fib");
    assert_eq!(fib["total"], 41);
    assert_eq!(fib["calls"][0]["arguments"][0]["name"], "n");
    assert_eq!(fib["calls"][0]["arguments"][0]["value"], 7);
    assert_eq!(fib["calls"][0]["returned"]["value"], 13);
    let results = |n: u64| -> Vec<u64> {
        let all = fib["calls"].as_array().unwrap().iter();
        all.filter(|c| c["arguments"][0]["value"] == n)
            .map(|c| c["returned"]["value"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(results(5), [5, 5]);
    assert_eq!(results(4), [3, 3, 3]);
    let scale = &ask(&s, &trace, "calls!scale")["calls"][0];
    let values: Vec<f64> = (scale["arguments"].as_array().unwrap()[..3].iter())
        .map(|a| a["value"].as_f64().unwrap())
        .collect();
    // The low half of the register is -3.
    assert_eq!(values, [65533.0, 1.5, 0.25]);
    assert_eq!(scale["arguments"][3]["type"], "const char *");
    // It returns its value in a vector register.
    assert!(scale["returned"]["value"].is_null());
    let leap = ask(&s, &trace, "leap");
    assert_eq!(leap["total"], 6);
    assert!(
        leap["calls"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["returned"].is_null())
    );
    let nothing = ask(&s, &trace, "nothing");
    assert_eq!(nothing["total"], 403);
    let threads: std::collections::BTreeSet<u64> = (nothing["calls"].as_array().unwrap().iter())
        .map(|c| c["thread"].as_u64().unwrap())
        .collect();
    assert_eq!(threads.len(), 2);
    let text = s.run(
        s.hindsight(&["calls"])
            .arg(&trace)
            .args(["fib", "--count", "2"]),
    );
    let text = text.text();
    assert!(text.contains("fib(n=7) = 13  until "), "{text}");
    assert!(text.contains("to calls!main+"), "{text}");
    assert!(text.contains("39 more"), "{text}");
    let none = s.run(s.hindsight(&["calls"]).arg(&trace).arg("no_such_function"));
    assert_eq!(none.status.code(), Some(2));
    assert!(none.messages().contains("has a function no_such_function"));
}

/// Keeps the recording of a failing test, and tells how it was made.
struct Told<'a> {
    scene: &'a Scene,
    trace: &'a Path,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failed-calls.hst");
        let kept = std::fs::copy(self.trace, &to);
        eprintln!("the recording, kept as {}: {kept:?}", to.display());
        for command in [&["info"][..], &["events"]] {
            let said = self
                .scene
                .run(self.scene.hindsight(command).arg(self.trace));
            eprintln!("{command:?}: {}", String::from_utf8_lossy(&said.stdout));
        }
    }
}

#[test]
fn what_the_kernel_writes_is_found() {
    let s = Scene::new();
    let trace = record(&s, &[], &[]);
    let _told = Told {
        scene: &s,
        trace: &trace,
    };
    let t = open(&trace, 0);
    let mut c = t.cursor().unwrap();
    // The address to which `read` wrote.
    let reads = t.events(&Filter {
        syscalls: vec![0],
        kinds: vec![hindsight_timeline::KindOf::Syscall],
        ..Filter::default()
    });
    let read = reads.unwrap().pop().unwrap();
    let hindsight_timeline::Kind::Syscall { args, .. } = read.kind else {
        panic!("{read:?}");
    };
    let at = args[1] + 2;
    let (_, end) = t.range().unwrap();
    c.seek(end).unwrap();
    let store = c.last_write(at, 1).unwrap().unwrap();
    assert!(
        !store.kernel && store.count > read.count,
        "{store:?}, {read:?}"
    );
    c.seek_count(store.thread, store.count).unwrap();
    let call = c.last_write(at, 1).unwrap().unwrap();
    assert!(
        call.kernel && call.count == read.count && call.len == 16,
        "{call:?}, {store:?}, {read:?}"
    );
    c.seek_count(call.thread, call.count).unwrap();
    assert_eq!(c.last_write(at, 1).unwrap(), None);
    // A watchpoint stops at both, both ways.
    let mut stops = Stops {
        watchpoints: vec![Watchpoint {
            id: 1,
            address: at,
            len: 1,
            watch: Watch::Write,
            image: None,
        }],
        ..Stops::default()
    };
    let (begin, _) = t.range().unwrap();
    for (from, direction, wanted) in [
        (begin, Direction::Forward, [read.count + 1, store.count + 1]),
        (end, Direction::Backward, [store.count, read.count]),
    ] {
        c.seek(from).unwrap();
        for count in wanted {
            let stop = c.run(direction, Scope::Process, &mut stops).unwrap();
            assert!(matches!(stop.reason, Reason::Watchpoint { .. }), "{stop:?}");
            assert_eq!(c.count(), count, "{stop:?}, {store:?}, {read:?}");
        }
        let last = c.run(direction, Scope::Process, &mut stops).unwrap();
        assert!(
            matches!(last.reason, Reason::Begin | Reason::End),
            "{last:?}, {store:?}, {read:?}"
        );
    }
    // The same on the command line.
    let done = s.run(
        s.hindsight(&["writes", "--json"])
            .arg(&trace)
            .args([at.to_string().as_str(), "1"]),
    );
    let list: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(list[1]["kernel"], true, "{list}");
    assert_eq!(list[1]["value"][0], b'o', "{list}");
}

/// Functions that return on another stack than others, which begin later and lie below. `longjmp` leaves them several
/// times before they return.
const LEFT: &str = r#"
#include <setjmp.h>
#include <ucontext.h>
static ucontext_t back, a, b; static char low[65536], high[65536]; static volatile int turns; static jmp_buf out;
__attribute__((noinline)) void change(ucontext_t *from, ucontext_t *to) { swapcontext(from, to); turns++; }
static void of_a(void) { for (int i = 0; i < 5; i++) change(&a, &b); change(&a, &back); }
static void of_b(void) { for (;;) change(&b, &a); }
__attribute__((noinline)) int attempt(int n) { if (n < 3) longjmp(out, n + 1); return n; }
int main() {
    getcontext(&a); a.uc_stack.ss_sp = high; a.uc_stack.ss_size = sizeof high; makecontext(&a, of_a, 0);
    getcontext(&b); b.uc_stack.ss_sp = low; b.uc_stack.ss_size = sizeof low; makecontext(&b, of_b, 0);
    change(&back, &a);
    volatile int n = setjmp(out);
    for (volatile int i = 0; i < 5000; i++) turns++;
    attempt(n);
    return 0;
}
"#;

#[test]
fn calls_return_on_their_own_stacks_and_only_if_they_are_not_left() {
    let s = Scene::new();
    let trace =
        crate::borders::record_as(&s, LEFT, &["-g", "-O1", "-fno-optimize-sibling-calls"], &[]);
    let [attempt, change] = ["attempt", "change"].map(|function| {
        let all = ask(&s, &trace, function);
        hex(&all["calls"][0]["address"]).unwrap()
    });
    are_found_together(&trace, &[attempt, change]);
    // A function that is called in one interval of the index may return in another.
    let fine = open(&trace, 700);
    fine.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
        .unwrap();
    for t in [open(&trace, 0), fine] {
        let returns = |function: u64| -> Vec<bool> {
            let all = t.calls(function, &Filter::default(), &Cancel::new());
            all.unwrap().iter().map(|c| c.returned.is_some()).collect()
        };
        assert_eq!(returns(attempt), [false, false, false, true]);
        // The last one to go back has waited from the beginning. The two that are given up do not return.
        let changes = returns(change);
        assert_eq!(changes.len(), 12, "{changes:?}");
        let not: Vec<usize> = (0..12).filter(|i| !changes[*i]).collect();
        assert_eq!(not, [10, 11], "{changes:?}");
    }
}

/// Two functions are called at the same place. The first one is left by `longjmp`, and later returns there itself. A
/// third function goes on as itself for a long time, and returns from all of its calls at once.
const ELSEWHERE: &str = r#"
#include <setjmp.h>
static jmp_buf out; volatile long turns;
typedef long (*function)(long);
__attribute__((noinline)) long leaps(long n) { if (n < 2) longjmp(out, 1); return n + 10; }
__attribute__((noinline)) long other(long n) { return n + 100; }
__attribute__((noinline)) long site(function f, long n) { return f(n) + 1; }
__attribute__((noinline)) long again(long n) { turns++; __asm__ volatile(""); return n ? again(n - 1) : 7; }
int main(void) {
    if (!setjmp(out)) site(leaps, 1);
    turns = site(other, 5);
    turns = site(leaps, 2);
    return again(200000) != 7;
}
"#;

#[test]
fn what_another_function_returned_is_not_taken_for_its_own() {
    let s = Scene::new();
    let trace = crate::borders::record_as(&s, ELSEWHERE, &["-g", "-O2"], &[]);
    let all = ask(&s, &trace, "leaps");
    let values: Vec<&Value> = (all["calls"].as_array().unwrap().iter())
        .map(|c| &c["returned"]["value"])
        .collect();
    assert_eq!(values, [&Value::Null, &Value::from(12)], "{all}");
    assert_eq!(
        ask(&s, &trace, "other")["calls"][0]["returned"]["value"],
        105
    );
    // Of that many open calls, only the last ones are remembered.
    let t = open(&trace, 0);
    let again = hex(&ask(&s, &trace, "again")["calls"][0]["address"]).unwrap();
    let calls = t.calls(again, &Filter::default(), &Cancel::new()).unwrap();
    assert_eq!(calls.len(), 200_001);
    assert!(
        calls[180_000..]
            .iter()
            .all(|c| c.returned.is_some_and(|r| r.value == 7))
    );
}

/// `vfork` takes its return address from the stack for its system call, and puts it back.
const PUTS_BACK: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 3; i++) {
        pid_t p = vfork();
        if (!p) _exit(i);
        int status;
        if (waitpid(p, &status, 0) != p || WEXITSTATUS(status) != i) return 1;
    }
    return 0;
}
"#;

#[test]
fn what_puts_its_return_address_back_returns() {
    let s = Scene::new();
    let trace = crate::borders::record_as(&s, PUTS_BACK, &["-g", "-O1"], &[]);
    let all = ask(&s, &trace, "vfork");
    let calls = all["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3, "{all}");
    let pid = |c: &Value| c["returned"]["value"].as_u64().is_some_and(|p| p > 1);
    assert!(calls.iter().all(pid), "{all}");
}
