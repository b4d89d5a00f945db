//! `hindsight export`.

use crate::numbers::size;
use crate::out;
use crate::{args, say, store};
use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use serde_json::json;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;

/// Copies a recording with all that it needs.
pub fn run(a: &args::Export) -> Result<i32> {
    let from = store::find(a.file.as_deref())?;
    let to = match &a.output {
        Some(to) => to.clone(),
        None => {
            let name = from.file_name();
            name.with_context(|| format!("{}: Is a directory", from.display()))?
                .into()
        }
    };
    if to == Path::new("-") {
        if a.json {
            bail!("standard output is for the recording or for --json: name a file");
        }
        let out = std::io::stdout().lock();
        if out.is_terminal() {
            bail!("a recording is not for a terminal: redirect standard output, or name a file");
        }
        copy(&from, out)?;
        return Ok(0);
    }
    let file =
        private::create_new(&to).with_context(|| format!("cannot create {}", to.display()))?;
    match copy(&from, file) {
        Ok(n) if a.json => {
            let made = json!({"path": to, "bytes": n});
            out::println(&serde_json::to_string_pretty(&made)?);
        }
        Ok(n) => say(&format!("{}: {}", size(n), to.display())),
        Err(e) => {
            let _ = std::fs::remove_file(&to);
            return Err(e);
        }
    }
    Ok(0)
}

fn copy(from: &Path, to: impl Write) -> Result<u64> {
    hindsight_trace::export(from, BufWriter::with_capacity(1 << 20, to))
        .with_context(|| from.display().to_string())
}
