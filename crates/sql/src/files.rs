//! Files of rows, in formats that other tools read.

use crate::column::{ABOUT, WHICH};
use anyhow::{Result, anyhow};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::csv::{Writer as CsvWriter, WriterBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::WriterProperties;
use hindsight_cli::sql::TableFormat;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// What a group of rows may take in memory before it is written. Long texts make rows large.
const MOST: usize = 32 << 20;

/// A file that takes rows.
pub struct RowsFile {
    writer: Writer,
    /// The columns that are written.
    columns: Vec<usize>,
    /// What they are in the file.
    schema: SchemaRef,
    name: String,
}

enum Writer {
    Parquet(Box<ArrowWriter<File>>),
    Arrow(Box<FileWriter<BufWriter<File>>>),
    Csv(Box<CsvWriter<BufWriter<File>>>),
}

/// How the file extension of a format is.
pub fn extension(format: TableFormat) -> &'static str {
    match format {
        TableFormat::Parquet => "parquet",
        TableFormat::Arrow => "arrow",
        TableFormat::Csv => "csv",
    }
}

impl RowsFile {
    /// A file for rows of this schema. `name` is for messages, `about` says what it has. The path says the recording if
    /// `names` is false.
    pub fn new(
        file: File,
        (format, name): (TableFormat, String),
        of: &SchemaRef,
        names: bool,
        about: &[(&str, String)],
    ) -> Result<RowsFile> {
        let is_written = |i: &usize| names || !of.field(*i).metadata().contains_key(WHICH);
        let columns: Vec<usize> = (0..of.fields().len()).filter(is_written).collect();
        let schema = plain(&of.project(&columns)?);
        let failed = |e: &(dyn Error + 'static)| unwritten(&name, e);
        let writer = match format {
            TableFormat::Parquet => {
                let mut properties = vec![];
                for (key, value) in about {
                    properties.push(KeyValue::new(format!("hindsight.{key}"), value.clone()));
                }
                for field in of.project(&columns)?.fields() {
                    let key = format!("hindsight.about.{}", field.name());
                    properties.push(KeyValue::new(key, field.metadata().get(ABOUT).cloned()));
                }
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_key_value_metadata(Some(properties));
                // The types of Parquet say all. Those of Arrow would have readers tell texts and words apart.
                let options = ArrowWriterOptions::new()
                    .with_properties(properties.build())
                    .with_skip_arrow_metadata(true);
                let made = ArrowWriter::try_new_with_options(file, Arc::clone(&schema), options);
                Writer::Parquet(Box::new(made.map_err(|e| failed(&e))?))
            }
            TableFormat::Arrow => {
                let made = FileWriter::try_new(BufWriter::new(file), &schema);
                Writer::Arrow(Box::new(made.map_err(|e| failed(&e))?))
            }
            TableFormat::Csv => {
                let writer = WriterBuilder::new().with_header(true);
                let mut made = writer.build(BufWriter::new(file));
                // The names, also if no row follows.
                let none = RecordBatch::new_empty(Arc::clone(&schema));
                made.write(&none).map_err(|e| failed(&e))?;
                Writer::Csv(Box::new(made))
            }
        };
        Ok(RowsFile {
            writer,
            columns,
            schema,
            name,
        })
    }

    /// Writes rows.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let mut arrays = Vec::new();
        for (i, field) in self.columns.iter().zip(self.schema.fields()) {
            arrays.push(cast(rows.column(*i), field.data_type())?);
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        let done = match &mut self.writer {
            Writer::Parquet(w) => w
                .write(&rows)
                .and_then(|()| match w.in_progress_size() > MOST {
                    true => w.flush(),
                    false => Ok(()),
                })
                .map_err(Into::into),
            Writer::Arrow(w) => w.write(&rows),
            Writer::Csv(w) => w.write(&rows),
        };
        done.map_err(|e| unwritten(&self.name, &e))
    }

    /// Ends the file.
    pub fn close(self) -> Result<()> {
        let failed = |e: &(dyn Error + 'static)| unwritten(&self.name, e);
        match self.writer {
            Writer::Parquet(w) => {
                w.close().map_err(|e| failed(&e))?;
            }
            Writer::Arrow(mut w) => {
                w.finish().map_err(|e| failed(&e))?;
                w.get_mut().flush().map_err(|e| failed(&e))?;
            }
            Writer::Csv(w) => w.into_inner().flush().map_err(|e| failed(&e))?,
        }
        Ok(())
    }
}

/// What went wrong with a file. Messages of the formats repeat what the system said.
fn unwritten(name: &str, e: &(dyn Error + 'static)) -> anyhow::Error {
    let mut root = e;
    while let Some(next) = root.source() {
        root = next;
    }
    anyhow!("cannot write {name}: {root}")
}

/// The same columns, with words as texts.
fn plain(of: &Schema) -> SchemaRef {
    let field = |f: &Arc<Field>| match f.data_type() {
        DataType::Dictionary(_, of) => f.as_ref().clone().with_data_type((**of).clone()),
        _ => f.as_ref().clone(),
    };
    let fields: Vec<Field> = of.fields().iter().map(field).collect();
    Arc::new(Schema::new(fields))
}
