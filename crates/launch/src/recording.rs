//! A recording that is being made by threads of this process.

use crate::error::{Error, Result};
use crate::outcome::Outcome;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What whoever holds a [`Recording`] asks of the threads that make it.
#[derive(Default)]
pub(crate) struct Asked {
    detach: Mutex<bool>,
    asked: Condvar,
    stop: AtomicBool,
    /// The program has ended, or was left.
    over: AtomicBool,
}

impl Asked {
    /// Whether the processes are to go on by themselves; said once.
    pub fn takes_detach(&self) -> bool {
        std::mem::take(&mut *self.lock())
    }

    /// Waits until something is asked for, but no longer than this time.
    pub fn wait(&self, time: Duration) {
        let asked = self.lock();
        if !*asked {
            let _ = self.asked.wait_timeout(asked, time);
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.detach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the recording is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// The program has ended, or was left.
    pub fn set_over(&self) {
        self.over.store(true, Release);
    }
}

/// What the threads say to it.
pub(crate) enum Said {
    /// The program has been started, or is attached to.
    Begun(i32),
    /// The recording is over, or could not begin.
    Over(Box<Result<Outcome>>),
}

/// A program that runs and is recorded, by threads of this process.
///
/// Dropped, it goes on: the recording is finished if this process lives so long. Wait for it.
pub struct Recording {
    pid: i32,
    asked: Arc<Asked>,
    said: mpsc::Receiver<Said>,
}

impl Recording {
    /// Starts a thread that records: it is given what is asked for, and a way to say how far it is. Returns when the
    /// program runs.
    pub(crate) fn spawn(
        record: impl FnOnce(&Arc<Asked>, &mpsc::Sender<Said>) -> Result<Outcome> + Send + 'static,
    ) -> Result<Recording> {
        let asked = Arc::new(Asked::default());
        let (say, said) = mpsc::channel();
        let theirs = asked.clone();
        std::thread::Builder::new()
            .name("hindsight".into())
            .spawn(move || {
                let outcome = record(&theirs, &say);
                theirs.set_over();
                // Nobody may wait any more.
                let _ = say.send(Said::Over(Box::new(outcome)));
            })?;
        match said.recv() {
            Ok(Said::Begun(pid)) => Ok(Recording { pid, asked, said }),
            Ok(Said::Over(outcome)) => Err(outcome.err().unwrap_or(Error::NotStarted)),
            Err(_) => Err(Error::CollectorFailed),
        }
    }

    /// The process that is recorded.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Has all recorded processes go on by themselves. The recording ends when they do; [`Recording::wait`] for that. It
    /// ends `Detached` if the program was left.
    pub fn detach(&self) {
        *self.asked.lock() = true;
        self.asked.asked.notify_all();
    }

    /// Waits no longer than for the program to [end](Recording::is_over): what others do that it has started is then not
    /// recorded any more. Processes that do not let themselves be detached are given up.
    pub fn stop(&self) {
        self.asked.stop.store(true, Release);
    }

    /// Whether the program has ended or was left. Processes that it has started may still be recorded.
    pub fn is_over(&self) -> bool {
        self.asked.over.load(Acquire)
    }

    /// Waits until the recording is finished: the program, and all that are recorded with it, have ended or were left.
    ///
    /// # Errors
    /// The recording could not be made, or nobody takes its end ([`Error::EndNotWritten`]).
    pub fn wait(self) -> Result<Outcome> {
        match self.said.recv() {
            Ok(Said::Over(outcome)) => *outcome,
            Ok(Said::Begun(_)) | Err(_) => Err(Error::CollectorFailed),
        }
    }

    /// Waits for that, but no longer than this time. `None`: it goes on. To be called until it returns something, once.
    pub fn wait_timeout(&self, time: Duration) -> Option<Result<Outcome>> {
        match self.said.recv_timeout(time) {
            Ok(Said::Over(outcome)) => Some(*outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Ok(Said::Begun(_)) | Err(RecvTimeoutError::Disconnected) => {
                Some(Err(Error::CollectorFailed))
            }
        }
    }
}
