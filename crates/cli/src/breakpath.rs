//! `hindsight breakpath`: how to bring a live program to a place of its recording in the fewest stops.

mod begin;
mod candidates;
mod run;
mod script;
mod way;

use crate::hex::hex;
use crate::out::println;
use crate::{args, confine, limits, travel};
use anyhow::Result;
use candidates::Wanted;
use hindsight_text::line;
use hindsight_timeline::{Cancel, Halt, Options, Place, Position, Route, RouteLimits, Timeline};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::path::Path;
use way::Way;

/// Bytes of memory for each instruction that is looked at with its data.
const PER_INSTRUCTION: u64 = 16;
/// Bytes of memory for each of those before, and at most: what of their runs is kept at a time, and what is known of the
/// different ones.
const PER_RUN: u64 = 8;
const RUNS: u64 = 768 << 20;

/// Prints the way to a position.
pub fn run(a: &args::Breakpath, file: Option<&Path>) -> Result<i32> {
    // The process that plays the recording opens no files.
    let wanted = Wanted::read(&a.candidates)?;
    if a.run {
        return run::run(a, file, &wanted);
    }
    confine::run(file, || show(a, &wanted))
}

/// Finds the way, in the process that plays the recording.
fn find(a: &args::Breakpath, wanted: &Wanted) -> Result<(Timeline, Position, Route)> {
    let timeline = travel::open(None, Options::default())?;
    let to = timeline.find(a.words[0].parse::<Place>()?, None)?;
    let steps = timeline.locate(to)?.count;
    let memory = a.limit.min(steps).saturating_mul(PER_INSTRUCTION);
    let runs = steps.saturating_mul(PER_RUN).min(RUNS);
    limits::raise(memory.saturating_add(runs));
    let candidates = match wanted.plain() {
        Some(candidates) => candidates,
        None => wanted.resolve(&timeline, to)?,
    };
    let limits = RouteLimits::new(a.limit);
    let route = timeline.route(to, limits, &candidates, &Cancel::new())?;
    Ok((timeline, to, route))
}

fn show(a: &args::Breakpath, wanted: &Wanted) -> Result<i32> {
    let (timeline, to, route) = find(a, wanted)?;
    let out = match (a.gdb, a.lldb, a.json) {
        (true, ..) => script::gdb(&Way::new(&timeline, &route, to)?),
        (_, true, _) => script::lldb(&Way::new(&timeline, &route, to)?),
        (.., true) => serde_json::to_string_pretty(&as_json(&timeline, &route, to)?)?,
        _ => text(&timeline, &route, to, (a, wanted))?,
    };
    println(out.trim_end());
    Ok(0)
}

fn kind(h: &Halt) -> &'static str {
    if h.setting.data { "access" } else { "break" }
}

fn as_json(timeline: &Timeline, route: &Route, to: Position) -> Result<Json> {
    let from = data_from(timeline, route)?;
    Ok(json!({
        "position": to.to_string(),
        "steps": route.steps,
        "stops": route.stops,
        "settings": route.halts.iter().map(|h| json!({
            "kind": kind(h), "module": &*h.setting.module,
            "offset": hex(h.setting.offset),
            "hits": h.hits,
            "position": h.position.to_string(), "pc": hex(h.pc),
        })).collect::<Vec<_>>(),
        "fewest": route.fewest,
        "data_from": from.map(|p| p.to_string()),
    }))
}

/// From where on data counts. `None`: from the start.
fn data_from(timeline: &Timeline, route: &Route) -> Result<Option<Position>> {
    Ok(match route.data_from {
        0 => None,
        from => Some(timeline.position(route.thread, from)?),
    })
}

fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn text(
    timeline: &Timeline,
    route: &Route,
    to: Position,
    (a, wanted): (&args::Breakpath, &Wanted),
) -> Result<String> {
    let mut out = format!(
        "{} with {} to position {to}, {} instructions from the start\n",
        counted(route.stops, "stop"),
        counted(route.halts.len() as u64, "setting"),
        route.steps
    );
    match (data_from(timeline, route)?, route.fewest) {
        (Some(from), _) => {
            let later = route.steps - route.data_from < a.limit;
            let why = match later {
                true => "before that, too much of it is accessed",
                false => "--limit",
            };
            let _ = writeln!(
                out,
                "data counts only from {from} on ({why}); whether there is a way with fewer stops is not known"
            );
        }
        (None, Some(fewest)) if *wanted != Wanted::All => {
            let more = route.stops.saturating_sub(fewest);
            let _ = writeln!(
                out,
                "{} more than if everything may be set ({fewest})",
                counted(more, "stop")
            );
        }
        _ => {}
    }
    for h in &route.halts {
        let s = &h.setting;
        let times = match h.hits {
            1 => String::new(),
            n => format!("{n} times, "),
        };
        let _ = writeln!(
            out,
            "{:<6} {}+{:#x}  {times}stops at {}, {:#x}",
            kind(h),
            line(&s.module),
            s.offset,
            h.position,
            h.pc
        );
    }
    Ok(out)
}
