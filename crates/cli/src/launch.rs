//! Waits for a recorded program as if it were run directly.

use crate::os::{self, Ended, Signals};
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Signals that the program is to get when somebody sends them to us.
const FORWARDED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Those of them that ask for an end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Time between signs of life for the recorded process.
pub const BEAT: Duration = Duration::from_millis(250);

/// Time in which a program notices a signal.
const OVERDUE: Duration = Duration::from_secs(2);

/// This process's signals while it waits.
pub struct Watch {
    waited: Signals,
    before: Signals,
    child_ignored: bool,
    ended: Cell<bool>,
    /// When an end was wanted first.
    asked: Cell<Option<Instant>>,
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
            ended: Cell::new(false),
            asked: Cell::new(None),
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

    /// Whether somebody, or a key, wanted an end while a program was waited for.
    pub fn is_over(&self) -> bool {
        self.ended.get()
    }

    /// Whether an end was wanted so long ago that a program which is in order would have noticed.
    pub fn is_overdue(&self) -> bool {
        self.asked.get().is_some_and(|a| a.elapsed() > OVERDUE)
    }

    /// Waits for `pid` to end; calls `beat` a few times a second.
    pub fn wait(&self, pid: i32, beat: impl Fn()) -> io::Result<Ended> {
        loop {
            if let Some(ended) = os::poll_child(pid)? {
                return Ok(ended);
            }
            beat();
            let came = self.waited.take(BEAT);
            if came.is_some_and(|(signal, _)| ENDING.contains(&signal)) {
                self.ended.set(true);
                self.asked.set(self.asked.get().or(Some(Instant::now())));
            }
            match came {
                // What a key causes goes to the whole foreground group, the program included.
                Some((signal, true)) if FORWARDED.contains(&signal) => os::kill(pid, signal),
                _ => {}
            }
        }
    }
}
