//! Repeats answers about the time (`--clock-throttle`). A program that asks more often than that gets the last answer again,
//! which takes next to nothing in the recording.
//!
//! - All threads get the same answers, so time does not go back from one to the other.
//! - A thread that has made another system call since an answer gets a new one. So it sees that it has slept, and when it wrote
//!   a file.
//! - There is no vDSO: it reads the kernel's time itself, and may take a repeated time stamp for one of the distant future.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::sys::lock::Lock;
use crate::sys::{self, config, guard};
use crate::thread::Thread;
use crate::thread::call::errno;
use core::arch::asm;
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::*;

/// Clocks by number. `CLOCK_PROCESS_CPUTIME_ID` and `CLOCK_THREAD_CPUTIME_ID` are among them, which tell no time of day.
const CLOCKS: usize = 12;
/// Clocks whose answers are repeated.
const REPEATED: [u32; 7] = [
    CLOCK_REALTIME,
    CLOCK_MONOTONIC,
    CLOCK_MONOTONIC_RAW,
    CLOCK_REALTIME_COARSE,
    CLOCK_MONOTONIC_COARSE,
    CLOCK_BOOTTIME,
    CLOCK_TAI,
];
/// Nanoseconds from which on the length of a time stamp's unit is known well enough.
const ENOUGH: u64 = 100_000;

/// An answer, and the time stamp when it was given. 0: there is none.
#[derive(Clone, Copy)]
struct Answer<T> {
    at: u64,
    value: T,
}

/// The last answers.
struct Kept {
    /// A time stamp and nanoseconds of the same moment, when somebody asked first.
    first: (u64, u64),
    /// For so many units of the time stamp an answer is repeated. 0: that is not known yet.
    units: u64,
    clocks: [Answer<[u64; 2]>; CLOCKS],
    stamp: Answer<[u64; 2]>,
}

impl Kept {
    const fn none() -> Kept {
        Kept {
            first: (0, 0),
            units: 0,
            clocks: [Answer {
                at: 0,
                value: [0; 2],
            }; CLOCKS],
            stamp: Answer {
                at: 0,
                value: [0; 2],
            },
        }
    }

    /// Whether an answer of the moment `at` may be given now to a thread that wants none from before `since`.
    fn holds(&self, at: u64, now: u64, since: u64) -> bool {
        at > since && now.checked_sub(at).is_some_and(|d| d < self.units)
    }

    /// Learns how long a time stamp's unit is.
    fn learn(&mut self, now: u64, nanos: u64) {
        let (stamp, since) = self.first;
        if stamp == 0 || now <= stamp {
            // The first time, or a processor whose counter is behind.
            self.first = (now, nanos);
        } else if nanos.saturating_sub(since) >= ENOUGH {
            let wanted = config::get().clock_throttle as u128 * (now - stamp) as u128;
            self.units = (wanted / (nanos - since) as u128) as u64;
        }
    }
}

static KEPT: Lock<Kept> = Lock::mended(Kept::none(), |k| *k = Kept::none());

/// Whether answers are repeated.
pub fn are_repeated() -> bool {
    config::get().clock_throttle != 0
}

/// The result of a call that asks for the time. `None`: it is another one, or goes to the kernel.
pub fn answer(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    if !are_repeated() {
        return None;
    }
    let clock = match nr {
        __NR_clock_gettime if REPEATED.contains(&(a[0] as u32)) => a[0] as u32,
        // The time zone is the kernel's to tell.
        __NR_gettimeofday if a[0] != 0 && a[1] == 0 => CLOCK_REALTIME,
        __NR_time => CLOCK_REALTIME,
        _ => {
            t.emulated.asks.has_called = true;
            return None;
        }
    };
    let [seconds, nanos] = time(t, clock);
    let (at, second) = match nr {
        __NR_time => {
            let put = a[0] == 0 || guard::write(a[0], &seconds.to_le_bytes()).is_ok();
            return Some(if put { seconds } else { errno(EFAULT) });
        }
        __NR_gettimeofday => (a[0], nanos / 1000),
        _ => (a[1], nanos),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    let put = guard::write(at, &bytes).is_ok();
    Some(if put { 0 } else { errno(EFAULT) })
}

/// What a clock shows, in seconds and nanoseconds.
fn time(t: &mut Thread, clock: u32) -> [u64; 2] {
    let now = number(stamp());
    let since = t.emulated.asks.since(now);
    let mut kept = KEPT.lock_to_change();
    let last = kept.clocks[clock as usize];
    if kept.holds(last.at, now, since) {
        return last.value;
    }
    let value = sys::clock(clock);
    // Behind the kernel's answer, so that a thread that has waited for the lock takes this one.
    let at = number(stamp());
    kept.clocks[clock as usize] = Answer { at, value };
    kept.learn(at, sys::nanos());
    value
}

/// What the program's instructions get as time stamp: eax and edx.
pub fn shown_stamp(t: &mut Thread) -> [u64; 2] {
    let fresh = stamp();
    if !are_repeated() {
        return fresh;
    }
    let now = number(fresh);
    let since = t.emulated.asks.since(now);
    let mut kept = KEPT.lock_to_change();
    if !kept.holds(kept.stamp.at, now, since) {
        kept.stamp = Answer {
            at: now,
            value: fresh,
        };
        kept.learn(now, sys::nanos());
    }
    kept.stamp.value
}

/// The processor's time stamp: eax and edx.
fn stamp() -> [u64; 2] {
    let (lo, hi): (u32, u32);
    // SAFETY: reads a counter and changes only the registers that are declared.
    unsafe { asm!("rdtsc", out("eax") lo, out("edx") hi, options(nomem, nostack)) };
    [lo as u64, hi as u64]
}

fn number([lo, hi]: [u64; 2]) -> u64 {
    hi << 32 | lo
}
