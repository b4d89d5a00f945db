//! The lock that is held while what is mapped changes.

use crate::code::cache;
use crate::memory::brk;
use crate::memory::maps::regions;
use crate::sys::lock::{Guard, Lock};

/// Held from before a call that changes mappings until the tables are up to date. So the tables
/// change in the kernel's order.
static MAPPING: Lock<()> = Lock::mended((), |()| catch_up());

/// A call that changes mappings is about to be made. To be held until the tables are up to date.
pub fn change() -> Guard<'static, ()> {
    MAPPING.lock_to_change()
}

/// Keeps what is mapped from changing. Waits until the tables are up to date.
pub fn hold_order() -> impl Sized {
    MAPPING.lock()
}

/// Brings the tables up to date, after somebody was killed before doing so.
fn catch_up() {
    brk::catch_up();
    regions().reconcile();
    cache::cache().outdate();
}
