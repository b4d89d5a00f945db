//! `hindsight receive`: the other end of `record -o tcp:HOST:PORT`.

use crate::bar::Bar;
use crate::numbers::size;
use crate::{args, confine, say};
use anyhow::{Context, Result};
use hindsight_guard::private;
use hindsight_store as store;
use hindsight_store::receive::{Bounds, Receiver};
use hindsight_trace::Completeness;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Accepts one recording.
pub fn run(a: &args::Receive) -> Result<i32> {
    let receiver = Receiver::listen(&a.listen)?;
    say(&format!("listening on {}", receiver.address()?));
    let incoming = receiver.accept(a.timeout, |peer, e| {
        say(&format!("{peer} sends no recording: {e}"));
    })?;
    let peer = incoming.peer();
    // Nobody else is to wait for his turn, which does not come.
    drop(receiver);
    let (path, mut file) = open(a)?;
    let bounds = Bounds {
        bytes: a.max_size,
        idle: Some(a.idle).filter(|t| !t.is_zero()),
    };
    // A connection that breaks leaves a trace that is readable up to there.
    let mut bar = Bar::new(true);
    let copied = incoming.copy(&mut file, bounds, |come| bar.bytes(come));
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
    drop(file);
    confine::run(Some(&path), || tell(&path, &peer.to_string()))
}

/// The file for the recording.
fn open(a: &args::Receive) -> Result<(PathBuf, File)> {
    let Some(p) = &a.output else {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs() as i64;
        return Ok(store::create("received", seconds)?);
    };
    let file =
        private::create_named(p).with_context(|| format!("cannot create {}", p.display()))?;
    hindsight_trace::live::hold(&file);
    Ok((p.clone(), file))
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
