//! The engine with the tables and functions of recordings.

use crate::column::{ABOUT, Column, Kind, column, schema, table_schema};
use crate::functions::{self, TABLES};
use crate::missing::Absent;
use crate::numerals;
use crate::recordings::Recordings;
use crate::table::Provider;
use crate::tables;
use crate::values::{self, VALUES, ValueOf};
use anyhow::{Result, anyhow, bail};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// What sorting, grouping and joining may take of memory, in bytes.
pub const MEMORY: usize = 1 << 30;

/// The bytes of stack of a thread that plans and answers. Plans of long conditions are deep, and code that is not optimized has large
/// frames.
const STACK: usize = 16 << 20;

/// Answers queries about recordings.
pub struct Engine {
    context: SessionContext,
    workers: Workers,
    stop: Stop,
}

/// The threads that answer. What still runs for an interrupted question is never waited for: a step of it may take long.
struct Workers {
    processors: usize,
    now: RefCell<Option<Runtime>>,
}

impl Workers {
    fn new(processors: usize) -> Result<Workers> {
        Ok(Workers {
            processors,
            now: RefCell::new(Some(Workers::make(processors)?)),
        })
    }

    fn make(processors: usize) -> Result<Runtime> {
        // It waits for nothing but its own threads. Work that takes long is done in threads of its own.
        let mut made = tokio::runtime::Builder::new_multi_thread();
        made.worker_threads(processors).thread_stack_size(STACK);
        Ok(made.build()?)
    }

    fn with<T>(&self, what: impl FnOnce(&Runtime) -> T) -> T {
        let now = self.now.borrow();
        what(now.as_ref().expect("it is there until it is dropped"))
    }

    /// Leaves what runs to itself. The next question has threads of its own.
    fn renew(&self) {
        if let Ok(fresh) = Workers::make(self.processors)
            && let Some(old) = self.now.replace(Some(fresh))
        {
            old.shutdown_background();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(last) = self.now.take() {
            last.shutdown_background();
        }
    }
}

/// Ends questions from another thread.
#[derive(Clone, Default)]
pub struct Stop {
    notify: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

impl Stop {
    /// Ends the present question.
    pub fn interrupt(&self) {
        self.stopped.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// A new question begins.
    pub fn begin(&self) {
        self.stopped.store(false, Relaxed);
    }

    /// Waits for this, or until it is stopped.
    async fn unless<T>(&self, what: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            done = what => Ok(done),
            () = self.when() => bail!("interrupted"),
        }
    }

    async fn when(&self) {
        while !self.stopped.load(Relaxed) {
            self.notify.notified().await;
        }
    }
}

/// One row says this much of a table, a function or a column.
const LISTED: &[Column] = &[
    column("name", Kind::Text, ""),
    column("kind", Kind::Text, ""),
    column("about", Kind::Text, ""),
];

impl Engine {
    /// An engine that uses so many processors.
    pub fn new(recordings: &Arc<Recordings>, processors: usize) -> Result<Engine> {
        Self::with(recordings, processors, true)
    }

    /// The same for files: the rows of a table come in the same order each time, also where the table claims none.
    pub fn in_order(recordings: &Arc<Recordings>, processors: usize) -> Result<Engine> {
        Self::with(recordings, processors, false)
    }

    /// `shares`: processors share the rows of one part of a table among them, in any order.
    fn with(recordings: &Arc<Recordings>, processors: usize, shares: bool) -> Result<Engine> {
        let config = SessionConfig::new()
            .with_target_partitions(processors)
            .with_round_robin_repartition(shares)
            .with_batch_size(8192);
        let nowhere = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(MEMORY)))
            .with_disk_manager_builder(nowhere)
            .build_arc()?;
        let context = SessionContext::new_with_config_rt(config, environment);
        for t in tables::all() {
            context.register_table(t.name, Arc::new(Provider::new(recordings, t.table)))?;
        }
        functions::register(&context, recordings);
        values::register(&context, recordings);
        Ok(Engine {
            context,
            workers: Workers::new(processors)?,
            stop: Stop::default(),
        })
    }

