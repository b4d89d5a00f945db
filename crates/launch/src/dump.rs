//! `hindsight dump`: takes what a circular recording holds while it goes on.
//!
//! The recording process listens on a socket named after its process id, in a folder of its user;
//! whoever wants its ring asks all of them for the process.

use crate::out;
use crate::{args, os, say, store};
use anyhow::{Context, Result, bail};
use hindsight_collector::{Control, Producer, Requests};
use hindsight_guard::private;
use hindsight_trace::Summary;
use serde_json::json;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
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
        None => PathBuf::from(format!("/tmp/hindsight-{}", os::user())),
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot create {}", dir.display()));
        }
        _ => {}
    }
    let m = fs::symlink_metadata(&dir).with_context(|| dir.display().to_string())?;
    if !m.is_dir() || m.uid() != os::user() || m.mode() & 0o022 != 0 {
        bail!("{} is not a folder of this user alone", dir.display());
    }
    Ok(dir)
}

/// Where a recording process is asked.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// The process that was started to record.
    front: i32,
}

impl Listener {
    /// Begins to listen.
    pub fn new(front: i32) -> Result<Listener> {
        let path = folder()?.join(std::process::id().to_string());
        // Of a process of the same number that was killed.
        let _ = fs::remove_file(&path);
        let socket = UnixListener::bind(&path)
            .and_then(|s| s.set_nonblocking(true).map(|()| s))
            .with_context(|| format!("cannot listen on {}", path.display()))?;
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
pub fn answer(
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

/// Runs `hindsight dump`.
pub fn run(a: &args::Dump) -> Result<i32> {
    for entry in fs::read_dir(folder()?)?.flatten() {
        let Ok(mut peer) = UnixStream::connect(entry.path()) else {
            continue;
        };
        // A recording that ends just now does not answer.
        if peer.set_read_timeout(Some(PATIENCE)).is_err() || writeln!(peer, "{}", a.pid).is_err() {
            continue;
        }
        let mut peer = BufReader::new(peer);
        let mut line = String::new();
        if peer.read_line(&mut line).is_ok() && line == YES {
            return receive(a, peer);
        }
    }
    bail!(
        "no circular recording (`record --ring`) of process {} goes on",
        a.pid
    )
}

fn receive(a: &args::Dump, mut from: impl Read) -> Result<i32> {
    let (path, mut file) = match &a.output {
        Some(p) => (
            p.clone(),
            private::create_named(p).with_context(|| format!("cannot create {}", p.display()))?,
        ),
        None => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let seconds = now.unwrap_or_default().as_secs() as i64;
            store::create(&format!("dump-{}", a.pid), seconds)?
        }
    };
    io::copy(&mut from, &mut file).with_context(|| path.display().to_string())?;
    let t = hindsight_trace::Trace::open(&path).with_context(|| path.display().to_string())?;
    let kept: u64 = t.summary().map_or(0, |s| s.totals.instructions);
    let whole = t.summary().is_some();
    if a.json {
        let written = json!({
            "path": path,
            "command": t.header().command(),
            "complete": whole,
            "instructions": kept,
        });
        out::println(&serde_json::to_string_pretty(&written)?);
        return Ok(!whole as i32);
    }
    say(&format!(
        "{}: {}, {} instructions: {}",
        t.header().command(),
        t.completeness(),
        crate::numbers::grouped(kept),
        path.display()
    ));
    Ok(!whole as i32)
}
