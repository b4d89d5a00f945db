//! The recordings that are asked: their names, and which of them are open.

use crate::names;
use crate::recording::Recording;
use anyhow::{Error, Result, bail};
use hindsight_cli::sql::Source;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// So many stay open that nobody uses any more. Opened again, a recording has to be read again.
const KEPT: usize = 4;

/// All recordings. Each is opened when something of it is needed first.
pub struct Recordings {
    all: Vec<Known>,
    /// Those that stay open, the one that was used last in front.
    kept: Mutex<VecDeque<(usize, Arc<Recording>)>>,
}

struct Known {
    name: Arc<str>,
    source: Source,
    open: Mutex<Weak<Recording>>,
}

impl Recordings {
    /// These recordings, of which there is at least one.
    pub fn new(sources: Vec<Source>) -> Recordings {
        let names = names::of(sources.iter().map(Source::path));
        let known = |(source, name): (Source, String)| Known {
            name: name.into(),
            source,
            open: Mutex::default(),
        };
        Recordings {
            all: sources.into_iter().zip(names).map(known).collect(),
            kept: Mutex::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is only one.
    pub fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    /// What the column `recording` says of a recording.
    pub fn name(&self, index: usize) -> &Arc<str> {
        &self.all[index].name
    }

    /// The recording with a name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<usize> {
        match self.all.iter().position(|k| &*k.name == name) {
            Some(index) => Ok(index),
            None => {
                let all: Vec<&str> = self.all.iter().map(|k| &*k.name).collect();
                bail!(
                    "there is no recording {name}; there are: {}",
                    all.join(", ")
                )
            }
        }
    }

    /// Opens a recording, unless it is open.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(&self, index: usize) -> Result<Arc<Recording>> {
        let known = &self.all[index];
        // Nobody else opens it meanwhile.
        let mut open = guard(&known.open);
        let found = match open.upgrade() {
            Some(found) => found,
            None => {
                let timeline = known.source.open()?;
                let made = Arc::new(Recording::new(timeline, self.is_one()));
                *open = Arc::downgrade(&made);
                made
            }
        };
        self.keep(index, &found);
        Ok(found)
    }

    /// Lets a recording stay open, and closes those that were not used for longest.
    fn keep(&self, index: usize, one: &Arc<Recording>) {
        let mut closed = Vec::new();
        let mut kept = guard(&self.kept);
        kept.retain(|k| k.0 != index);
        kept.push_front((index, Arc::clone(one)));
        // One that is still being written would be another one next time.
        let mut at = kept.len();
        while kept.len() > KEPT && at > 1 {
            at -= 1;
            if !kept[at].1.timeline.is_growing() {
                closed.extend(kept.remove(at));
            }
        }
        drop(kept);
    }

    /// An error of a recording, with its name if there are others.
    pub fn said(&self, index: usize, error: Error) -> Error {
        match self.is_one() {
            true => error,
            false => error.context(self.name(index).to_string()),
        }
    }

    /// Does something with a recording. An error names it if there are others.
    pub fn with<T>(&self, index: usize, what: impl FnOnce(&Recording) -> Result<T>) -> Result<T> {
        let done = self.open(index).and_then(|r| what(&r));
        done.map_err(|e| self.said(index, e))
    }
}

fn guard<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|e| e.into_inner())
}
