//! `hindsight cache`: the translations that are kept between recordings.

use crate::args;
use crate::numbers::size;
use crate::out::println;
use anyhow::Result;
use hindsight_launch::translations::{self, Kept};
use std::time::UNIX_EPOCH;

/// Shows them, or deletes them.
pub fn run(a: &args::Cache) -> Result<i32> {
    let cache = translations::list(a.clear)?;
    let bytes = cache.bytes();
    if a.json {
        let list = |kept: &Kept| {
            let ms = kept.last_used.duration_since(UNIX_EPOCH);
            let program = kept.program.as_ref();
            serde_json::json!({
                "file": kept.file,
                "program": program.map(|p| p.to_string_lossy().into_owned()),
                "bytes": kept.bytes,
                "last_used_ms": ms.unwrap_or_default().as_millis() as u64,
            })
        };
        let files: Vec<_> = cache.files.iter().map(list).collect();
        let all = serde_json::json!({
            "folder": cache.folder.to_string_lossy(),
            "bytes": bytes,
            "cleared": a.clear,
            "files": files,
        });
        println(&format!("{all:#}"));
        return Ok(0);
    }
    if !a.clear {
        for kept in cache.files.iter().rev() {
            let program = kept.program.as_deref().unwrap_or("?".as_ref());
            println(&format!("{:>12}  {}", size(kept.bytes), program.display()));
        }
    }
    let word = if a.clear { "deleted: " } else { "" };
    println(&format!(
        "{word}{} in {}",
        size(bytes),
        cache.folder.display()
    ));
    Ok(0)
}
