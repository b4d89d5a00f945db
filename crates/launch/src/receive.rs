//! `hindsight receive`: the other end of `record -o tcp:HOST:PORT`. Anybody may connect, so nobody is waited for who says
//! nothing, and no more is taken than was agreed to.

use crate::bar::Bar;
use crate::numbers::size;
use crate::{args, confine, say, store};
use anyhow::{Context, Result};
use hindsight_guard::{keep_alive, private};
use hindsight_trace::Completeness;
use hindsight_trace::chunk::{ChunkHeader, HEADER_LEN, Kind};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Accepts one recording.
pub fn receive(a: &args::Receive) -> Result<i32> {
    let listener =
        TcpListener::bind(&a.listen).with_context(|| format!("cannot listen on {}", a.listen))?;
    say(&format!("listening on {}", listener.local_addr()?));
    let (mut from, begin, peer) = loop {
        let (mut from, peer) = listener.accept().context("no connection")?;
        match begin(&mut from, a.timeout) {
            Ok(begin) => break (from, begin, peer),
            Err(e) => say(&format!("{peer} sends no recording: {e}")),
        }
    };
    // Nobody else is to wait for his turn, which does not come.
    drop(listener);
    let (path, mut file) = open(a)?;
    let idle = Some(a.idle).filter(|t| !t.is_zero());
    let set = keep_alive(&from).and_then(|()| from.set_read_timeout(idle));
    // A connection that breaks leaves a trace that is readable up to there.
    let mut bar = Bar::new(true);
    let copied = set.and_then(|()| copy(&begin, &mut from, &mut file, a.max_size, &mut bar));
    bar.clear();
    if let Err(e) = copied {
        say(&match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "{peer} has sent nothing for {} seconds, and is left (--idle)",
                a.idle.as_secs()
            ),
            ErrorKind::FileTooLarge => format!(
                "{peer} sends more than {}, and is left (--max-size)",
                size(a.max_size)
            ),
            _ => format!("the connection to {peer} broke: {e}"),
        });
    }
    drop((from, file));
    confine::run(Some(&path), || tell(&path, &peer.to_string()))
}

/// The file for the recording.
fn open(a: &args::Receive) -> Result<(PathBuf, File)> {
    let Some(p) = &a.output else {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        return store::create("received", now.unwrap_or_default().as_secs() as i64);
    };
    let file =
        private::create_named(p).with_context(|| format!("cannot create {}", p.display()))?;
    Ok((p.clone(), file))
}

/// Reads what a recording begins with, and sees that it is that.
fn begin(from: &mut TcpStream, timeout: Duration) -> Result<Vec<u8>> {
    let until = Instant::now() + timeout;
    let mut bytes = vec![0; HEADER_LEN];
    let mut have = 0;
    while have < bytes.len() {
        // Also for one that sends a byte now and then.
        let left = until.saturating_duration_since(Instant::now());
        from.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match from.read(&mut bytes[have..]) {
            Ok(0) => anyhow::bail!("the connection ends"),
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                anyhow::bail!("it does not begin within {} seconds", timeout.as_secs())
            }
            Err(e) => return Err(e.into()),
        }
        if Instant::now() > until && have < bytes.len() {
            anyhow::bail!("it does not begin within {} seconds", timeout.as_secs());
        }
    }
    let head = ChunkHeader::from_bytes(bytes.first_chunk().context("no bytes")?, 0)?;
    match head.kind {
        Kind::Header => Ok(bytes),
        _ => anyhow::bail!("it begins in the middle"),
    }
}

/// Copies at most so much, and shows how far it is; more is an error.
fn copy(
    begin: &[u8],
    from: &mut impl Read,
    to: &mut impl Write,
    most: u64,
    bar: &mut Bar,
) -> io::Result<()> {
    let mut left = most;
    let mut part = vec![0; 1 << 16];
    part[..begin.len()].copy_from_slice(begin);
    let mut n = begin.len();
    while n > 0 {
        let fits = left.min(n as u64) as usize;
        to.write_all(&part[..fits])?;
        if fits < n {
            return Err(ErrorKind::FileTooLarge.into());
        }
        left -= n as u64;
        bar.bytes(most - left);
        n = loop {
            match from.read(&mut part) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
    }
    Ok(())
}

/// Says what has come.
fn tell(path: &Path, peer: &str) -> Result<i32> {
    let t = hindsight_trace::Trace::open(path).with_context(|| path.display().to_string())?;
    say(&format!(
        "{} from {peer}: {}: {}",
        t.header().command(),
        t.completeness(),
        path.display()
    ));
    Ok((t.completeness() != Completeness::Complete) as i32)
}
