//! `hindsight receive`: the other end of `record -o tcp:HOST:PORT`.

use crate::{args, say, store};
use anyhow::{Context, Result};
use hindsight_guard::private;
use hindsight_trace::{Completeness, Trace};
use std::net::TcpListener;
use std::time::SystemTime;

/// Accepts one recording.
pub fn receive(a: &args::Receive) -> Result<i32> {
    let listener =
        TcpListener::bind(&a.listen).with_context(|| format!("cannot listen on {}", a.listen))?;
    say(&format!("listening on {}", listener.local_addr()?));
    let (mut from, peer) = listener.accept().context("no connection")?;
    let (path, mut file) = match &a.output {
        Some(p) => (
            p.clone(),
            private::create_named(p).with_context(|| format!("cannot create {}", p.display()))?,
        ),
        None => {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            store::create("received", now.as_secs() as i64)?
        }
    };
    // A connection that breaks leaves a trace that is readable up to there.
    let copied = std::io::copy(&mut from, &mut file);
    let t = Trace::open(&path).with_context(|| path.display().to_string())?;
    if let Err(e) = copied {
        say(&format!("the connection to {peer} broke: {e}"));
    }
    say(&format!(
        "{} from {peer}: {}: {}",
        t.header().command(),
        t.completeness(),
        path.display()
    ));
    Ok((t.completeness() != Completeness::Complete) as i32)
}
