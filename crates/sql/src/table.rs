//! Tables, as the engine sees them.

use crate::bounds::Bounds;
use crate::column::{Column, schema};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr, expressions};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::Stream;
use hindsight_timeline::Cancel;
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A table: what makes its rows.
pub trait Table: Send + Sync + 'static {
    /// Its name, in messages.
    fn name(&self) -> &str;

    /// Its columns, in their order.
    fn columns(&self) -> &'static [Column];

    /// The columns by which its rows stand in ascending order, the first one first.
    fn order(&self) -> &'static [&'static str] {
        &[]
    }

    /// Splits the work: each of these finds rows of its own, those of the first before those of the second. At most `most`.
    fn split(&self, _recording: &Recording, bounds: &Bounds, _most: usize) -> Vec<Bounds> {
        vec![bounds.clone()]
    }

    /// Makes the rows that lie within the bounds, and perhaps others.
    fn rows(
        &self,
        recording: &Recording,
        bounds: &Bounds,
        out: &mut Rows,
    ) -> std::result::Result<(), Stop>;
}

/// A table of a recording, for the engine.
#[derive(Clone)]
pub struct Provider {
    recording: Arc<Recording>,
    table: Arc<dyn Table>,
    schema: SchemaRef,
}

impl Provider {
    /// The table of this recording.
    pub fn new(recording: &Arc<Recording>, table: Arc<dyn Table>) -> Provider {
        Provider {
            recording: Arc::clone(recording),
            schema: schema(table.columns()),
            table,
        }
    }
}

impl Debug for Provider {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.table.name())
    }
}

#[async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // The engine looks at each row again: a table may make more rows than it is asked for.
        let of = |e: &&Expr| match Bounds::understands(e) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(of).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted: Vec<usize> = match projection {
            Some(p) => p.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        // A projection may name columns in any order. Rows are made in the table's.
        let mut columns = wanted.clone();
        columns.sort_unstable();
        columns.dedup();
        let made = Arc::new(self.schema.project(&columns)?);
        let bounds = self.recording.bounds(filters);
        let most = state.config().target_partitions();
        let parts: Vec<Arc<dyn PartitionStream>> =
            (self.table.split(&self.recording, &bounds, most).into_iter())
                .map(|bounds| {
                    Arc::new(Part {
                        provider: self.clone(),
                        bounds,
                        columns: columns.clone(),
                        schema: Arc::clone(&made),
                    }) as Arc<dyn PartitionStream>
                })
                .collect();
        let places: Vec<usize> = wanted
            .iter()
            .map(|w| columns.iter().position(|c| c == w).unwrap_or(0))
            .collect();
        let shown = made.project(&places)?;
        let sorted = (self.table.order().iter())
            .map_while(|name| expressions::col(name, &shown).ok())
            .map(PhysicalSortExpr::new_default);
        let exec = StreamingTableExec::try_new(
            made,
            parts,
            Some(&places),
            LexOrdering::new(sorted),
            false,
            limit,
        )?;
        Ok(Arc::new(exec))
    }
}

/// A part of a table that is being read.
struct Part {
    provider: Provider,
    bounds: Bounds,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Debug for Part {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{} within {:?}", self.provider.table.name(), self.bounds)
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let cancel = Cancel::new();
        let mut rows = Rows::new(
            self.provider.table.columns(),
            &self.columns,
            Arc::clone(&self.schema),
            stream.tx(),
            cancel.clone(),
        );
        let (provider, bounds) = (self.provider.clone(), self.bounds.clone());
        stream.spawn_blocking(move || {
            let done = provider.table.rows(&provider.recording, &bounds, &mut rows);
            rows.finish(done);
            Ok(())
        });
        let inner = Cancelling(stream.build(), cancel);
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            inner,
        ))
    }
}

/// A stream that cancels the work behind it when it is dropped.
struct Cancelling(SendableRecordBatchStream, Cancel);

impl Stream for Cancelling {
    type Item = <SendableRecordBatchStream as Stream>::Item;

    fn poll_next(mut self: Pin<&mut Self>, c: &mut Context) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(c)
    }
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.1.cancel();
    }
}
