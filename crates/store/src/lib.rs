//! The store of recent recordings: a folder of trace files, and of copies of the files that they share.
//!
//! ```no_run
//! for recording in hindsight_store::list()? {
//!     println!("{} ({} bytes)", recording.name, recording.bytes);
//! }
//! # Ok::<(), hindsight_store::Error>(())
//! ```

mod error;
pub mod receive;
mod time;

pub use error::{Error, Result};
pub use time::LocalTime;

use error::during;
use hindsight_guard::private;
use hindsight_guard::regular::{self, Links};
use hindsight_trace::{files, live};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// With what the name of a recording's file ends.
pub const EXTENSION: &str = "hst";

/// Time after which a recording looks again for files that no recording uses. It leaves files alone that were used within
/// this time: the next recording of the program is likely to need them.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Longest wait for recordings that begin to use files.
const PATIENCE: Duration = Duration::from_secs(2);

/// A recording in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stored {
    /// The file.
    pub path: PathBuf,
    /// Its name without the extension: `PROGRAM-DATE-TIME-NUMBER`.
    pub name: String,
    /// The name that it was filed under: the program's, as far as that can be part of a file's name.
    pub program: String,
    /// When it was last written to.
    pub modified: SystemTime,
    /// Its length in bytes, without files that it shares with others.
    pub bytes: u64,
}

