//! Room for the recorder among the mappings of a process.
//!
//! The kernel limits how many mappings a process has (`vm.max_map_count`). A program that has as
//! many as it can get goes on natively: it is told that there are no more. The recorder needs some
//! all the same, to copy code in the child of a `fork` or to note what is mapped. So it takes some
//! early that it does not need, and gives them up when the kernel refuses it others.

use crate::sys::{self, PAGE, PROT_NONE, PROT_READ, Result, arena};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::errno::ENOMEM;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE};

/// Mappings that are kept. Each is a page that nobody touches.
const KEPT: u64 = 1024;
/// Mappings that are given up at a time. No single call needs more, and moving one needs some that
/// it does not use.
const STEP: u64 = 16;
/// Calls of the program that change what is mapped, before the recorder takes the room. Each adds
/// two mappings at most, so the limit, 65,530 by default, is far. Most programs make fewer, and pay
/// nothing.
const CALLS: u64 = 8192;

struct Headroom {
    /// Calls of the program that changed what is mapped.
    calls: AtomicU64,
    /// Address of the pages. 0: there are none yet.
    start: AtomicU64,
    /// Pages that are left.
    left: AtomicU64,
}

/// The child of a `fork` has a copy, and the pages.
static HEADROOM: Headroom = Headroom {
    calls: AtomicU64::new(0),
    start: AtomicU64::new(0),
    left: AtomicU64::new(0),
};

/// Notes that the program is about to change what is mapped.
pub fn program_maps() {
    if HEADROOM.calls.fetch_add(1, Relaxed) + 1 == CALLS {
        take();
    }
}

/// Takes the room. If the kernel refuses it, there is none.
pub fn take() {
    if HEADROOM.start.load(Relaxed) != 0 {
        return;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Ok(start) = arena::map(KEPT * PAGE, PROT_NONE, flags, -1, 0) else {
        return;
    };
    // Neighbours are one mapping unless their protections differ.
    for page in (0..KEPT).step_by(2) {
        if sys::mprotect(start + page * PAGE, PAGE, PROT_READ).is_err() {
            break;
        }
    }
    HEADROOM.start.store(start, Relaxed);
    HEADROOM.left.store(KEPT, Relaxed);
}

/// Does what the recorder cannot do without. If there is no memory for it, does it again after it
/// has given up some mappings: there may have been too many.
pub fn needed<T>(map: impl Fn() -> Result<T>) -> Result<T> {
    match map() {
        Err(e) if e == ENOMEM as i32 && give_up() => map(),
        done => done,
    }
}

/// Gives up some mappings, from the end. False: none are left.
fn give_up() -> bool {
    let rest = |left: u64| left.checked_sub(STEP);
    let Ok(left) = HEADROOM.left.fetch_update(Relaxed, Relaxed, rest) else {
        return false;
    };
    let start = HEADROOM.start.load(Relaxed);
    log!(
        Info,
        "gives up {STEP} of {left} mappings that were kept in case there are too many"
    );
    sys::munmap(start + (left - STEP) * PAGE, STEP * PAGE).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// What fails for want of memory is tried once more, as long as there is something to give up.
    #[test]
    fn gives_up_what_it_has_kept() {
        let tries = Cell::new(0);
        let fails = |e: u32| {
            let tries = &tries;
            move || {
                tries.set(tries.get() + 1);
                Err::<(), _>(e as i32)
            }
        };
        assert_eq!(needed(fails(ENOMEM)), Err(ENOMEM as i32));
        assert_eq!(tries.take(), 1, "nothing is kept yet");
        take();
        let of_pages = || {
            let start = HEADROOM.start.load(Relaxed);
            let within = |m: &str| {
                let at = u64::from_str_radix(m.split('-').next().unwrap(), 16).unwrap();
                (start..start + KEPT * PAGE).contains(&at)
            };
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|m| within(m)).count() as u64
        };
        assert_eq!(of_pages(), KEPT);
        assert_eq!(needed(fails(linux_raw_sys::errno::EINVAL)), Err(22));
        assert_eq!(tries.take(), 1, "it was not for want of memory");
        for round in 1..=KEPT / STEP {
            assert_eq!(needed(fails(ENOMEM)), Err(ENOMEM as i32));
            assert_eq!(tries.take(), 2);
            assert_eq!(of_pages(), KEPT - round * STEP);
        }
        assert_eq!(needed(fails(ENOMEM)), Err(ENOMEM as i32));
        assert_eq!(tries.take(), 1, "nothing is left");
    }
}
