//! Takes what a circular recording holds while it goes on.
//!
//! The recording process listens on a socket in a folder of its user. Whoever wants a ring asks all sockets there for the
//! process.

use crate::error::{During, Error, Result};
use crate::sys;
use hindsight_collector::{Control, Producer, Requests};
use hindsight_guard::private;
use hindsight_store as store;
use hindsight_trace::Summary;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Longest time that one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers before the trace.
const YES: &str = "holds\n";
const NO: &str = "other\n";

/// The folder of this user's sockets.
fn folder() -> Result<PathBuf> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty());
    let dir = match run.map(PathBuf::from).filter(|d| d.is_dir()) {
        Some(d) => d.join("hindsight"),
        None => PathBuf::from(format!("/tmp/hindsight-{}", sys::process::user())),
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(e).during_with(|| format!("cannot create {}", dir.display()));
        }
        _ => {}
    }
    let m = fs::symlink_metadata(&dir).during_with(|| dir.display().to_string())?;
    if !m.is_dir() || m.uid() != sys::process::user() || m.mode() & 0o022 != 0 {
        return Err(Error::NotPrivate(dir));
    }
    Ok(dir)
}

/// Where a recording process is asked.
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// The process that was started to record.
    front: i32,
}

impl Listener {
    /// Begins to listen.
    pub fn new(front: i32) -> Result<Listener> {
        static RECORDINGS: AtomicU32 = AtomicU32::new(0);
        let own = std::process::id();
        let name = match RECORDINGS.fetch_add(1, Relaxed) {
            0 => own.to_string(),
            // A process may record several programs.
            n => format!("{own}-{n}"),
        };
        let path = folder()?.join(name);
        // Of a process of the same number that was killed.
        let _ = fs::remove_file(&path);
        let socket = UnixListener::bind(&path)
            .and_then(|s| s.set_nonblocking(true).map(|()| s))
            .during_with(|| format!("cannot listen on {}", path.display()))?;
        Ok(Listener {
            socket,
            path,
            front,
        })
    }

    /// Somebody who wants something, and the id of the process that was started to record.
    pub fn accept(&self) -> Option<(UnixStream, i32)> {
        self.socket.accept().ok().map(|(s, _)| (s, self.front))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Answers one who asks; `summary` is what is known of the recording.
pub(crate) fn answer(
    peer: UnixStream,
    front: i32,
    control: &Control,
    requests: &Requests,
    summary: &Summary,
) {
    // Whoever asked sees the connection break; the recording goes on.
    let _ = try_answer(peer, front, control, requests, summary);
}

fn try_answer(
    mut peer: UnixStream,
    front: i32,
    control: &Control,
    requests: &Requests,
    summary: &Summary,
) -> io::Result<()> {
    peer.set_nonblocking(false)?;
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&peer).take(32).read_line(&mut line)?;
    let wanted: Option<i32> = line.trim().parse().ok();
    if !wanted.is_some_and(|pid| pid == front || is_ours(control, pid)) {
        return peer.write_all(NO.as_bytes());
    }
    let answer = requests.ask();
    control.wake();
    let Ok(snapshot) = answer.recv_timeout(PATIENCE) else {
        return peer.write_all(NO.as_bytes());
    };
    peer.write_all(YES.as_bytes())?;
    snapshot.write(io::BufWriter::new(peer), None, summary.clone())?;
    Ok(())
}

/// Whether `pid` is this process, or a process or thread that it records.
fn is_ours(control: &Control, pid: i32) -> bool {
    let recorded = |p: &Producer| p.begun && !p.ended && [p.pid, p.tid].contains(&pid);
    pid == std::process::id() as i32 || control.producers().iter().any(recorded)
}

/// Takes what the circular recording of a process holds, and writes it to `output`, or to a new file in the store; the
/// file. The recording goes on. `pid` is a recorded process, or the one that records it.
///
/// # Errors
/// There is no such recording of this user, or the file cannot be written.
pub fn dump(pid: i32, output: Option<&Path>) -> Result<PathBuf> {
    for entry in fs::read_dir(folder()?)?.flatten() {
        let Ok(mut peer) = UnixStream::connect(entry.path()) else {
            continue;
        };
        // A recording that ends just now does not answer.
        if peer.set_read_timeout(Some(PATIENCE)).is_err() || writeln!(peer, "{pid}").is_err() {
            continue;
        }
        let mut peer = BufReader::new(peer);
        let mut line = String::new();
        if peer.read_line(&mut line).is_ok() && line == YES {
            return receive(pid, output, peer);
        }
    }
    Err(Error::NoRing(pid))
}

fn receive(pid: i32, output: Option<&Path>, mut from: impl Read) -> Result<PathBuf> {
    let (path, mut file) = match output {
        Some(p) => (
            p.to_path_buf(),
            private::create_named(p).during_with(|| format!("cannot create {}", p.display()))?,
        ),
        None => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let seconds = now.unwrap_or_default().as_secs() as i64;
            store::create(&format!("dump-{pid}"), seconds)?
        }
    };
    io::copy(&mut from, &mut file).during_with(|| path.display().to_string())?;
    Ok(path)
}
