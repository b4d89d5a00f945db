//! `hindsight attach` and `hindsight detach`.

use super::record::report;
use crate::status::FAILED;
use crate::{args, say};
use anyhow::Result;
use hindsight_launch::{Destination, EndSignals, Ending, Error, Left, Notice, Recording};
use std::time::{Duration, Instant};

/// Time between looks whether somebody wants the end.
const BEAT: Duration = Duration::from_millis(100);

/// Records a process until it ends or is detached.
pub fn run(a: &args::Attach) -> i32 {
    match attach(a) {
        Ok(status) => status,
        Err(e) => {
            // Of this one was told.
            if !matches!(e.downcast_ref(), Some(Error::EndNotWritten)) {
                say(&format!("{e:#}"));
            }
            FAILED
        }
    }
}

fn attach(a: &args::Attach) -> Result<i32> {
    let signals = EndSignals::take_over();
    let quiet = a.quiet;
    let mut builder = Recording::attach(a.pid)
        .destination(Destination::of(a.output.as_deref(), a.self_contained))
        .keep_in_store(a.keep)
        .predictor(a.predictor)
        .keyframe_interval(a.keyframe_interval)
        .digest_interval(a.digest_interval)
        .children(a.children.clone())
        .on_notice(move |notice| tell(notice, quiet));
    if let Some(bytes) = a.data_limit {
        builder = builder.data_limit(bytes);
    }
    let recording = builder.start()?;
    let since = Instant::now();
    let mut asked = false;
    let outcome = loop {
        if let Some(outcome) = recording.wait_timeout(Duration::ZERO) {
            break outcome?;
        }
        let left = a.time.map(|t| t.saturating_sub(since.elapsed()));
        let left = left.filter(|_| !asked);
        let told = signals.wait(left.map_or(BEAT, |l| l.min(BEAT)));
        if told && (asked || recording.is_over()) {
            recording.stop();
        } else if told || left == Some(Duration::ZERO) {
            asked = true;
            recording.detach();
        }
    };
    let name = outcome.name.as_deref().unwrap_or_default();
    if let Some(Ending::Unsupported(why)) = &outcome.ending {
        say(&format!("{why}; the recording ends there: {name}"));
        return Ok(FAILED);
    }
    if !a.quiet {
        say(&report(&outcome.summary, name));
    }
    Ok(0)
}

fn tell(notice: &Notice, quiet: bool) {
    match notice {
        Notice::Attached { .. } if !quiet => say(&format!("{notice}; Ctrl-C detaches")),
        Notice::OthersGoOn if !quiet => say(&notice.to_string()),
        Notice::Attached { .. } | Notice::OthersGoOn | Notice::Finished(_) => {}
        notice => say(&notice.to_string()),
    }
}

/// Has a recorded process go on by itself.
pub fn detach(a: &args::Detach) -> Result<i32> {
    if hindsight_launch::detach(a.pid)? == Left::Ended {
        say(&format!("process {} has ended", a.pid));
    }
    Ok(0)
}
