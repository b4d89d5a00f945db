//! The index as a file beside its trace. `docs/index-format.md` describes the format.
//!
//! Several processes may use and extend the file at the same time.
//!
//! - A writer locks the file. Then it takes in what others have added.
//! - Records are only appended. Otherwise a new file replaces the whole one.
//! - Readers need no lock: what they have read stays as it is, or checksums show that it does not.

mod file;
mod limits;
mod stream;

use super::codec::{end, intervals};
use super::part::{Bytes, IndexPart};
use super::ranges::{Level, PartRange};
use super::stored::Encoded;
use crate::base::sync::lock;
use crate::{Error, Result, ThreadId};
use file::{Contents, Key, Problem, RECORD, Record, Replacement};
use hindsight_guard::outside;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use file::MAX_RECORD;
pub use limits::{For, Limits};
pub use stream::Stream;

/// A part may replace the file. Other records are copied to the new file if they have at most a `LITTLE`th of the
/// part's size.
const LITTLE: u64 = 4;
/// How long to wait for other writers: `PATIENCE` for a question, `LONG_PATIENCE` when the index is being built.
const PATIENCE: Duration = Duration::from_secs(1);
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// An index file.
pub struct Sidecar {
    /// The path of the file. The file need not exist.
    pub path: PathBuf,
    identity: u128,
    pub limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<Arc<File>>,
    contents: Contents,
    /// Records that were found damaged.
    damaged: BTreeSet<Record>,
    /// Why some of the file is not used.
    problem: Option<String>,
    /// What the file had no room for, though somebody wanted it saved, and how many bytes that is.
    no_room: BTreeMap<Key, u64>,
}

impl State {
    /// Takes note of a file and its records.
    fn take(&mut self, file: File, contents: Contents) {
        let old = self.file.as_ref();
        // Parts keep the file in which they lie. They share one that is open.
        if old.is_none_or(|old| !file::same(old, &file).unwrap_or(false)) {
            // It is another file. A record with the same numbers may be whole there.
            self.damaged.clear();
            self.file = Some(Arc::new(file));
        }
        self.contents = contents;
        let damaged = &self.damaged;
        self.contents.records.retain(|_, r| !damaged.contains(r));
    }

    fn find(&self, key: Key) -> Option<(Arc<File>, Record)> {
        let r = *self.contents.records.get(&key)?;
        Some((Arc::clone(self.file.as_ref()?), r))
    }

    /// Takes note that the file has no room for what somebody wanted to be saved. A question does without.
    fn found_no_room(&mut self, key: Key, len: u64, why: For) {
        if why == For::Index {
            self.no_room.insert(key, len);
        }
    }

    /// What the file had no room for, unless it has that by now.
    fn lacks(&self) -> Option<String> {
        let has = |key| self.contents.records.contains_key(key);
        let (_, len) = self.no_room.iter().find(|(key, _)| !has(key))?;
        let mib = len.div_ceil(1 << 20);
        Some(format!("it has no room for a part of {mib} MiB"))
    }

    fn lose(&mut self, key: Key) {
        if let Some(r) = self.contents.records.remove(&key) {
            self.damaged.insert(r);
            self.problem = Some("a part of it is damaged".into());
        }
    }
}

impl Sidecar {
    /// Reads which parts a file has. A missing or foreign file has none. A damaged one has those before the damage.
    pub fn open(path: PathBuf, identity: u128, limits: Limits) -> Sidecar {
        let s = Sidecar {
            path,
            identity,
            limits,
            state: Mutex::default(),
        };
        s.refresh();
        s
    }

    /// Takes note of what other processes have added.
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
        // Somebody may be writing it right now.
        if problem == Some(Problem::Cut) && file::wait_for_writers(&file, PATIENCE).is_ok() {
            (contents, problem) = Contents::scan(&file, self.identity);
        }
        s.problem = problem.map(|p| p.to_string()).or(s.problem.take());
        s.take(file, contents);
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<Arc<File>> {
        lock(&self.state).file.clone()
    }

    /// Why some or all of the file is not used, or what it had no room for.
    pub fn problem(&self) -> Option<String> {
        let s = lock(&self.state);
        s.problem.clone().or_else(|| s.lacks())
    }

    /// The number of bytes of the file that are used.
    pub fn len(&self) -> u64 {
        lock(&self.state).contents.end
    }

    /// The number of bytes that the file may still get [for the rest](For::Rest).
    pub fn room(&self) -> u64 {
        let contents = &lock(&self.state).contents;
        let most = self.limits.full(contents);
        most.saturating_sub(contents.live())
    }

