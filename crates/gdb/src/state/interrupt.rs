//! Interrupts of commands and of questions about memory. The protocol can interrupt runs only.

use hindsight_timeline::Cancel;
use std::sync::{Arc, Mutex};

/// Ends what a session does for a client, except runs. Clones work on the same session.
#[derive(Clone)]
pub struct Interrupt {
    cancel: Cancel,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Busy,
    Interrupted,
}

impl Interrupt {
    pub(crate) fn new(cancel: &Cancel) -> Interrupt {
        Interrupt {
            cancel: cancel.clone(),
            state: Arc::new(Mutex::new(State::Idle)),
        }
    }

    /// Ends what the session does. Does nothing to a session that is idle, or that runs: a client interrupts runs by
    /// itself.
    pub fn send(&self) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if *state == State::Busy {
            *state = State::Interrupted;
            self.cancel.cancel();
        }
    }

    /// Something begins that an interrupt may end.
    pub(crate) fn begin(&self) {
        *self.state.lock().unwrap_or_else(|e| e.into_inner()) = State::Busy;
    }

    /// It is over. An interrupt that came too late does not touch what comes next.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if *state == State::Interrupted {
            self.cancel.reset();
        }
        *state = State::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_under_way_is_interrupted() {
        let cancel = Cancel::new();
        let i = Interrupt::new(&cancel);
        i.send();
        assert!(!cancel.is_cancelled());
        i.begin();
        i.send();
        assert!(cancel.is_cancelled());
        i.end();
        assert!(!cancel.is_cancelled());
        // The client's own interrupt of the run that follows stays.
        i.begin();
        cancel.cancel();
        i.end();
        assert!(cancel.is_cancelled());
    }
}
