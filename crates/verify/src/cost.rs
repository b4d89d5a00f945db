//! Measures what verification costs.

use hindsight_replay::Ticks;
use std::time::Duration;

/// Processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the result. The call cannot fail for this clock; if it did, the time would
    // stay zero.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(
        t.tv_sec.max(0) as u64,
        t.tv_nsec.clamp(0, 999_999_999) as u32,
    )
}

/// Measures one worker.
pub struct Watch {
    ticks: u64,
    time: Duration,
}

impl Watch {
    pub fn start() -> Watch {
        Watch {
            ticks: Ticks::now(),
            time: thread_time(),
        }
    }

    /// The processor time since the start, and the part of it that comparisons took.
    pub fn stop(&self, compared: Ticks) -> (Duration, Duration) {
        let time = thread_time().saturating_sub(self.time);
        let all = Ticks::now().saturating_sub(self.ticks).max(1);
        // The clock also counts time in which other threads have the processor. That adds to comparisons and
        // to the rest alike.
        let share = (compared.0 as f64 / all as f64).min(1.0);
        (time, time.mul_f64(share))
    }
}
