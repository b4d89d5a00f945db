//! Commands play a recording in a process that has given up what playing does not need. It opens no files, connects to
//! nothing and starts nothing. For files that belong to the recording it asks another process. So it does not matter who
//! made the recording.

use crate::numbers::local_time;
use crate::{limits, store};
use anyhow::{Context, Result, bail};
use hindsight_guard::broker::{self, Allowed, ExitStatus, Inside, Side};
use hindsight_guard::private;
use hindsight_guard::sandbox::Walls;
use hindsight_inspect::symbols::DebugPaths;
use hindsight_trace::{ModuleHash, files};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The recording of this process, once it is confined.
static RECORDING: OnceLock<PathBuf> = OnceLock::new();
static WALLS: OnceLock<Walls> = OnceLock::new();

/// The recording that this process plays, if it is confined: it cannot look for another.
pub fn recording() -> Option<&'static Path> {
    RECORDING.get().map(PathBuf::as_path)
}

/// What confines this process, for scripts.
pub fn as_json() -> Value {
    let w = WALLS.get().copied().unwrap_or_default();
    json!({ "system_calls": w.calls, "landlock": w.landlock })
}

/// What may be asked for to play a recording.
pub fn allowed(recording: &Path) -> Allowed {
    let mut side = vec![hindsight_timeline::index_path(recording)];
    side.push(hindsight_gdb::Bookmarks::path(recording));
    Allowed {
        recordings: vec![recording.into()],
        side,
        shared: vec![files::beside(recording)],
        debug: DebugPaths::default().0,
        is_called,
        compares: false,
        extract: None,
    }
}

/// Whether a file has the content of this name.
pub fn is_called(file: &File, name: &[u8; 16]) -> bool {
    let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
    let mut left = hindsight_trace::chunk::MAX_MODULE;
    let (mut file, mut part) = (file, vec![0; 1 << 20]);
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(n) if n as u64 <= left => {
                left -= n as u64;
                hash.update(&part[..n]);
            }
            _ => return false,
        }
    }
    // Whoever gets it reads it from its beginning.
    let begin = std::io::Seek::rewind(&mut file).is_ok();
    begin && ModuleHash(hash.digest128().to_be_bytes()) == ModuleHash(*name)
}

/// Gives up what is not needed.
pub fn lock(inside: Inside, recording: &Path) {
    // What takes files of the system, which this process then has not.
    local_time(0);
    hindsight_guard::processors();
    hindsight_replay::prepare();
    limits::prepare();
    let _ = RECORDING.set(recording.into());
    let _ = WALLS.set(inside.lock());
    // Only now: the thread is locked up too.
    limits::watch();
}

/// Runs a command on a recording, or the latest one, in a confined process; its exit status. The command has said what went
/// wrong.
pub fn run(file: Option<&Path>, command: impl FnOnce() -> Result<i32>) -> Result<i32> {
    run_with(file, || Ok(()), |()| command(), |_| ())
}

/// The same for a command that needs something from outside, which `open` gets once it is clear that there is a recording.
/// `after` is told outside how the command ended, whatever ended it.
pub fn run_with<T>(
    file: Option<&Path>,
    open: impl FnOnce() -> Result<T>,
    command: impl FnOnce(T) -> Result<i32>,
    after: impl FnOnce(ExitStatus),
) -> Result<i32> {
    run_on(&[store::find(file)?], open, command, after)
}

/// The same for a command that reads several recordings, which were found. There is at least one.
pub fn run_on<T>(
    recordings: &[PathBuf],
    open: impl FnOnce() -> Result<T>,
    command: impl FnOnce(T) -> Result<i32>,
    after: impl FnOnce(ExitStatus),
) -> Result<i32> {
    let Some((first, others)) = recordings.split_first() else {
        bail!("no recording is named");
    };
    let opened = open()?;
    let mut all = allowed(first);
    for other in others {
        let more = allowed(other);
        all.recordings.extend(more.recordings);
        all.side.extend(more.side);
        // Recordings of one folder share theirs.
        let new = more.shared.into_iter().filter(|s| !all.shared.contains(s));
        let new: Vec<PathBuf> = new.collect();
        all.shared.extend(new);
    }
    enter(first, all, || command(opened), after)
}

