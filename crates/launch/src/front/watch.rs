//! Stands for a recorded program where whoever started us sees it: waits for its end, passes signals on to it, and is
//! stopped and continued with it, as if the program had been started directly.

use crate::os::{self, Came, Change, Ended, Signals};
use crate::witness::Witness;
use std::cell::Cell;
use std::io;
use std::time::Duration;

/// Signals that ask for an end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Time between signs of life for the recorded process.
pub const BEAT: Duration = Duration::from_millis(250);

/// What happens while a program is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// This process is about to be stopped, because the program was.
    Stops,
    /// It has been continued.
    GoesOn,
    /// Somebody wants an end. With a number: by this signal to this process alone, which the program has been sent.
    EndIsWanted(Option<i32>),
}

/// This process's signals while it waits.
pub struct Watch {
    before: Signals,
    child_ignored: bool,
    /// The first signal that asked for an end.
    ended: Cell<Option<i32>>,
    /// Without one, all that a process sends is passed on.
    witness: Option<Witness>,
}

impl Watch {
    /// Takes the signals over. To be made before the program is started, by a process of one thread.
    pub fn new() -> Watch {
        // With SIGCHLD ignored, as some parents leave it, the status of a child is lost.
        let child_ignored = os::default_disposition(libc::SIGCHLD);
        // None ends this process before the program. Those of a reader that goes away and of a limit on file
        // sizes are errors of writes.
        let before = Signals::all().block();
        Watch {
            before,
            child_ignored,
            ended: Cell::new(None),
            witness: Witness::new().ok(),
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

    /// When the program has ended: takes the signals that came meanwhile; whether somebody wants this process itself
    /// to end.
    pub fn told_to_end(&self) -> bool {
        let mut told = false;
        while let Some(came) = Signals::all().take(Duration::ZERO) {
            self.note(came.signal);
            told |= came.sent() && ENDING.contains(&came.signal) && came.signal != libc::SIGQUIT;
            if came.signal == libc::SIGTSTP {
                os::stop_by(came.signal);
            }
        }
        told
    }

    fn note(&self, signal: i32) {
        if ENDING.contains(&signal) && self.ended.get().is_none() {
            self.ended.set(Some(signal));
        }
    }

    /// The signal with which somebody, or a key, wanted an end, if one has come.
    pub fn interrupted(&self) -> Option<i32> {
        self.ended.get()
    }

    /// Waits for `pid` to end; calls `beat` a few times a second, and `tell` when something happens.
    pub fn wait(&self, pid: i32, beat: impl Fn(), tell: impl Fn(News)) -> io::Result<Ended> {
        loop {
            match os::poll_child(pid)? {
                Some(Change::Ended(ended)) => return Ok(ended),
                Some(Change::Stopped(signal)) => {
                    // It may have been before this process was continued.
                    while let Some(came) = Signals::of(&[libc::SIGCONT]).take(Duration::ZERO) {
                        tell(News::GoesOn);
                        self.pass_on(pid, came);
                    }
                    if os::state(pid) == Some(b'T') {
                        tell(News::Stops);
                        os::stop_by(signal);
                    }
                    continue;
                }
                None => {}
            }
            beat();
            if let Some(came) = Signals::all().take(BEAT) {
                if came.signal == libc::SIGCONT {
                    tell(News::GoesOn);
                }
                let signal = came.signal;
                let alone = self.pass_on(pid, came);
                self.note(signal);
                if ENDING.contains(&signal) {
                    tell(News::EndIsWanted(alone.then_some(signal)));
                }
            }
        }
    }

    /// Has the program get a signal that was sent to this process. Whether it was sent to this process alone, and meant
    /// for the program.
    fn pass_on(&self, pid: i32, came: Came) -> bool {
        // What a key causes goes to the whole foreground group, the program included.
        if !came.sent() || came.from == os::own_id() {
            return false;
        }
        let witness = self.witness.as_ref();
        if witness.is_some_and(|w| w.has_got(came.signal)) {
            // Had the program been started directly, the group would be its own.
            let led = os::group(0) == os::own_id() && os::group(pid) == pid;
            if led {
                came.pass_to(-pid);
                resume_terminal(pid, came);
            }
            false
        } else if came.from == pid {
            // It means its parent.
            came.pass_to(os::parent());
            false
        } else {
            came.pass_to(pid);
            resume_terminal(pid, came);
            true
        }
    }
}

/// If a program with a group of its own goes on, it has the terminal when this process has it.
fn resume_terminal(pid: i32, came: Came) {
    if came.signal == libc::SIGCONT && os::group(pid) == pid {
        os::hand_terminal_to(pid);
    }
}
