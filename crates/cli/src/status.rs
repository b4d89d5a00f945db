//! The statuses with which commands end.

/// Exit status when the program was not recorded (to its end) for a reason of ours.
pub const FAILED: i32 = 125;
