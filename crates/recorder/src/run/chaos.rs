//! Disturbs the timing of threads, to bring rare interleavings out (`--chaos SEED`).
//!
//! Most races need one thread to stop at the wrong place for longer than usual. So threads are now
//! and then slow for a stretch of random length, in which they sleep at every other point where they
//! meet others: at system calls, and where a read has found what another thread wrote, which is
//! between that read and what the thread makes of it. Some jumps are left unlinked for a while,
//! which adds points at random places of the code. What is drawn depends on the seed, the program
//! image and the number of the thread in it alone.
//!
//! All threads of all processes together sleep for half of the time since the recording began, and no longer
//! ([`may_sleep`]): even where each waits for the others, a program then takes no more than twice the time. What is drawn
//! beyond that is left out. Otherwise programs with many system calls took fifty times as long,
//! and most of what they slept brought nothing out.

use crate::stream::ring;
use crate::sys::{self, config, many};
use crate::thread::Thread;
use crate::thread::timing::{mix, since};
use core::sync::atomic::Ordering::Relaxed;
use hindsight_events::ring::Header;

/// One jump in so many is left unlinked at first; it then is linked at one in so many visits.
const OPEN: u64 = 8;
const VISITS: u64 = 64;

/// Microseconds that may be slept in any case: short programs are to be disturbed, too.
const GRANT: u64 = 20_000;
/// Microseconds that can be left at once.
const MOST: u64 = 200_000;
/// Less is not worth it: sleeping itself takes about that long.
const LEAST: u64 = 50;

fn applies() -> bool {
    many::is_shared() && config::get().chaos != 0
}

/// The thread is where others may come first. It holds no lock.
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
    // Microseconds, seldom many.
    let sleep = match (s.is_slow, s.below(256)) {
        (true, 0..2) => 1000 + s.below(4000),
        (true, 2..128) => 20 + s.below(500),
        (false, 0) => 100 + s.below(2000),
        (false, 1..16) => 0,
        _ => return,
    };
    take_a_nap(sleep);
}

/// Microseconds that somebody may sleep now.
fn may_sleep(header: &Header, now: u64) -> u64 {
    let passed = now.saturating_sub(since(header, now));
    let all = GRANT + passed / 2;
    // What was not slept while the program waited for something counts as slept, or all that it does next would be slow.
    let forfeited = all.saturating_sub(MOST);
    let slept = header.chaos_slept.fetch_max(forfeited, Relaxed);
    all - slept.clamp(forfeited, all)
}

/// Sleeps that long, or as long as is left; 0: lets others come first, which takes time where there are many.
fn take_a_nap(micros: u64) {
    let Some(header) = ring::header() else { return };
    let begin = sys::micros();
    let left = may_sleep(header, begin);
    let micros = micros.min(left);
    if left < LEAST {
        return;
    }
    // Others may look before this one is awake again.
    let slept = &header.chaos_slept;
    slept.fetch_add(micros, Relaxed);
    match micros {
        0 => sys::sched_yield(),
        n => sys::sleep_us(n),
    }
    // It always takes longer than it should, except where a signal comes.
    let longer = sys::micros().saturating_sub(begin).saturating_sub(micros);
    slept.fetch_add(longer, Relaxed);
}

/// Whether the jump to `pc` is to come to the runtime again.
pub fn leaves_open(t: &mut Thread, pc: u64) -> bool {
    applies() && mix(config::get().chaos ^ pc).is_multiple_of(OPEN) && t.chaos.below(VISITS) != 0
}
