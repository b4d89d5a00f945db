//! The time of day where the user is.

use std::mem::MaybeUninit;

/// A time of day in the time zone of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalTime {
    /// The year, such as 2024.
    pub year: i32,
    /// The month, from 1.
    pub month: i32,
    /// The day of the month, from 1.
    pub day: i32,
    /// The hour, from 0 to 23.
    pub hour: i32,
    /// The minute, from 0 to 59.
    pub minute: i32,
    /// The second, from 0 to 60.
    pub second: i32,
}

impl LocalTime {
    /// The time of day `seconds` after the beginning of 1970 in UTC.
    ///
    /// The C library reads the time zone from a file when it is asked first.
    pub fn at(seconds: i64) -> LocalTime {
        let mut tm = MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: valid pointers; all-zero is a valid `tm`.
        let tm = unsafe {
            libc::localtime_r(&seconds, tm.as_mut_ptr());
            tm.assume_init()
        };
        LocalTime {
            year: tm.tm_year + 1900,
            month: tm.tm_mon + 1,
            day: tm.tm_mday,
            hour: tm.tm_hour,
            minute: tm.tm_min,
            second: tm.tm_sec,
        }
    }
}
