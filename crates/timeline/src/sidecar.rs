//! The index as a file beside its trace: `docs/index-format.md` describes it.

use crate::index::{Bytes, Draft, Part, Place, encode};
use crate::{Error, Result, ThreadId};
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 7] = *b"HSINDEX";
/// Raise it when what the index says changes, also through a change of what is marked.
pub const VERSION: u8 = 5;
const HEADER: usize = 32;
/// Before each part: its thread, where it begins, its length, and length and checksum of its directory.
const RECORD: usize = 40;
const NO_INDEX: &str = "it is no index";
/// No part is larger.
const MAX_PART: u64 = 1 << 31;

/// Where the index of a trace is: beside it, with the extension `hsx` for `hst`, or behind its name.
pub fn path(trace: &Path) -> PathBuf {
    match trace.extension() {
        Some(e) if e == "hst" => trace.with_extension("hsx"),
        _ => trace.with_added_extension("hsx"),
    }
}

/// Set in a record's thread number: it is a list of calls.
const CALLS: u64 = 1 << 32;

/// An index file. Several processes may read it and add to it at the same time.
pub struct Sidecar {
    pub path: PathBuf,
    identity: u128,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<Arc<File>>,
    /// By thread and first instruction.
    parts: BTreeMap<(ThreadId, u64), Record>,
    /// Lists of calls, by thread and function.
    calls: BTreeMap<(ThreadId, u64), Record>,
    /// Where the next part goes.
    end: u64,
    /// Why some of what is there is not used.
    problem: Option<String>,
}

/// Where a part is: the offset of its directory, on which its sections follow.
#[derive(Clone, Copy)]
struct Record {
    at: u64,
    len: u64,
    directory: u64,
    sum: u64,
}

impl Sidecar {
    /// Reads which parts a file has; one that is missing, foreign or damaged has none, or those before
    /// the damage.
    pub fn open(path: PathBuf, identity: u128) -> Sidecar {
        let mut state = State::default();
        if let Ok(file) = File::open(&path) {
            // Nobody is in the middle of adding to it then. Where there are no locks it may look cut.
            let locked = file.lock_shared().is_ok();
            state.problem = scan(&file, identity, &mut state).err().map(String::from);
            if locked {
                let _ = file.unlock();
            }
            state.file = Some(Arc::new(file));
        }
        Sidecar {
            path,
            identity,
            state: Mutex::new(state),
        }
    }

    /// Why some or all of the file is not used.
    pub fn problem(&self) -> Option<String> {
        crate::timeline::lock(&self.state).problem.clone()
    }

    /// Bytes of the file that are used.
    pub fn len(&self) -> u64 {
        crate::timeline::lock(&self.state).end
    }

    /// Whether it has a part.
    pub fn has(&self, place: Place) -> bool {
        let s = crate::timeline::lock(&self.state);
        s.parts.contains_key(&(place.thread, place.from))
    }

    /// Takes up a part: its directory is read and checked.
    pub fn load(&self, place: Place) -> Option<Part> {
        let (file, r) = {
            let s = crate::timeline::lock(&self.state);
            let r = *s.parts.get(&(place.thread, place.from))?;
            (Arc::clone(s.file.as_ref()?), r)
        };
        let mut directory = vec![0; r.directory as usize];
        let read = file.read_exact_at(&mut directory, r.at);
        let at = r.at + r.directory;
        let part = match read {
            Ok(()) if xxh3_64(&directory) == r.sum => {
                let bytes = Bytes::File { file, at };
                Part::open(place, &directory, bytes, r.len - r.directory)
            }
            _ => None,
        };
        if part.is_none() {
            self.found_damaged(place);
        }
        part
    }