    /// What ends questions.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Executes the statements of a text, one after the other. `show` gets the rows of each that has some.
    pub fn run(
        &self,
        text: &str,
        show: &mut dyn FnMut(&Engine, SendableRecordBatchStream) -> Result<()>,
    ) -> Result<()> {
        let query = numerals::decimal(text);
        let explain = |e: DataFusionError| explain(&e, text, &query);
        let statements = DFParser::parse_sql(&query.text).map_err(explain)?;
        for s in statements {
            if let Some(rows) = self.rows(s).map_err(|e| match e.downcast() {
                Ok(e) => explain(e),
                Err(e) => e,
            })? {
                show(self, rows)?;
            }
        }
        Ok(())
    }

    /// The rows of a statement. `None`: it has none.
    fn rows(&self, statement: Statement) -> Result<Option<SendableRecordBatchStream>> {
        if let Statement::Statement(s) = &statement {
            match &**s {
                SqlStatement::ExplainTable { table_name, .. } => {
                    return self.describe(&table_name.to_string()).map(Some);
                }
                SqlStatement::ShowTables { .. } => return listed(names()).map(Some),
                SqlStatement::ShowFunctions { .. } => return listed(value_names()).map(Some),
                _ => {}
            }
        }
        let context = self.context.clone();
        // In a task of its own: reading conditions may take long, and whoever waits can be interrupted.
        let plan = async move {
            let plan = context.state().statement_to_plan(statement).await?;
            let options = SQLOptions::new().with_allow_dml(false);
            options.verify_plan(&plan)?;
            if let LogicalPlan::Ddl(DdlStatement::CreateExternalTable(_)) = &plan {
                bail!("tables of other files cannot be read: only recordings are open");
            }
            let has_rows = !matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_));
            let frame = context.execute_logical_plan(plan).await?;
            Ok(match has_rows {
                true => Some(apart(frame.execute_stream().await?)),
                false => None,
            })
        };
        let work = self.workers.with(|w| w.spawn(plan));
        self.wait(work)??
    }

    /// Waits for this, or until the question is interrupted.
    fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T> {
        let done = self.workers.with(|w| w.block_on(self.stop.unless(what)));
        if done.is_err() {
            self.workers.renew();
        }
        done
    }

    /// Waits for the next rows.
    pub fn next(&self, rows: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
        use futures::StreamExt;
        let next = self.wait(rows.next())?;
        next.transpose().map_err(|e| cause(&e))
    }

    /// The columns of a table, or of what a function makes.
    fn describe(&self, name: &str) -> Result<SendableRecordBatchStream> {
        let table = self
            .workers
            .with(|w| w.block_on(self.context.table_provider(name)));
        let function = TABLES.iter().find(|t| t.name == name);
        let schemas = [
            table.ok().map(|t| t.schema()),
            function.map(|f| table_schema((f.columns)())),
        ];
        let schemas: Vec<SchemaRef> = schemas.into_iter().flatten().collect();
        if schemas.is_empty() {
            bail!("there is no table {name}; SHOW TABLES lists them");
        }
        let about = |f: &datafusion::arrow::datatypes::Field| {
            let about = f.metadata().get(ABOUT).cloned().unwrap_or_default();
            [f.name().clone(), type_name(f.data_type()), about]
        };
        // A function may have the name of a table.
        let both = schemas.len() > 1;
        let mut rows = Vec::new();
        for (i, s) in schemas.iter().enumerate() {
            for field in s.fields() {
                let [column, kind, said] = about(field);
                let of = if i == 0 { "the table" } else { "the function" };
                let kind = if both {
                    format!("{kind}, of {of}")
                } else {
                    kind
                };
                rows.push([column, kind, said]);
            }
        }
        listed(rows)
    }
}

