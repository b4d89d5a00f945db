//! Tables, as the engine sees them. What makes the rows of one recording knows nothing of others.

use crate::bounds::Bounds;
use crate::choose::{self, Chooser};
use crate::column::{Column, RECORDING, table_schema};
use crate::missing::{Absent, Missing};
use crate::recording::Recording;
use crate::recordings::Recordings;
use crate::rows::{Rows, Stop};
use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
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
use tokio::sync::mpsc::Sender;

/// A table: what makes its rows. [`RECORDING`] is none of its columns.
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

/// A table of all recordings, for the engine.
#[derive(Clone)]
pub struct Provider {
    recordings: Arc<Recordings>,
    table: Arc<dyn Table>,
    schema: SchemaRef,
}

impl Provider {
    /// The table of these recordings.
    pub fn new(recordings: &Arc<Recordings>, table: Arc<dyn Table>) -> Provider {
        Provider {
            recordings: Arc::clone(recordings),
            schema: table_schema(table.columns()),
            table,
        }
    }

    /// What is to be done for a query, in so many parts at most. Where there are enough recordings to keep all processors
    /// busy, none is opened yet.
    fn parts(&self, filters: &[Expr], most: usize) -> Result<Vec<Vec<Piece>>> {
        let chooser = Chooser::new(filters, &self.schema)?;
        let of = |source| Some((source, chooser.of(self.recordings.name(source))?));
        let mut chosen: Vec<(usize, Vec<Expr>)> =
            (0..self.recordings.len()).filter_map(of).collect();
        // So rows are in the order of this column.
        chosen.sort_by_key(|(source, _)| self.recordings.name(*source));
        let share = most / chosen.len().max(1);
        let whole = |(source, conditions)| Piece {
            source,
            within: Within::Conditions(conditions),
        };
        if !self.recordings.is_one() && share < 2 {
            let mut parts: Vec<Vec<Piece>> = Vec::new();
            let each = chosen.len().div_ceil(most).max(1);
            let mut left = chosen.into_iter().map(whole).peekable();
            while left.peek().is_some() {
                parts.push(left.by_ref().take(each).collect());
            }
            // The engine wants one, even if there is nothing to do.
            parts.resize_with(parts.len().max(1), Vec::new);
            return Ok(parts);
        }
        let mut parts = Vec::new();
        for (source, conditions) in chosen {
            let split = |r: &Recording| {
                let bounds = r.bounds(&conditions);
                Ok(self.table.split(r, &bounds, share))
            };
            let all = self.recordings.with(source, split);
            for bounds in all.map_err(external)? {
                let within = Within::Bounds(bounds);
                parts.push(vec![Piece { source, within }]);
            }
        }
        parts.resize_with(parts.len().max(1), Vec::new);
        Ok(parts)
    }

