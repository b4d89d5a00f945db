//! What happened: events of all kinds, and what lies between them.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bool, Bytes, Float, Int, Text, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use hindsight_timeline::{
    Cursor, Error, Filter, GapReason, Happening, Kind, KindOf, Position, ThreadId, error_name,
    signal_name, syscall_name, syscall_number,
};
use std::collections::BTreeMap;

/// Events are read in stretches of this many segments, so that not all of them are in memory at the same time.
const TOGETHER: usize = 1 << 20;

/// Visits the events that lie within the bounds.
fn each(
    r: &Recording,
    bounds: &Bounds,
    kinds: &[KindOf],
    syscalls: &[u64],
    out: &mut Rows,
    visit: &mut dyn FnMut(&mut Rows, Happening, i64) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let clock = r.clock()?;
    let times = bounds.numbers("time");
    if times.is_empty() {
        return Ok(());
    }
    let bound = |n: i128| n.clamp(0, clock.end().into()) as i64;
    let first = clock.first_at(bound(*times.start()));
    let only = |column: &str| {
        let range = bounds.numbers(column);
        (range.start() == range.end()).then(|| u32::try_from(*range.start()).unwrap_or(u32::MAX))
    };
    let of_threads = !kinds.is_empty() && !kinds.contains(&KindOf::Process);
    let all = clock.stretches();
    let mut at = first;
    let mut from = all.get(first).map(|s| Position::new(s.segment.opens, 0));
    // What comes before the first segment that has instructions.
    if first == 0 {
        from = None;
    }
    loop {
        out.cancel.check()?;
        at = at.saturating_add(TOGETHER);
        let next = all.get(at).map(|s| Position::new(s.segment.opens, 0));
        let filter = Filter {
            // A filter for a thread leaves out what is said of processes.
            thread: only("thread").filter(|_| of_threads).map(ThreadId),
            image: only("process"),
            from,
            until: next,
            kinds: kinds.to_vec(),
            syscalls: syscalls.to_vec(),
        };
        let list = match r.timeline.events(&filter) {
            // A number of a thread or a process that there is not.
            Err(Error::NoThread(_) | Error::NoImage(_)) => Vec::new(),
            list => list?,
        };
        for (i, h) in list.into_iter().enumerate() {
            if i % 1024 == 0 {
                out.cancel.check()?;
            }
            let time = clock.time(h.position);
            if bounds.has("time", time) && bounds.has("thread", h.thread.0) {
                visit(out, h, time)?;
            }
        }
        let done = next.is_none_or(|p| !times.contains(&clock.time(p).into()));
        if done {
            return Ok(());
        }
        from = next;
    }
}

/// Fills the first five columns.
fn place(r: &Recording, out: &mut Rows, h: &Happening, time: i64) -> Result<(), Stop> {
    instant(r, out, h.position, time, (h.thread, h.count))
}

/// Table `events`.
pub struct Events;

const EVENTS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column(
        "kind",
        Word,
        "syscall, signal, exception, thread, process, module, gap, mark or regime",
    ),
    column("event", Text, "what happened, in words"),
];

impl Table for Events {
    fn name(&self) -> &str {
        "events"
    }

    fn columns(&self) -> &'static [Column] {
        EVENTS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        // An unknown kind has no rows.
        let kinds: Option<Vec<KindOf>> =
            (bounds.texts("kind")).map(|all| all.iter().filter_map(|k| k.parse().ok()).collect());
        if kinds.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        each(
            r,
            bounds,
            &kinds.unwrap_or_default(),
            &[],
            out,
            &mut |out, h, time| {
                place(r, out, &h, time)?;
                let kind = match h.kind.is_exception() {
                    true => KindOf::Exception,
                    false => h.kind.of(),
                };
                out.text(5, kind.to_string());
                if out.wants(&[6]) {
                    out.text(6, h.to_string());
                }
                out.end()
            },
        )
    }
}

