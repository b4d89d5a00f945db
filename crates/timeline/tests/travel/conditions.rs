//! Conditions of breakpoints that are expressions, and searches that go far for breakpoints alone.

use crate::questions::Rng;
use hindsight_lab::Scene;
use hindsight_oracle::plain::{self as oracle, Log};
use hindsight_timeline::expression::{Binary, Expression, Operand, Step};
use hindsight_timeline::{
    Breakpoint, Cancel, Condition, Cursor, Depth, Direction, Options, Reason, Scope, Stop, Stops,
    ThreadId, Timeline, index_path, regs,
};
use std::fs;
use std::path::PathBuf;

const INTERVAL: u64 = 250;
const BOTH: [Direction; 2] = [Direction::Backward, Direction::Forward];

fn record(s: &Scene) -> PathBuf {
    let program = s.compile("travel.c", &["-O1", "-static"]);
    let trace = s.path("t.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--restate-every", "9000", "-o"]);
    let run = s.run(record.arg(&trace).arg("--").arg(program).arg("40"));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

fn open(trace: &PathBuf, jobs: usize) -> Timeline {
    let options = Options {
        interval: INTERVAL,
        jobs,
        ..Options::default()
    };
    Timeline::open(trace, options).unwrap()
}

fn run(c: &mut Cursor, way: Direction, b: Breakpoint) -> Stop {
    let mut stops = Stops {
        breakpoints: vec![b],
        ..Stops::default()
    };
    c.run(way, Scope::Thread, &mut stops).unwrap()
}

/// The bits of a register that are in a mask are so.
fn bits(register: usize, mask: u64, value: u64) -> Expression {
    Expression::new(vec![
        Step::Register(Operand::General(register as u8)),
        Step::Constant(mask),
        Step::Binary(Binary::And),
        Step::Constant(value),
        Step::Binary(Binary::Equal),
        Step::End,
    ])
}

/// Where a run from `from` stops, as the log says.
fn expected(
    log: &Log,
    way: Direction,
    from: u64,
    holds: impl Fn(&hindsight_timeline::CpuState) -> bool,
) -> Option<u64> {
    let is = |n: &u64| holds(&log.states[*n as usize]);
    match way {
        Direction::Forward => (from + 1..log.instructions()).find(is),
        Direction::Backward => (0..from).rev().find(is),
    }
}

#[test]
fn what_is_far_is_found_without_marks() {
    let s = Scene::new();
    let trace = record(&s);
    let log = {
        let t = open(&trace, 1);
        oracle::play(t.trace(), t.trace().threads()[0])
    };
    let thread = ThreadId(log.thread);
    let (mut found, mut none, mut bare) = (0, 0, 0);
    let mut r = Rng(11);
    for i in 0..150u64 {
        let _ = fs::remove_file(index_path(&trace));
        let t = open(&trace, 1 + (i % 3) as usize);
        if i % 5 == 0 {
            t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
                .unwrap();
        }
        let at = r.below(log.instructions());
        let pc = log.states[r.below(log.instructions()) as usize].rip;
        let (mask, register) = (
            [0, 1, 7, u64::MAX][r.below(4) as usize],
            r.below(16) as usize,
        );
        let value = log.states[r.below(log.instructions()) as usize].gpr[register] & mask;
        let way = BOTH[i as usize % 2];
        let mut c = t.cursor().unwrap();
        c.seek_count(thread, at).unwrap();
        let mut b = Breakpoint::at(3, pc);
        if mask != 0 {
            b.condition = Some(bits(register, mask, value).into());
        }
        let stop = run(&mut c, way, b);
        let want = expected(&log, way, at, |s| {
            s.rip == pc && s.gpr[register] & mask == value
        });
        let context = format!("{way:?} to {pc:#x} from {at}, case {i}: {stop:?}");
        match want {
            Some(n) => {
                assert_eq!(c.count(), n, "{context}");
                let wanted = Reason::Breakpoint { id: 3, address: pc };
                assert_eq!(stop.reason, wanted, "{context}");
                found += 1;
            }
            None => {
                let ends = matches!(stop.reason, Reason::Begin | Reason::End);
                assert!(ends, "{context}");
                none += 1;
                bare += (i % 5 != 0 && t.index_status().present == 0) as usize;
            }
        }
    }
    assert!(found > 50 && none > 20, "{found}, {none}");
    // These went through the whole recording, and nobody needed an index.
    assert!(bare > 5, "{bare}");
}

