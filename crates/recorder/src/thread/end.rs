//! A thread's last events: how its process ends.

use crate::stream::ring;
use crate::sys;
use crate::sys::fail::{Line, STATUS, say};
use crate::thread::{Thread, threads};
use hindsight_events::{EndKind, Event};

/// Writes the last event of a thread that ends its process. Also ends all streams that no other
/// thread may be writing. The collector notices that the process is gone.
pub fn finish(t: &mut Thread, kind: EndKind, code: u32, message: &[u8]) {
    t.event(&Event::End {
        kind,
        code,
        message,
    });
    t.publish();
    t.task.end_stream();
    t.emit.end();
    if !t.task.borrows && threads::count() == 1 {
        ring::end_process();
    }
}

/// Ends the recording and the program, because the recorder cannot go on. The command line shows
/// the message.
pub fn unsupported(t: &mut Thread, message: &Line) -> ! {
    finish(t, EndKind::Unsupported, 0, message.as_bytes());
    if t.emit.ctl().is_none() {
        say(message.as_bytes());
    }
    sys::exit_group(STATUS)
}

/// Ends the recording because of an error in the recorder itself.
pub fn internal(t: &mut Thread, message: &Line) -> ! {
    say(message.as_bytes());
    finish(t, EndKind::Unsupported, 0, message.as_bytes());
    sys::exit_group(STATUS)
}
