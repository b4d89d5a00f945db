//! What threads did when, as events in JSON that Perfetto and Chrome's `about:tracing` read (Trace Event Format).

use super::clock::Clock;
use super::read::{Row, each};
use crate::engine::Engine;
use anyhow::Result;
use hindsight_cli::sql::say;
use serde_json::{Map, Value, json};
use std::io::Write;

/// A thread, and when it was there.
struct Thread {
    number: i64,
    process: i64,
    name: String,
    begin: i64,
    end: i64,
}

/// Events of the format that are instants: what, and which columns make their name and details.
const INSTANTS: &[(&str, &str)] = &[
    (
        "syscall",
        "SELECT process, thread, time, name, position, arguments, returned FROM syscalls ORDER BY time",
    ),
    (
        "signal",
        "SELECT process, thread, time, name, position, CAST(NULL AS TEXT) a, CAST(NULL AS TEXT) r FROM signals ORDER BY time",
    ),
    (
        "mark",
        "SELECT process, thread, time, name, position, CAST(NULL AS TEXT) a, CAST(NULL AS TEXT) r FROM marks ORDER BY time",
    ),
    (
        "gap",
        "SELECT process, thread, time, concat('not recorded: ', reason), position, 'until ' || end_position a, CAST(NULL AS TEXT) r
         FROM gaps ORDER BY time",
    ),
];

/// Writes it, with the calls of these functions.
pub fn write(engine: &Engine, name: &str, calls: &[String], out: &mut dyn Write) -> Result<()> {
    let clock = Clock::new(engine)?;
    if !clock.is_real() {
        say(
            "the recording does not say when anything was: each instruction takes a nanosecond here",
        );
    }
    let unit = match clock.is_real() {
        true => "the recording's clock",
        false => "instructions",
    };
    let about = json!({"recording": name, "times": unit});
    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
    )?;
    let mut events = Events { out, any: false };
    let query = "SELECT process, command, pid FROM processes";
    each(engine, query, &mut |row| {
        let shown = named(row.text(1), "pid", row.int(2));
        events.name("process_name", row.int(0), 0, &shown)
    })?;
    let mut threads: Vec<Thread> = Vec::new();
    let query =
        "SELECT thread, process, name, tid, begin_time, end_time FROM threads ORDER BY thread";
    each(engine, query, &mut |row| {
        let thread = Thread {
            number: row.int(0).unwrap_or(0),
            process: row.int(1).unwrap_or(0),
            name: row.text(2).unwrap_or_default().into(),
            begin: row.int(4).unwrap_or(0),
            end: row.int(5).unwrap_or(0),
        };
        let shown = named(Some(&thread.name), "tid", row.int(3));
        events.name("thread_name", Some(thread.process), thread.number, &shown)?;
        threads.push(thread);
        Ok(())
    })?;
    slices(engine, &clock, &threads, calls, &mut events)?;
    for (kind, query) in INSTANTS {
        each(engine, query, &mut |row| {
            let details = [("position", 4), ("arguments", 5), ("returned", 6)];
            let mut event = event("i", kind, row.text(3).unwrap_or_default());
            event.insert("s".into(), "t".into());
            event.insert("args".into(), texts(&row, &details));
            let at = clock.nanos(row.int(2).unwrap_or(0));
            events.write(event, row.int(0), row.int(1).unwrap_or(0), Some(at))
        })?;
    }
    Ok(writeln!(out, "]}}")?)
}

