//! The recorder's part of the address space of a recorded process. It is far from where the kernel puts a program, its
//! libraries, heap and stack. So neither gets in the other's way.

use core::ops::Range;

/// The part itself. The recorder's image begins with it: `build.rs` of the crate `image` tells the linker.
pub const ARENA: Range<u64> = 0x6800_0000_0000..0x7000_0000_0000;

/// Used when [`ARENA`] is full, for the windows of thousands of threads. There neither programs nor the common
/// sanitizers have anything. That of threads has its shadow of shadows from 0x3000_0000_0000 to 0x3400_0000_0000.
pub const FAR: Range<u64> = 0x3400_0000_0000..0x5000_0000_0000;

/// Where in [`ARENA`] the recorder begins to map memory. Below are its image, and what attaching and `execve` put at
/// fixed addresses.
pub const FIRST_FREE: u64 = ARENA.start + (4 << 30);
