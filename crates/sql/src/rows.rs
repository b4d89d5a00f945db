//! Makes batches of rows, and hands them to the engine.

use crate::column::{Column, Kind};
use crate::words::Words;
use datafusion::arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, DictionaryArray, Float64Builder,
    Int32Array, Int64Builder, RecordBatch, RecordBatchOptions, StringArray, StringBuilder,
    UInt64Builder,
};
use datafusion::arrow::datatypes::{Int32Type, SchemaRef};
use datafusion::error::Result as EngineResult;
use hindsight_timeline::Cancel;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Rows of a batch.
const BATCH: usize = 8192;
/// A batch ends early if its texts and bytes are longer than this.
const MOST_BYTES: usize = 4 << 20;

/// Why a table ends.
#[derive(Debug)]
pub enum Stop {
    /// Nobody wants more rows.
    Enough,
    /// This went wrong.
    Failed(anyhow::Error),
    /// The recording does not have what was asked for. Another one may.
    Absent(anyhow::Error),
}

impl Stop {
    /// An error of a search for what a query names.
    pub fn of_search(e: hindsight_timeline::Error) -> Stop {
        match is_absent(&e) {
            true => Stop::Absent(e.into()),
            false => Stop::Failed(e.into()),
        }
    }
}

/// Whether an error says that a recording does not have a position, a place, a thread or the like.
pub fn is_absent(e: &hindsight_timeline::Error) -> bool {
    use hindsight_timeline::Error::*;
    matches!(
        e,
        NoPosition(_) | NoPlace(_) | NoThread(_) | NoImage(_) | Empty
    )
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(e: E) -> Stop {
        Stop::Failed(e.into())
    }
}

enum Builder {
    Int(Int64Builder),
    Uint(UInt64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Word(Words),
    Bytes(BinaryBuilder),
}

impl Builder {
    fn new(kind: Kind) -> Builder {
        match kind {
            Kind::Int => Builder::Int(Int64Builder::new()),
            Kind::Uint | Kind::Address => Builder::Uint(UInt64Builder::new()),
            Kind::Float => Builder::Float(Float64Builder::new()),
            Kind::Bool => Builder::Bool(BooleanBuilder::new()),
            Kind::Text => Builder::Text(StringBuilder::new()),
            Kind::Word => Builder::Word(Words::default()),
            Kind::Bytes => Builder::Bytes(BinaryBuilder::new()),
        }
    }

    fn any(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Builder::Int(b) => b,
            Builder::Uint(b) => b,
            Builder::Float(b) => b,
            Builder::Bool(b) => b,
            Builder::Text(b) => b,
            Builder::Word(b) => b.keys(),
            Builder::Bytes(b) => b,
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, Stop> {
        Ok(match self {
            Builder::Word(b) => b.finish()?,
            other => other.any().finish(),
        })
    }

    fn null(&mut self) {
        match self {
            Builder::Int(b) => b.append_null(),
            Builder::Uint(b) => b.append_null(),
            Builder::Float(b) => b.append_null(),
            Builder::Bool(b) => b.append_null(),
            Builder::Text(b) => b.append_null(),
            Builder::Word(b) => b.keys().append_null(),
            Builder::Bytes(b) => b.append_null(),
        }
    }
}

/// Takes the rows of a table, one after the other. A column is named by its index in the table. What nobody wants is
/// dropped, and what is not said is NULL.
pub struct Rows {
    schema: SchemaRef,
    /// The recording's name, if somebody wants that in front of each row.
    name: Option<ArrayRef>,
    /// The builder of each of the table's columns, if somebody wants that column.
    builders: Vec<Option<Builder>>,
    rows: usize,
    bytes: usize,
    sender: Sender<EngineResult<RecordBatch>>,
    /// Cancels long work when nobody wants more rows.
    pub cancel: Cancel,
}

impl Rows {
    /// `schema` has the name of the recording, if there is one, and then the columns of `wanted`, which are indices in
    /// `columns`, in their order.
    pub fn new(
        columns: &[Column],
        wanted: &[usize],
        schema: SchemaRef,
        name: Option<&str>,
        sender: Sender<EngineResult<RecordBatch>>,
        cancel: Cancel,
    ) -> Rows {
        let of = |(i, c): (usize, &Column)| wanted.contains(&i).then(|| Builder::new(c.kind));
        Rows {
            schema,
            name: name.map(|n| Arc::new(StringArray::from(vec![n])) as ArrayRef),
            builders: columns.iter().enumerate().map(of).collect(),
            rows: 0,
            bytes: 0,
            sender,
            cancel,
        }
    }

    /// Whether somebody wants one of these columns.
    pub fn wants(&self, columns: &[usize]) -> bool {
        columns.iter().any(|c| self.builders[*c].is_some())
    }

