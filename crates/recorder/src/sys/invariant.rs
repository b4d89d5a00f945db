//! What must hold in the recorder, checked in release builds too.

use core::fmt;

/// Ends the recording, as all errors of the recorder's own do, if a condition does not hold that must. It is named by a
/// sentence that is true while it holds; values may follow: `invariant!(a <= b, "blocks do not overlap", "{a:#x}, {b:#x}")`.
macro_rules! invariant {
    ($holds:expr, $name:literal $(,)?) => {
        if !$holds {
            $crate::sys::invariant::violated($name, None)
        }
    };
    ($holds:expr, $name:literal, $($values:tt)+) => {
        if !$holds {
            $crate::sys::invariant::violated($name, Some(format_args!($($values)+)))
        }
    };
}

/// An invariant does not hold (see `invariant!`).
#[cold]
#[inline(never)]
#[track_caller]
pub fn violated(name: &str, values: Option<fmt::Arguments>) -> ! {
    match values {
        None => panic!("this does not hold: {name}"),
        Some(values) => panic!("this does not hold: {name} ({values})"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_holds_goes_on() {
        invariant!(1 < 2, "one is less than two");
        invariant!(1 < 2, "one is less than two", "{}", 1);
    }

    #[test]
    #[should_panic = "this does not hold: pages are whole (0x1001, 5)"]
    fn what_does_not_hold_is_named_with_its_values() {
        let at = 0x1001u64;
        invariant!(at.is_multiple_of(4096), "pages are whole", "{at:#x}, {}", 5);
    }
}
