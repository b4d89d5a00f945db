//! Shows rows: as a table, as CSV, as JSON, as a stream for programs, or in a Parquet file.

use crate::column::{HEXADECIMAL, WHICH};
use crate::engine::Engine;
use crate::files::{RowsFile, plain, plain_rows};
use anyhow::Result;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::writer::{JsonArray, WriterBuilder as JsonBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SendableRecordBatchStream;
use hindsight_cli::sql::TableFormat;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

/// The widths of a table's columns follow from this many rows.
const LOOK: usize = 1000;
/// No column is wider, unless it is the last one.
const WIDEST: usize = 60;

/// How rows are shown.
pub enum Format<'a> {
    /// For people.
    Table {
        /// Leaves out the column that says which recording a row is of.
        without_names: bool,
    },
    /// With a line of names.
    Csv,
    /// One list of objects.
    Json,
    /// In Arrow's format for streams.
    Arrow,
    /// Into this file.
    Parquet(&'a std::fs::File),
}

/// Shows all rows; how many there were.
pub fn show(
    engine: &Engine,
    rows: &mut SendableRecordBatchStream,
    format: &Format,
    out: &mut dyn Write,
) -> Result<u64> {
    match format {
        Format::Table { without_names } => table(engine, rows, *without_names, out),
        Format::Csv => csv(engine, rows, out),
        Format::Json => json(engine, rows, out),
        Format::Arrow => arrow(engine, rows, out),
        Format::Parquet(file) => {
            let to = (TableFormat::Parquet, "the file for --parquet".to_owned());
            let mut writer = RowsFile::new(file.try_clone()?, to, &rows.schema(), true, &[])?;
            let n = each(engine, rows, &mut |batch| writer.write(batch))?;
            writer.close()?;
            Ok(n)
        }
    }
}

fn each(
    engine: &Engine,
    rows: &mut SendableRecordBatchStream,
    take: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<u64> {
    let mut n = 0;
    while let Some(batch) = engine.next(rows)? {
        n += batch.num_rows() as u64;
        take(&batch)?;
    }
    Ok(n)
}

fn csv(engine: &Engine, rows: &mut SendableRecordBatchStream, out: &mut dyn Write) -> Result<u64> {
    let safe = io::stdout().is_terminal();
    let mut text = Vec::new();
    let mut first = true;
    let schema = rows.schema();
    let mut put = |batch: &RecordBatch| -> Result<()> {
        text.clear();
        let builder = WriterBuilder::new().with_header(std::mem::take(&mut first));
        builder.build(&mut text).write(batch)?;
        match safe {
            true => {
                out.write_all(hindsight_text::lines(&String::from_utf8_lossy(&text)).as_bytes())?
            }
            false => out.write_all(&text)?,
        }
        Ok(())
    };
    let n = each(engine, rows, &mut put)?;
    if n == 0 {
        put(&RecordBatch::new_empty(schema))?;
    }
    Ok(n)
}

fn json(engine: &Engine, rows: &mut SendableRecordBatchStream, out: &mut dyn Write) -> Result<u64> {
    let mut writer = JsonBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, JsonArray>(Safe(out));
    let n = each(engine, rows, &mut |batch| Ok(writer.write(batch)?))?;
    writer.finish()?;
    writer.into_inner().0.write_all(b"\n")?;
    Ok(n)
}

/// Each batch is sent at once. The end of the stream is written only behind all rows.
fn arrow(
    engine: &Engine,
    rows: &mut SendableRecordBatchStream,
    out: &mut dyn Write,
) -> Result<u64> {
    let schema = plain(&rows.schema());
    let mut writer = StreamWriter::try_new(&mut *out, &schema)?;
    writer.flush()?;
    let n = each(engine, rows, &mut |batch| {
        writer.write(&plain_rows(batch, &schema)?)?;
        Ok(writer.flush()?)
    })?;
    writer.finish()?;
    Ok(n)
}

/// Escapes what commands a terminal. The writer's pieces are whole characters.
pub struct Safe<'a>(pub &'a mut dyn Write);

impl Write for Safe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(hindsight_text::lines(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Cells of a batch, row by row.
fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::new().with_null("");
    let schema = batch.schema();
    let mut columns = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let hexadecimal = field.metadata().contains_key(HEXADECIMAL);
        let mut column = Vec::with_capacity(array.len());
        match array.data_type() {
            DataType::UInt64 if hexadecimal => {
                let numbers = array.as_primitive::<UInt64Type>();
                column.extend(
                    numbers
                        .iter()
                        .map(|n| n.map_or(String::new(), |n| format!("{n:#x}"))),
                );
            }
            _ => {
                let format = ArrayFormatter::try_new(array.as_ref(), &options)?;
                for i in 0..array.len() {
                    let text = format.value(i).to_string();
                    column.push(hindsight_text::line(&text).into_owned());
                }
            }
        }
        columns.push(column);
    }
    Ok((0..batch.num_rows())
        .map(|i| {
            columns
                .iter_mut()
                .map(|c| std::mem::take(&mut c[i]))
                .collect()
        })
        .collect())
}

fn table(
    engine: &Engine,
    rows: &mut SendableRecordBatchStream,
    without_names: bool,
    out: &mut dyn Write,
) -> Result<u64> {
    let all = rows.schema();
    let is_shown = |i: &usize| !(without_names && all.field(*i).metadata().contains_key(WHICH));
    let columns: Vec<usize> = (0..all.fields().len()).filter(is_shown).collect();
    let schema = Arc::new(all.project(&columns)?);
    let cells = |batch: RecordBatch| cells(&batch.project(&columns)?);
    let mut first: Vec<Vec<String>> = Vec::new();
    let mut all = 0;
    while first.len() < LOOK
        && let Some(batch) = engine.next(rows)?
    {
        all += batch.num_rows() as u64;
        first.extend(cells(batch)?);
    }
    let layout = Layout::of(&schema, &first);
    layout.head(&schema, out)?;
    for row in first {
        layout.row(&row, out)?;
    }
    while let Some(batch) = engine.next(rows)? {
        all += batch.num_rows() as u64;
        for row in cells(batch)? {
            layout.row(&row, out)?;
        }
    }
    Ok(all)
}

/// How wide columns are, and whether they stand at the right.
struct Layout(Vec<(usize, bool)>);

impl Layout {
    fn of(schema: &SchemaRef, rows: &[Vec<String>]) -> Layout {
        let one = |(i, f): (usize, &Arc<datafusion::arrow::datatypes::Field>)| {
            let widths = rows.iter().map(|r| r[i].chars().count());
            let width = widths
                .max()
                .unwrap_or(0)
                .clamp(f.name().chars().count(), WIDEST.max(f.name().len()));
            (width, f.data_type().is_numeric())
        };
        Layout(schema.fields().iter().enumerate().map(one).collect())
    }

    fn head(&self, schema: &SchemaRef, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = (schema.fields().iter())
            .map(|f| hindsight_text::line(f.name()).into_owned())
            .collect();
        self.row(&names, out)?;
        let lines: Vec<String> = self.0.iter().map(|(width, _)| "-".repeat(*width)).collect();
        writeln!(out, "{}", lines.join("  "))
    }

    fn row(&self, cells: &[String], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for ((width, right), cell) in self.0.iter().zip(cells) {
            let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
            match right {
                true => line.extend([fill.as_str(), cell]),
                false => line.extend([cell, fill.as_str()]),
            }
            line += "  ";
        }
        writeln!(out, "{}", line.trim_end())
    }
}
