//! `hindsight convert`: what a recording tells, in the formats of other tools.

mod clock;
mod firefox;
mod folded;
mod lcov;
mod perfetto;
mod read;

use crate::engine::{self, Engine};
use crate::files::Named;
use crate::recordings::Recordings;
use crate::show::Safe;
use anyhow::Result;
use hindsight_cli::sql::{self, AskedToConvert, Exchange, Output, say_lines};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// Writes it; the exit status.
pub fn run(asked: AskedToConvert) -> Result<i32> {
    sql::allow(engine::MEMORY as u64);
    let recordings = Arc::new(Recordings::new(vec![asked.recording]));
    let recording = recordings.open(0)?;
    let engine = Engine::in_order(&recordings, asked.processors)?;
    let mut shown = Output;
    let (to, path): (Box<dyn Write>, _) = match asked.file {
        Some((file, path)) => (Box::new(file), path.display().to_string()),
        None => (Box::new(Safe(&mut shown)), "standard output".into()),
    };
    let (to, failed) = Named::new(to);
    let mut out = BufWriter::with_capacity(1 << 16, to);
    let started = recording.timeline.started_ms();
    let done = match asked.to {
        Exchange::Lcov => lcov::write(&engine, &asked.folders, &mut out),
        Exchange::Folded => folded::write(&engine, &mut out),
        Exchange::Firefox => firefox::write(&engine, recordings.name(0), started, &mut out),
        Exchange::Perfetto => perfetto::write(&engine, recordings.name(0), &asked.calls, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(0),
        Err(e) => {
            let e = failed.said(&path, e);
            say_lines(&format!("{e:#}"));
            Ok(2)
        }
    }
}
