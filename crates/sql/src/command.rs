//! The command: questions from the command line, from standard input or from the prompt.

use crate::engine::{self, Engine};
use crate::prompt;
use crate::recording::Recording;
use crate::show::{Format, show};
use anyhow::Result;
use datafusion::execution::SendableRecordBatchStream;
use hindsight_cli::sql::{self, Asked, Output, Questions, Session, Shape, say_lines};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// Runs the command line; the exit status.
pub fn run() -> i32 {
    sql::run(answer, prompt::run)
}

fn answer(asked: Asked) -> Result<i32> {
    sql::allow(engine::MEMORY as u64);
    let recording = Arc::new(Recording::new(asked.timeline));
    let engine = Engine::new(&recording, asked.processors)?;
    let format = || match (&asked.parquet, asked.shape) {
        (Some(file), _) => Format::Parquet(file),
        (None, Shape::Csv) => Format::Csv,
        (None, Shape::Json) => Format::Json,
        (None, Shape::Table) => Format::Table,
    };
    match asked.questions {
        Questions::Text(text) => {
            // A file holds the rows of one statement.
            let most = if asked.parquet.is_some() {
                1
            } else {
                usize::MAX
            };
            let mut shown = 0;
            let one = &mut |engine: &Engine, rows: SendableRecordBatchStream| {
                shown += 1;
                if shown > most {
                    anyhow::bail!("--parquet is for one statement");
                }
                print(engine, rows, &format()).map(|_| ())
            };
            match engine.run(&text, one) {
                Ok(()) => Ok(0),
                Err(e) => {
                    say_lines(&format!("{e:#}"));
                    Ok(2)
                }
            }
        }
        Questions::Session(session) => converse(&engine, session, &format()),
    }
}

/// Prints rows to standard output; how many.
fn print(engine: &Engine, mut rows: SendableRecordBatchStream, format: &Format) -> Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 16, Output);
    let shown = show(engine, &mut rows, format, &mut out);
    out.flush()?;
    shown
}

/// Answers one question after the other.
fn converse(engine: &Engine, mut session: Session, format: &Format) -> Result<i32> {
    let stop = engine.stop();
    session.on_interrupt({
        let stop = stop.clone();
        move || stop.interrupt()
    })?;
    while let Some(question) = session.question() {
        stop.begin();
        let one = &mut |engine: &Engine, rows: SendableRecordBatchStream| {
            let n = print(engine, rows, format)?;
            if matches!(format, Format::Table) {
                writeln!(Output, "({n} {})", if n == 1 { "row" } else { "rows" })?;
            }
            Ok(())
        };
        if let Err(e) = engine.run(&question, one) {
            say_lines(&format!("{e:#}"));
        }
        session.done();
    }
    Ok(0)
}
