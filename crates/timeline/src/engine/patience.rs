//! How long machines run ahead, again and again, before the index is made.
//!
//! Nobody knows how many questions will follow. So what runs cost may come to what the index costs, and to one run more. Then
//! no session takes much more than twice as long as if it had known. A machine that goes on from where it is costs nothing here.

use super::Engine;
use crate::base::sync::lock;
use crate::index::PartRange;

/// To make the index of a part takes about as long as to run it so many times.
const TIMES: u64 = 2;
/// Instructions. The index of a part that was run for less in all is not worth its memory.
const LITTLE: u64 = 64 << 30;

impl Engine {
    /// Whether a machine is to run `instructions` in a part once more, rather than the index be made. If so, they count from
    /// now on.
    pub fn may_run_ahead(&self, range: PartRange, instructions: u64) -> bool {
        let mut all = lock(&self.ran_ahead);
        let ran = all.entry((range.thread, range.from)).or_default();
        let may = is_patient(*ran, range.len());
        if may {
            *ran = ran.saturating_add(instructions);
        }
        may
    }
}

/// Whether a part of `len` instructions, of which `ran` have been run already, is run again.
fn is_patient(ran: u64, len: u64) -> bool {
    ran < len.saturating_mul(TIMES).max(LITTLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cost_no_more_than_the_index() {
        // The first question runs, however far it is.
        assert!(is_patient(0, u64::MAX) && is_patient(0, 1));
        let len = 100 << 30;
        assert!(is_patient(2 * len - 1, len) && !is_patient(2 * len, len));
        // Many short runs in a short part.
        assert!(is_patient(LITTLE - 1, 1 << 30) && !is_patient(LITTLE, 1 << 30));
    }
}
