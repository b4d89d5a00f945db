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
use std::io::{BufWriter, ErrorKind, Write};
use std::sync::{Arc, Mutex};

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
    failed: Failed,
}

enum Writer {
    Parquet(Box<ArrowWriter<Named<File>>>),
    Arrow(Box<FileWriter<BufWriter<Named<File>>>>),
    Csv(Box<CsvWriter<BufWriter<Named<File>>>>),
}

/// A file whose errors of writing are kept as the system said them. What libraries make of them differs.
pub struct Named<W> {
    file: W,
    failed: Failed,
}

/// What went wrong with a file first.
#[derive(Clone, Default)]
pub struct Failed(Arc<Mutex<Option<String>>>);

impl Failed {
    /// The message for an error that came up while the file was written.
    pub fn said(&self, name: &str, e: anyhow::Error) -> anyhow::Error {
        match &*self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(said) => anyhow!("cannot write {name}: {said}"),
            None => e,
        }
    }
}

impl<W: Write> Named<W> {
    /// The same file, and what will have gone wrong with it.
    pub fn new(file: W) -> (Named<W>, Failed) {
        let failed = Failed::default();
        let named = Named {
            file,
            failed: failed.clone(),
        };
        (named, failed)
    }

    fn kept<T>(&self, done: std::io::Result<T>) -> std::io::Result<T> {
        if let Err(e) = &done
            && e.kind() != ErrorKind::Interrupted
        {
            let mut first = self.failed.0.lock().unwrap_or_else(|e| e.into_inner());
            first.get_or_insert_with(|| e.to_string());
        }
        done
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let done = self.file.write(bytes);
        self.kept(done)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let done = self.file.flush();
        self.kept(done)
    }
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
        let (file, kept) = Named::new(file);
        let failed = |e: &(dyn Error + 'static)| unwritten(&name, &kept, e);
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
            failed: kept,
            name,
        })
    }

    /// Writes rows.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let rows = plain_rows(&rows.project(&self.columns)?, &self.schema)?;
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
        done.map_err(|e| unwritten(&self.name, &self.failed, &e))
    }

    /// Ends the file.
    pub fn close(self) -> Result<()> {
        let failed = |e: &(dyn Error + 'static)| unwritten(&self.name, &self.failed, e);
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

/// What went wrong with a file: what the system said, or else the library.
fn unwritten(name: &str, failed: &Failed, e: &(dyn Error + 'static)) -> anyhow::Error {
    let mut root = e;
    while let Some(next) = root.source() {
        root = next;
    }
    failed.said(name, anyhow!("cannot write {name}: {root}"))
}

/// The same rows, with columns as [`plain`] has them.
pub fn plain_rows(rows: &RecordBatch, to: &SchemaRef) -> Result<RecordBatch> {
    let mut arrays = Vec::new();
    for (column, field) in rows.columns().iter().zip(to.fields()) {
        arrays.push(cast(column, field.data_type())?);
    }
    Ok(RecordBatch::try_new(Arc::clone(to), arrays)?)
}

/// The same columns, with words as texts.
pub fn plain(of: &Schema) -> SchemaRef {
    let field = |f: &Arc<Field>| match f.data_type() {
        DataType::Dictionary(_, of) => f.as_ref().clone().with_data_type((**of).clone()),
        _ => f.as_ref().clone(),
    };
    let fields: Vec<Field> = of.fields().iter().map(field).collect();
    Arc::new(Schema::new(fields))
}
