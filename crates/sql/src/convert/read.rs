//! Rows of a query, one after the other.

use crate::engine::Engine;
use anyhow::Result;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::execution::SendableRecordBatchStream;

/// A row: columns are named by their index in the query. NULL is `None`.
pub struct Row<'a> {
    columns: &'a [ArrayRef],
    at: usize,
}

impl Row<'_> {
    fn at<T>(&self, column: usize, value: impl FnOnce(&ArrayRef) -> T) -> Option<T> {
        let array = &self.columns[column];
        array.is_valid(self.at).then(|| value(array))
    }

    /// A number.
    pub fn int(&self, column: usize) -> Option<i64> {
        self.at(column, |a| a.as_primitive::<Int64Type>().value(self.at))
    }

    /// A floating-point number.
    pub fn float(&self, column: usize) -> Option<f64> {
        self.at(column, |a| a.as_primitive::<Float64Type>().value(self.at))
    }

    /// A text or a word.
    pub fn text(&self, column: usize) -> Option<&str> {
        let array = &self.columns[column];
        let value = || array.as_string::<i32>().value(self.at);
        array.is_valid(self.at).then(value)
    }
}

/// Visits the rows of a query.
pub fn each(engine: &Engine, query: &str, visit: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    engine.run(
        query,
        &mut |engine: &Engine, mut rows: SendableRecordBatchStream| {
            while let Some(batch) = engine.next(&mut rows)? {
                let columns = batch
                    .columns()
                    .iter()
                    .map(|c| Ok(cast(c, &plain(c.data_type()))?));
                let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
                for at in 0..batch.num_rows() {
                    visit(Row {
                        columns: &columns,
                        at,
                    })?;
                }
            }
            Ok(())
        },
    )
}

/// What is read in place of a type.
fn plain(of: &DataType) -> DataType {
    match of {
        DataType::Dictionary(_, of) => plain(of),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}
