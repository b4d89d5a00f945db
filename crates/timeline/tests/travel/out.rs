//! Ways out of functions, compared with a plain replay of each instruction.

use crate::questions::Rng;
use hindsight_isa::Predictor;
use hindsight_lab::{Scene, hex};
use hindsight_replay::access::decode;
use hindsight_replay::{Code, Machine, Stop, stream};
use hindsight_timeline::{
    Cancel, Cursor, Direction, Filter, Ground, Kind, Reason, ThreadId, Timeline,
};
use iced_x86::FlowControl;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

const RSP: usize = 4;

#[test]
fn the_way_out_is_that_of_plain_steps() {
    plain_steps_agree(&[]);
}

/// An indirect call consists of a call, a write to its return address, and a return.
#[test]
fn calls_by_way_of_returns_are_not_ways_out() {
    plain_steps_agree(&["-mindirect-branch=thunk"]);
}

fn plain_steps_agree(more: &[&str]) {
    let s = Scene::new();
    let flags = ["-O1", "-static", "-fno-stack-protector"];
    let program = s.compile("frames.c", &[&flags, more].concat());
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "100".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let t = crate::open(&trace, 5000);
    let (far, ended) = agree(&t, 300);
    assert!(far > 20, "{far} of them far, {ended:?} ended");
}

/// Frames that existed when the kept part of a recording begins, and the way out of them.
const KEPT: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
static unsigned long data[1024]; static int from;
__attribute__((noinline)) long inner(void) {
    long all = 0;
    if (read(from, data, sizeof data) != sizeof data) _exit(1);
    for (int i = 0; i < 1024; i++) all += data[i];
    return all;
}
__attribute__((noinline)) long middle(int n) {
    volatile long all = 0; volatile int half;
    for (int i = 0; i < n; i++) { half = i; all += inner(); for (volatile int k = 0; k < 2000; k++); }
    return all + half;
}
__attribute__((noinline)) long outer(int n) { volatile char room[300]; return middle(n) + (room[n] = n); }
volatile long shared;
void *other(void *n) { shared = 2; return (void *) outer((long) n); }
int main() {
    from = open("/dev/urandom", O_RDONLY);
#ifdef OTHER
    pthread_t t;
    volatile long own = 1;
    shared = 1;
    pthread_create(&t, 0, other, (void *) 1000);
    pthread_join(t, 0);
    write(-1, (void *) &shared, sizeof shared);
    write(-1, (void *) &own, sizeof own);
#else
    volatile long all = outer(1000);
#endif
    for (volatile int i = 0; i < 300; i++);
    return 0;
}
"#;

#[test]
fn the_way_out_of_what_was_called_before_the_recording_begins() {
    let s = Scene::new();
    let (t, thread) = kept(&s, "-O1");
    let begun = Instant::now();
    let (far, [first, _]) = agree(&t, 60);
    let many = begun.elapsed();
    assert!(far > 5 && first.len() > 3, "{far} of them far, {first:?}");
    // To see that the recording begins in the function, it is not necessary to go through all of it.
    let mut c = t.cursor().unwrap();
    c.seek_count(thread, first[first.len() - 1]).unwrap();
    let begun = Instant::now();
    c.step_out(Direction::Backward).unwrap();
    let one = begun.elapsed();
    assert!(one < many, "{one:?} in place of a part of {many:?}");
}

/// The first part of a thread is not kept. The thread that made its stack is kept completely.
#[test]
fn stacks_are_not_empty_where_threads_are_kept_from_their_middle_on() {
    let s = Scene::new();
    let (t, thread) = kept(&s, "-DOTHER");
    let all = t.threads().unwrap();
    assert!(all.len() == 2 && all[0].from == 0 && all[1].id == thread);
    let mut c = t.cursor().unwrap();
    let (from, to) = (all[1].from, all[1].to);
    for round in 0..10 {
        c.seek_count(thread, from + (to - from) * round / 20)
            .unwrap();
        let rsp = c.registers().unwrap().gpr[RSP];
        let held = c.known_memory(rsp, 2048).unwrap().bytes;
        let empty = held.iter().flatten().filter(|k| k.ground == Ground::Fresh);
        assert_eq!(empty.count(), 0, "{round}");
    }
    // `middle` returns, near the end.
    let out = |from: u64| {
        let mut c = t.cursor().unwrap();
        c.seek_count(thread, from).unwrap();
        let mut before = from;
        while c.count() < to {
            before = c.count();
            c.step_out(Direction::Forward).unwrap();
        }
        before
    };
    let last = out(to - (to - from) / 100);
    assert_eq!(out(from + (to - from) / 2), last);
    assert_eq!(out(from + (to - from) / 3), last);
}

