//! Measures the cost of comparisons while they happen.

/// Time spent in comparisons, in ticks of the time stamp counter. Reading it is so cheap that each event can
/// do it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The time stamp counter now.
    #[inline(always)]
    pub fn now() -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
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
