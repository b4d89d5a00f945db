//! `hindsight states`: the instants at which a recording has all memory of a program.

use crate::numbers::{grouped, size};
use crate::out::println;
use crate::{args, say, travel};
use anyhow::Result;
use hindsight_text::line;
use hindsight_timeline::{Descriptor, Options, Place, StatePoint, What};
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
    let mut open = Vec::new();
    if a.descriptors {
        for s in &all {
            open.push(timeline.descriptors(s.thread, s.position)?.list);
        }
    }
    if a.json {
        let mut list: Vec<Json> = (1..).zip(&all).map(|(n, s)| as_json(n, s)).collect();
        for (state, open) in list.iter_mut().zip(&open) {
            state["descriptors"] = open.iter().map(descriptor).collect();
        }
        println(&serde_json::to_string_pretty(&list)?);
        return Ok(0);
    }
    if all.is_empty() {
        println("no state points (`--help` says who makes them)");
        return Ok(0);
    }
    for (n, s) in all.iter().enumerate() {
        println(&as_text(n + 1, s));
        for d in open.get(n).into_iter().flatten() {
            println(&descriptor_text(d));
        }
    }
    Ok(0)
}

fn descriptor_text(d: &Descriptor) -> String {
    let mut out = format!("      {:<4} {}", d.fd, line(&d.file.what.to_string()));
    if let Some(place) = d.file.place() {
        out += &format!(", at byte {}", grouped(place));
    }
    if let Some(flags) = d.file.flags() {
        out += &format!(", flags 0{flags:o}");
    }
    out
}

/// For scripts. What is not known is null.
fn descriptor(d: &Descriptor) -> Json {
    let path = match &d.file.what {
        What::File { path, .. } => path.as_ref().map(|p| String::from_utf8_lossy(p)),
        _ => None,
    };
    json!({
        "fd": d.fd,
        "what": d.file.what.to_string(),
        "path": path,
        "place": d.file.place(),
        "flags": d.file.flags(),
        "on_exec": d.on_exec,
    })
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
