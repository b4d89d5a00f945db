//! What the order of threads may have to do with a verdict.

use super::{Report, Verdict};
use crate::wire::End;

/// What is told of programs with several threads that do not agree.
const ORDER: &str = "it has several threads: they follow the recorded order at system calls only, so a lock that was free may \
    have gone to another thread than recorded";

/// How the recorded program itself does with its own recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// It is the one that was run.
    Itself,
    /// All that it does agrees.
    Agrees,
    /// Something differs.
    Differs,
    /// It cannot be run.
    Fails(String),
}

impl Report {
    /// Whether the order of threads may be the only cause of the verdict.
    pub(crate) fn may_be_order(&self) -> bool {
        let tells = match self.verdict {
            Verdict::OtherFailure | Verdict::OtherOutput => true,
            // The failure is gone, maybe since the threads came in another order.
            Verdict::Same => self.recorded != End::Status(0),
            Verdict::SameFailure | Verdict::TooFar => false,
        };
        self.threads && tells
    }

    /// Takes the verdict back unless the recorded program shows that its order is kept.
    pub(crate) fn weigh(&mut self, control: &Control) {
        let what = match control {
            Control::Agrees => {
                let note = "the recorded program was run again too, and agrees: its order of threads is kept";
                self.notes.push(note.into());
                return;
            }
            Control::Itself => {
                "the recorded program itself does not agree with its recording, so its threads came in another order".into()
            }
            Control::Differs => {
                "the recorded program was run again too, and does not agree: the order of threads is not kept".into()
            }
            Control::Fails(why) => {
                format!("whether the order of threads is kept is not known, since the recorded program does not run: {why}")
            }
        };
        let seen = match &self.why {
            Some(why) => format!("{}: {why}", self.verdict),
            None => self.verdict.to_string(),
        };
        self.why = Some(format!("{what} ({seen})"));
        self.verdict = Verdict::TooFar;
    }

    /// Says what is not certain of programs with several threads.
    pub(crate) fn note_order(&mut self) {
        if self.threads && !self.agrees() && self.verdict != Verdict::SameFailure {
            self.notes.push(ORDER.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(threads: bool, verdict: Verdict, recorded: End) -> Report {
        Report {
            verdict,
            recorded,
            now: Some(End::Status(0)),
            why: None,
            percent: 100.0,
            matched: 1,
            added: 0,
            left_out: 0,
            not_done: 0,
            unmade: 0,
            unknown: 0,
            answered_here: 0,
            divergence: None,
            outputs: Vec::new(),
            failed_at: None,
            fails_at: None,
            threads,
            is_recorded: false,
            notes: Vec::new(),
        }
    }

    #[test]
    fn order_may_be_all_that_other_ends_and_a_failure_that_is_gone_tell_of() {
        let (fine, crash) = (End::Status(0), End::Signal(11));
        for (verdict, recorded, may) in [
            (Verdict::Same, fine, false),
            (Verdict::Same, crash, true),
            (Verdict::SameFailure, crash, false),
            (Verdict::OtherFailure, fine, true),
            (Verdict::OtherFailure, crash, true),
            (Verdict::OtherOutput, fine, true),
            (Verdict::TooFar, crash, false),
        ] {
            let of = |threads| report(threads, verdict, recorded).may_be_order();
            assert_eq!(of(true), may, "{verdict:?} {recorded:?}");
            assert!(!of(false));
        }
    }

    #[test]
    fn a_verdict_stands_only_if_the_recorded_program_agrees() {
        let fails = Control::Fails("gone".into());
        for control in [Control::Itself, Control::Differs, fails] {
            let mut r = report(true, Verdict::OtherOutput, End::Status(0));
            r.weigh(&control);
            assert_eq!(r.verdict, Verdict::TooFar, "{control:?}");
            assert!(r.why.unwrap().contains("other output"));
        }
        let mut r = report(true, Verdict::OtherOutput, End::Status(0));
        r.weigh(&Control::Agrees);
        assert_eq!((r.verdict, r.why), (Verdict::OtherOutput, None));
    }
}
