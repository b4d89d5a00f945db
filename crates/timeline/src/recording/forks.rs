//! Where processes were created.

use super::Recording;
use crate::scan::{FORKS, Raw};
use crate::{Result, ThreadId};

/// The call that made an image as a copy of its parent: the thread, and the instructions completed before.
pub fn forked_by(
    recording: &Recording,
    parent: u32,
    child: u32,
) -> Result<Option<(ThreadId, u64)>> {
    let info = recording.trace.image(child);
    let Some((pid, thread)) = info.and_then(|i| Some((i.pid, recording.first_thread(child)?)))
    else {
        return Ok(None);
    };
    // The order number with which the child began. It is greater than that of the call.
    let begin = recording
        .scan(thread)?
        .numbers
        .first()
        .map_or(u64::MAX, |n| n.0);
    let mut best: Option<(u64, ThreadId, u64)> = None;
    for t in recording.threads_of(parent) {
        let scan = recording.scan(t)?;
        for (count, event) in &scan.events {
            let Raw::Syscall {
                number,
                result: Some(result),
                ..
            } = event
            else {
                continue;
            };
            if FORKS.contains(number) && *result == pid as u64 {
                let opens = scan.segment(t, *count).opens;
                if opens < begin && best.is_none_or(|b| b.0 < opens) {
                    best = Some((opens, t, *count));
                }
            }
        }
    }
    Ok(best.map(|b| (b.1, b.2)))
}