    /// Says a signed number.
    pub fn int(&mut self, column: usize, value: impl Into<Option<i64>>) {
        if let Some(Builder::Int(b)) = &mut self.builders[column] {
            b.append_option(value.into());
        }
    }

    /// Says an unsigned number or an address.
    pub fn uint(&mut self, column: usize, value: impl Into<Option<u64>>) {
        if let Some(Builder::Uint(b)) = &mut self.builders[column] {
            b.append_option(value.into());
        }
    }

    /// Says a floating-point number.
    pub fn float(&mut self, column: usize, value: impl Into<Option<f64>>) {
        if let Some(Builder::Float(b)) = &mut self.builders[column] {
            b.append_option(value.into());
        }
    }

    /// Says whether something holds.
    pub fn bool(&mut self, column: usize, value: impl Into<Option<bool>>) {
        if let Some(Builder::Bool(b)) = &mut self.builders[column] {
            b.append_option(value.into());
        }
    }

    /// Says a text.
    pub fn text(&mut self, column: usize, value: impl AsRef<str>) {
        self.maybe(column, Some(value));
    }

    /// Says a text, if there is one.
    pub fn maybe<T: AsRef<str>>(&mut self, column: usize, value: Option<T>) {
        let value = value.as_ref().map(T::as_ref);
        match &mut self.builders[column] {
            Some(Builder::Text(b)) => b.append_option(value),
            Some(Builder::Word(b)) => match value {
                Some(v) => {
                    let key = b.key(v);
                    b.keys().append_value(key);
                }
                None => b.keys().append_null(),
            },
            _ => return,
        }
        self.bytes += value.map_or(0, str::len);
    }

    /// Says bytes, if there are some.
    pub fn bytes<T: AsRef<[u8]>>(&mut self, column: usize, value: Option<T>) {
        let value = value.as_ref().map(T::as_ref);
        if let Some(Builder::Bytes(b)) = &mut self.builders[column] {
            b.append_option(value);
            self.bytes += value.map_or(0, <[u8]>::len);
        }
    }

    /// Says signed numbers of as many rows.
    pub fn ints(&mut self, column: usize, values: impl Iterator<Item = i64>) {
        if let Some(Builder::Int(b)) = &mut self.builders[column] {
            values.for_each(|v| b.append_value(v));
        }
    }

    /// Says unsigned numbers or addresses of as many rows.
    pub fn uints(&mut self, column: usize, values: &[u64]) {
        if let Some(Builder::Uint(b)) = &mut self.builders[column] {
            b.append_slice(values);
        }
    }

    /// A number that changes when keys of words do. That may happen when a row ends.
    pub fn generation(&self) -> u32 {
        let of = |b: &Builder| match b {
            Builder::Word(w) => w.generation(),
            _ => 0,
        };
        self.builders.iter().flatten().map(of).sum()
    }

    /// The key of a word in its column, for [`Rows::words`].
    pub fn key(&mut self, column: usize, word: &str) -> i32 {
        match &mut self.builders[column] {
            Some(Builder::Word(b)) => b.key(word),
            _ => 0,
        }
    }

    /// Says words of as many rows by their keys. Where a key is negative there is none.
    pub fn words(&mut self, column: usize, keys: &[i32]) {
        if let Some(Builder::Word(b)) = &mut self.builders[column] {
            match keys.iter().all(|k| *k >= 0) {
                true => b.keys().append_slice(keys),
                false => {
                    (keys.iter()).for_each(|k| b.keys().append_option((*k >= 0).then_some(*k)))
                }
            }
        }
    }

    /// Ends a row.
    pub fn end(&mut self) -> Result<(), Stop> {
        self.end_many(1)
    }

    /// Ends this many rows. What was not said of the last of them is NULL.
    pub fn end_many(&mut self, rows: usize) -> Result<(), Stop> {
        self.rows += rows;
        for b in self.builders.iter_mut().flatten() {
            while b.any().len() < self.rows {
                b.null();
            }
        }
        match self.rows >= BATCH || self.bytes >= MOST_BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// Hands on what there is, if it has so many rows.
    pub fn send_from(&mut self, rows: usize) -> Result<(), Stop> {
        match self.rows >= rows {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// Hands on what there is.
    pub fn send(&mut self) -> Result<(), Stop> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        if let Some(name) = &self.name {
            let keys = Int32Array::from(vec![0; self.rows]);
            let column = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(name))?;
            columns.push(Arc::new(column));
        }
        for b in self.builders.iter_mut().flatten() {
            columns.push(b.finish()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        (self.rows, self.bytes) = (0, 0);
        self.sender
            .blocking_send(Ok(batch))
            .map_err(|_| Stop::Enough)
    }

    /// Hands on the last rows, unless making rows ended as `done` says.
    pub fn finish(mut self, done: Result<(), Stop>) -> Result<(), Stop> {
        done.and_then(|()| self.send())
    }
}
