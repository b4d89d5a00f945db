//! Runs that take too long, and their end.

use crate::sys::process::{kill, own_id};
use hindsight_collector::{Control, Requests};
use hindsight_trace::RingSnapshot;
use std::cell::{Cell, OnceCell};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Longest time to wait for threads that are asked where they stand.
const ANSWER: Duration = Duration::from_secs(1);

/// Time in which processes that are killed are gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a run may take.
pub struct Deadline {
    /// The processes that stand for the program and collect: they have the shared memory too.
    own: [i32; 2],
    limit: Option<Duration>,
    since: Instant,
    /// The threads have been asked where they stand, and since when the answer is waited for.
    asked: OnceCell<(Receiver<RingSnapshot>, Instant)>,
    /// When the processes were killed first.
    killed: Cell<Option<Instant>>,
}

impl Deadline {
    /// Time begins to run.
    pub fn new(limit: Option<Duration>, front: i32) -> Deadline {
        Deadline {
            own: [front, own_id()],
            limit,
            since: Instant::now(),
            asked: OnceCell::new(),
            killed: Cell::new(None),
        }
    }

    /// To be called a few times a second: kills the program and all recorded processes when the time is over.
    pub fn look(&self, program: i32, program_lives: bool, control: &Control, requests: &Requests) {
        if self.limit.is_none_or(|l| self.since.elapsed() < l) {
            return;
        }
        // One that only computes is not known to have come farther than where it last had an event.
        let (answer, since) = self.asked.get_or_init(|| {
            let answer = requests.ask();
            control.wake();
            (answer, Instant::now())
        });
        if self.killed.get().is_none()
            && since.elapsed() < ANSWER
            && matches!(answer.try_recv(), Err(TryRecvError::Empty))
        {
            return;
        }
        self.killed.set(self.killed.get().or(Some(Instant::now())));
        // The oldest first: who waits for another is not to see that end, but to stand where it waits.
        if program_lives {
            kill(program, libc::SIGKILL);
        }
        let mut others = control.sharers();
        // Of those that `/proc` does not show.
        let hidden = control.producers().into_iter().map(|p| p.pid);
        others.extend(hidden.filter(|pid| *pid > 1 && control.is_shared_with(*pid)));
        for pid in others {
            if pid != program && !self.own.contains(&pid) {
                kill(pid, libc::SIGKILL);
            }
        }
    }

    /// Whether the run was ended.
    pub fn is_over(&self) -> bool {
        self.killed.get().is_some()
    }

    /// Whether something lives on that could not be killed.
    pub fn is_in_vain(&self) -> bool {
        self.killed.get().is_some_and(|k| k.elapsed() > PATIENCE)
    }
}
