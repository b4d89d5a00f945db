//! The index as a file beside its trace: `docs/index-format.md` describes it.

use crate::index::{Frame, Interval, Part, Place, Reader, Touched, pack, put, unpack};
use crate::{Error, Result, ThreadId};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 7] = *b"HSINDEX";
/// Raise it when what the index says changes, also through a change of what is marked.
pub const VERSION: u8 = 4;
const HEADER: usize = 32;
/// Before each part: its thread, where it begins, length and checksum.
const RECORD: usize = 32;
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
    file: Option<File>,
    /// Offset, length and checksum of the parts, by thread and first instruction.
    parts: BTreeMap<(ThreadId, u64), (u64, u64, u64)>,
    /// Where the next part goes.
    end: u64,
    /// Why some of what is there is not used.
    problem: Option<String>,
}

impl Sidecar {
    /// Reads which parts a file has; one that is missing, foreign or damaged has none, or those before
    /// the damage.
    pub fn open(path: PathBuf, identity: u128) -> Sidecar {
        let mut state = State::default();
        if let Ok(file) = File::open(&path) {
            state.problem = scan(&file, identity, &mut state).err().map(String::from);
            state.file = Some(file);
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

    /// Reads a part.
    pub fn load(&self, place: Place) -> Option<Part> {
        let mut s = crate::timeline::lock(&self.state);
        let key = (place.thread, place.from);
        let (offset, len, sum) = *s.parts.get(&key)?;
        let mut bytes = vec![0; len as usize];
        let read = s.file.as_ref()?.read_exact_at(&mut bytes, offset);
        let part = match read {
            Ok(()) if xxh3_64(&bytes) == sum => decode(&bytes, place),
            _ => None,
        };
        if part.is_none() {
            s.parts.remove(&key);
            s.problem = Some("a part of it is damaged".into());
        }
        part
    }

    /// Adds a part. What was in the file and is not used is overwritten.
    pub fn add(&self, part: &Part) -> Result<()> {
        let failed = |e: std::io::Error| Error::Index {
            path: self.path.display().to_string(),
            what: e.to_string(),
        };
        let bytes = encode(part)?;
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
        let sum = xxh3_64(&bytes);
        let mut record = Vec::with_capacity(RECORD + bytes.len());
        record.extend_from_slice(&(part.thread.0 as u64).to_le_bytes());
        record.extend_from_slice(&part.from.to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        record.extend_from_slice(&sum.to_le_bytes());
        record.extend_from_slice(&bytes);
        file.write_all_at(&record, s.end).map_err(failed)?;
        let at = s.end + RECORD as u64;
        s.parts
            .insert((part.thread, part.from), (at, bytes.len() as u64, sum));
        s.end = at + bytes.len() as u64;
        s.file = Some(file);
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
        let (thread, from, n, sum) = (word(0), word(1), word(2), word(3));
        let Ok(thread) = u32::try_from(thread) else {
            return Err("it is damaged");
        };
        if n > MAX_PART {
            return Err("it is damaged");
        }
        if at + n > len {
            return Err("it is cut");
        }
        state.parts.insert((ThreadId(thread), from), (at, n, sum));
        state.end = at + n;
    }
    Ok(())
}

/// A part as bytes: intervals, each with its frame, its packed history and its ends.
fn encode(part: &Part) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    put(&mut out, part.to);
    put(&mut out, part.intervals.len() as u64);
    for i in &part.intervals {
        put(&mut out, i.from);
        put(&mut out, i.to - i.from);
        put(&mut out, i.frame.blob.len() as u64);
        out.extend_from_slice(&i.frame.blob);
        let mut history = Vec::new();
        put(&mut history, i.history.len() as u64);
        let mut before = 0;
        for t in &i.history {
            put(&mut history, (t.page - before) as u64);
            before = t.page;
            history.extend_from_slice(&(t.reads | t.writes).to_le_bytes());
            history.extend_from_slice(&t.words);
        }
        let packed = pack(&history)?;
        put(&mut out, packed.len() as u64);
        out.extend_from_slice(&packed);
        put(&mut out, i.ends.len() as u64);
        out.extend_from_slice(&i.ends);
    }
    Ok(out)
}

/// Inverse of [`encode`]; `None` if the bytes are none, or not of this part.
fn decode(bytes: &[u8], place: Place) -> Option<Part> {
    let mut r = Reader { b: bytes, at: 0 };
    let to = r.int()?;
    let mut part = Part {
        thread: place.thread,
        from: place.from,
        to,
        intervals: Vec::new(),
    };
    let mut at = place.from;
    for _ in 0..r.int()? {
        let from = r.int()?;
        let to = from.checked_add(r.int()?)?;
        if from != at {
            return None;
        }
        at = to;
        let n = usize::try_from(r.int()?).ok()?;
        let blob = r.take(n)?.to_vec();
        let n = usize::try_from(r.int()?).ok()?;
        let history = history(&unpack(r.take(n)?)?)?;
        let n = usize::try_from(r.int()?).ok()?;
        let ends = r.take(n)?.to_vec();
        part.intervals.push(Interval {
            from,
            to,
            frame: Frame {
                position: from,
                blob,
            },
            history,
            ends,
        });
    }
    (to == place.to && !part.intervals.is_empty() && r.at == bytes.len()).then_some(part)
}

fn history(raw: &[u8]) -> Option<Vec<Touched>> {
    let mut r = Reader { b: raw, at: 0 };
    let mut out = Vec::new();
    let mut page = 0u32;
    for _ in 0..r.int()? {
        page = page.checked_add(u32::try_from(r.int()?).ok()?)?;
        let lines = r.word()?;
        let words = r.take(2 * lines.count_ones() as usize)?;
        let mut all = [[0; 2]; 64];
        let set = (0..64).filter(|i| lines & (1 << i) != 0);
        for (i, w) in set.zip(words.chunks_exact(2)) {
            all[i] = [w[0], w[1]];
        }
        out.push(Touched::new(page, &all));
    }
    (page < 1 << 20 && r.at == raw.len()).then_some(out)
}
