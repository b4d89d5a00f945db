//! Repeats answers about the time (`--clock-throttle`). A program that asks more often than that gets the last answer again,
//! which takes next to nothing in the recording.
//!
//! - All clocks and the time stamp are read at once, so no answer lies before another one.
//! - All threads of the process get the same answers, so time does not go back from one to the other.
//! - Behind any other system call of the process, and for a signal handler, the answers are new. So a program sees that it has
//!   slept, and when it wrote a file.
//! - There is no vDSO: it reads the kernel's time itself, and may take a repeated time stamp for one of the distant future.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::sys::lock::Lock;
use crate::sys::{self, config, guard};
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::*};
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::*;

/// Clocks whose answers are repeated. The coarse ones come first: they are behind the others, and read before them.
const REPEATED: [u32; 7] = [
    CLOCK_REALTIME_COARSE,
    CLOCK_MONOTONIC_COARSE,
    CLOCK_REALTIME,
    CLOCK_MONOTONIC,
    CLOCK_MONOTONIC_RAW,
    CLOCK_BOOTTIME,
    CLOCK_TAI,
];
/// Nanoseconds from which on the length of a time stamp's unit is known well enough.
const ENOUGH: u64 = 1_000_000;
/// Two looks at the time stamp are of one moment if they are not farther apart. A unit is a third of a nanosecond, or less.
const NEAR: u64 = 30_000;

/// The last answers.
struct Kept {
    /// A time stamp and nanoseconds of the same moment, when somebody asked first. 0: nobody has.
    first: (u64, u64),
    /// For so many units of the time stamp an answer is repeated. 0: that is not known yet.
    units: u64,
    /// The time stamp of the answers. 0: there are none.
    at: u64,
    /// What the clocks of [`REPEATED`] show, in seconds and nanoseconds.
    clocks: [[u64; 2]; REPEATED.len()],
}

impl Kept {
    const fn none() -> Kept {
        Kept {
            first: (0, 0),
            units: 0,
            at: 0,
            clocks: [[0; 2]; REPEATED.len()],
        }
    }

    /// Brings the answers up to date, if they are too old or not to be repeated.
    fn renew(&mut self) {
        let now = stamp();
        // Other threads see what a thread did behind its call only after this.
        let stale = STALE.swap(false, AcqRel);
        let age = now.checked_sub(self.at);
        if !stale && self.at != 0 && age.is_some_and(|age| age < self.units) {
            return;
        }
        for (clock, shown) in REPEATED.iter().zip(&mut self.clocks) {
            *shown = sys::clock(*clock);
        }
        let before = stamp();
        let nanos = sys::nanos();
        self.at = stamp();
        if self.at.saturating_sub(before) < NEAR {
            self.learn(nanos);
        }
    }

    /// Learns how long a time stamp's unit is. `nanos` is the time of the answers.
    fn learn(&mut self, nanos: u64) {
        let (stamp, since) = self.first;
        let passed = nanos.saturating_sub(since);
        if stamp == 0 || self.at <= stamp {
            // The first time, or a processor whose counter is behind.
            self.first = (self.at, nanos);
        } else if passed >= ENOUGH {
            let wanted = config::get().clock_throttle as u128 * (self.at - stamp) as u128;
            self.units = u64::try_from(wanted / passed as u128).unwrap_or(u64::MAX);
        }
    }
}

static KEPT: Lock<Kept> = Lock::mended(Kept::none(), |k| *k = Kept::none());

/// The answers are not to be repeated any more.
static STALE: AtomicBool = AtomicBool::new(false);

/// Whether answers are repeated.
fn are_repeated() -> bool {
    config::get().clock_throttle != 0
}

/// The place in [`REPEATED`] of the clock that a call asks for. `None`: it asks for none, or it is the kernel's to answer.
fn asked(nr: u32, a: &[u64; 6]) -> Option<usize> {
    let clock = match nr {
        __NR_clock_gettime => a[0] as u32,
        // The time zone is the kernel's to tell.
        __NR_gettimeofday if a[0] != 0 && a[1] == 0 => CLOCK_REALTIME,
        __NR_time => CLOCK_REALTIME_COARSE,
        _ => return None,
    };
    REPEATED.iter().position(|c| *c == clock)
}

/// Time has passed otherwise than by instructions: a call was made, or a signal came.
pub fn forget() {
    if are_repeated() {
        STALE.store(true, Release);
    }
}

/// Called behind each system call.
pub fn after_call(nr: u32, a: &[u64; 6]) {
    if are_repeated() && asked(nr, a).is_none() {
        STALE.store(true, Release);
    }
}

/// The result of a call that asks for the time, or its error. `None`: it is another one, or goes to the kernel.
pub fn answer(nr: u32, a: &[u64; 6]) -> Option<Result<u64, u32>> {
    if !are_repeated() {
        return None;
    }
    let clock = asked(nr, a)?;
    let [seconds, nanos] = {
        let mut kept = KEPT.lock_to_change();
        kept.renew();
        kept.clocks[clock]
    };
    let (at, second) = match nr {
        __NR_time => {
            let put = a[0] == 0 || guard::write(a[0], &seconds.to_le_bytes()).is_ok();
            return Some(if put { Ok(seconds) } else { Err(EFAULT) });
        }
        __NR_gettimeofday => (a[0], nanos / 1000),
        _ => (a[1], nanos),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    let put = guard::write(at, &bytes).is_ok();
    Some(if put { Ok(0) } else { Err(EFAULT) })
}

/// What the program gets as time stamp: eax and edx. `fresh` is the processor's.
pub fn shown_stamp(fresh: [u64; 2]) -> [u64; 2] {
    if !are_repeated() {
        return fresh;
    }
    let mut kept = KEPT.lock_to_change();
    kept.renew();
    [kept.at as u32 as u64, kept.at >> 32]
}

/// The processor's time stamp.
fn stamp() -> u64 {
    let (lo, hi): (u32, u32);
    // SAFETY: reads a counter and changes only the registers that are declared.
    unsafe { asm!("rdtsc", out("eax") lo, out("edx") hi, options(nomem, nostack)) };
    (hi as u64) << 32 | lo as u64
}
