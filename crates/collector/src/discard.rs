//! Empties the rings when nothing is collected any more. The program has to go on all the same.

use crate::{Control, futex};
use hindsight_events::consumer;
use hindsight_events::ring::state;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// Time between two looks at the rings.
const NAP: Duration = Duration::from_millis(10);

/// Drops what comes in the rings. Returns when `ended` is set and nobody has the rings any more, or
/// when `stop` is set.
pub fn discard(control: &Control, ended: &AtomicBool, stop: &AtomicBool) {
    let header = control.header();
    header.failed.store(libc::EIO as u32, Release);
    loop {
        let over = ended.load(Acquire) && (control.is_left() || control.producers().is_empty());
        let seen = header.wake.load(Acquire);
        control.inspect();
        for (w, word) in header.live.iter().enumerate() {
            let set = word.load(Acquire);
            let taken = (0..64).filter(|b| set >> b & 1 != 0).map(|b| w * 64 + b);
            taken
                .filter(|i| *i < control.rings())
                .for_each(|i| let_go(control, i));
        }
        if over || stop.load(Acquire) {
            return;
        }
        header.sleeping.store(1, SeqCst);
        futex::wait(&header.wake, seen, NAP);
        header.sleeping.store(0, Relaxed);
    }
}

fn let_go(control: &Control, i: usize) {
    let c = control.ctl(i);
    let life = c.state.load(Acquire);
    if let Some(space) = consumer::let_go(c) {
        space.fetch_add(1, Release);
        futex::wake(space);
    }
    if life == state::ENDED {
        for n in [&c.head, &c.tail, &c.taken] {
            n.store(0, Relaxed);
        }
        control.header().free(i, c);
    }
}
