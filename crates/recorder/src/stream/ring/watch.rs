//! Whether the collector is still there, for those who wait for it.

use super::{collector, foreign, header};
use crate::line;
use crate::sys;
use crate::sys::fail::{self, STATUS};
use core::ffi::CStr;
use core::sync::atomic::Ordering::*;

/// After this many seconds without a sign of life the collector counts as gone. Its process may
/// still exist, as a zombie that nobody has reaped.
const SILENCE: u64 = 10;

/// Notices that the collector is gone.
pub struct Watch {
    heartbeat: u32,
    /// Seconds of silence.
    silence: u64,
    /// Time of the last look, in seconds.
    looked: u64,
}

impl Watch {
    /// Begins to watch.
    pub fn new() -> Watch {
        Watch {
            heartbeat: header().map_or(0, |h| h.heartbeat.load(Relaxed)),
            silence: 0,
            looked: sys::seconds(),
        }
    }

    /// Ends the process if the collector is gone. Has to be called several times a second.
    pub fn check(&mut self) {
        let Some(h) = header() else { return };
        let (beat, now) = (h.heartbeat.load(Relaxed), sys::seconds());
        // Time in which this process itself did not run does not count. The collector may not have
        // run either: a key that stops the one stops both.
        self.silence += (now - self.looked).min(1);
        self.looked = now;
        if beat != self.heartbeat {
            (self.heartbeat, self.silence) = (beat, 0);
        }
        insist();
        if self.silence > SILENCE && !foreign() && lives(collector()[0]) {
            self.silence = 0;
        }
        if self.silence > SILENCE {
            gone();
        }
    }
}

/// Ends the process if no process has the collector's number. In another namespace of process ids
/// that cannot be known.
pub fn insist() {
    if header().is_some() && !foreign() && !sys::process_exists(collector()[0]) {
        gone();
    }
}

fn gone() -> ! {
    fail::die(
        STATUS,
        &line!("the collector is gone; the recording ends here"),
    )
}

/// Whether a process can still go on, however long it has not. It may be stopped, be debugged, or
/// get no processor.
fn lives(pid: i32) -> bool {
    let path = line!("/proc/{pid}/stat\0");
    let Some(fd) = CStr::from_bytes_until_nul(path.as_bytes())
        .ok()
        .and_then(|p| sys::open_read(p).ok())
    else {
        return false;
    };
    // First come the number and the name, which takes 64 bytes at most.
    let mut text = [0; 128];
    let n = sys::read(fd, &mut text).unwrap_or(0);
    sys::close(fd);
    let text = text.get(..n).unwrap_or(&[]);
    let name = text.iter().rposition(|b| *b == b')');
    let state = name.and_then(|i| text.get(i + 2));
    state.is_some_and(|s| !matches!(s, b'Z' | b'X' | b'x'))
}
