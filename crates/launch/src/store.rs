//! The store of recent recordings: a folder of trace files.

use crate::numbers::{grouped, size};
use crate::out::println;
use crate::{args, confine, os, say};
use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use hindsight_guard::regular::{self, Links};
use hindsight_text::line;
use hindsight_trace::files;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Brief, Trace};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EXTENSION: &str = "hst";

/// Recordings look for files that no recording uses after this time, and leave those alone that have been
/// used within it: the next recording of the program is likely to need them.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Longest wait for recordings that begin to use files.
const PATIENCE: Duration = Duration::from_secs(2);

/// A recording in the store.
#[derive(Clone, Debug)]
struct Entry {
    path: PathBuf,
    name: String,
    /// The name it was filed under.
    program: String,
    modified: SystemTime,
    bytes: u64,
}

/// The store's folder: `$HINDSIGHT_DIR`, or `hindsight` among the user's data.
fn dir() -> Result<PathBuf> {
    let var = |n: &str| {
        std::env::var_os(n)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    if let Some(d) = var("HINDSIGHT_DIR") {
        return Ok(d);
    }
    // The specification says to ignore relative paths.
    if let Some(d) = var("XDG_DATA_HOME").filter(|d| d.is_absolute()) {
        return Ok(d.join("hindsight"));
    }
    match var("HOME") {
        Some(h) => Ok(h.join(".local/share/hindsight")),
        None => bail!(
            "where to keep recordings is not known: set HINDSIGHT_DIR, or name a file with -o"
        ),
    }
}

/// `program` as part of a file name.
fn file_safe(program: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "._+-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let s: String = program.chars().take(64).map(safe).collect();
    if s.trim_start_matches('.').is_empty() {
        "program".into()
    } else {
        s
    }
}

/// The store's folder, made if it is not there.
pub fn folder() -> Result<PathBuf> {
    let dir = dir()?;
    private::create_folder(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// A new file for a recording of `program`, locked as long as it is written.
pub fn create(program: &str, seconds: i64) -> Result<(PathBuf, File)> {
    let dir = folder()?;
    let stem = format!("{}-{}", file_safe(program), os::local_time(seconds, false));
    for n in 1.. {
        let path = dir.join(format!("{stem}-{n}.{EXTENSION}"));
        match private::create_new(&path) {
            Ok(f) => {
                // On a file system without locks, pruning could take a recording in progress, but
                // only when `keep` newer ones of the same program exist.
                let _ = f.lock();
                return Ok((path, f));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).with_context(|| format!("cannot create {}", path.display())),
        }
    }
    unreachable!("there are more numbers than files")
}

/// All recordings, the latest last.
fn entries() -> Result<Vec<Entry>> {
    let dir = dir()?;
    let read = match std::fs::read_dir(&dir) {
        Ok(r) => r,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| dir.display().to_string()),
    };
    let mut list: Vec<Entry> = read.flatten().filter_map(|e| entry(&e.path())).collect();
    list.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    Ok(list)
}

fn entry(path: &Path) -> Option<Entry> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let name = path.file_stem()?.to_str()?.to_string();
    let m = path.metadata().ok().filter(|m| m.is_file())?;
    // PROGRAM-DATE-TIME-NUMBER
    let program = name.rsplitn(4, '-').nth(3).unwrap_or(&name).to_string();
    Some(Entry {
        path: path.into(),
        program,
        modified: m.modified().unwrap_or(UNIX_EPOCH),
        bytes: m.len(),
        name,
    })
}

/// Whether a recording is still being written.
fn busy(path: &Path) -> bool {
    match regular::open(path, Links::Follow) {
        Ok(f) => matches!(f.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)),
        Err(_) => false,
    }
}

/// The file that the user means: by default the latest recording.
pub fn find(file: Option<&Path>) -> Result<PathBuf> {
    if let Some(found) = confine::recording() {
        return Ok(found.into());
    }
    let Some(file) = file else {
        let latest = entries()?.pop();
        return latest
            .map(|e| e.path)
            .context("the store is empty: name a file");
    };
    if file.exists() || file.components().count() > 1 {
        return Ok(file.into());
    }
    let stored = dir()?.join(file);
    for candidate in [&stored, &stored.with_added_extension(EXTENSION)] {
        if candidate.exists() {
            return Ok(candidate.clone());
        }
    }
    bail!(
        "{}: no such file, and no such recording in the store",
        file.display()
    )
}

/// Whether a word of the command line means a recording, if it could also be something else.
pub fn is_meant(word: &str) -> bool {
    let path = Path::new(word);
    if path.is_file() || path.extension().is_some_and(|e| e == EXTENSION) {
        return true;
    }
    word.parse::<hindsight_timeline::Place>().is_err() && find(Some(path)).is_ok_and(|f| f.exists())
}

/// Deletes a recording and its index.
fn delete(path: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_file(hindsight_timeline::index_path(path));
    std::fs::remove_file(path)
}

/// Deletes the oldest recordings of `program` beyond `keep`, but not `current`.
pub fn prune(program: &str, keep: usize, current: &Path) {
    let program = file_safe(program);
    let mine = entries()
        .unwrap_or_default()
        .into_iter()
        .filter(|e| e.program == program);
    let old: Vec<_> = mine.filter(|e| e.path != current).collect();
    let excess = (old.len() + 1).saturating_sub(keep.max(1));
    for e in old.iter().take(excess) {
        if !busy(&e.path)
            && let Err(error) = delete(&e.path)
        {
            say(&format!(
                "cannot delete the old recording {}: {error}",
                e.path.display()
            ));
        }
    }
    sweep_sometimes();
}

