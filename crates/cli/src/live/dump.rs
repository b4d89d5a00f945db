//! `hindsight dump`: what a circular recording holds while it goes on.

use crate::numbers::grouped;
use crate::{args, out, say};
use anyhow::{Context, Result};
use serde_json::json;

/// Takes what the ring of a process holds.
pub fn run(a: &args::Dump) -> Result<i32> {
    let path = hindsight_launch::dump(a.pid, a.output.as_deref())?;
    let t = hindsight_trace::Trace::open(&path).with_context(|| path.display().to_string())?;
    let kept: u64 = t.summary().map_or(0, |s| s.totals.instructions);
    let whole = t.summary().is_some();
    if a.json {
        let written = json!({
            "path": path,
            "command": t.header().command(),
            "complete": whole,
            "instructions": kept,
        });
        out::println(&serde_json::to_string_pretty(&written)?);
        return Ok(!whole as i32);
    }
    say(&format!(
        "{}: {}, {} instructions: {}",
        t.header().command(),
        t.completeness(),
        grouped(kept),
        path.display()
    ));
    Ok(!whole as i32)
}