    /// Whether the file has a part.
    pub fn has(&self, range: PartRange) -> bool {
        let s = lock(&self.state);
        s.contents.records.contains_key(&key(range))
    }

    /// Opens a part. Its directory is read and checked.
    pub fn load(&self, range: PartRange) -> Option<IndexPart> {
        let (file, r) = lock(&self.state).find(key(range))?;
        let part = r.directory(&file).and_then(|directory| {
            let bytes = Bytes::File { file, at: r.at };
            IndexPart::open(range, &directory, bytes, r.sections())
        });
        if part.is_none() {
            self.found_damaged(range);
        }
        part
    }

    /// Whether the file has a part and all of it is undamaged. A damaged part is not used any more.
    pub fn is_whole(&self, range: PartRange) -> bool {
        match self.load(range) {
            Some(p) if p.is_whole() => true,
            Some(_) => {
                self.found_damaged(range);
                false
            }
            None => false,
        }
    }

    /// Takes note that a part is damaged. It is not used any more.
    pub fn found_damaged(&self, range: PartRange) {
        lock(&self.state).lose(key(range));
    }

    /// The saved calls of a function in the first chunks of a thread.
    pub fn load_calls(&self, thread: ThreadId, function: u64, chunks: usize) -> Option<Vec<u8>> {
        let key = Key::Calls(thread, function, chunks as u64);
        let (file, r) = lock(&self.state).find(key)?;
        let bytes = r.directory(&file);
        if bytes.is_none() {
            lock(&self.state).lose(key);
        }
        bytes
    }

    /// Saves the calls of a function in the first chunks of a thread, unless another process has done so.
    pub fn add_calls(
        &self,
        thread: ThreadId,
        function: u64,
        chunks: usize,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let key = Key::Calls(thread, function, chunks as u64);
        self.write(key, &(bytes, Vec::new()), For::Question, None)?;
        Ok(())
    }

    /// Adds a part, unless the file has one with as many intervals. Unused bytes at the end of the file are cut off.
    /// `false`: the file has no room for it. `begun` may have some of the part already.
    pub fn add(
        &self,
        range: PartRange,
        part: &Encoded,
        why: For,
        begun: Option<Stream>,
    ) -> Result<bool> {
        self.write(key(range), part, why, begun)
    }

    /// Begins to write a part while it is made. `None`: the file system does not allow it.
    pub fn begin(&self) -> Option<Stream> {
        Stream::begin(&self.path)
    }

