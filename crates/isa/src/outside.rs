//! Instructions whose result comes from outside of the virtual processor.

use iced_x86::Mnemonic::{self, *};

/// Whether the result of an instruction cannot be computed. It follows from the processor, from time, or from a table of
/// the kernel. The recorder executes the instruction and records what it gave, as an event that completes it.
pub fn comes_from_outside(m: Mnemonic) -> bool {
    let of_the_processor = matches!(m, Cpuid | Xgetbv | Rdpid);
    let of_time = matches!(m, Rdtsc | Rdtscp | Rdrand | Rdseed);
    let of_the_kernel = matches!(m, Lsl | Lar | Verr | Verw);
    of_the_processor || of_time || of_the_kernel
}
