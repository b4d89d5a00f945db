//! Held while what is mapped changes.

use crate::code::cache;
use crate::memory::brk;
use crate::memory::maps::regions;
use crate::sys::lock::Lock;

/// Held from before such a call until the tables are current, so that they change in the same order.
pub static MAPPING: Lock<()> = Lock::mended((), |()| catch_up());

/// Keeps what is mapped from being changed, until the tables are current.
pub fn hold_order() -> impl Sized {
    MAPPING.lock()
}

/// Whoever changed what is mapped was killed before the tables were current.
fn catch_up() {
    brk::catch_up();
    regions().reconcile();
    cache::cache().outdate();
}
