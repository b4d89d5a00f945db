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
