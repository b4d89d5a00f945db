//! Waits for a recorded program as if it were run directly.

use crate::os::{self, Ended, Signals};
use std::io;
use std::time::Duration;

/// Signals that the program is to get when somebody sends them to us.
const FORWARDED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Time between signs of life for the recorded process.
pub const BEAT: Duration = Duration::from_millis(250);

/// This process's signals while it waits.
pub struct Watch {
    waited: Signals,
    before: Signals,
    child_ignored: bool,
}

impl Watch {
    /// Takes the signals over. To be made before the program is started.
    pub fn new() -> Watch {
        // With SIGCHLD ignored, as some parents leave it, the status of a child is lost.
        let child_ignored = os::default_disposition(libc::SIGCHLD);
        let mut list = FORWARDED.to_vec();
        list.push(libc::SIGCHLD);
        let waited = Signals::of(&list);
        // A reader that goes away or a limit on file sizes is an error of a write, no reason to die.
        let quiet = Signals::of(&[libc::SIGPIPE, libc::SIGXFSZ]).block();
        waited.block();
        Watch {
            before: quiet,
            waited,
            child_ignored,
        }
    }

    /// Blocked signals that the program inherits.
    pub fn inherited(&self) -> Signals {
        self.before
    }

    /// Whether the program inherits SIGCHLD as ignored.
    pub fn child_ignored(&self) -> bool {
        self.child_ignored
    }

    /// Takes the signals that came meanwhile; whether somebody wants this process itself to end.
    pub fn told_to_end(&self) -> bool {
        while let Some((signal, sent)) = self.waited.take(Duration::ZERO) {
            if sent && [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(&signal) {
                return true;
            }
        }
        false
    }

    /// Waits for `pid` to end; calls `beat` a few times a second.
    pub fn wait(&self, pid: i32, beat: impl Fn()) -> io::Result<Ended> {
        loop {
            if let Some(ended) = os::poll_child(pid)? {
                return Ok(ended);
            }
            beat();
            match self.waited.take(BEAT) {
                // What a key causes goes to the whole foreground group, the program included.
                Some((signal, true)) if FORWARDED.contains(&signal) => os::kill(pid, signal),
                _ => {}
            }
        }
    }
}