    fn write(&self, key: Key, what: &Encoded, why: For, begun: Option<Stream>) -> Result<bool> {
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
    ) -> io::Result<bool> {
        let patience = match why {
            For::Question | For::Background => PATIENCE,
            For::Index | For::Rest => LONG_PATIENCE,
        };
        let mut s = lock(&self.state);
        let len = size(what);
        // No file is made for what does not fit it.
        let alone = file::HEADER + len > self.limits.of(why, key, &Contents::none());
        if len > file::MAX_RECORD || s.file.is_none() && alone {
            s.found_no_room(key, len, why);
            return Ok(false);
        }
        let mut begun = begun.filter(|b| b.begins(what));
        // If there is no index file yet, the stream's file becomes it. Nothing is replaced. Then file systems can write
        // all of it at once.
        if let Some(b) = &mut begun
            && let Ok(contents) = b.finish(self.identity, key, what)
            && contents.end <= self.limits.alone(key)
            && b.become_first(&self.path).is_ok()
        {
            s.take(outside::open(&self.path)?, contents);
            s.problem = None;
            return Ok(true);
        }
        let mut alone = file::open_alone(&self.path, patience)?;
        let (mut contents, problem) = Contents::scan(&alone, self.identity);
        match problem {
            None => {}
            // The file was just created, by us or by somebody who was killed.
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
            // It may be a complete index that others use.
            Some(p @ Problem::OtherVersion) if matches!(why, For::Question | For::Background) => {
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
            return Ok(true);
        }
        let done = self.put(&mut s, &mut alone, (key, what), why, begun);
        if !matches!(done, Ok(true)) {
            // What was to be replaced may still be there.
            let (contents, _) = Contents::scan(&alone, self.identity);
            // Not `alone`: the lock ends with it.
            if let Ok(file) = outside::open(&self.path) {
                s.take(file, contents);
            }
        }
        if let Ok(false) = done {
            s.found_no_room(key, len, why);
        }
        done
    }

    /// Puts a record into the file in place of what the file has with its key. `false`: the file has no room for it.
    fn put(
        &self,
        s: &mut State,
        alone: &mut File,
        (key, what): (Key, &Encoded),
        why: For,
        begun: Option<Stream>,
    ) -> io::Result<bool> {
        // A large record that is replaced may be what has made the file larger than usual.
        let most = self.limits.of(why, key, &s.contents);
        s.contents.forget(key);
        if let Some(begun) = begun {
            // It can fail, for example if the disk has no room for both files. Then the part is appended.
            if let Ok(true) = self.replace(s, alone, (key, what), most, begun) {
                return Ok(true);
            }
        }
        if !self.make_room(s, alone, (key, size(what)), most, why)? {
            return Ok(false);
        }
        (s.contents).append(alone, key, &what.0, &what.1)?;
        s.problem = None;
        Ok(true)
    }

    /// Makes room at the end of the file for a record of `len` bytes, where the file may have `most`. `false`: there is none.
    fn make_room(
        &self,
        s: &mut State,
        alone: &mut File,
        (key, len): (Key, u64),
        most: u64,
        why: For,
    ) -> io::Result<bool> {
        let is_calls = |k: &Key| matches!(k, Key::Calls(..));
        let may_drop = !matches!(why, For::Rest | For::Background) && !is_calls(&key);
        // Calls can be found again.
        let may_drop_calls = why == For::Index;
        // Nothing is dropped for what does not fit all the same.
        let dropped = s.contents.least(may_drop, may_drop_calls);
        if dropped + len > most {
            return Ok(false);
        }
        let unused = s.contents.end - s.contents.live();
        let fits = |c: &Contents| c.end + len <= most;
        if unused > s.contents.live() + len || unused > 0 && !fits(&s.contents) {
            // If that fails, the part may still fit.
            let _ = self.rewrite(s, alone);
        }
        if may_drop_calls && !fits(&s.contents) && s.contents.records.keys().any(is_calls) {
            s.contents.records.retain(|k, _| !is_calls(k));
            self.rewrite(s, alone)?;
        }
        if may_drop && !fits(&s.contents) && s.contents.drop_fine(most, len) {
            self.rewrite(s, alone)?;
        }
        Ok(fits(&s.contents))
    }

    /// Finishes a begun file and lets it replace the present one. `false`: the present file has too many other records
    /// to copy.
    fn replace(
        &self,
        s: &mut State,
        alone: &File,
        (key, what): (Key, &Encoded),
        most: u64,
        mut begun: Stream,
    ) -> io::Result<bool> {
        let contents = begun.finish(self.identity, key, what)?;
        let others = s.contents.live() - file::HEADER;
        if others > contents.end / LITTLE || contents.end + others > most {
            return Ok(false);
        }
        let contents = s.contents.copy(alone, &begun.file, contents)?;
        begun.take_place(&self.path)?;
        s.take(outside::open(&self.path)?, contents);
        s.problem = None;
        Ok(true)
    }

    /// Replaces the file by one that has only the records in use.
    fn rewrite(&self, s: &mut State, alone: &mut File) -> io::Result<()> {
        let new = Replacement::new(&self.path, self.identity)?;
        let contents = s.contents.copy(alone, &new.file, Contents::none())?;
        *alone = new.take_place()?;
        s.take(outside::open(&self.path)?, contents);
        Ok(())
    }
}

/// The number of bytes that a record takes in the file.
fn size(what: &Encoded) -> u64 {
    let sections: usize = what.1.iter().map(|s| s.len()).sum();
    RECORD + (sections + what.0.len()) as u64
}

fn key(range: PartRange) -> Key {
    let (thread, from) = (range.thread, range.from);
    // Instructions behind the last event are only known once the key frame behind them is there.
    let until = 2 * range.until as u64 + !range.last as u64;
    match range.level {
        Level::Only if range.stepped => Key::Steps(thread, from, until),
        Level::Only => Key::Part(thread, from, until),
        Level::Coarse => Key::Coarse(thread, from, until),
        Level::Fine { .. } => Key::Fine(thread, from, until),
    }
}

/// Whether a new record is better than the old one. In a range of interest a new part has more intervals.
fn is_better(key: Key, new: &Encoded, old: &[u8]) -> bool {
    match key {
        // A part of the fine level that ends elsewhere belonged to another coarse one.
        Key::Fine(..) if end(&new.0) != end(old) => true,
        Key::Part(..) | Key::Steps(..) | Key::Coarse(..) | Key::Fine(..) => {
            intervals(&new.0) > intervals(old)
        }
        Key::Calls(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::put;
    use super::super::stored::Stored;
    use super::*;

    const LIMITS: Limits = Limits {
        usual: 4 << 10,
        full: 64 << 10,
        beside: None,
    };

    /// A part of the fine level of so many intervals, with one section of so many bytes.
    fn part(intervals: u64, bytes: usize) -> Encoded {
        let mut directory = Vec::new();
        put(&mut directory, 1000);
        put(&mut directory, intervals);
        (directory, vec![Stored::Memory(vec![7u8; bytes].into())])
    }

    /// A range of a level.
    fn range(from: u64, level: Level) -> PartRange {
        PartRange {
            thread: ThreadId(1),
            chunk: 0,
            until: 1,
            stepped: false,
            from,
            to: 1000,
            last: true,
            level,
        }
    }

    #[test]
    fn the_coarse_level_is_saved_however_large_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, beside| {
            let limits = Limits { beside, ..LIMITS };
            Sidecar::open(folder.path().join(name), 1, limits)
        };
        let (coarse, fine) = (range(0, Level::Coarse), range(0, Level::Fine { of: 0 }));
        let chosen = open("chosen.hsx", None);
        assert!(
            !chosen
                .add(coarse, &part(2, 9000), For::Index, None)
                .unwrap()
        );
        let usual = open("usual.hsx", Some(2000));
        assert!(
            !usual
                .add(fine, &part(2, 9000), For::Question, None)
                .unwrap()
        );
        assert!(usual.add(coarse, &part(2, 9000), For::Index, None).unwrap());
        // With a stream, and in the place of another one.
        let mut begun = usual.begin().unwrap();
        begun.put(&mut part(3, 9500).1[0]).unwrap();
        assert!(
            usual
                .add(coarse, &part(3, 9500), For::Index, Some(begun))
                .unwrap()
        );
        // What questions make still has some room. It makes room for more of it.
        assert!(
            !usual
                .add(fine, &part(2, 2500), For::Question, None)
                .unwrap()
        );
        assert!(
            usual
                .add(fine, &part(2, 1500), For::Question, None)
                .unwrap()
        );
        let next = range(500, Level::Fine { of: 0 });
        assert!(
            usual
                .add(next, &part(2, 1500), For::Question, None)
                .unwrap()
        );
        assert!(usual.has(coarse) && usual.has(next) && !usual.has(fine));
        assert!(usual.len() < 9500 + 2000 + 500);
        // A file that is larger than usual for this reason keeps the usual limit.
        assert!(usual.add(fine, &part(2, 9000), For::Rest, None).unwrap());
        assert!(usual.has(fine) && usual.has(next));
    }

    #[test]
    fn what_is_larger_than_a_record_may_be_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.hsx");
        let limits = Limits {
            usual: u64::MAX,
            full: u64::MAX,
            beside: None,
        };
        let s = Sidecar::open(path.clone(), 1, limits);
        let mib = Stored::Memory(vec![7; 1 << 20].into());
        let many = vec![mib; (MAX_RECORD >> 20) as usize];
        let large = (part(2, 0).0, many);
        let coarse = range(0, Level::Coarse);
        assert!(!s.add(coarse, &large, For::Index, None).unwrap());
        assert_eq!(
            s.problem().unwrap(),
            "it has no room for a part of 2049 MiB"
        );
        assert!(!path.exists());
        assert!(s.add(coarse, &part(2, 9), For::Index, None).unwrap() && s.has(coarse));
        assert_eq!(s.problem(), None);
    }

    #[test]
    fn a_file_keeps_its_larger_limit_while_its_largest_record_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let range = |from| range(from, Level::Fine { of: 0 });
        let open = |name: &str| Sidecar::open(folder.path().join(name), 1, LIMITS);
        let usual = open("usual.hsx");
        assert!(
            !usual
                .add(range(0), &part(1, 9000), For::Question, None)
                .unwrap()
        );
        let full = open("full.hsx");
        assert!(full.add(range(0), &part(1, 9000), For::Rest, None).unwrap());
        assert!(
            full.add(range(500), &part(1, 100), For::Rest, None)
                .unwrap()
        );
        for why in [For::Question, For::Index, For::Background] {
            let intervals = 2 + why as u64;
            let better = part(intervals, 10_000 + 100 * why as usize);
            assert!(full.add(range(0), &better, why, None).unwrap(), "{why:?}");
            assert!(full.has(range(0)) && full.has(range(500)), "{why:?}");
        }
        assert!(full.len() > LIMITS.usual);
        // One that has no room takes nothing away.
        let large = part(8, 70_000);
        assert!(!full.add(range(0), &large, For::Index, None).unwrap());
        assert!(full.has(range(0)) && full.has(range(500)));
        // With a stream, which takes the place of the file.
        let mut begun = full.begin().unwrap();
        let better = part(9, 12_000);
        begun.put(&mut better.1[0].clone()).unwrap();
        assert!(
            full.add(range(0), &better, For::Index, Some(begun))
                .unwrap()
        );
        assert!(full.has(range(0)) && full.has(range(500)));
    }
}
