//! What comparisons cost, measured while they happen.

/// Time spent in comparisons, in ticks of the processor's clock: reading that takes so little that it may be
/// done for each event.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The clock now.
    #[inline(always)]
    pub fn now() -> u64 {
        // SAFETY: the instruction exists on every x86-64 processor and touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Runs `work` and counts it.
    #[inline(always)]
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Ticks::now();
        let done = work();
        self.0 += Ticks::now().saturating_sub(begin);
        done
    }
}
