//! Disturbs the timing of threads, to bring rare interleavings out (`--chaos SEED`).
//!
//! Most races need one thread to stop at the wrong place for longer than usual. So each thread is
//! slow now and then, for a stretch of random length. While it is slow it sleeps at every other
//! point where it meets others:
//!
//! - at system calls;
//! - after a read that found what another thread wrote. The sleep is then between the read and what
//!   the thread makes of it.
//!
//! Some jumps are left unlinked for a while, which adds points at random places of the code. What
//! is drawn depends only on the seed, the program image, and the thread's number in the image.
//!
//! All threads of all processes together sleep for at most half of the time since the recording
//! began ([`may_sleep`]). So a program takes at most twice the time, even where each thread waits
//! for the others. Sleep that is drawn beyond that is left out. Without this limit programs with
//! many system calls took fifty times as long, and most of what they slept brought nothing out.

use crate::stream::ring;
use crate::sys::{self, config, many};
use crate::thread::Thread;
use crate::thread::timing::{mix, since};
use core::sync::atomic::Ordering::Relaxed;
use hindsight_events::ring::Header;

/// One in this many jumps is left unlinked at first. Each later visit links it with a chance of one
/// in [`VISITS`].
const OPEN: u64 = 8;
const VISITS: u64 = 64;

/// Microseconds that may be slept in any case, so that short programs are disturbed, too.
const GRANT: u64 = 20_000;
/// The most microseconds that can be saved up while the program waits.
const MOST: u64 = 200_000;
/// Microseconds. Less is not worth it: sleeping itself takes about that long.
const LEAST: u64 = 50;

fn applies() -> bool {
    many::is_shared() && config::get().chaos != 0
}

/// A point where another thread may come first: perhaps sleeps. Does nothing while the thread holds
/// the lock of an atomic operation.
pub fn point(t: &mut Thread) {
    if !applies() || t.ctx.stripe != 0 {
        return;
    }
    let s = &mut t.chaos;
    if s.left == 0 {
        let most = 1 << s.below(12);
        s.left = 1 + s.below(most);
        s.is_slow = s.below(4) == 0;
    }
    s.left -= 1;
    // Microseconds. Long sleeps are rare.
    let sleep = match (s.is_slow, s.below(256)) {
        (true, 0..2) => 1000 + s.below(4000),
        (true, 2..128) => 20 + s.below(500),
        (false, 0) => 100 + s.below(2000),
        (false, 1..16) => 0,
        _ => return,
    };
    take_a_nap(sleep);
}

/// How many microseconds somebody may sleep now.
fn may_sleep(header: &Header, now: u64) -> u64 {
    let passed = now.saturating_sub(since(header, now));
    let all = GRANT + passed / 2;
    // Time in which the program waited for something else counts as slept, but for `MOST`.
    // Otherwise the program would be slow in all that it does next.
    let forfeited = all.saturating_sub(MOST);
    let slept = header.chaos_slept.fetch_max(forfeited, Relaxed);
    all - slept.clamp(forfeited, all)
}

/// Sleeps for `micros` microseconds, or for what is left if that is less. 0 lets other threads run
/// first, which takes time where there are many.
fn take_a_nap(micros: u64) {
    let Some(header) = ring::header() else { return };
    let begin = sys::micros();
    let left = may_sleep(header, begin);
    let micros = micros.min(left);
    if left < LEAST {
        return;
    }
    log!(Debug, "chaos: sleeps for {micros} us");
    // Added before the sleep: others may look before this thread wakes up.
    let slept = &header.chaos_slept;
    slept.fetch_add(micros, Relaxed);
    match micros {
        0 => sys::sched_yield(),
        n => sys::sleep_us(n),
    }
    // A sleep takes longer than was asked for, unless a signal ends it.
    let longer = sys::micros().saturating_sub(begin).saturating_sub(micros);
    slept.fetch_add(longer, Relaxed);
}

/// Whether the jump to `pc` stays unlinked this time, and so comes to the runtime again.
pub fn leaves_open(t: &mut Thread, pc: u64) -> bool {
    applies() && mix(config::get().chaos ^ pc).is_multiple_of(OPEN) && t.chaos.below(VISITS) != 0
}
