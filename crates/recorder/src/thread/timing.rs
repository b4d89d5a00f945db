//! What a thread has drawn for `--chaos`: how its timing is disturbed.

use crate::stream::ring;
use crate::sys::{self, config};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use hindsight_events::ring::Header;

/// Number of threads made so far.
static MADE: AtomicU64 = AtomicU64::new(0);

/// What one thread has drawn.
pub struct State {
    /// State of its random numbers, never 0.
    pub random: u64,
    /// Points left in the present stretch.
    pub left: u64,
    /// Whether it is slow in this stretch.
    pub is_slow: bool,
}

impl State {
    /// The state of the next thread. It depends on the seed, the image and the thread's number.
    pub fn new() -> State {
        let number = MADE.fetch_add(1, Relaxed);
        if config::get().chaos != 0
            && let Some(header) = ring::header()
        {
            since(header, sys::micros());
        }
        let image = ring::image() as u64;
        State {
            random: mix(config::get().chaos ^ mix(image << 32 | number)) | 1,
            left: 0,
            is_slow: false,
        }
    }

    /// The next random number, of 53 bits.
    pub fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    /// A random number below `n`. `n` is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Spreads the bits of a number.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// When the recording began, in microseconds: `now`, if nobody has said so yet.
pub fn since(header: &Header, now: u64) -> u64 {
    let first = header
        .chaos_since
        .compare_exchange(0, now, Relaxed, Relaxed);
    first.err().unwrap_or(now)
}
