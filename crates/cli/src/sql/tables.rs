//! `hindsight tables`: rows for other tools, in files.

use super::made::Made;
use super::{Handlers, Source, sources};
use crate::{args, confine, limits, store};
use anyhow::Result;
use hindsight_guard::broker::ExitStatus;
use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;

pub use crate::args::TableFormat;

/// What a user wants of recordings.
pub struct Wanted {
    /// Lists of tables, as they were written.
    pub tables: Vec<String>,
    /// Queries, as `NAME=SQL`.
    pub queries: Vec<String>,
    /// What has to hold for rows of tables.
    pub condition: Option<String>,
    /// How rows are written.
    pub format: TableFormat,
    /// Tells of it in JSON.
    pub json: bool,
    /// The folder, for messages.
    pub to: PathBuf,
}

/// The same, in a process that is confined.
pub struct AskedForTables {
    /// What is wanted.
    pub wanted: Wanted,
    /// The recordings, as they were named. There is at least one.
    pub recordings: Vec<Source>,
    /// Processors to use.
    pub processors: usize,
    /// The files that [`Handlers::files`] says, in the same order. They are empty.
    pub files: Vec<File>,
}

/// Has the files made, and written by a confined process.
pub(super) fn run(handlers: &Handlers, a: args::Tables) -> Result<i32> {
    let recordings = store::find_all(&a.files)?;
    let processors = a.jobs.unwrap_or_else(limits::processors);
    let mut tables = a.tables;
    if tables.is_empty() && a.query.is_empty() {
        tables.push("small".into());
    }
    let wanted = Wanted {
        tables,
        queries: a.query,
        condition: a.condition,
        format: a.format,
        json: a.json,
        to: a.to.clone(),
    };
    let names = (handlers.files)(&wanted, &recordings)?;
    let made = RefCell::new(None);
    let make = || {
        let (new, files) = Made::create(&a.to, &names, a.force)?;
        *made.borrow_mut() = Some(new);
        Ok(files)
    };
    let mut finished = Ok(());
    let write = |files| {
        (handlers.tables)(AskedForTables {
            wanted,
            recordings: sources(&recordings, processors),
            processors,
            files,
        })
    };
    // Also if a signal has ended the other process, which then ends this one.
    let after = |end| match made.take() {
        Some(made) if end == ExitStatus::Status(0) => finished = made.finish(),
        unfinished => drop(unfinished),
    };
    let done = confine::run_on(&recordings, make, write, after);
    finished.and(done)
}
