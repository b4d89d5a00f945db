//! Ends of the process that are not the program's own.

use crate::sys::line::{Line, say};
use crate::sys::{self, log};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Exit status of a recording that could not go on.
pub const STATUS: i32 = 125;

/// A function that is told why the process is about to end, and does something else instead.
pub type Last = fn(&Line) -> !;

/// A function of type [`Last`], or null.
static FIRST: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Makes [`die`] call `last` before all else. `None` ends that.
pub fn before_death(last: Option<Last>) {
    let last = last.map_or(null_mut(), |f| f as *mut ());
    FIRST.store(last, Relaxed);
}

/// Does what [`before_death`] wants instead of an end; returns if that is nothing.
pub fn divert(message: &Line) {
    let first = FIRST.load(Relaxed);
    if !first.is_null() {
        // SAFETY: it is not null, so `before_death` has stored a function of this type.
        unsafe { core::mem::transmute::<*mut (), Last>(first)(message) };
    }
}

/// Ends the process before the program has begun, or when no trace can be written any more.
pub fn die(status: i32, message: &Line) -> ! {
    divert(message);
    tell(message);
    tell_log();
    sys::exit_group(status)
}

/// Says a line of what is said before an end, also in the file with the log.
pub fn tell(l: &Line) {
    say(l.as_bytes());
    if log::has_file() {
        log::write_through(l);
    }
}

/// Shows the last entries of the log, unless they have been shown before.
pub fn tell_log() {
    if log::is_on() && !log::is_written_through() {
        say(b"the recorder's log, its last entries:");
        log::tell(|l| say(l.as_bytes()));
    }
}
