//! Whether the program's reads have to be checked.

use crate::sys::{config, quiet, resources};
use hindsight_events::config::regime;
use linux_raw_sys::general::RLIMIT_STACK;

/// Why the quiet regime has ended.
pub type Reason = &'static str;

/// Whether a program that begins now may be quiet.
pub fn possible() -> bool {
    let c = config::get();
    let (soft, _) = resources::get(RLIMIT_STACK);
    c.regime == regime::QUIET
        && c.plain == 0
        && c.predictor_bits == 32
        && c.select[0] == 0
        && soft <= quiet::STACK
}

/// Bytes. A larger mapping ends the quiet regime.
pub const MAX_MAPPING: u64 = 2 << 30;

/// Bytes. A stack that may become larger ends the quiet regime.
pub const STACK: u64 = 1 << 30;