/// Table `syscalls`.
pub struct Syscalls;

const SYSCALLS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("number", Int, "number of the call (x86-64)"),
    column("name", Word, "name of the call"),
    column(
        "arguments",
        Text,
        "its arguments as strace shows them; takes a look into memory",
    ),
    column(
        "result",
        Int,
        "what it returned; from -4095 to -1: an error; NULL: it did not return there",
    ),
    column("error", Word, "name of the error; NULL: none"),
    column(
        "returned",
        Text,
        "what it returned, as strace shows it; takes a look into memory",
    ),
    column("a0", Address, "first argument"),
    column("a1", Address, "second argument"),
    column("a2", Address, "third argument"),
    column("a3", Address, "fourth argument"),
    column("a4", Address, "fifth argument"),
    column("a5", Address, "sixth argument"),
    column(
        "seconds",
        Float,
        "estimate of when it began, since the start of the recording; NULL: not known",
    ),
];

impl Table for Syscalls {
    fn name(&self) -> &str {
        "syscalls"
    }

    fn columns(&self) -> &'static [Column] {
        SYSCALLS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut numbers: Vec<u64> = match bounds.texts("name") {
            Some(all) => all.iter().filter_map(|n| syscall_number(n).ok()).collect(),
            None => Vec::new(),
        };
        // A call without a name is called by its number.
        let nameless = |n: &String| n.strip_prefix("syscall_")?.parse::<u64>().ok();
        numbers.extend(
            bounds
                .texts("name")
                .into_iter()
                .flatten()
                .filter_map(nameless),
        );
        if bounds.texts("name").is_some() && numbers.is_empty() {
            return Ok(());
        }
        let mut cursor: Option<Cursor> = None;
        each(
            r,
            bounds,
            &[KindOf::Syscall],
            &numbers,
            out,
            &mut |out, h, time| {
                let Kind::Syscall {
                    number,
                    args,
                    result,
                } = h.kind
                else {
                    return Ok(());
                };
                place(r, out, &h, time)?;
                out.int(5, number as i64);
                if out.wants(&[6]) {
                    out.text(6, syscall_name(number));
                }
                if out.wants(&[7, 10]) {
                    let cursor = match &mut cursor {
                        Some(c) => c,
                        none => none.insert(r.timeline.cursor()?),
                    };
                    let cancel = out.cancel.clone();
                    let call = cursor.cancellable(&cancel, |c| c.system_call(&h))?;
                    if let Some(call) = call {
                        out.text(7, call.arguments.join(", "));
                        out.text(10, call.result);
                    }
                }
                out.int(8, result.map(|r| r as i64));
                out.maybe(9, result.and_then(error_name));
                for (i, a) in args.into_iter().enumerate() {
                    out.uint(11 + i, a);
                }
                if out.wants(&[17]) {
                    let moment = r.timeline.when(h.position)?;
                    out.float(17, moment.map(|m| m.estimate.as_secs_f64()));
                }
                out.end()
            },
        )
    }
}

/// Table `signals`.
pub struct Signals;

const SIGNALS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("number", Int, "number of the signal"),
    column("name", Word, "its name"),
    column("code", Int, "`si_code`: why it came"),
    column(
        "address",
        Address,
        "`si_addr`: for exceptions what was accessed, or the instruction",
    ),
    column("exception", Bool, "an instruction of the thread raised it"),
];

impl Table for Signals {
    fn name(&self) -> &str {
        "signals"
    }

    fn columns(&self) -> &'static [Column] {
        SIGNALS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let kinds = [KindOf::Signal, KindOf::Exception];
        each(r, bounds, &kinds, &[], out, &mut |out, h, time| {
            let Kind::Signal {
                number,
                code,
                address,
            } = h.kind
            else {
                return Ok(());
            };
            place(r, out, &h, time)?;
            out.int(5, i64::from(number));
            out.text(6, signal_name(number.into()));
            out.int(7, i64::from(code));
            out.uint(8, address);
            out.bool(9, h.kind.is_exception());
            out.end()
        })
    }
}

