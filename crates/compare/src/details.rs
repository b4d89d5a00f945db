//! What differs between two events that belong to each other.

use crate::events::numbers;
use crate::model::{Byte, Input, Kind, Reason};
use crate::side::{Side, first_different};
use crate::{Both, Result};
use hindsight_syscalls::{Arg, Returns, Set, Shape, signature};
use hindsight_timeline::{Happening, Kind as Event, Way, error_name, signal_name, syscall_name};

/// Calls that return numbers that the system gives.
const IDS: [&str; 15] = [
    "getpid",
    "gettid",
    "getppid",
    "getpgrp",
    "getpgid",
    "getsid",
    "setsid",
    "fork",
    "vfork",
    "clone",
    "clone3",
    "wait4",
    "set_tid_address",
    "shmget",
    "timer_create",
];
/// Calls that return times, or what depends on them.
const TIMES: [&str; 12] = [
    "time",
    "times",
    "gettimeofday",
    "clock_gettime",
    "clock_getres",
    "getrusage",
    "alarm",
    "getitimer",
    "setitimer",
    "sysinfo",
    "nanosleep",
    "clock_nanosleep",
];

/// What a pair of events says.
pub enum Said {
    /// The same.
    Same,
    /// The programs did something else.
    Different(Kind),
    /// The programs got something else.
    Got(Input),
}

/// Why results of a call differ between runs, if that says nothing.
pub fn reason(name: &str) -> Reason {
    match name {
        _ if IDS.contains(&name) => Reason::Id,
        _ if TIMES.contains(&name) => Reason::Time,
        "getrandom" => Reason::Random,
        _ => Reason::Data,
    }
}

/// Why what was read from a file differs between runs, if that says nothing.
pub fn reason_of_file(path: &str) -> Reason {
    match path {
        "/dev/urandom" | "/dev/random" => Reason::Random,
        "/proc/uptime" | "/proc/stat" | "/proc/loadavg" | "/proc/self/stat" => Reason::Time,
        _ => Reason::Data,
    }
}

/// Compares two events that belong to each other.
pub fn compare(sides: &mut Both<Side>, events: Both<&Happening>) -> Result<Said> {
    match [&events[0].kind, &events[1].kind] {
        [
            Event::Syscall {
                number,
                args,
                result,
            },
            Event::Syscall {
                args: others,
                result: other,
                ..
            },
        ] => {
            let call = Call {
                name: syscall_name(*number),
                args: [args, others],
                results: [*result, *other],
            };
            call.compare(sides, events)
        }
        [
            Event::Signal { number, .. },
            Event::Signal { number: other, .. },
        ] if number != other => {
            let name = |n: u8| Some(signal_name(n.into()));
            Ok(Said::Different(Kind::Signal {
                signals: [name(*number), name(*other)],
            }))
        }
        _ => Ok(Said::Same),
    }
}

struct Call<'a> {
    name: String,
    args: Both<&'a [u64; 6]>,
    results: Both<Option<u64>>,
}

impl Call<'_> {
    fn compare(&self, sides: &mut Both<Side>, events: Both<&Happening>) -> Result<Said> {
        let signature = signature(&self.name);
        let [a, b] = self.args.map(|args| numbers(&self.name, signature, args));
        let number = a.iter().zip(&b).position(|(x, y)| x != y);
        let args = signature.map_or(&[][..], |s| s.args);
        let mut texts = None;
        if number.is_none() && args.iter().any(|a| in_memory(a).is_some()) {
            texts = Some(self.texts(sides, events)?);
        }
        let differs = |part: Part| {
            let all = texts.as_ref()?;
            let differ = |(i, a): (usize, &Arg)| {
                in_memory(a) == Some(part) && all[0].get(i) != all[1].get(i)
            };
            args.iter().enumerate().position(differ)
        };
        let calls = |sides: &mut Both<Side>| {
            let [a, b] = sides;
            Ok::<_, crate::Error>([a.text(events[0])?, b.text(events[1])?])
        };
        if let Some(index) = number.or(differs(Part::Before)) {
            let calls = calls(sides)?;
            return Ok(Said::Different(Kind::Argument { index, calls }));
        }
        let moved = [0, 1].map(|i| sides[i].moved(events[i]).cloned());
        let bytes = match moved.iter().any(Option::is_some) {
            true => first_different(sides, events)?,
            false => None,
        };
        let way = moved.iter().flatten().next().map(|m| m.way);
        if let (Some((at, bytes)), Some(Way::Out)) = (&bytes, way) {
            return Ok(Said::Different(Kind::Bytes {
                at: *at,
                bytes: bytes.clone(),
                calls: calls(sides)?,
            }));
        }
        let path = moved.iter().flatten().next().map(|m| m.file.clone());
        let reason = path.map_or(reason(&self.name), |p| match reason_of_file(&p) {
            Reason::Data => reason(&self.name),
            other => other,
        });
        if !reason.counts()
            || bytes.is_none() && !self.result_differs() && differs(Part::Behind).is_none()
        {
            return Ok(Said::Same);
        }
        Ok(Said::Got(Input {
            positions: events.map(|e| e.position),
            threads: events.map(|e| e.thread),
            calls: calls(sides)?,
            files: [0, 1].map(|i| moved[i].as_ref().map(|m| m.file.to_string())),
            byte: bytes.map(|(at, bytes)| Byte {
                at,
                offsets: [0, 1].map(|i| moved[i].as_ref()?.offset?.checked_add(at)),
                bytes,
            }),
        }))
    }

    fn result_differs(&self) -> bool {
        let [Some(a), Some(b)] = self.results else {
            return self.results[0] != self.results[1];
        };
        let failed = [a, b].map(|r| error_name(r).is_some());
        let address = signature(&self.name).is_some_and(|s| s.returns == Returns::Address);
        match failed {
            [false, false] if address => false,
            _ => a != b,
        }
    }

    /// The arguments of each call as text, without what differs in any two runs.
    fn texts(&self, sides: &mut Both<Side>, events: Both<&Happening>) -> Result<Both<Vec<String>>> {
        let mut out = [Vec::new(), Vec::new()];
        for i in 0..2 {
            let shown = sides[i].cursor.system_call(events[i])?;
            let arguments = shown.map(|c| c.arguments).unwrap_or_default();
            out[i] = arguments.iter().map(|a| sides[i].plain(a)).collect();
        }
        Ok(out)
    }
}

/// When memory that an argument points to says something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The call reads it.
    Before,
    /// The call writes it.
    Behind,
}

/// What is compared of an argument as text. What is known of a file matters only where the program uses it. Times, addresses and numbers of the system are not. Bytes are compared otherwise.
fn in_memory(arg: &Arg) -> Option<Part> {
    match arg {
        Arg::Text | Arg::Texts | Arg::Address(_) | Arg::Value(_) | Arg::Polled(_) => {
            Some(Part::Before)
        }
        Arg::In(shape) | Arg::Ins(shape, _) if says_something(*shape) => Some(Part::Before),
        Arg::FilledText | Arg::FlagsBehind(Set::WaitStatus) => Some(Part::Behind),
        Arg::Out(Shape::Status | Shape::Rlimit | Shape::Int) => Some(Part::Behind),
        _ => None,
    }
}

fn says_something(shape: Shape) -> bool {
    matches!(
        shape,
        Shape::Rlimit | Shape::EpollEvent | Shape::SchedParam | Shape::OpenHow | Shape::Int
    )
}
