//! What a thread knows of the regime in which it is recorded (see [`crate::memory::regime`]).

use crate::sys::quiet::Reason;

/// What a thread knows of its regime. Only the thread itself uses it, and only in the runtime.
#[derive(Default)]
pub struct RegimeState {
    /// It is in the quiet regime: its reads are not checked. True only for the single thread of a
    /// process.
    pub quiet: bool,
    /// It is quiet and is in the vDSO, whose code is checked all the same.
    pub in_vdso: bool,
    /// Events say that memory holds files which the collector may not have read yet.
    pub files_told: bool,
    /// Position from which on the next digest of the registers is due at a system call, in the
    /// quiet regime.
    pub next_check: u64,
    /// The same for a digest of what the program writes.
    pub next_passed: u64,
    /// The quiet regime ends when the thread has come to the runtime this many times between two
    /// instructions. 0: no limit.
    pub leaves_after: u64,
    /// What [`crate::stream::ring::meddling`] was when the quiet regime began.
    pub meddling: u32,
    /// Position at which the memory was last restated.
    pub restated: u64,
    /// The position behind the last mark that is no state point. No key frame comes there: it would seem to be one.
    pub marked: u64,
    /// The program wants its memory to be restated.
    pub wants_state: bool,
    /// Behind how many instructions a mark from outside was set whose state point comes next.
    pub asked: Option<u64>,
    /// Why the quiet regime is to end as soon as the thread stands between two instructions.
    ends: Option<Reason>,
}

impl RegimeState {
    /// Makes the quiet regime end as soon as the thread stands between two instructions. The first
    /// reason counts.
    pub fn end_soon(&mut self, why: Reason) {
        self.ends.get_or_insert(why);
    }

    /// Whether the quiet regime is to end.
    pub fn ends_soon(&self) -> bool {
        self.ends.is_some()
    }

    /// Why the quiet regime ends now, if it does. It is not to end after that.
    pub fn take_end(&mut self) -> Option<Reason> {
        self.ends.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_counts() {
        let mut r = RegimeState::default();
        assert!(!r.ends_soon());
        r.end_soon("first");
        r.end_soon("second");
        assert!(r.ends_soon());
        assert_eq!(r.take_end(), Some("first"));
        assert!(!r.ends_soon());
    }
}