    /// Whether it has a part, all of which is as it was written. If there is damage, it is not used.
    pub fn is_whole(&self, place: Place) -> bool {
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
    pub fn found_damaged(&self, place: Place) {
        let mut s = crate::timeline::lock(&self.state);
        if s.parts.remove(&(place.thread, place.from)).is_some() {
            s.problem = Some("a part of it is damaged".into());
        }
    }

    /// The calls of a function in a thread, if they were saved.
    pub fn load_calls(&self, thread: ThreadId, function: u64) -> Option<Vec<u8>> {
        let mut s = crate::timeline::lock(&self.state);
        let r = *s.calls.get(&(thread, function))?;
        let mut bytes = vec![0; r.directory as usize];
        let read = s.file.as_ref()?.read_exact_at(&mut bytes, r.at);
        if read.is_ok() && xxh3_64(&bytes) == r.sum {
            return Some(bytes);
        }
        s.calls.remove(&(thread, function));
        None
    }

    /// Adds the calls of a function in a thread.
    pub fn add_calls(&self, thread: ThreadId, function: u64, bytes: &[u8]) -> Result<()> {
        self.append(thread.0 as u64 | CALLS, function, bytes, &[])
    }

    /// Adds a part, which from then on is read instead of one that was there. What was in the file and is not
    /// used is overwritten.
    pub fn add(&self, part: &Draft) -> Result<()> {
        let (directory, bytes) = encode(part)?;
        self.append(part.thread.0 as u64, part.from, &directory, &bytes)
    }

    fn append(&self, thread: u64, from: u64, directory: &[u8], bytes: &[u8]) -> Result<()> {
        let failed = |e: std::io::Error| Error::Index {
            path: self.path.display().to_string(),
            what: e.to_string(),
        };
        let mut s = crate::timeline::lock(&self.state);
        let file = self.locked(&mut s).map_err(failed)?;
        let len = (directory.len() + bytes.len()) as u64;
        let sum = xxh3_64(directory);
        let mut record = Vec::with_capacity(RECORD + directory.len());
        for word in [thread, from, len, directory.len() as u64, sum] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        record.extend_from_slice(directory);
        let behind = s.end + record.len() as u64;
        let written = file
            .set_len(s.end)
            .and_then(|()| file.write_all_at(&record, s.end))
            .and_then(|()| file.write_all_at(bytes, behind));
        let unlocked = file.unlock();
        s.file = Some(Arc::new(file));
        written.and(unlocked).map_err(failed)?;
        let record = Record {
            at: s.end + RECORD as u64,
            len,
            directory: directory.len() as u64,
            sum,
        };
        s.keep(thread, from, record);
        s.end = record.at + len;
        Ok(())
    }

    /// The file, locked against other writers, with what these have added meanwhile; a new one where there is
    /// none that fits.
    fn locked(&self, s: &mut State) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        loop {
            let file = options.open(&self.path)?;
            file.lock()?;
            let same = |a: &File, b: &Metadata| -> std::io::Result<bool> {
                let a = a.metadata()?;
                Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
            };
            let named = std::fs::metadata(&self.path);
            if !named.is_ok_and(|m| same(&file, &m).unwrap_or(false)) {
                // Somebody has replaced it just now.
                continue;
            }
            let mine = match &s.file {
                Some(f) => same(f, &file.metadata()?)?,
                None => false,
            };
            if mine && s.end > 0 {
                // A cut or damaged record at the end is overwritten.
                let _ = records(&file, file.metadata()?.len(), s);
                return Ok(file);
            }
            let mut fresh = State::default();
            let problem = scan(&file, self.identity, &mut fresh).err();
            if fresh.end > 0 {
                *s = fresh;
                return Ok(file);
            }
            if file.metadata()?.len() == 0 {
                (&file).write_all(&header(self.identity))?;
                *s = State {
                    end: HEADER as u64,
                    ..State::default()
                };
                return Ok(file);
            }
            if problem == Some(NO_INDEX) {
                let what = "it is no index, and is not replaced";
                return Err(std::io::Error::other(what));
            }
            // A new file, so that others who read an old one keep it.
            std::fs::remove_file(&self.path)?;
        }
    }
}

impl State {
    fn keep(&mut self, thread: u64, from: u64, record: Record) {
        let all = match thread & CALLS {
            0 => &mut self.parts,
            _ => &mut self.calls,
        };
        all.insert((ThreadId(thread as u32), from), record);
    }
}

fn header(identity: u128) -> [u8; HEADER] {
    let mut h = [0; HEADER];
    h[..7].copy_from_slice(&MAGIC);
    h[7] = VERSION;
    h[8..24].copy_from_slice(&identity.to_le_bytes());
    let sum = xxh3_64(&h[..24]);
    h[24..].copy_from_slice(&sum.to_le_bytes());
    h
}

/// Finds the parts of a file, up to where it is damaged or cut.
fn scan(file: &File, identity: u128, state: &mut State) -> std::result::Result<(), &'static str> {
    let mut h = [0; HEADER];
    let len = file.metadata().map_err(|_| "it cannot be read")?.len();
    let there = len.min(HEADER as u64) as usize;
    let read = file.read_exact_at(&mut h[..there], 0);
    read.map_err(|_| "it cannot be read")?;
    let n = there.min(MAGIC.len());
    if h[..n] != MAGIC[..n] {
        return Err(NO_INDEX);
    }
    if there < HEADER {
        return Err("it is cut");
    }
    if h[7] != VERSION {
        return Err("it was made by another version of hindsight");
    }
    if h[24..] != xxh3_64(&h[..24]).to_le_bytes() {
        return Err("it is damaged");
    }
    if h[8..24] != identity.to_le_bytes() {
        return Err("it belongs to another recording, or the recording has changed");
    }
    state.end = HEADER as u64;
    records(file, len, state)
}

/// Finds the records from `state.end` on.
fn records(file: &File, len: u64, state: &mut State) -> std::result::Result<(), &'static str> {
    while state.end < len {
        let mut r = [0; RECORD];
        let at = state.end + RECORD as u64;
        if at > len || file.read_exact_at(&mut r, state.end).is_err() {
            return Err("it is cut");
        }
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| r[8 * i + k]));
        let (thread, from, n, directory, sum) = (word(0), word(1), word(2), word(3), word(4));
        if n > MAX_PART || directory > n || thread > CALLS | u32::MAX as u64 {
            return Err("it is damaged");
        }
        if at + n > len {
            return Err("it is cut");
        }
        let record = Record {
            at,
            len: n,
            directory,
            sum,
        };
        state.keep(thread, from, record);
        state.end = at + n;
    }
    Ok(())
}
