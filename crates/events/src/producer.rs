//! The recorder's side of a ring: how bytes get into it, and how a producer waits for room.

use crate::ring::{Ctl, RING_BYTES};
use crate::shared::{AtomicU32, Byte, Ordering::*, copy_in, fence};
use core::ops::ControlFlow;

/// Bytes in the ring that have not been consumed, as its producer sees it. There may be fewer.
pub fn used(ctl: &Ctl) -> u64 {
    ctl.head.load(Relaxed) - ctl.tail.load(Acquire)
}

/// Gives the consumer `n` more bytes, which are in the ring.
pub fn publish(ctl: &Ctl, n: u64) {
    // Nobody else changes it.
    ctl.head.store(ctl.head.load(Relaxed) + n, Release);
}

/// Puts bytes in a ring, and gives them to the consumer. They may reach the end of its data and go on at the beginning.
///
/// # Safety
/// - `data` is the ring's data, all of it, and is mapped.
/// - The ring has room for them.
/// - The caller is its only producer.
pub unsafe fn put(ctl: &Ctl, data: *mut Byte, bytes: &[u8]) {
    let at = ctl.head.load(Relaxed) as usize % RING_BYTES;
    let (first, rest) = bytes.split_at(bytes.len().min(RING_BYTES - at));
    // SAFETY: the caller answers for the data. The collector does not read behind `head`.
    unsafe {
        copy_in(first, data.add(at));
        copy_in(rest, data);
    }
    publish(ctl, bytes.len() as u64);
}

/// Waits until there are at most `most` bytes in the ring. `sleep` sleeps as long as a word has a value, or until it is
/// woken; it may give up.
pub fn wait(ctl: &Ctl, most: u64, mut sleep: impl FnMut(&AtomicU32, u32) -> ControlFlow<()>) {
    loop {
        let seen = ctl.space.load(Acquire);
        ctl.waiting.store(1, Relaxed);
        // Either this thread sees the new tail, or the consumer sees that it waits.
        fence(SeqCst);
        if used(ctl) <= most || sleep(&ctl.space, seen).is_break() {
            break;
        }
    }
    ctl.waiting.store(0, Relaxed);
}
