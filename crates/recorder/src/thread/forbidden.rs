//! Instructions that the program has forbidden a thread.

/// What one thread has forbidden; its children inherit it.
#[derive(Clone, Copy, Default)]
pub struct Forbidden {
    pub cpuid: bool,
    pub tsc: bool,
}
