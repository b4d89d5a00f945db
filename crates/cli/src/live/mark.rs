//! `hindsight mark`: a mark in a recording that goes on.

use crate::numbers::grouped;
use crate::{args, out};
use anyhow::Result;
use hindsight_text::line;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

/// Sets a mark.
pub fn run(a: &args::Mark) -> Result<i32> {
    let set = hindsight_launch::mark(a.pid, a.name.as_bytes(), a.state)?;
    let name = a.name.to_string_lossy();
    if a.json {
        let told = json!({
            "name": name,
            "state": a.state,
            "thread": set.thread,
            "tid": set.tid,
            "instructions": set.instructions,
        });
        out::println(&serde_json::to_string_pretty(&told)?);
        return Ok(0);
    }
    let what = if a.state { "state point" } else { "mark" };
    out::println(&format!(
        "{what} \"{}\": thread {} ({}), {} instructions",
        line(&name),
        set.thread,
        set.tid,
        grouped(set.instructions)
    ));
    Ok(0)
}