/// The same rows, made in a task of its own: one step of it may take long, and whoever waits can be interrupted.
fn apart(mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    use futures::StreamExt;
    let mut out = RecordBatchReceiverStream::builder(rows.schema(), 2);
    let sender = out.tx();
    out.spawn(async move {
        while let Some(batch) = rows.next().await {
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    out.build()
}

/// What people call a type.
fn type_name(t: &datafusion::arrow::datatypes::DataType) -> String {
    use datafusion::arrow::datatypes::DataType::*;
    match t {
        Int64 => "number".into(),
        UInt64 => "unsigned number".into(),
        Float64 => "floating-point number".into(),
        Boolean => "true or false".into(),
        Binary => "bytes".into(),
        Utf8 | Utf8View | LargeUtf8 => "text".into(),
        Dictionary(_, v) => type_name(v),
        other => other.to_string(),
    }
}

/// All tables, and the functions that make tables.
pub fn names() -> Vec<[String; 3]> {
    let tables = tables::all();
    let tables = (tables.iter()).map(|t| [t.name.into(), "table".into(), t.about.into()]);
    let functions = TABLES.iter().map(|f| {
        let name = format!("{}({})", f.name, f.parameters);
        [name, "table of a function".into(), f.about.into()]
    });
    tables.chain(functions).collect()
}

/// All functions that make values.
pub fn value_names() -> Vec<[String; 3]> {
    let one = |f: &ValueOf| [f.shown(), "function".into(), f.about.into()];
    VALUES.iter().map(one).collect()
}

fn listed(rows: Vec<[String; 3]>) -> Result<SendableRecordBatchStream> {
    let schema: SchemaRef = schema(LISTED);
    let column = |i: usize| -> ArrayRef {
        let all = rows.iter().map(|r| r[i].clone()).collect::<Vec<_>>();
        Arc::new(StringArray::from(all))
    };
    let batch = RecordBatch::try_new(Arc::clone(&schema), (0..3).map(column).collect())?;
    Ok(Box::pin(MemoryStream::try_new(vec![batch], schema, None)?))
}

/// What went wrong, without the engine's own words around it.
fn cause(e: &DataFusionError) -> anyhow::Error {
    match e.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<Absent>() {
            Some(absent) => absent.clone().into(),
            None => anyhow!("{}", chain(inner.as_ref())),
        },
        DataFusionError::ResourcesExhausted(_) => anyhow!(
            "the query needs more than {} MiB to sort, group or join its rows: bound it, for example by `time`",
            MEMORY >> 20
        ),
        root => {
            let text = root.strip_backtrace();
            let text = text.split_once("error: ").map_or(text.as_str(), |t| t.1);
            anyhow!("{text}")
        }
    }
}

fn chain(e: &(dyn std::error::Error + 'static)) -> String {
    let mut out = e.to_string();
    let mut next = e.source();
    while let Some(e) = next {
        out += &format!(": {e}");
        next = e.source();
    }
    out
}

/// The same with the place in the query, if the engine tells it.
fn explain(e: &DataFusionError, text: &str, query: &numerals::Query) -> anyhow::Error {
    let cause = cause(e);
    let said = cause.to_string();
    let place = line_and_column(&said).or_else(|| {
        let span = e.diagnostic()?.span?;
        Some((span.start.line as usize, span.start.column as usize))
    });
    let Some((line, column)) = place else {
        return cause;
    };
    // From the engine's line and column to the user's.
    let before: usize = query
        .text
        .split_inclusive('\n')
        .take(line - 1)
        .map(str::len)
        .sum();
    let rest = &query.text[before.min(query.text.len())..];
    let within: usize = rest.chars().take(column - 1).map(char::len_utf8).sum();
    let at = query.origin(before + within).min(text.len());
    let begin = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let shown = text[begin..].lines().next().unwrap_or("");
    let space: String = text[begin..at].chars().map(|_| ' ').collect();
    let said = said.split(" at Line: ").next().unwrap_or(&said);
    anyhow!("{said}\n  {shown}\n  {space}^")
}

/// The place in a message of the parser.
fn line_and_column(said: &str) -> Option<(usize, usize)> {
    let (line, column) = said.split_once(" at Line: ")?.1.split_once(", Column: ")?;
    let digits = column.bytes().take_while(u8::is_ascii_digit).count();
    let place = (line.parse().ok()?, column[..digits].parse().ok()?);
    (place.0 > 0 && place.1 > 0).then_some(place)
}
