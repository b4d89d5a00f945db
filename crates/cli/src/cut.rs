//! `hindsight cut`: a part of a recording as a recording of its own.

use crate::bar::Bar;
use crate::numbers::{grouped, size};
use crate::{args, confine, out, say, travel};
use anyhow::{Context, Result, anyhow};
use hindsight_timeline::{Cancel, Options};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Writes the part.
pub fn run(a: &args::Cut, file: Option<&Path>) -> Result<i32> {
    confine::run_making(file, &a.output, |out| write(a, out))
}

fn write(a: &args::Cut, to: &File) -> Result<i32> {
    let text = a.words.first().map_or("", String::as_str);
    let (from, until) = crate::parse::range(text).map_err(|e| anyhow!("{e}"))?;
    let timeline = travel::open(None, Options::default())?;
    let (from, until) = (timeline.find(from, None)?, timeline.find(until, None)?);
    let total = timeline.trace().len();
    let mut bar = Bar::new(!a.json);
    let to = BufWriter::with_capacity(1 << 20, to);
    let made = timeline.cut(
        (from, until),
        to,
        &mut |n| bar.part(n, total),
        &Cancel::new(),
    );
    bar.clear();
    let made = made.with_context(|| a.output.display().to_string())?;
    if a.json {
        out::println(&serde_json::to_string_pretty(&json!({
            "path": a.output,
            "from": from.to_string(),
            "until": until.to_string(),
            "bytes": made.bytes,
            "threads": made.threads,
            "instructions": made.instructions,
        }))?);
        return Ok(0);
    }
    say(&format!(
        "{}: {}, {} instructions of {} {}",
        a.output.display(),
        size(made.bytes),
        grouped(made.instructions),
        made.threads,
        if made.threads == 1 {
            "thread"
        } else {
            "threads"
        },
    ));
    Ok(0)
}
