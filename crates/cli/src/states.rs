//! `hindsight states`: the instants at which a recording has all memory of a program.

use crate::numbers::{grouped, size};
use crate::out::println;
use crate::{args, say, travel};
use anyhow::Result;
use hindsight_text::line;
use hindsight_timeline::{Options, Place, StatePoint};
use hindsight_trace::Completeness;
use serde_json::{Value as Json, json};

/// Lists the state points.
pub fn run(a: &args::States) -> Result<i32> {
    let timeline = travel::open(a.file.as_deref(), Options::default())?;
    // Of an image that is not there, nothing would be said.
    timeline.find(Place::Begin, a.image)?;
    let all = timeline.state_points(a.image)?;
    match timeline.trace().completeness() {
        Completeness::Complete => {}
        Completeness::Growing => say("the recording is still being made: more may come"),
        c => say(&format!(
            "warning: the recording is {c}; there may have been more"
        )),
    }
    if a.json {
        let list: Vec<Json> = (1..).zip(&all).map(|(n, s)| as_json(n, s)).collect();
        println(&serde_json::to_string_pretty(&list)?);
        return Ok(0);
    }
    if all.is_empty() {
        println("no state points (`--help` says who makes them)");
        return Ok(0);
    }
    let text: Vec<String> = (1..).zip(&all).map(|(n, s)| as_text(n, s)).collect();
    println(&text.join("\n"));
    Ok(0)
}

fn as_text(n: usize, s: &StatePoint) -> String {
    let mut out = format!(
        "{n:>4}  {:<14} thread {}, {} instructions: {} of memory",
        s.position.to_string(),
        s.thread,
        grouped(s.count),
        size(s.bytes)
    );
    if s.is_change {
        out += " changed";
    }
    if let Some(name) = &s.name {
        out += &format!(", \"{}\"", line(name));
    }
    if !s.is_whole {
        out += ", without files that are not recorded";
    }
    out
}

/// For scripts. `n`: its number.
pub fn as_json(n: usize, s: &StatePoint) -> Json {
    json!({
        "number": n,
        "position": s.position.to_string(),
        "thread": s.thread.0,
        "image": s.image,
        "instructions": s.count,
        "name": s.name,
        "bytes": s.bytes,
        "is_change": s.is_change,
        "is_whole": s.is_whole,
    })
}
