//! The bytes of an index file, and the locks for changing them.

use super::super::stored::Stored;
use crate::ThreadId;
use hindsight_guard::{outside, place, private};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 7] = *b"HSINDEX";
/// Raise it when the content of an index changes. A change in what is marked as accessed is one, too.
pub const VERSION: u8 = 17;
pub const HEADER: u64 = 32;
/// Bytes before each record: three words for its key, its length, and length and checksum of its directory.
pub const RECORD: u64 = 48;
/// The largest record, in bytes.
pub const MAX_RECORD: u64 = 1 << 31;
/// Set in the first word of a record about calls of a function.
const CALLS: u64 = 1 << 32;
/// Set in the first word of a record about a part of the coarse level, and of one of the fine level.
const COARSE: u64 = 1 << 33;
const FINE: u64 = 1 << 34;
/// Set in the first word of a record about a part whose intervals have steps.
const STEPS: u64 = 1 << 35;
/// When room is made in a file, this share of it becomes free.
const SPARE: u64 = 4;
/// The time between two tries to take a lock.
const LOOK: Duration = Duration::from_millis(5);
const COPY: usize = 1 << 20;

/// What a record is about. The last number says which chunks of the thread were taken into account, and grows with them.
/// So what was made of a recording that is still being written is never taken for more than it is. For a part it is twice
/// the number of the chunk behind its last one, plus one if a key frame begins there; for calls the number of chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The part of a thread that begins with this instruction.
    Part(ThreadId, u64, u64),
    /// The same with steps.
    Steps(ThreadId, u64, u64),
    /// The same for parts of the coarse and of the fine level.
    Coarse(ThreadId, u64, u64),
    Fine(ThreadId, u64, u64),
    /// The calls in a thread of the function at this address.
    Calls(ThreadId, u64, u64),
}

impl Key {
    fn words(self) -> [u64; 3] {
        match self {
            Key::Part(t, from, until) => [t.0 as u64, from, until],
            Key::Steps(t, from, until) => [t.0 as u64 | STEPS, from, until],
            Key::Coarse(t, from, until) => [t.0 as u64 | COARSE, from, until],
            Key::Fine(t, from, until) => [t.0 as u64 | FINE, from, until],
            Key::Calls(t, function, until) => [t.0 as u64 | CALLS, function, until],
        }
    }

    fn of([whose, from, until]: [u64; 3]) -> Option<Key> {
        const KINDS: u64 = CALLS | COARSE | FINE | STEPS;
        let thread = ThreadId(u32::try_from(whose & !KINDS).ok()?);
        Some(match whose & KINDS {
            0 => Key::Part(thread, from, until),
            STEPS => Key::Steps(thread, from, until),
            COARSE => Key::Coarse(thread, from, until),
            FINE => Key::Fine(thread, from, until),
            CALLS => Key::Calls(thread, from, until),
            _ => return None,
        })
    }

    /// The same of a thread that is shorter: from the one with no chunk up to before this one.
    fn shorter(self) -> Range<Key> {
        let first = match self {
            Key::Part(t, from, _) => Key::Part(t, from, 0),
            Key::Steps(t, from, _) => Key::Steps(t, from, 0),
            Key::Coarse(t, from, _) => Key::Coarse(t, from, 0),
            Key::Fine(t, from, _) => Key::Fine(t, from, 0),
            Key::Calls(t, function, _) => Key::Calls(t, function, 0),
        };
        first..self
    }
}

/// Where a record is. `at` is the offset of its sections. The directory follows them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    pub at: u64,
    /// Bytes of directory and sections.
    pub len: u64,
    pub directory: u64,
    pub sum: u64,
}

impl Record {
    /// Reads and checks the directory.
    pub fn directory(&self, file: &File) -> Option<Vec<u8>> {
        let mut out = vec![0; usize::try_from(self.directory).ok()?];
        place::read(file, &mut out, self.at + self.sections()).ok()?;
        (xxh3_64(&out) == self.sum).then_some(out)
    }

    /// The number of bytes of its sections.
    pub fn sections(&self) -> u64 {
        self.len - self.directory
    }

    /// Fails if the record is larger than a record may be.
    pub fn check(&self) -> io::Result<()> {
        match self.len {
            ..=MAX_RECORD => Ok(()),
            _ => Err(io::Error::other("a part of it would be too large")),
        }
    }
}

/// Why a file, or the rest of it, is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    NoIndex,
    Unreadable,
    Cut,
    OtherVersion,
    Damaged,
    OtherRecording,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Problem::NoIndex => "it is no index",
            Problem::Unreadable => "it cannot be read",
            Problem::Cut => "it is cut",
            Problem::OtherVersion => "it was made by another version of hindsight",
            Problem::Damaged => "it is damaged",
            Problem::OtherRecording => {
                "it belongs to another recording, or the recording has changed"
            }
        })
    }
}

