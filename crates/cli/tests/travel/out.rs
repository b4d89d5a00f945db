//! Out of functions, compared with what a plain replay says of each instruction.

use crate::harness::Scene;
use crate::oracle;
use crate::questions::Rng;
use hindsight_replay::access::decode;
use hindsight_timeline::{Cancel, Direction, Reason, ThreadId};
use iced_x86::FlowControl;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

const RSP: usize = 4;

#[test]
fn the_way_out_is_that_of_plain_steps() {
    plain_steps_agree(&[]);
}

/// An indirect call goes through a call, a write to its return address, and a return.
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
    let log = oracle::play(t.trace(), t.trace().threads()[0]);
    let thread = ThreadId(log.thread);
    let mut c = t.cursor().unwrap();
    // What each instruction does to the flow of control.
    let mut known: HashMap<u64, FlowControl> = HashMap::new();
    let mut flows = Vec::new();
    for (n, state) in log.states.iter().enumerate() {
        let flow = known.entry(state.rip).or_insert_with(|| {
            c.seek_count(thread, n as u64).unwrap();
            let code = c.code(state.rip, 15).unwrap();
            decode(&code, state.rip).map_or(FlowControl::Next, |i| i.flow_control())
        });
        flows.push((*flow, state.gpr[RSP]));
    }
    let mut r = Rng(11);
    let cancel = Cancel::new();
    let (mut far, mut ended) = (0, 0);
    for round in 0..300 {
        let from = r.below(log.len());
        let floor = flows[from as usize].1;
        c.seek_count(thread, from).unwrap();
        let direction = [Direction::Forward, Direction::Backward][round % 2];
        let stop = c.step_out(direction, &cancel).unwrap();
        let want = match direction {
            Direction::Forward => {
                // Return addresses of what was called since: behind a `longjmp` they lie above, too.
                let mut called = BTreeSet::new();
                let returns = |n: &u64| match flows[*n as usize] {
                    (FlowControl::Call | FlowControl::IndirectCall, sp) => {
                        called.insert(sp - 8);
                        false
                    }
                    (FlowControl::Return, sp) => !called.remove(&sp) && sp >= floor,
                    _ => false,
                };
                (from..log.len()).find(returns).map(|n| n + 1)
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
                assert_eq!((c.count(), stop.reason), (want, Reason::Step), "{context}");
                far += (want.abs_diff(from) > 2000) as u32;
            }
            None if direction == Direction::Forward => {
                assert_eq!(
                    (c.count(), stop.reason),
                    (log.len(), Reason::End),
                    "{context}"
                );
                ended += 1;
            }
            None => assert_eq!((c.count(), stop.reason), (0, Reason::Begin), "{context}"),
        }
    }
    assert!(far > 20, "{far} of them far, {ended} ended");
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
    // Within the first of the long loops, or what it calls.
    c.seek_count(thread, end / 12).unwrap();
    let cancel = Cancel::new();
    let begun = Instant::now();
    let mut last = c.count();
    while c.count() - last < 3_000_000 {
        last = c.count();
        let stop = c.step_out(Direction::Forward, &cancel).unwrap();
        assert_eq!(stop.reason, Reason::Step);
    }
    c.seek_count(thread, c.count() - 100).unwrap();
    let here = c.count();
    while here - c.count() < 3_000_000 {
        let stop = c.step_out(Direction::Backward, &cancel).unwrap();
        assert_eq!(stop.reason, Reason::Step);
    }
    println!("{:?}", begun.elapsed());
}

/// What is left by `longjmp`, while what is called later has return addresses in the same places.
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
        all["calls"][0]["address"].as_u64().unwrap()
    };
    let never = Cancel::new();
    let calls = |f| t.calls(f, &Default::default(), &never).unwrap();
    let (deep, work) = (calls(symbol("deep")), calls(symbol("work")));
    assert_eq!((deep.len(), work.len()), (24, 1));
    let end = work[0].returned.unwrap().count;
    let mut c = t.cursor().unwrap();
    // The innermost ones leave all by `longjmp` the first three times, and the same is called again from the same place.
    for i in [5, 11, 17, 18, 20, 23] {
        let call = &deep[i];
        c.seek_count(call.thread, call.count).unwrap();
        let stop = c.step_out(Direction::Forward, &never).unwrap();
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
            match round % 3 {
                0 => c.step_over(direction, &cancel).unwrap(),
                _ => c.step_out(direction, &cancel).unwrap(),
            }
        });
        if stop.reason == Reason::Cancelled {
            assert_eq!((c.thread(), c.count()), (thread, here), "{round}");
            cancelled += 1;
        }
    }
    assert!(cancelled > 5, "{cancelled}");
}