/// The store's folder: `$HINDSIGHT_DIR`, or `hindsight` among the user's data.
///
/// # Errors
/// Neither this variable, nor XDG_DATA_HOME, nor HOME says where it is.
pub fn dir() -> Result<PathBuf> {
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
        None => Err(Error::NoStore),
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
///
/// # Errors
/// Nobody knows where it is, or it cannot be made.
pub fn folder() -> Result<PathBuf> {
    let dir = dir()?;
    during(private::create_folder(&dir), || {
        format!("cannot create {}", dir.display())
    })?;
    Ok(dir)
}

/// A new file for a recording of `program` at this time (in seconds after the beginning of 1970, UTC). It is locked as
/// long as it is open, so nobody deletes it.
///
/// # Errors
/// There is no store, or no file can be made in it.
pub fn create(program: &str, seconds: i64) -> Result<(PathBuf, File)> {
    let dir = folder()?;
    let t = LocalTime::at(seconds);
    let date = format!("{}{:02}{:02}", t.year, t.month, t.day);
    let time = format!("{:02}{:02}", t.hour, t.minute);
    let stem = format!("{}-{date}-{time}", file_safe(program));
    for n in 1.. {
        let path = dir.join(format!("{stem}-{n}.{EXTENSION}"));
        match private::create_new(&path) {
            Ok(f) => {
                // On a file system without locks, pruning could take a recording in progress, but
                // only when `keep` newer ones of the same program exist.
                live::hold(&f);
                return Ok((path, f));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return during(Err(e), || format!("cannot create {}", path.display())),
        }
    }
    unreachable!("there are more numbers than files")
}

/// All recordings, the latest last. Empty, if there is no store yet.
///
/// # Errors
/// Nobody knows where the store is, or it cannot be read.
pub fn list() -> Result<Vec<Stored>> {
    let dir = dir()?;
    let read = match std::fs::read_dir(&dir) {
        Ok(r) => r,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return during(Err(e), || dir.display().to_string()),
    };
    let mut list: Vec<Stored> = read.flatten().filter_map(|e| entry(&e.path())).collect();
    list.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    Ok(list)
}

fn entry(path: &Path) -> Option<Stored> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let name = path.file_stem()?.to_str()?.to_string();
    let m = path.metadata().ok().filter(|m| m.is_file())?;
    // PROGRAM-DATE-TIME-NUMBER
    let program = name.rsplitn(4, '-').nth(3).unwrap_or(&name).to_string();
    Some(Stored {
        path: path.into(),
        program,
        modified: m.modified().unwrap_or(UNIX_EPOCH),
        bytes: m.len(),
        name,
    })
}

/// Whether a recording is still being written.
pub fn is_busy(path: &Path) -> bool {
    match regular::open(path, Links::Follow) {
        Ok(f) => live::is_held(&f),
        Err(_) => false,
    }
}

/// The recording that a user means: a path, or a name in the store with or without extension; by default the latest one.
///
/// # Errors
/// There is no such file, or none at all.
pub fn find(file: Option<&Path>) -> Result<PathBuf> {
    let Some(file) = file else {
        return list()?.pop().map(|e| e.path).ok_or(Error::StoreEmpty);
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
    Err(Error::NoRecording(file.into()))
}

/// The file of a recording in the store, by its name with or without extension. Files elsewhere are not meant.
///
/// # Errors
/// It is no name, or there is no such recording.
pub fn named(name: &Path) -> Result<PathBuf> {
    if name.components().count() != 1 {
        return Err(Error::NotAName(name.into()));
    }
    let exact = dir()?.join(name);
    let path = if exact.exists() {
        exact
    } else {
        exact.with_added_extension(EXTENSION)
    };
    match entry(&path) {
        Some(_) => Ok(path),
        None => Err(Error::NotStored(name.into())),
    }
}

/// Deletes a recording with its index. Call [`sweep`] when all are deleted that are to be.
///
/// # Errors
/// It is still being recorded, or cannot be deleted.
pub fn remove(path: &Path) -> Result<()> {
    if is_busy(path) {
        return Err(Error::Busy);
    }
    Ok(delete(path)?)
}

/// Deletes the copies of files that no recording uses any more. It waits two seconds at most for recordings that begin.
///
/// # Errors
/// They cannot be listed or deleted. `Ok(false)`: recordings that begin kept it from looking.
pub fn sweep() -> Result<bool> {
    clean(Duration::ZERO, PATIENCE).map_err(Error::Sweep)
}

/// Deletes a recording and its index.
fn delete(path: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_file(files::index_path(path));
    std::fs::remove_file(path)
}

/// What could not be tidied up. It keeps nothing from going on.
#[derive(Debug, thiserror::Error)]
pub enum Untidy {
    /// An old recording could not be deleted.
    #[error("cannot delete the old recording {}: {cause}", .path.display())]
    NotDeleted {
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// Copies of files that no recording uses stay.
    #[error("cannot remove files from the store that no recording uses: {0}")]
    FilesStay(hindsight_trace::Error),
}

/// Deletes the oldest recordings of `program` beyond `keep`, but not `current`.
pub fn prune(program: &str, keep: usize, current: &Path, tell: &mut dyn FnMut(Untidy)) {
    let program = file_safe(program);
    let mine = list()
        .unwrap_or_default()
        .into_iter()
        .filter(|e| e.program == program);
    let old: Vec<_> = mine.filter(|e| e.path != current).collect();
    let excess = (old.len() + 1).saturating_sub(keep.max(1));
    for e in old.iter().take(excess) {
        if !is_busy(&e.path)
            && let Err(cause) = delete(&e.path)
        {
            tell(Untidy::NotDeleted {
                path: e.path.clone(),
                cause,
            });
        }
    }
    sweep_sometimes(tell);
}

/// Deletes the files that no recording uses and that nobody has used for so long.
fn clean(
    unused: Duration,
    patience: Duration,
) -> std::result::Result<bool, hindsight_trace::Error> {
    let Ok(dir) = dir() else { return Ok(false) };
    let paths = || {
        let all = list().map_err(std::io::Error::other)?;
        Ok(all.into_iter().map(|e| e.path).collect())
    };
    let done = files::sweep(&dir, paths, unused, patience)?;
    Ok(done.is_some() || !dir.join("files").exists())
}

/// Deletes the copies of files that no recording has used for long, if that was last done long ago.
pub fn sweep_sometimes(tell: &mut dyn FnMut(Untidy)) {
    let last = dir().ok().and_then(|d| files::swept(&d));
    if last.is_some_and(|t| t.elapsed().is_ok_and(|age| age > SWEEP_EVERY))
        && let Err(e) = clean(SWEEP_EVERY, Duration::ZERO)
    {
        tell(Untidy::FilesStay(e));
    }
}