#[test]
fn an_expression_and_code_say_the_same_of_memory() {
    let s = Scene::new();
    let trace = record(&s);
    // Code is asked of a recording with an index, expressions of one without.
    let indexed = crate::open(&trace, INTERVAL);
    indexed
        .build_index(Depth::Full, &|_, _| {}, &Cancel::new())
        .unwrap();
    let mut c = indexed.cursor().unwrap();
    let (thread, end) = {
        let h = &indexed.threads().unwrap()[0];
        (h.id, h.to)
    };
    let (mut stopped, mut r) = (0, Rng(4));
    for i in 0..80u64 {
        let at = r.below(end);
        c.seek_count(thread, r.below(end)).unwrap();
        let pc = c.registers().unwrap().rip;
        let (offset, parity, way) = (8 * r.below(4), r.below(2), BOTH[i as usize % 2]);
        let program = vec![
            Step::Register(Operand::General(regs::RSP as u8)),
            Step::Constant(offset),
            Step::Binary(Binary::Add),
            Step::Load(8),
            Step::Constant(4),
            Step::Binary(Binary::ShiftUnsigned),
            Step::Constant(1),
            Step::Binary(Binary::And),
            Step::Constant(parity),
            Step::Binary(Binary::Equal),
            Step::End,
        ];
        let code = Condition::code(move |v| {
            let address = v.registers().gpr[regs::RSP] + offset;
            let mut word = [0; 8];
            // Where memory is not known, the expression holds.
            match v.read(address, &mut word).unwrap() {
                true => u64::from_le_bytes(word) >> 4 & 1 == parity,
                false => true,
            }
        });
        let _ = fs::remove_file(index_path(&trace));
        let bare = open(&trace, 1 + (i % 3) as usize);
        let mut other = bare.cursor().unwrap();
        let asked = [
            (&mut other, Expression::new(program).into()),
            (&mut c, code),
        ];
        let answers = asked.map(|(c, condition)| {
            c.seek_count(thread, at).unwrap();
            let mut b = Breakpoint::at(1, pc);
            b.condition = Some(condition);
            let stop = run(c, way, b);
            (c.count(), stop.reason)
        });
        assert_eq!(answers[0], answers[1], "{way:?} to {pc:#x} from {at}");
        stopped += matches!(answers[0].1, Reason::Breakpoint { .. }) as usize;
    }
    assert!(stopped > 30, "{stopped}");
}

#[test]
fn a_far_search_is_cancelled() {
    let s = Scene::new();
    let trace = record(&s);
    let t = open(&trace, 2);
    let mut c = t.cursor().unwrap();
    let h = t.threads().unwrap()[0].clone();
    c.seek_count(h.id, h.to / 2).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    for way in BOTH {
        let stop = c.cancellable(&cancel, |c| {
            let mut stops = Stops {
                breakpoints: vec![Breakpoint::at(1, 1)],
                ..Stops::default()
            };
            c.run(way, Scope::Thread, &mut stops)
        });
        assert_eq!(stop.unwrap().reason, Reason::Cancelled);
        assert_eq!(c.count(), h.to / 2);
    }
}

/// Runs that stop at events, or at nothing, play no more than they must.
#[test]
fn without_breakpoints_nothing_is_played() {
    let s = Scene::new();
    let trace = record(&s);
    let t = open(&trace, 2);
    let h = t.threads().unwrap()[0].clone();
    let places = [h.from, h.to / 3, h.to / 2];
    for (i, at) in places.into_iter().enumerate() {
        let mut c = t.cursor().unwrap();
        c.seek_count(h.id, at).unwrap();
        // The breakpoint is in another thread.
        let mut other = Breakpoint::at(1, c.registers().unwrap().rip);
        other.thread = Some(ThreadId(h.id.0 + 1));
        let mut stops = Stops {
            breakpoints: vec![other],
            ..Stops::default()
        };
        let stop = c.run(Direction::Forward, Scope::Thread, &mut stops);
        assert_eq!(stop.unwrap().reason, Reason::End, "{i}");
        assert_eq!(c.count(), h.to);
        c.seek_count(h.id, at).unwrap();
        let mut calls = Stops {
            syscalls: hindsight_timeline::Choice::All,
            ..Stops::default()
        };
        let stop = c.run(Direction::Forward, Scope::Thread, &mut calls);
        let is_call = matches!(
            stop.unwrap().reason,
            Reason::Syscall { .. } | Reason::SyscallReturn { .. }
        );
        assert!(is_call && c.count() > at, "{i}");
    }
}