/// Deletes the files that no recording uses; says so if that cannot be.
fn sweep(unused: Duration, patience: Duration) -> bool {
    let Ok(dir) = dir() else { return false };
    let list = || {
        let all = entries().map_err(|e| std::io::Error::other(format!("{e:#}")))?;
        Ok(all.into_iter().map(|e| e.path).collect())
    };
    match files::sweep(&dir, list, unused, patience) {
        Ok(done) => done.is_some() || !dir.join("files").exists(),
        Err(e) => {
            say(&format!(
                "files that no recording uses stay in the store: {e}"
            ));
            false
        }
    }
}

/// The same, if that was long ago.
pub fn sweep_sometimes() {
    let last = dir().ok().and_then(|d| files::swept(&d));
    if last.is_some_and(|t| t.elapsed().is_ok_and(|age| age > SWEEP_EVERY)) {
        sweep(SWEEP_EVERY, Duration::ZERO);
    }
}

/// How a recording ended, in a word or two.
fn ending(path: &Path, t: &Result<Brief, hindsight_trace::Error>) -> String {
    match t {
        _ if busy(path) => "being recorded".into(),
        Err(e) => e.to_string(),
        Ok(t) => match t.summary.as_ref().and_then(|s| s.ending.as_ref()) {
            Some(Ending::Unsupported(_)) => "not recorded further".into(),
            Some(e) => e.to_string(),
            None => t.completeness.to_string(),
        },
    }
}

/// `hindsight ls`.
pub fn list(a: &args::List) -> Result<i32> {
    let mut rows = Vec::new();
    let mut json = Vec::new();
    let mut own = 0;
    for e in entries()? {
        let t = Trace::brief(&e.path);
        let (command, started, instructions) = match &t {
            Ok(t) => {
                let n = t.summary.as_ref().map(|s| s.totals.instructions);
                (t.header.command(), t.header.started_ms, n)
            }
            Err(_) => (e.program.clone(), modified_ms(&e), None),
        };
        let ended = ending(&e.path, &t);
        let used = t.map_or(Ok(0), |t| t.shared);
        let ended = match &used {
            Err(e) => format!("{ended}, but {e}"),
            Ok(_) => ended,
        };
        if a.json {
            json.push(serde_json::json!({
                "name": e.name, "file": e.path, "program": e.program, "command": command,
                "started_ms": started, "ended": ended, "bytes": e.bytes,
                "shared_bytes": used.ok(), "instructions": instructions,
            }));
            continue;
        }
        let when = os::local_time((started / 1000) as i64, true);
        let command: String = line(&command).chars().take(60).collect();
        let n = instructions.map_or("-".into(), grouped);
        let used = used.map_or("?".into(), size);
        own += e.bytes;
        rows.push([e.name, when, ended, n, size(e.bytes), used, command]);
    }
    if a.json {
        println(&serde_json::to_string_pretty(&json)?);
    } else if rows.is_empty() {
        say("the store is empty");
    } else {
        let head = [
            "NAME",
            "STARTED",
            "ENDED",
            "INSTRUCTIONS",
            "SIZE",
            "SHARED",
            "COMMAND",
        ]
        .map(String::from);
        rows.insert(0, head);
        println(&table(&rows));
        let (number, bytes) = files::total(&dir()?);
        if number > 0 {
            say(&format!(
                "recordings {}, and {number} files that they share, {}",
                size(own),
                size(bytes)
            ));
        }
    }
    Ok(0)
}

fn modified_ms(e: &Entry) -> u64 {
    e.modified
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |i: usize| {
        rows.iter()
            .map(|r| line(&r[i]).chars().count())
            .max()
            .unwrap_or(0)
    };
    let row = |r: &[String; N]| {
        let cells: Vec<_> = r
            .iter()
            .enumerate()
            .map(|(i, c)| format!("{:<1$}", line(c), width(i)))
            .collect();
        cells.join("  ").trim_end().to_string()
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// `hindsight rm`.
pub fn remove(a: &args::Remove) -> Result<i32> {
    let paths = if a.all {
        entries()?.into_iter().map(|e| e.path).collect()
    } else {
        let dir = dir()?;
        let mut list = Vec::new();
        for n in &a.names {
            // Names only: files elsewhere are the user's own business.
            if n.components().count() != 1 {
                bail!("{}: not a name in the store", n.display());
            }
            let exact = dir.join(n);
            let path = if exact.exists() {
                exact
            } else {
                exact.with_added_extension(EXTENSION)
            };
            if entry(&path).is_none() {
                bail!("{}: no such recording in the store", n.display());
            }
            list.push(path);
        }
        list
    };
    let mut status = 0;
    let mut json = Vec::new();
    for p in paths {
        let kept = match busy(&p) {
            true => Some("it is being recorded".into()),
            false => delete(&p).err().map(|e| e.to_string()),
        };
        if let Some(why) = &kept {
            say(&format!("{}: {why}", p.display()));
            status = 1;
        }
        json.push(serde_json::json!({"path": p, "removed": kept.is_none(), "error": kept}));
    }
    if a.json {
        println(&serde_json::to_string_pretty(&json)?);
    }
    if !sweep(Duration::ZERO, PATIENCE) {
        status = 1;
    }
    Ok(status)
}
