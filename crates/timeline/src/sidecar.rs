//! The index as a file beside its trace: `docs/index-format.md` describes it.

use crate::index::{Bytes, Draft, Part, Place, encode};
use crate::{Error, Result, ThreadId};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 7] = *b"HSINDEX";
/// Raise it when what the index says changes, also through a change of what is marked.
pub const VERSION: u8 = 7;
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

/// An index file.
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
            state.problem = scan(&file, identity, &mut state).err().map(String::from);
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

    /// Adds a part. What was in the file and is not used is overwritten.
    pub fn add(&self, part: &Draft) -> Result<()> {
        let failed = |e: std::io::Error| Error::Index {
            path: self.path.display().to_string(),
            what: e.to_string(),
        };
        let (directory, sections) = encode(part)?;
        let mut s = crate::timeline::lock(&self.state);
        if s.end == 0 && s.problem.as_deref() == Some(NO_INDEX) {
            return Err(failed(std::io::Error::other(
                "it is no index, and is not replaced",
            )));
        }
        if s.end == 0 {
            // A new file, so that others who read an old one keep it.
            let _ = std::fs::remove_file(&self.path);
            s.parts.clear();
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&self.path).map_err(failed)?;
        if s.end == 0 {
            file.write_all(&header(self.identity)).map_err(failed)?;
            s.end = HEADER as u64;
        } else {
            file.set_len(s.end).map_err(failed)?;
        }
        let len = (directory.len() + sections.iter().map(|s| s.len()).sum::<usize>()) as u64;
        let sum = xxh3_64(&directory);
        let mut record = Vec::with_capacity(RECORD + directory.len());
        for word in [
            part.thread.0 as u64,
            part.from,
            len,
            directory.len() as u64,
            sum,
        ] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        record.extend_from_slice(&directory);
        let behind = s.end + record.len() as u64;
        let written = file.write_all_at(&record, s.end);
        written.map_err(failed)?;
        let mut at = behind;
        for section in &sections {
            file.write_all_at(section, at).map_err(failed)?;
            at += section.len() as u64;
        }
        let record = Record {
            at: s.end + RECORD as u64,
            len,
            directory: directory.len() as u64,
            sum,
        };
        s.parts.insert((part.thread, part.from), record);
        s.end = record.at + len;
        s.file = Some(Arc::new(file));
        Ok(())
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
    while state.end < len {
        let mut r = [0; RECORD];
        let at = state.end + RECORD as u64;
        if at > len || file.read_exact_at(&mut r, state.end).is_err() {
            return Err("it is cut");
        }
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| r[8 * i + k]));
        let (thread, from, n, directory, sum) = (word(0), word(1), word(2), word(3), word(4));
        let Ok(thread) = u32::try_from(thread) else {
            return Err("it is damaged");
        };
        if n > MAX_PART || directory > n {
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
        state.parts.insert((ThreadId(thread), from), record);
        state.end = at + n;
    }
    Ok(())
}
