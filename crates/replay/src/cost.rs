//! Measures the cost of comparisons while they happen.

/// Time spent in comparisons, in ticks of a clock that is cheap to read: each event reads it. On x86-64 that is the time stamp
/// counter. Elsewhere it counts nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The clock now.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn now() -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// WebAssembly has no clock: nothing takes time there.
    #[cfg(target_family = "wasm")]
    pub fn now() -> u64 {
        0
    }

    /// The clock now.
    #[cfg(not(any(target_arch = "x86_64", target_family = "wasm")))]
    pub fn now() -> u64 {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    /// Runs `work` and adds the time that it took.
    #[inline(always)]
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Ticks::now();
        let done = work();
        self.0 += Ticks::now().saturating_sub(begin);
        done
    }
}
