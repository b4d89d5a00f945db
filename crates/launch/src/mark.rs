//! Asking for a mark in a recording from outside (see [`hindsight_events::asked`]).

use crate::error::{MarkError, ReachError, Result};
use crate::shared::Shared;
use hindsight_events::asked::{Asked, stage};
use hindsight_isa::mark::NAME_MAX;
use hindsight_remote::Status;
use std::fs;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Time between two looks at what has become of a question.
const LOOK: Duration = Duration::from_millis(5);

/// Longest time without an answer. The process that records answers much earlier, unless a large state point takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mark that was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// The number of its thread in the recording.
    pub thread: u32,
    /// The number that the kernel gave that thread.
    pub tid: i32,
    /// How many instructions the thread had completed there.
    pub instructions: u64,
}

/// Sets a mark in the recording to which a process belongs, where one of its threads is. `pid` is a recorded process or thread, or
/// a process that records: then its program gets the mark. With `state`, all memory is recorded there.
///
/// Returns when the mark is in the recording.
///
/// # Errors
/// The process is not recorded, or cannot be reached; no state point can be made of it, or none while it waits. Then the text
/// says whether the mark is set.
pub fn mark(pid: i32, name: &[u8], state: bool) -> Result<Marked> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(MarkError::Name(name.len()).into());
    }
    let shared = Shared::of(pid)?;
    let header = shared.header();
    let recorder = header.collector_pid.load(Relaxed);
    let records = pid == recorder || Status::of_process(recorder).is_ok_and(|s| s.parent == pid);
    let asked = Question::take(&header.asked)?;
    asked.0.ask(if records { 0 } else { pid }, name, state);
    let since = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        match asked.0.stage() {
            stage::DONE => {
                return Ok(Marked {
                    thread: asked.0.thread.load(Relaxed),
                    tid: asked.0.tid.load(Relaxed),
                    instructions: asked.0.where_set().unwrap_or_default(),
                });
            }
            stage::REFUSED => {
                let why = String::from_utf8_lossy(&asked.0.why.read()).into_owned();
                return Err(MarkError::Refused { pid, why }.into());
            }
            _ if !is_there(recorder) => return Err(ReachError::RecorderGone(recorder).into()),
            _ if since.elapsed() > PATIENCE => return Err(MarkError::Silent(recorder).into()),
            _ => {}
        }
    }
}

/// The box, which is given back in the end.
struct Question<'q>(&'q Asked);

impl Question<'_> {
    fn take(asked: &Asked) -> Result<Question<'_>> {
        let own = std::process::id() as i32;
        let former = asked.asker();
        // Who has it may have been killed.
        if former != 0 && former != own && is_there(former) || !asked.take(own, former) {
            return Err(MarkError::Busy(former).into());
        }
        Ok(Question(asked))
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

fn is_there(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}