/// Table `marks`.
pub struct Marks;

const MARKS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("name", Text, "the name that the program gave"),
    column("payload", Bytes, "the bytes that the program gave with it"),
];

impl Table for Marks {
    fn name(&self) -> &str {
        "marks"
    }

    fn columns(&self) -> &'static [Column] {
        MARKS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        each(r, bounds, &[KindOf::Mark], &[], out, &mut |out, h, time| {
            place(r, out, &h, time)?;
            if let Kind::Mark { name, payload } = h.kind {
                out.text(5, name);
                out.bytes(6, Some(payload));
            }
            out.end()
        })
    }
}

/// Table `segments`.
pub struct Segments;

const SEGMENTS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column(
        "opens",
        Int,
        "order number of the event that opens it; 0: none does",
    ),
    column(
        "closes",
        Int,
        "order number of the event that closes it; NULL: it is the thread's last one",
    ),
    column("instructions", Int, "instructions in it"),
];

impl Table for Segments {
    fn name(&self) -> &str {
        "segments"
    }

    fn columns(&self) -> &'static [Column] {
        SEGMENTS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        for s in r.clock()?.stretches() {
            let of = &s.segment;
            if !bounds.has("time", s.time) || !bounds.has("thread", of.thread.0) {
                continue;
            }
            instant(r, out, of.position(of.from), s.time, (of.thread, of.from))?;
            out.int(5, of.opens as i64);
            out.int(6, of.closes.map(|c| c as i64));
            out.int(7, s.len());
            out.end()?;
        }
        Ok(())
    }
}

/// Table `gaps`.
pub struct Gaps;

const GAPS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column(
        "end_position",
        Text,
        "where recording goes on; NULL: nowhere",
    ),
    column("end_time", Int, "the same as a number (`time`)"),
    column(
        "instructions",
        Int,
        "instructions of the thread in it, as far as they were counted; NULL: it has no end",
    ),
    column(
        "reason",
        Word,
        "module, window or stopped: why it was not recorded",
    ),
];

impl Table for Gaps {
    fn name(&self) -> &str {
        "gaps"
    }

    fn columns(&self) -> &'static [Column] {
        GAPS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        // Where one that lies within the bounds ends may lie behind them. There are few.
        let mut open: BTreeMap<ThreadId, (Happening, i64)> = BTreeMap::new();
        let mut all = Vec::new();
        each(
            r,
            &Bounds::default(),
            &[KindOf::Gap],
            &[],
            out,
            &mut |_, h, time| {
                match &h.kind {
                    Kind::GapBegin { .. } => {
                        // It may be made wider while it lasts.
                        open.entry(h.thread).or_insert((h, time));
                    }
                    _ => {
                        if let Some(begin) = open.remove(&h.thread) {
                            all.push((begin, Some((h, time))));
                        }
                    }
                }
                Ok(())
            },
        )?;
        all.extend(open.into_values().map(|begin| (begin, None)));
        all.sort_by_key(|((h, _), _)| h.position);
        for ((h, time), end) in all {
            if !bounds.has("time", time) {
                continue;
            }
            place(r, out, &h, time)?;
            out.maybe(5, end.as_ref().map(|(e, _)| e.position.to_string()));
            out.int(6, end.as_ref().map(|e| e.1));
            out.int(
                7,
                end.as_ref()
                    .map(|(e, _)| e.count.saturating_sub(h.count) as i64),
            );
            if let Kind::GapBegin { reason } = h.kind {
                out.text(
                    8,
                    match reason {
                        GapReason::Module => "module",
                        GapReason::Window => "window",
                        GapReason::Stopped => "stopped",
                    },
                );
            }
            out.end()?;
        }
        Ok(())
    }
}