/// Writes threads and calls, which lie in each other.
fn slices(
    engine: &Engine,
    clock: &Clock,
    threads: &[Thread],
    calls: &[String],
    events: &mut Events,
) -> Result<()> {
    let mut left = threads.iter();
    let mut open: Option<(&Thread, Vec<i64>)> = None;
    // Ends what ends until a time.
    let end =
        |open: &mut Option<(&Thread, Vec<i64>)>, until: i64, events: &mut Events| -> Result<()> {
            if let Some((thread, ends)) = open {
                while let Some(at) = ends.pop_if(|end| *end <= until) {
                    events.end(thread, clock.nanos(at))?;
                }
            }
            Ok(())
        };
    let mut go_to =
        |number: Option<i64>, open: &mut Option<_>, events: &mut Events| -> Result<()> {
            while open
                .as_ref()
                .is_none_or(|(t, _): &(&Thread, Vec<i64>)| Some(t.number) != number)
            {
                end(open, i64::MAX, events)?;
                let Some(next) = left.next() else {
                    *open = None;
                    break;
                };
                let begin = event("B", "thread", &next.name);
                events.write(
                    begin,
                    Some(next.process),
                    next.number,
                    Some(clock.nanos(next.begin)),
                )?;
                *open = Some((next, vec![next.end]));
            }
            Ok(())
        };
    if !calls.is_empty() {
        let of = |function: &String| {
            let function = function.replace('\'', "''");
            format!(
                "SELECT thread, time, end_time, function, position, arguments, returned, caller FROM calls('{function}')"
            )
        };
        let all: Vec<String> = calls.iter().map(of).collect();
        let query = format!("{} ORDER BY thread, time", all.join(" UNION ALL "));
        let mut last = None;
        each(engine, &query, &mut |row| {
            // The same call, by another name of the function: no two begin at one instant.
            if last.replace((row.int(0), row.int(1))) == Some((row.int(0), row.int(1))) {
                return Ok(());
            }
            go_to(row.int(0), &mut open, events)?;
            let time = row.int(1).unwrap_or(0);
            end(&mut open, time, events)?;
            let Some((thread, ends)) = &mut open else {
                return Ok(());
            };
            let details = [
                ("position", 4),
                ("arguments", 5),
                ("returned", 6),
                ("caller", 7),
            ];
            let mut begin = event("B", "call", row.text(3).unwrap_or_default());
            begin.insert("args".into(), texts(&row, &details));
            events.write(
                begin,
                Some(thread.process),
                thread.number,
                Some(clock.nanos(time)),
            )?;
            // One that does not return ends with the one that called it.
            let outer = ends.last().copied().unwrap_or(thread.end);
            ends.push(row.int(2).unwrap_or(outer).min(outer));
            Ok(())
        })?;
    }
    go_to(None, &mut open, events)
}

/// A name, and the number that the system gave.
fn named(name: Option<&str>, what: &str, number: Option<i64>) -> String {
    format!("{} ({what} {})", name.unwrap_or(""), number.unwrap_or(0))
}

fn event(phase: &str, category: &str, name: &str) -> Map<String, Value> {
    let all = [("ph", phase), ("cat", category), ("name", name)];
    all.into_iter().map(|(k, v)| (k.into(), v.into())).collect()
}

/// Those of some columns that are known.
fn texts(row: &Row, columns: &[(&str, usize)]) -> Value {
    let known = columns
        .iter()
        .filter_map(|(name, i)| Some((*name, row.text(*i)?)));
    known.map(|(k, v)| (k.to_owned(), Value::from(v))).collect()
}

/// The list of events that is being written.
struct Events<'a> {
    out: &'a mut dyn Write,
    any: bool,
}

impl Events<'_> {
    /// Writes an event of a thread, at a time in nanoseconds.
    fn write(
        &mut self,
        mut event: Map<String, Value>,
        process: Option<i64>,
        thread: i64,
        nanos: Option<i64>,
    ) -> Result<()> {
        if self.any {
            self.out.write_all(b",\n")?;
        }
        self.any = true;
        event.insert("pid".into(), process.unwrap_or(0).into());
        event.insert("tid".into(), thread.into());
        if let Some(nanos) = nanos {
            // In microseconds.
            event.insert("ts".into(), (nanos as f64 / 1e3).into());
        }
        Ok(serde_json::to_writer(&mut *self.out, &event)?)
    }

    fn end(&mut self, of: &Thread, nanos: i64) -> Result<()> {
        let event = [("ph".to_owned(), Value::from("E"))];
        let event = event.into_iter().collect();
        self.write(event, Some(of.process), of.number, Some(nanos))
    }

    fn name(&mut self, kind: &str, process: Option<i64>, thread: i64, name: &str) -> Result<()> {
        let mut event = event("M", "__metadata", kind);
        event.insert("args".into(), json!({"name": name}));
        self.write(event, process, thread, None)
    }
}