/// In the part that is not kept, a thread may have changed anything that another one knew, except that one's stack.
#[test]
fn what_threads_wrote_before_they_are_kept_is_not_known() {
    let s = Scene::new();
    let (t, _) = kept(&s, "-DOTHER");
    let calls = t.events(&Filter {
        syscalls: vec![1],
        ..Filter::default()
    });
    let mut c = t.cursor().unwrap();
    let mut shown = Vec::new();
    for call in calls.unwrap() {
        let Kind::Syscall { args, .. } = call.kind else {
            continue;
        };
        c.seek_count(call.thread, call.count).unwrap();
        let found = c.memory(args[1], 8).unwrap();
        assert_eq!(c.known_memory(args[1], 8).unwrap().prefix(), found.prefix());
        shown.push(found.prefix());
        if found.prefix().is_empty() {
            assert_eq!(found.candidates[0].bytes, 1u64.to_le_bytes());
        }
    }
    let [shared, own] = &shown[..] else {
        panic!("{shown:?}");
    };
    // The old value is known if a kept instruction has read it.
    assert!(shared.is_empty() || shared[..] == 2u64.to_le_bytes());
    assert_eq!(own[..], 1u64.to_le_bytes());
}

/// A recording of a thread without its first part.
fn kept(s: &Scene, flag: &str) -> (Timeline, ThreadId) {
    let options = ["--ring=2M", "--keep-on=always"];
    // How much is kept depends on when the collector looks.
    for _ in 0..20 {
        let t = crate::open(
            &crate::borders::record_as(s, KEPT, &["-O1", flag], &options),
            0,
        );
        let threads = t.threads().unwrap();
        let thread = threads.iter().max_by_key(|t| t.from).unwrap();
        assert!(thread.from > 1_000_000, "{}", thread.from);
        if thread.to - thread.from > 100_000 {
            let id = thread.id;
            return (t, id);
        }
    }
    panic!("too little is kept");
}