    /// The orders in which each part has its rows. `shown` are the columns that somebody wants. `several`: a part may have
    /// rows of several recordings, one recording after the other.
    fn orders(&self, shown: &SchemaRef, several: bool) -> Vec<LexOrdering> {
        let order = self.table.order().iter().copied();
        let of = |names: Vec<&str>| {
            let sorted = (names.into_iter())
                .map_while(|name| expressions::col(name, shown).ok())
                // None is NULL. Queries mean this order if they do not say where these come.
                .map(|e| PhysicalSortExpr::new_default(e).nulls_last());
            LexOrdering::new(sorted)
        };
        let with_name = of(std::iter::once(RECORDING.name)
            .chain(order.clone())
            .collect());
        let without = of(order.collect()).filter(|_| !several);
        without.into_iter().chain(with_name).collect()
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
        let of = |e: &&Expr| match choose::helps(e) {
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
        let config = state.config();
        // Parts come in any order. Where that may not be, only a table whose rows can be put in order again has several.
        let most = match config.round_robin_repartition() || !self.table.order().is_empty() {
            true => config.target_partitions(),
            false => 1,
        };
        let parts = self.parts(filters, most)?;
        let several = parts.iter().any(|p| p.len() > 1);
        let all = parts.iter().flatten().map(|p| p.source);
        let missing = Arc::new(Missing::new(&self.recordings, all));
        let part = |pieces: Vec<Piece>| {
            Arc::new(Part {
                provider: self.clone(),
                pieces: pieces.into(),
                missing: Arc::clone(&missing),
                columns: columns.clone(),
                schema: Arc::clone(&made),
            }) as Arc<dyn PartitionStream>
        };
        let parts: Vec<_> = parts.into_iter().map(part).collect();
        let places: Vec<usize> = wanted
            .iter()
            .map(|w| columns.iter().position(|c| c == w).unwrap_or(0))
            .collect();
        let shown = Arc::new(made.project(&places)?);
        let orders = self.orders(&shown, several);
        let exec = StreamingTableExec::try_new(made, parts, Some(&places), orders, false, limit)?;
        Ok(Arc::new(exec))
    }
}

/// What is asked of one recording.
#[derive(Clone, Debug)]
struct Piece {
    source: usize,
    within: Within,
}

/// Which of its rows count.
#[derive(Clone, Debug)]
enum Within {
    /// Those within these bounds.
    Bounds(Bounds),
    /// Those for which this holds. It takes the recording to say more.
    Conditions(Vec<Expr>),
}

/// A part of a table that is being read: one piece after the other.
struct Part {
    provider: Provider,
    pieces: Arc<[Piece]>,
    missing: Arc<Missing>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Debug for Part {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.provider.table.name())?;
        for p in &*self.pieces {
            if !self.provider.recordings.is_one() {
                write!(f, " of {}", self.provider.recordings.name(p.source))?;
            }
            write!(f, " within {:?}", p.within)?;
        }
        Ok(())
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let cancel = Cancel::new();
        let work = Work {
            provider: self.provider.clone(),
            missing: Arc::clone(&self.missing),
            names: self.columns.first() == Some(&0),
            // The first column is not the table's.
            columns: (self.columns.iter())
                .filter_map(|c| c.checked_sub(1))
                .collect(),
            schema: Arc::clone(&self.schema),
            sender: stream.tx(),
            cancel: cancel.clone(),
        };
        let pieces = Arc::clone(&self.pieces);
        stream.spawn_blocking(
            move || match pieces.iter().try_for_each(|p| work.piece(p)) {
                Ok(()) | Err(Stop::Enough) => Ok(()),
                Err(Stop::Failed(e) | Stop::Absent(e)) => Err(external(e)),
            },
        );
        let inner = Cancelling(stream.build(), cancel);
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            inner,
        ))
    }
}

/// What all pieces of a part need.
struct Work {
    provider: Provider,
    missing: Arc<Missing>,
    /// Somebody wants the recording's name.
    names: bool,
    columns: Vec<usize>,
    schema: SchemaRef,
    sender: Sender<Result<RecordBatch>>,
    cancel: Cancel,
}

impl Work {
    /// Makes the rows of a recording.
    fn piece(&self, piece: &Piece) -> std::result::Result<(), Stop> {
        let (recordings, table) = (&self.provider.recordings, &self.provider.table);
        let failed = |e| Stop::Failed(recordings.said(piece.source, e));
        let recording = recordings.open(piece.source).map_err(failed)?;
        let bounds = match &piece.within {
            Within::Bounds(b) => b.clone(),
            Within::Conditions(c) => recording.bounds(c),
        };
        let mut rows = Rows::new(
            table.columns(),
            &self.columns,
            Arc::clone(&self.schema),
            self.names.then(|| &**recordings.name(piece.source)),
            self.sender.clone(),
            self.cancel.clone(),
        );
        let done = table.rows(&recording, &bounds, &mut rows);
        match rows.finish(done) {
            Ok(()) => {
                self.missing.has(piece.source);
                Ok(())
            }
            Err(Stop::Absent(e)) => self.missing.has_not(piece.source, e).map_err(Stop::Failed),
            Err(Stop::Failed(e)) => Err(failed(e)),
            Err(Stop::Enough) => Err(Stop::Enough),
        }
    }
}

fn external(e: anyhow::Error) -> DataFusionError {
    DataFusionError::External(match e.downcast::<Absent>() {
        // So it can be told from others.
        Ok(absent) => Box::new(absent),
        Err(e) => e.into_boxed_dyn_error(),
    })
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