/// The records of a file.
#[derive(Clone, Default)]
pub struct Contents {
    /// If there are several records with a key, the last one counts.
    pub records: BTreeMap<Key, Record>,
    /// Where the next record goes. 0: there is no header.
    pub end: u64,
}

impl Contents {
    /// Finds the records of a file, up to the place where it is damaged or cut.
    pub fn scan(file: &File, identity: u128) -> (Contents, Option<Problem>) {
        let mut c = Contents::default();
        let problem = c.read(file, identity).err();
        (c, problem)
    }

    fn read(&mut self, file: &File, identity: u128) -> Result<(), Problem> {
        let unreadable = |_| Problem::Unreadable;
        let mut h = [0; HEADER as usize];
        let len = file.metadata().map_err(unreadable)?.len();
        let there = len.min(HEADER) as usize;
        place::read(file, &mut h[..there], 0).map_err(unreadable)?;
        let n = there.min(MAGIC.len());
        if h[..n] != MAGIC[..n] {
            return Err(Problem::NoIndex);
        }
        if there < h.len() {
            return Err(Problem::Cut);
        }
        if h[7] != VERSION {
            return Err(Problem::OtherVersion);
        }
        if h[24..] != xxh3_64(&h[..24]).to_le_bytes() {
            return Err(Problem::Damaged);
        }
        if h[8..24] != identity.to_le_bytes() {
            return Err(Problem::OtherRecording);
        }
        self.end = HEADER;
        while self.end < len {
            let mut r = [0; RECORD as usize];
            let at = self.end + RECORD;
            if at > len || place::read(file, &mut r, self.end).is_err() {
                return Err(Problem::Cut);
            }
            let [whose, from, until, n, directory, sum] =
                std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|k| r[8 * i + k])));
            let Some(key) =
                Key::of([whose, from, until]).filter(|_| n <= MAX_RECORD && directory <= n)
            else {
                return Err(Problem::Damaged);
            };
            if at + n > len {
                return Err(Problem::Cut);
            }
            let record = Record {
                at,
                len: n,
                directory,
                sum,
            };
            self.insert(key, record);
            self.end = at + n;
        }
        Ok(())
    }

    /// Takes in a record. It makes those useless that were made when the thread was shorter.
    fn insert(&mut self, key: Key, record: Record) {
        self.forget(key);
        self.records.insert(key, record);
    }

    /// Leaves out a record, and those of the same start that reach less far.
    pub fn forget(&mut self, key: Key) {
        let old: Vec<Key> = (self.records.range(key.shorter())).map(|r| *r.0).collect();
        for k in old {
            self.records.remove(&k);
        }
        self.records.remove(&key);
    }

    /// Whether there is a record of the same start that reaches farther.
    fn has_longer(&self, key: Key) -> bool {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let next = self.records.range(behind).next();
        next.is_some_and(|(k, _)| k.shorter().start == key.shorter().start)
    }

    /// The number of bytes in use.
    pub fn live(&self) -> u64 {
        let records = self.records.values().map(|r| RECORD + r.len);
        HEADER + records.sum::<u64>()
    }

    /// The number of bytes in use for the coarse level.
    pub fn coarse(&self) -> u64 {
        let its = self.records.iter();
        let its = its.filter(|(k, _)| matches!(k, Key::Coarse(..)));
        its.map(|(_, r)| RECORD + r.len).sum()
    }

    /// The number of bytes in use once all parts of the fine level are left out, all lists of calls, or both.
    pub fn least(&self, fine: bool, calls: bool) -> u64 {
        let goes = |k: &Key| match k {
            Key::Fine(..) => fine,
            Key::Calls(..) => calls,
            _ => false,
        };
        let stay = self.records.iter().filter(|(k, _)| !goes(k));
        HEADER + stay.map(|(_, r)| RECORD + r.len).sum::<u64>()
    }

    /// Leaves out parts of the fine level, the oldest first, so that `len` bytes more fit into `most`. It leaves out some
    /// more than that, since the file is copied each time. `false`: that does not suffice, and nothing is left out.
    pub fn drop_fine(&mut self, most: u64, len: u64) -> bool {
        let fine = |k: &Key| matches!(k, Key::Fine(..));
        let its = self.records.iter().filter(|(k, _)| fine(k));
        let mut its: Vec<(u64, u64, Key)> = its.map(|(k, r)| (r.at, RECORD + r.len, *k)).collect();
        let all: u64 = its.iter().map(|r| r.1).sum();
        let mut live = self.live();
        if live - all + len > most {
            return false;
        }
        its.sort_unstable();
        let wanted = most - most / SPARE;
        for (_, size, key) in its {
            if live + len <= wanted {
                break;
            }
            self.records.remove(&key);
            live -= size;
        }
        true
    }

    /// Appends a record. If that fails, the file is as before.
    pub fn append(
        &mut self,
        file: &File,
        key: Key,
        directory: &[u8],
        sections: &[Stored],
    ) -> io::Result<()> {
        let len = directory.len() + sections.iter().map(|s| s.len()).sum::<usize>();
        let record = Record {
            at: self.end + RECORD,
            len: len as u64,
            directory: directory.len() as u64,
            sum: xxh3_64(directory),
        };
        record.check()?;
        let written = || -> io::Result<()> {
            place::write(file, &head(key, &record), self.end)?;
            let mut at = record.at;
            for s in sections {
                s.write(file, at)?;
                at += s.len() as u64;
            }
            place::write(file, directory, at)
        };
        if let Err(e) = written() {
            let _ = file.set_len(self.end);
            return Err(e);
        }
        self.insert(key, record);
        self.end = record.at + record.len;
        Ok(())
    }

    /// The contents of a file without records.
    pub fn none() -> Contents {
        Contents {
            end: HEADER,
            ..Contents::default()
        }
    }

    /// Copies the records in use to the end of a new file, which already has `new`. Returns the contents of the new
    /// file.
    pub fn copy(&self, from: &File, to: &File, mut new: Contents) -> io::Result<Contents> {
        let mut buf = vec![0; COPY];
        // The oldest stay the first ones.
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_unstable_by_key(|(_, r)| r.at);
        for (key, r) in records {
            if new.has_longer(*key) {
                continue;
            }
            let record = Record {
                at: new.end + RECORD,
                ..*r
            };
            place::write(to, &head(*key, &record), new.end)?;
            let mut done = 0;
            while done < r.len {
                let n = (r.len - done).min(COPY as u64) as usize;
                place::read(from, &mut buf[..n], r.at + done)?;
                place::write(to, &buf[..n], record.at + done)?;
                done += n as u64;
            }
            new.insert(*key, record);
            new.end = record.at + record.len;
        }
        Ok(new)
    }
}

