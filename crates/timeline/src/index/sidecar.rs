//! The index as a file beside its trace: `docs/index-format.md` describes it.
//!
//! Several processes may use and extend it at the same time. Whoever writes has locked it, and takes in first what
//! others have added; records are only ever added behind the others, or the whole file is replaced by another one. So
//! readers need no lock: what they have read stays, or its checksums show that it does not.

mod file;
mod stream;

use super::codec::intervals;
use super::part::{Bytes, Encoded, Part};
use super::ranges::PartRange;
use crate::base::sync::lock;
use crate::{Error, Result, ThreadId};
use file::{Contents, Key, Problem, RECORD, Record, Replacement};
use hindsight_guard::outside;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use stream::Stream;

/// What else a file has is copied to one that takes its place if it is not more than one of so many parts of that.
const LITTLE: u64 = 4;
/// How long a question, and how long the making of an index, waits for others who write.
const PATIENCE: Duration = Duration::from_secs(1);
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// Where the index of a trace is: beside it, with the extension `hsx` for `hst`, or behind its name.
pub fn path(trace: &Path) -> PathBuf {
    match trace.extension() {
        Some(e) if e == "hst" => trace.with_extension("hsx"),
        _ => trace.with_added_extension("hsx"),
    }
}

/// An index file.
pub struct Sidecar {
    /// Where it is, or would be.
    pub path: PathBuf,
    identity: u128,
    /// Bytes that it may have.
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<Arc<File>>,
    contents: Contents,
    /// Records that turned out to be damaged.
    damaged: BTreeSet<Record>,
    /// Why some of what is there is not used.
    problem: Option<String>,
}

/// For what something is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// A question, to which it does not matter whether it is saved.
    Question,
    /// The index itself.
    Index,
}

impl State {
    /// Takes in what a file has.
    fn take(&mut self, file: File, contents: Contents) {
        let old = self.file.as_ref();
        if old.is_none_or(|old| !file::same(old, &file).unwrap_or(false)) {
            // Another file's records may be the same and whole.
            self.damaged.clear();
        }
        self.file = Some(Arc::new(file));
        self.contents = contents;
        let damaged = &self.damaged;
        self.contents.records.retain(|_, r| !damaged.contains(r));
    }

    fn find(&self, key: Key) -> Option<(Arc<File>, Record)> {
        let r = *self.contents.records.get(&key)?;
        Some((Arc::clone(self.file.as_ref()?), r))
    }

    fn lose(&mut self, key: Key) {
        if let Some(r) = self.contents.records.remove(&key) {
            self.damaged.insert(r);
            self.problem = Some("a part of it is damaged".into());
        }
    }
}

impl Sidecar {
    /// Reads which parts a file has; one that is missing, foreign or damaged has none, or those before
    /// the damage. `most`: bytes that it may have.
    pub fn open(path: PathBuf, identity: u128, most: u64) -> Sidecar {
        let s = Sidecar {
            path,
            identity,
            most,
            state: Mutex::default(),
        };
        s.refresh();
        s
    }

    /// Takes in what others have added.
    pub fn refresh(&self) {
        let Ok(file) = outside::open(&self.path) else {
            return;
        };
        let mut s = lock(&self.state);
        if let Some(old) = &s.file
            && file::same(old, &file).unwrap_or(false)
            && file.metadata().is_ok_and(|m| m.len() == s.contents.end)
        {
            return;
        }
        let (mut contents, mut problem) = Contents::scan(&file, self.identity);
        // It may just be written.
        if problem == Some(Problem::Cut) && file::wait_for_writers(&file, PATIENCE).is_ok() {
            (contents, problem) = Contents::scan(&file, self.identity);
        }
        s.problem = problem.map(|p| p.to_string()).or(s.problem.take());
        s.take(file, contents);
    }

    /// Why some or all of the file is not used.
    pub fn problem(&self) -> Option<String> {
        lock(&self.state).problem.clone()
    }

    /// Bytes of the file that are used.
    pub fn len(&self) -> u64 {
        lock(&self.state).contents.end
    }

    /// Whether it has a part.
    pub fn has(&self, place: PartRange) -> bool {
        let s = lock(&self.state);
        s.contents.records.contains_key(&key(place))
    }

    /// Takes up a part: its directory is read and checked.
    pub fn load(&self, place: PartRange) -> Option<Part> {
        let (file, r) = lock(&self.state).find(key(place))?;
        let part = r.directory(&file).and_then(|directory| {
            let bytes = Bytes::File { file, at: r.at };
            Part::open(place, &directory, bytes, r.sections())
        });
        if part.is_none() {
            self.found_damaged(place);
        }
        part
    }

    /// Whether it has a part, all of which is as it was written. If there is damage, it is not used.
    pub fn is_whole(&self, place: PartRange) -> bool {
        match self.load(place) {
            Some(p) if p.is_whole() => true,
            Some(_) => {
                self.found_damaged(place);
                false
            }
            None => false,
        }
    }

    /// Uses a part no longer.
    pub fn found_damaged(&self, place: PartRange) {
        lock(&self.state).lose(key(place));
    }

    /// The calls of a function in a thread, as they were saved.
    pub fn load_calls(&self, thread: ThreadId, function: u64) -> Option<Vec<u8>> {
        let key = Key::Calls(thread, function);
        let (file, r) = lock(&self.state).find(key)?;
        let bytes = r.directory(&file);
        if bytes.is_none() {
            lock(&self.state).lose(key);
        }
        bytes
    }

    /// Saves the calls of a function in a thread, unless somebody else has.
    pub fn add_calls(&self, thread: ThreadId, function: u64, bytes: Vec<u8>) -> Result<()> {
        let key = Key::Calls(thread, function);
        self.write(key, &(bytes, Vec::new()), For::Question, None)
    }

