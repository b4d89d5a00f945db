//! Whether the collector is still there, for those who wait for it.

use super::{collector, foreign, header};
use crate::line;
use crate::sys;
use crate::sys::fail::{self, STATUS};
use core::ffi::CStr;
use core::sync::atomic::Ordering::*;

/// Seconds without a sign of life after which the collector counts as gone. Its process may still be
/// there, as a zombie that nobody has reaped.
const SILENCE: u64 = 10;

/// Notices that the collector is gone.
pub struct Watch {
    heartbeat: u32,
    /// Seconds of silence.
    silence: u64,
    /// When it was looked last.
    looked: u64,
}

impl Watch {
    pub fn new() -> Watch {
        Watch {
            heartbeat: header().map_or(0, |h| h.heartbeat.load(Relaxed)),
            silence: 0,
            looked: sys::seconds(),
        }
    }

    /// Ends the process if the collector is gone; to be called several times a second.
    pub fn check(&mut self) {
        let Some(h) = header() else { return };
        let (beat, now) = (h.heartbeat.load(Relaxed), sys::seconds());
        // Not the time in which this process itself did not run: then the collector perhaps did not
        // either, for whoever stops the one by a key stops both.
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

/// Ends the process if there is no process of the collector's number. Of one in another namespace of
/// process ids that cannot be known.
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

/// Whether a process can go on, however long it has not: it is stopped, debugged, or gets no processor.
fn lives(pid: i32) -> bool {
    let path = line!("/proc/{pid}/stat\0");
    let Some(fd) = CStr::from_bytes_until_nul(path.as_bytes())
        .ok()
        .and_then(|p| sys::open_read(p).ok())
    else {
        return false;
    };
    // The number and the name, of at most 64 bytes, come first.
    let mut text = [0; 128];
    let n = sys::read(fd, &mut text).unwrap_or(0);
    sys::close(fd);
    let text = text.get(..n).unwrap_or(&[]);
    let name = text.iter().rposition(|b| *b == b')');
    let state = name.and_then(|i| text.get(i + 2));
    state.is_some_and(|s| !matches!(s, b'Z' | b'X' | b'x'))
}
