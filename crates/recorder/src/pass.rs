//! Makes the program's system calls.

use crate::thread::Thread;
use crate::{signals, stub};

/// Makes the call for the program as it is. `None`: a signal comes first.
pub fn pass(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    // SAFETY: calls that could harm the recorder are not passed on.
    unsafe {
        if signals::gives_back(t) {
            return signals::call_with_held(t, nr, a);
        }
        stub::call(nr as u64, *a, &t.inbox.full)
    }
}
