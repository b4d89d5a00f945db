//! The command: questions from the command line, from standard input or from the prompt.

use crate::column::RECORDING;
use crate::convert;
use crate::engine::{self, Engine};
use crate::export;
use crate::prompt;
use crate::recordings::Recordings;
use crate::show::{Format, show};
use anyhow::Result;
use datafusion::execution::SendableRecordBatchStream;
use hindsight_cli::sql::{self, Asked, Handlers, Output, Questions, Session, Shape, say_lines};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// Runs the command line; the exit status.
pub fn run() -> i32 {
    sql::run(&Handlers {
        answer,
        prompt: prompt::run,
        files: export::files,
        tables: export::write,
        convert: convert::run,
    })
}

fn answer(asked: Asked) -> Result<i32> {
    sql::allow(engine::MEMORY as u64);
    let recordings = Arc::new(Recordings::new(asked.recordings));
    if recordings.is_one() {
        // Whatever is asked, it can only be answered if it can be read.
        recordings.open(0)?;
    }
    let engine = Engine::new(&recordings, asked.processors)?;
    let format = |question: &str| match (&asked.parquet, asked.shape) {
        (Some(file), _) => Format::Parquet(file),
        (None, Shape::Csv) => Format::Csv,
        (None, Shape::Json) => Format::Json,
        (None, Shape::Arrow) => Format::Arrow,
        (None, Shape::Table) => Format::Table {
            // All rows of a table have the same name, and nobody asks for it.
            without_names: recordings.is_one() && !names_column(question),
        },
    };
    match asked.questions {
        Questions::Text(text) => {
            // A file or a stream holds the rows of one statement.
            let alone = match (&asked.parquet, asked.shape) {
                (Some(_), _) => Some("--parquet"),
                (None, Shape::Arrow) => Some("--arrow"),
                _ => None,
            };
            let mut shown = 0;
            let one = &mut |engine: &Engine, rows: SendableRecordBatchStream| {
                shown += 1;
                if let (2.., Some(option)) = (shown, alone) {
                    anyhow::bail!("{option} is for one statement");
                }
                print(engine, rows, &format(&text)).map(|_| ())
            };
            match engine.run(&text, one) {
                Ok(()) => Ok(0),
                Err(e) => {
                    say_lines(&format!("{e:#}"));
                    Ok(2)
                }
            }
        }
        Questions::Session(session) => converse(&engine, session, &format),
    }
}

/// Whether a question has the column `recording` in it.
fn names_column(question: &str) -> bool {
    question.to_ascii_lowercase().contains(RECORDING.name)
}

/// Prints rows to standard output; how many.
fn print(engine: &Engine, mut rows: SendableRecordBatchStream, format: &Format) -> Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 16, Output);
    let shown = show(engine, &mut rows, format, &mut out);
    out.flush()?;
    shown
}

/// Answers one question after the other.
fn converse<'a>(
    engine: &Engine,
    mut session: Session,
    format: &dyn Fn(&str) -> Format<'a>,
) -> Result<i32> {
    let stop = engine.stop();
    session.on_interrupt({
        let stop = stop.clone();
        move || stop.interrupt()
    })?;
    while let Some(question) = session.question() {
        stop.begin();
        let format = &format(&question);
        let one = &mut |engine: &Engine, rows: SendableRecordBatchStream| {
            let n = print(engine, rows, format)?;
            if matches!(format, Format::Table { .. }) {
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