    /// Adds a part, unless there is one that has as many intervals. What is at the end of the file and is not used is
    /// cut off.
    pub fn add(&self, place: PartRange, part: &Encoded, why: For) -> Result<()> {
        self.write(key(place), part, why, None)
    }

    /// Begins to write a part while it is made. `None`: that cannot be done here.
    pub fn begin(&self) -> Option<Stream> {
        Stream::begin(&self.path)
    }

    /// As [`Sidecar::add`] for the index, where some may have been written already.
    pub fn finish(&self, place: PartRange, part: &Encoded, begun: Option<Stream>) -> Result<()> {
        self.write(key(place), part, For::Index, begun)
    }

    fn write(&self, key: Key, what: &Encoded, why: For, begun: Option<Stream>) -> Result<()> {
        self.try_to_write(key, what, why, begun)
            .map_err(|e: io::Error| Error::Index {
                path: self.path.display().to_string(),
                what: e.to_string(),
            })
    }

    fn try_to_write(
        &self,
        key: Key,
        what: &Encoded,
        why: For,
        begun: Option<Stream>,
    ) -> io::Result<()> {
        let patience = match why {
            For::Question => PATIENCE,
            For::Index => LONG_PATIENCE,
        };
        let mut s = lock(&self.state);
        let mut begun = begun.filter(|b| b.begins(what));
        // Where there is no index yet, nothing has to be replaced, which lets file systems write all of it at once.
        if let Some(b) = &mut begun
            && let Ok(contents) = b.finish(self.identity, key, what)
            && contents.end <= self.most
            && b.become_first(&self.path).is_ok()
        {
            s.take(outside::open(&self.path)?, contents);
            s.problem = None;
            return Ok(());
        }
        let mut alone = file::open_alone(&self.path, patience)?;
        let (mut contents, problem) = Contents::scan(&alone, self.identity);
        match problem {
            None => {}
            // It was just made, by us or somebody who was killed.
            Some(Problem::Cut) if contents.end == 0 => {
                file::begin(&alone, self.identity)?;
                contents.end = file::HEADER;
            }
            Some(Problem::Cut | Problem::Damaged) if contents.end > 0 => {
                alone.set_len(contents.end)?;
            }
            Some(Problem::NoIndex) => {
                return Err(io::Error::other("it is no index, and is not replaced"));
            }
            Some(Problem::Unreadable) => return Err(io::Error::other("it cannot be read")),
            // It may be a whole one, which others use.
            Some(p @ Problem::OtherVersion) if why == For::Question => {
                return Err(io::Error::other(format!(
                    "{p}, and is not replaced for a question"
                )));
            }
            Some(_) => {
                alone = Replacement::new(&self.path, self.identity)?.take_place()?;
                contents = Contents::none();
            }
        }
        s.take(outside::open(&self.path)?, contents);
        let had = s.find(key).and_then(|(file, r)| r.directory(&file));
        if had.is_some_and(|had| !is_better(key, what, &had)) {
            return Ok(());
        }
        s.contents.records.remove(&key);
        if let Some(begun) = begun {
            // Where that fails, as on a disk that has no room for both, it is added.
            if let Ok(true) = self.replace(&mut s, &alone, key, what, begun) {
                return Ok(());
            }
        }
        let len = what.1.iter().map(|s| s.len()).sum::<usize>() + what.0.len();
        let len = len as u64 + RECORD;
        let unused = s.contents.end - s.contents.live();
        let fits = |c: &Contents| c.end + len <= self.most;
        if unused > s.contents.live() + len || unused > 0 && !fits(&s.contents) {
            // Where that fails it may still fit.
            let _ = self.rewrite(&mut s, &mut alone);
        }
        let is_calls = |k: &Key| matches!(k, Key::Calls(..));
        if why == For::Index && !fits(&s.contents) && s.contents.records.keys().any(is_calls) {
            // They are found again.
            s.contents.records.retain(|k, _| !is_calls(k));
            self.rewrite(&mut s, &mut alone)?;
        }
        if !fits(&s.contents) {
            return Err(io::Error::other(
                "it would become too large with what was made; delete it, and make it anew",
            ));
        }
        (s.contents).append(&alone, key, &what.0, &what.1)?;
        s.problem = None;
        Ok(())
    }

    /// Finishes a file that was begun, and replaces the one there is by it; `false`: that has too much else.
    fn replace(
        &self,
        s: &mut State,
        alone: &File,
        key: Key,
        what: &Encoded,
        mut begun: Stream,
    ) -> io::Result<bool> {
        let contents = begun.finish(self.identity, key, what)?;
        let others = s.contents.live() - file::HEADER;
        if others > contents.end / LITTLE || contents.end + others > self.most {
            return Ok(false);
        }
        let contents = s.contents.copy(alone, &begun.file, contents)?;
        begun.take_place(&self.path)?;
        s.take(outside::open(&self.path)?, contents);
        s.problem = None;
        Ok(true)
    }

    /// Replaces the file by one that has only what is used.
    fn rewrite(&self, s: &mut State, alone: &mut File) -> io::Result<()> {
        let new = Replacement::new(&self.path, self.identity)?;
        let contents = s.contents.copy(alone, &new.file, Contents::none())?;
        *alone = new.take_place()?;
        s.take(outside::open(&self.path)?, contents);
        Ok(())
    }
}

fn key(place: PartRange) -> Key {
    Key::Part(place.thread, place.from)
}

/// Whether what is to be added has more than what is there: in a range of interest a part has more intervals.
fn is_better(key: Key, new: &Encoded, old: &[u8]) -> bool {
    match key {
        Key::Part(..) => intervals(&new.0) > intervals(old),
        Key::Calls(..) => false,
    }
}