/// The bytes before a record.
pub fn head(key: Key, r: &Record) -> Vec<u8> {
    let words = key.words().into_iter();
    let words = words.chain([r.len, r.directory, r.sum]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// The bytes at the beginning of a file.
pub fn header(identity: u128) -> [u8; HEADER as usize] {
    let mut h = [0; HEADER as usize];
    h[..7].copy_from_slice(&MAGIC);
    h[7] = VERSION;
    h[8..24].copy_from_slice(&identity.to_le_bytes());
    let sum = xxh3_64(&h[..24]);
    h[24..].copy_from_slice(&sum.to_le_bytes());
    h
}

/// Makes the file an index without records.
pub fn begin(file: &File, identity: u128) -> io::Result<()> {
    file.set_len(0)?;
    place::write(file, &header(identity), 0)
}

/// Whether two open files are the same file.
pub fn same(a: &File, b: &File) -> io::Result<bool> {
    Ok(place::identity(&a.metadata()?) == place::identity(&b.metadata()?))
}

fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::symlink_metadata(path);
    let mine = file.metadata();
    matches!((there, mine), (Ok(t), Ok(m)) if place::identity(&t) == place::identity(&m))
}

/// Waits for a lock, at most for `patience`.
fn wait(
    patience: Duration,
    mut try_it: impl FnMut() -> Result<(), TryLockError>,
) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match try_it() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < patience => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "another process is writing it",
                ));
            }
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
}

/// Waits until nobody writes a file.
pub fn wait_for_writers(file: &File, patience: Duration) -> io::Result<()> {
    wait(patience, || file.try_lock_shared())?;
    file.unlock()
}

/// Opens the file at a path for writing, or creates it. Nobody else writes it as long as it is open.
pub fn open_alone(path: &Path, patience: Duration) -> io::Result<File> {
    loop {
        let file = private::open_or_create(path)?;
        wait(patience, || file.try_lock())?;
        // Whoever had the lock may have put another file there.
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// A new file that replaces the one at a path. Only the caller may write that path. Processes that have the old file
/// open keep it.
pub struct Replacement<'a> {
    pub file: File,
    path: &'a Path,
    temporary: PathBuf,
}

impl Replacement<'_> {
    pub fn new(path: &Path, identity: u128) -> io::Result<Replacement<'_>> {
        let temporary = private::temporary(path);
        // Somebody who was killed may have left it.
        let _ = outside::remove(&temporary);
        let file = private::create_new(&temporary)?;
        let r = Replacement {
            file,
            path,
            temporary,
        };
        r.file.try_lock().map_err(|_| ErrorKind::ResourceBusy)?;
        begin(&r.file, identity)?;
        Ok(r)
    }

    /// Puts the file in its place. Nobody else writes it as long as it is open.
    pub fn take_place(self) -> io::Result<File> {
        outside::rename(&self.temporary, self.path)?;
        self.file.try_clone()
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        // It is no longer there if it has taken its place.
        if is_at(&self.file, &self.temporary) {
            let _ = outside::remove(&self.temporary);
        }
    }
}
