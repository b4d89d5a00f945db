//! The statuses with which commands end.

/// Exit status when the program was not recorded (to its end) for a reason of ours.
pub const FAILED: i32 = 125;

/// Exit status when a run took too long, as timeout(1) has it.
pub const HUNG: i32 = 124;
