//! Stands for a recorded program, as if whoever started this process had started the program. It waits for the program's
//! end, passes signals on to it, and is stopped and continued with it.

use super::group_probe::GroupProbe;
use crate::error::{Error, Result};
use crate::outcome::Status;
use crate::sys::files::c_string;
use crate::sys::process::{self, Change, Ended};
use crate::sys::signals::{self, Came, Signals};
use crate::sys::spawn::{Exec, spawn};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::time::Duration;

/// Signals that ask for an end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Time between signs of life for the recorded process.
pub(crate) const BEAT: Duration = Duration::from_millis(250);

/// What happens while a program is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// This process is about to be stopped, because the program was.
    Stops,
    /// It has been continued.
    GoesOn,
    /// Somebody wants an end. With a number: by this signal to this process alone, which the program has been sent.
    EndIsWanted(Option<i32>),
}

/// This process, as far as it stands for the programs that it records.
///
/// It takes over all signals of this process, for good. What is sent to this process it passes on to the program. It is
/// stopped and continued with the program. That is for a process that does nothing else, such as a command. Others use
/// [`Builder::start`](crate::Builder::start).
pub struct Foreground {
    before: Signals,
    child_ignored: bool,
    /// The first signal that asked for an end.
    ended: Cell<Option<i32>>,
    /// Somebody wants this process itself to end.
    told: Cell<bool>,
    /// Without one, all that a process sends is passed on.
    probe: Option<GroupProbe>,
}

impl Foreground {
    /// Takes the signals over.
    ///
    /// # Errors
    /// This process has several threads: copies of it would lack the others, and what these hold.
    pub fn new() -> Result<Foreground> {
        if fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
            return Err(Error::SeveralThreads);
        }
        // With SIGCHLD ignored, as some parents leave it, the status of a child is lost.
        let child_ignored = signals::default_disposition(libc::SIGCHLD);
        // None ends this process before the program. Those of a reader that goes away and of a limit on file
        // sizes are errors of writes.
        let before = Signals::all().block();
        Ok(Foreground {
            before,
            child_ignored,
            ended: Cell::new(None),
            told: Cell::new(false),
            probe: GroupProbe::new().ok(),
        })
    }

    /// Blocked signals that the program inherits.
    pub(crate) fn inherited(&self) -> Signals {
        self.before
    }

    /// Whether the program inherits SIGCHLD as ignored.
    pub(crate) fn child_ignored(&self) -> bool {
        self.child_ignored
    }

    /// When the program has ended: takes the signals that came meanwhile; whether somebody wants this process itself
    /// to end.
    pub fn told_to_end(&self) -> bool {
        while let Some(came) = Signals::all().take(Duration::ZERO) {
            self.take(came);
        }
        self.told.take()
    }

    /// Takes a signal that came when the program had ended: there is nobody else to take it.
    fn take(&self, came: Came) {
        self.note(came.signal);
        if came.sent() && ENDING.contains(&came.signal) && came.signal != libc::SIGQUIT {
            self.told.set(true);
        }
        if came.signal == libc::SIGTSTP {
            signals::stop_by(came.signal);
        }
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

    /// Runs another program in the same way, unrecorded: `image` with these arguments, the first of which is its name.
    /// Its standard output goes to standard error.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(&self, image: File, argv: &[&OsStr]) -> Result<Status> {
        let env = std::env::vars_os().map(|(mut k, v)| {
            k.push("=");
            k.push(v);
            c_string(&k)
        });
        let argv = argv.iter().map(|a| c_string(a));
        let pid = spawn(&Exec {
            image,
            argv: argv.collect::<io::Result<_>>()?,
            env: env.collect::<io::Result<_>>()?,
            folder: None,
            streams: [None, None, None],
            blocked: self.inherited(),
            ignore_child: false,
            default_pipe: false,
            keep: None,
            merge_output: true,
        })?;
        Ok(self.wait(pid, || {}, |_| {})?.status())
    }

    /// Waits for `pid` to end; calls `beat` a few times a second, and `tell` when something happens.
    pub(crate) fn wait(&self, pid: i32, beat: impl Fn(), tell: impl Fn(News)) -> io::Result<Ended> {
        // A signal is passed on only when the program has been seen alive since: one that has ended takes none.
        let mut held: Option<Came> = None;
        let over = |held: Option<Came>| held.into_iter().for_each(|came| self.take(came));
        loop {
            let stopped = match process::poll_child(pid) {
                Ok(None) => None,
                Ok(Some(Change::Stopped(signal))) => Some(signal),
                Ok(Some(Change::Ended(ended))) => {
                    over(held);
                    return Ok(ended);
                }
                Err(e) => {
                    over(held);
                    return Err(e);
                }
            };
            // At once: what the rest of the group has got is known only until the next signal.
            if let Some(came) = held.take() {
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
            if let Some(signal) = stopped {
                // It may have been before this process was continued.
                while let Some(came) = Signals::of(&[libc::SIGCONT]).take(Duration::ZERO) {
                    tell(News::GoesOn);
                    self.pass_on(pid, came);
                }
                if process::state(pid) == Some(b'T') {
                    tell(News::Stops);
                    signals::stop_by(signal);
                }
                continue;
            }
            beat();
            held = Signals::all().take(BEAT);
        }
    }

    /// Has the program get a signal that was sent to this process. Whether it was sent to this process alone, and meant
    /// for the program.
    fn pass_on(&self, pid: i32, came: Came) -> bool {
        // What a key causes goes to the whole foreground group, the program included.
        if !came.sent() || came.from == process::own_id() {
            return false;
        }
        let probe = self.probe.as_ref();
        if probe.is_some_and(|w| w.has_got(came.signal)) {
            // Had the program been started directly, the group would be its own.
            let led = process::group(0) == process::own_id() && process::group(pid) == pid;
            if led {
                came.pass_to(-pid);
                resume_terminal(pid, came);
            }
            false
        } else if came.from == pid {
            // It means its parent.
            came.pass_to(process::parent());
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
    if came.signal == libc::SIGCONT && process::group(pid) == pid {
        process::hand_terminal_to(pid);
    }
}
