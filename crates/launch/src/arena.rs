//! The recorder's part of a recorded process's address space. The recorder says the same in `sys/arena`.

/// What it has.
pub const ARENA: std::ops::Range<u64> = 0x6800_0000_0000..0x7000_0000_0000;

/// What it uses besides when that is full: for threads in thousands.
pub const FAR: std::ops::Range<u64> = 0x3400_0000_0000..0x5000_0000_0000;
