//! What tables say of themselves.

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::sync::Arc;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A signed number of 64 bits.
    Int,
    /// An unsigned number of 64 bits.
    Uint,
    /// The same, which tables show in hexadecimal: an address, or bits.
    Address,
    /// A floating-point number of 64 bits.
    Float,
    /// True or false.
    Bool,
    /// Text.
    Text,
    /// Text of which there are few different ones.
    Word,
    /// Bytes.
    Bytes,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it means, in which unit, and when it is NULL.
    pub about: &'static str,
}

/// Shorthand for tables.
pub const fn column(name: &'static str, kind: Kind, about: &'static str) -> Column {
    Column { name, kind, about }
}

/// Where an instant stands in a row. Most tables begin with these.
pub const POSITION: Column = column(
    "position",
    Kind::Text,
    "the instant, as other commands take it: before the instruction or call",
);
/// See [`crate::clock::Clock`].
pub const TIME: Column = column(
    "time",
    Kind::Int,
    "the instant as a number: instructions of all threads before it, in the order of positions",
);
/// The thread of a row.
pub const THREAD: Column = column("thread", Kind::Int, "number of the thread, as in `threads`");
/// The program image of a row.
pub const PROCESS: Column = column(
    "process",
    Kind::Int,
    "number of the program image, as in `processes`",
);
/// A thread's own count.
pub const COUNT: Column = column(
    "count",
    Kind::Int,
    "instructions that the thread had completed",
);

/// The recording of a row. The engine gets it as the first column of each table; tables themselves leave it out.
pub const RECORDING: Column = column(
    "recording",
    Kind::Word,
    "the recording: the end of its path that no other one has, without `.hst`",
);

/// The key under which a field's metadata says what the column means.
pub const ABOUT: &str = "about";
/// The key that marks columns to be shown in hexadecimal.
pub const HEXADECIMAL: &str = "hexadecimal";
/// The key that marks the column [`RECORDING`].
pub const WHICH: &str = "recording";

impl Kind {
    /// How Arrow holds it.
    pub fn data_type(self) -> DataType {
        match self {
            Kind::Int => DataType::Int64,
            Kind::Uint | Kind::Address => DataType::UInt64,
            Kind::Float => DataType::Float64,
            Kind::Bool => DataType::Boolean,
            Kind::Text => DataType::Utf8,
            Kind::Word => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Kind::Bytes => DataType::Binary,
        }
    }
}

/// The Arrow schema of these columns.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(field).collect();
    Arc::new(Schema::new(fields))
}

/// The same for a table of recordings, which has [`RECORDING`] in front.
pub fn table_schema(columns: &[Column]) -> SchemaRef {
    let mut first = field(&RECORDING);
    first.metadata_mut().insert(WHICH.into(), String::new());
    let others = columns.iter().map(field);
    let fields: Vec<Field> = std::iter::once(first).chain(others).collect();
    Arc::new(Schema::new(fields))
}

fn field(c: &Column) -> Field {
    let mut meta = HashMap::from([(ABOUT.to_owned(), c.about.to_owned())]);
    if c.kind == Kind::Address {
        meta.insert(HEXADECIMAL.into(), String::new());
    }
    Field::new(c.name, c.kind.data_type(), true).with_metadata(meta)
}