/// Compares ways out with plain steps. Returns how many led far. Also from where they led to the thread's beginning, by
/// more than a few instructions, and to its end, ascending.
fn agree(t: &Timeline, rounds: u64) -> (u32, [Vec<u64>; 2]) {
    let thread = ThreadId(t.trace().threads()[0]);
    let (begin, states) = play(t, thread);
    let len = states.len() as u64 - 1;
    let mut c = t.cursor().unwrap();
    // The flow of control of each instruction.
    let mut known: HashMap<u64, FlowControl> = HashMap::new();
    let mut flows = Vec::new();
    for (n, (rip, rsp)) in states.iter().enumerate() {
        let flow = known.entry(*rip).or_insert_with(|| {
            c.seek_count(thread, begin + n as u64).unwrap();
            let code = c.code(*rip, 15).unwrap();
            decode(&code, *rip).map_or(FlowControl::Next, |i| i.flow_control())
        });
        flows.push((*flow, *rsp));
    }
    let mut r = Rng(11);
    let (mut far, mut ended) = (0, [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        let from = r.below(len);
        let floor = flows[from as usize].1;
        c.seek_count(thread, begin + from).unwrap();
        let direction = [Direction::Forward, Direction::Backward][round as usize % 2];
        let stop = c.step_out(direction).unwrap();
        let want = match direction {
            Direction::Forward => {
                // Return addresses of functions that were called since. After a `longjmp` they lie above, too.
                let mut called = BTreeSet::new();
                let returns = |n: &u64| match flows[*n as usize] {
                    (FlowControl::Call | FlowControl::IndirectCall, sp) => {
                        called.insert(sp - 8);
                        false
                    }
                    (FlowControl::Return, sp) => !called.remove(&sp) && sp >= floor,
                    _ => false,
                };
                (from..len).find(returns).map(|n| n + 1)
            }
            Direction::Backward => {
                let mut floor = floor;
                (0..from).rev().find(|n| {
                    let (flow, sp) = flows[*n as usize];
                    let call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
                    let is = call && sp - 8 >= floor;
                    floor = floor.max(sp);
                    is
                })
            }
        };
        let context = format!("round {round}: {direction:?} from {from}: {stop:?}");
        match want {
            Some(want) => {
                assert_eq!(
                    (c.count() - begin, stop.reason),
                    (want, Reason::Step),
                    "{context}"
                );
                far += (want.abs_diff(from) > 2000) as u32;
            }
            None if direction == Direction::Forward => {
                assert_eq!(
                    (c.count() - begin, stop.reason),
                    (len, Reason::End),
                    "{context}"
                );
                ended[1].push(begin + from);
            }
            None => {
                assert_eq!(
                    (c.count(), stop.reason),
                    (begin, Reason::Begin),
                    "{context}"
                );
                ended[0].extend((from > 10_000).then_some(begin + from));
            }
        }
    }
    ended.iter_mut().for_each(|e| e.sort_unstable());
    (far, ended)
}

/// Plays a thread one instruction after the other. Returns where it begins, and the instruction and stack pointers from
/// there on.
fn play(t: &Timeline, thread: ThreadId) -> (u64, Vec<(u64, u64)>) {
    let image = t.trace().stream_info(thread.0).unwrap().image;
    let code = Arc::new(Code::from_trace(t.trace(), image).unwrap());
    let mut m = Machine::new(code, Predictor::WINDOW).unwrap();
    m.from_keyframe(stream(t.trace(), thread.0)).unwrap();
    let (begin, mut states) = (m.position(), Vec::new());
    loop {
        let cpu = m.registers();
        states.push((cpu.rip, cpu.gpr[RSP]));
        if m.run_to(m.position() + 1).unwrap() != Stop::Position {
            return (begin, states);
        }
    }
}

#[test]
fn the_way_out_of_a_long_function_is_short() {
    let s = Scene::new();
    let program = s.compile("frames.c", &["-O1", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "1000000".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let t = crate::open(&trace, 0);
    let mut c = t.cursor().unwrap();
    let end = t.threads().unwrap()[0].to;
    let thread = ThreadId(t.trace().threads()[0]);
    assert!(end > 20_000_000, "{end}");
    // In the first of the long loops, or in a function that it calls.
    c.seek_count(thread, end / 12).unwrap();
    let begun = Instant::now();
    let mut last = c.count();
    while c.count() - last < 3_000_000 {
        last = c.count();
        let stop = c.step_out(Direction::Forward).unwrap();
        assert_eq!(stop.reason, Reason::Step);
    }
    c.seek_count(thread, c.count() - 100).unwrap();
    let here = c.count();
    while here - c.count() < 3_000_000 {
        let stop = c.step_out(Direction::Backward).unwrap();
        assert_eq!(stop.reason, Reason::Step);
    }
    println!("{:?}", begun.elapsed());
}

/// Functions that are left by `longjmp`. Functions that are called later have their return addresses in the same
/// places.
const LEFT: &str = r#"
#include <setjmp.h>
static jmp_buf out; volatile long n; void (*volatile leave)(jmp_buf, int) = (void *) longjmp;
__attribute__((noinline)) long deep(int k) {
    // Nothing that is executed stands behind the call that does not return.
    if (k == 0) { if (n < 3) { leave(out, 1); __asm__ volatile("ud2"); } return 1; }
    return deep(k - 1) + n;
}
__attribute__((noinline)) long work(void) {
    if (setjmp(out)) n++;
    for (volatile int i = 0; i < 300; i++);
    return deep(5);
}
int main() { long all = work(); for (volatile int i = 0; i < 300; i++); return all != 16; }
"#;

#[test]
fn what_is_left_otherwise_ends_where_its_callers_return() {
    let s = Scene::new();
    let trace = crate::borders::record_as(&s, LEFT, &["-O1", "-fno-optimize-sibling-calls"], &[]);
    let t = crate::open(&trace, 0);
    let symbol = |name: &str| {
        let all = s.run(s.hindsight(&["calls", "--json"]).arg(&trace).arg(name));
        let all: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
        hex(&all["calls"][0]["address"]).unwrap()
    };
    let never = Cancel::new();
    let calls = |f| t.calls(f, &Default::default(), &never).unwrap();
    let (deep, work) = (calls(symbol("deep")), calls(symbol("work")));
    assert_eq!((deep.len(), work.len()), (24, 1));
    let end = work[0].returned.unwrap().count;
    let mut c = t.cursor().unwrap();
    // The first three times, the innermost calls leave everything by `longjmp`. The same is then called again from the
    // same place.
    for i in [5, 11, 17, 18, 20, 23] {
        let call = &deep[i];
        c.seek_count(call.thread, call.count).unwrap();
        let stop = c.step_out(Direction::Forward).unwrap();
        let want = match i {
            18.. => call.returned.unwrap().count,
            _ => end,
        };
        assert_eq!((c.count(), stop.reason), (want, Reason::Step), "{i}");
    }
}

#[test]
fn steps_that_are_cancelled_leave_the_cursor_where_it_was() {
    let s = Scene::new();
    let program = s.compile("frames.c", &["-O1", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "100000".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let t = crate::open(&trace, 0);
    let mut c = t.cursor().unwrap();
    let (thread, end) = (ThreadId(t.trace().threads()[0]), t.threads().unwrap()[0].to);
    let mut cancelled = 0;
    for round in 0..60 {
        let here = end / 61 * (round + 1) + round;
        c.seek_count(thread, here).unwrap();
        let direction = [Direction::Forward, Direction::Backward][(round % 2) as usize];
        let cancel = Cancel::new();
        let stop = std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(100 * (round % 20)));
                cancel.cancel();
            });
            let step = |c: &mut Cursor| match round % 3 {
                0 => c.step_over(direction),
                _ => c.step_out(direction),
            };
            c.cancellable(&cancel, step).unwrap()
        });
        if stop.reason == Reason::Cancelled {
            assert_eq!((c.thread(), c.count()), (thread, here), "{round}");
            cancelled += 1;
        }
    }
    assert!(cancelled > 5, "{cancelled}");
}
