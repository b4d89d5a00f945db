//! What some recordings do not have. It is an error only if none of them has it.

use crate::recordings::Recordings;
use anyhow::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex};

/// No recording that is asked has what a query names.
#[derive(Clone, Debug)]
pub struct Absent(String);

impl Display for Absent {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

/// Which of the recordings that are asked have what a query names.
pub struct Missing {
    recordings: Arc<Recordings>,
    /// For each: nothing yet, that it has it, or why not.
    found: Mutex<BTreeMap<usize, Found>>,
}

enum Found {
    Open,
    Here,
    Not(String),
}

impl Missing {
    /// These recordings are asked.
    pub fn new(recordings: &Arc<Recordings>, asked: impl Iterator<Item = usize>) -> Missing {
        Missing {
            recordings: Arc::clone(recordings),
            found: Mutex::new(asked.map(|a| (a, Found::Open)).collect()),
        }
    }

    /// A recording has it.
    pub fn has(&self, index: usize) {
        self.say(index, Found::Here);
    }

    /// A recording does not have it.
    ///
    /// # Errors
    /// No recording has it.
    pub fn has_not(&self, index: usize, why: Error) -> Result<()> {
        if self.recordings.is_one() {
            return Err(Absent(format!("{why:#}")).into());
        }
        self.say(index, Found::Not(format!("{why:#}")));
        let found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        let mut first = None;
        for (index, found) in &*found {
            match found {
                Found::Not(why) => first = first.or(Some((*index, why))),
                _ => return Ok(()),
            }
        }
        let Some((index, why)) = first else {
            return Ok(());
        };
        let name = self.recordings.name(index);
        let said = match found.len() {
            1 => format!("{name}: {why}"),
            n => format!("none of {n} recordings has it: {name}: {why}"),
        };
        Err(Absent(said).into())
    }

    fn say(&self, index: usize, found: Found) {
        let mut all = self.found.lock().unwrap_or_else(|e| e.into_inner());
        all.insert(index, found);
    }
}
