//! Instructions that the program has forbidden a thread.

/// What one thread has forbidden itself. Its children inherit it.
#[derive(Clone, Copy, Default)]
pub struct Forbidden {
    /// `cpuid` faults.
    pub cpuid: bool,
    /// `rdtsc` and `rdtscp` fault.
    pub tsc: bool,
}