/// The same for a command that reads two recordings. It gets their paths.
pub fn run_on_both(
    files: [&Path; 2],
    command: impl FnOnce(&[PathBuf; 2]) -> Result<i32>,
) -> Result<i32> {
    let both = [store::find(Some(files[0]))?, store::find(Some(files[1]))?];
    run_on(&both, || Ok(()), |()| command(&both), |_| ())
}

/// The same for a command that makes a file, which must not exist. It is made before the process that plays the recording gives
/// up its file system, and removed if it does not become whole.
pub fn run_making(
    file: Option<&Path>,
    to: &Path,
    command: impl FnOnce(&File) -> Result<i32>,
) -> Result<i32> {
    run_on_making(&[store::find(file)?], to, command)
}

/// The same for several recordings, which were found.
pub fn run_on_making(
    recordings: &[PathBuf],
    to: &Path,
    command: impl FnOnce(&File) -> Result<i32>,
) -> Result<i32> {
    let made = Cell::new(false);
    let make = || {
        let file = private::create_new(to);
        let file = file.with_context(|| format!("cannot create {}", to.display()))?;
        made.set(true);
        Ok(file)
    };
    let remove = || {
        let _ = std::fs::remove_file(to);
    };
    let after = |end| {
        if end != ExitStatus::Status(0) {
            remove();
        }
    };
    let done = run_on(recordings, make, |to| command(&to), after);
    // No process could be made, for example.
    if done.is_err() && made.get() {
        remove();
    }
    done
}

/// The same for a command that may ask for more. `widen` says for what.
pub fn run_wider(
    file: Option<&Path>,
    widen: impl FnOnce(&mut Allowed) -> Result<()>,
    command: impl FnOnce() -> Result<i32>,
) -> Result<i32> {
    let recording = store::find(file)?;
    let mut allowed = allowed(&recording);
    widen(&mut allowed)?;
    enter(&recording, allowed, command, |_| ())
}

/// Runs a command in two halves: one reads the recording in a confined process, the other one does not read it and is not
/// confined. They talk over a stream. The second half ends before the first one does, and its exit status counts.
pub fn run_beside(
    file: &Path,
    inside: impl FnOnce(UnixStream) -> Result<i32>,
    beside: impl FnOnce(UnixStream) -> Result<i32> + Send,
) -> Result<i32> {
    let recording = store::find(Some(file))?;
    let allowed = allowed(&recording);
    let (mine, its) = UnixStream::pair()?;
    let broker = match broker::split(allowed).context("cannot make a process")? {
        Side::Outside(broker) => broker,
        Side::Inside(walled) => {
            drop(mine);
            lock(walled, &recording);
            std::process::exit(crate::status(inside(its)))
        }
    };
    drop(its);
    std::thread::scope(|scope| {
        let beside = scope.spawn(move || beside(mine));
        let end = broker.serve();
        if let ExitStatus::Signal(_) = end {
            // What the other half waits for does not come. It may also wait for a program that computes for ever, and that
            // ends with this process.
            std::process::exit(crate::status(status(end)));
        }
        let done = beside.join().unwrap_or_else(|_| bail!("the run failed"));
        match (status(end), done) {
            // It has said why.
            (Ok(failed @ 1..), Err(_)) => Ok(failed),
            (_, done) => done,
        }
    })
}

fn enter(
    recording: &Path,
    allowed: Allowed,
    command: impl FnOnce() -> Result<i32>,
    after: impl FnOnce(ExitStatus),
) -> Result<i32> {
    match broker::split(allowed).context("cannot make a process")? {
        Side::Outside(broker) => {
            let end = broker.serve();
            after(end);
            status(end)
        }
        Side::Inside(inside) => {
            lock(inside, recording);
            std::process::exit(crate::status(command()))
        }
    }
}

/// The exit status of a confined process.
fn status(end: ExitStatus) -> Result<i32> {
    match end {
        ExitStatus::Status(s) => Ok(s),
        ExitStatus::Signal(
            n @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT | libc::SIGPIPE),
        ) => broker::die_of(n),
        ExitStatus::Signal(n) => {
            bail!("signal {n} has ended the process that played the recording")
        }
    }
}
