//! `hindsight convert`: what a recording tells, in the formats of other tools.

mod clock;
mod firefox;
mod folded;
mod lcov;
mod perfetto;
mod read;

use crate::engine::{self, Engine};
use crate::recordings::Recordings;
use crate::show::Safe;
use anyhow::{Context, Result};
use hindsight_cli::sql::{self, AskedToConvert, Exchange, Output, say_lines};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// Writes it; the exit status.
pub fn run(asked: AskedToConvert) -> Result<i32> {
    sql::allow(engine::MEMORY as u64);
    let recordings = Arc::new(Recordings::new(vec![asked.recording]));
    let recording = recordings.open(0)?;
    let engine = Engine::new(&recordings, asked.processors)?;
    let (mut file, mut shown) = (asked.file.as_ref().map(|f| &f.0), Output);
    let mut safe = Safe(&mut shown);
    let to: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => &mut safe,
    };
    let mut out = BufWriter::with_capacity(1 << 16, to);
    let started = recording.timeline.started_ms();
    let done = match asked.to {
        Exchange::Lcov => lcov::write(&engine, &asked.folders, &mut out),
        Exchange::Folded => folded::write(&engine, &mut out),
        Exchange::Firefox => firefox::write(&engine, recordings.name(0), started, &mut out),
        Exchange::Perfetto => perfetto::write(&engine, recordings.name(0), &asked.calls, &mut out),
    };
    let done = done.and_then(|()| {
        let path = asked.file.as_ref().map(|f| f.1.display().to_string());
        out.flush().with_context(|| path.unwrap_or_default())
    });
    match done {
        Ok(()) => Ok(0),
        Err(e) => {
            say_lines(&format!("{e:#}"));
            Ok(2)
        }
    }
}
