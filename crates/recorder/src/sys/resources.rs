//! The kernel's limits on what a process may use.

use crate::sys;
use crate::sys::lock::Lock;
use alloc::sync::Arc;
use core::ffi::CStr;
use linux_raw_sys::general::*;

/// The kernel's limit on a resource: soft and hard.
pub fn get(resource: u32) -> (u64, u64) {
    sys::limit(resource, None).unwrap_or((u64::MAX, u64::MAX))
}

/// While this lives, the recorder may open 4096 descriptors and write files of 1 GiB. Lower soft
/// limits are raised to that, and hard ones where it is allowed. Otherwise the hard limits count.
pub struct Raised([(u32, (u64, u64)); 2]);

impl Drop for Raised {
    fn drop(&mut self) {
        for (resource, old) in self.0 {
            if get(resource) != old {
                let _ = sys::limit(resource, Some(old));
            }
        }
    }
}

impl Raised {
    /// Raises the limits.
    pub fn new() -> Raised {
        Raised([RLIMIT_NOFILE, RLIMIT_FSIZE].map(|resource| {
            let old = get(resource);
            let least = if resource == RLIMIT_NOFILE {
                4096
            } else {
                1 << 30
            };
            let hard = old.1.max(least);
            if old.0 < least
                && (hard == old.1 || sys::limit(resource, Some((least, hard))).is_err())
            {
                let _ = sys::limit(resource, Some((least.min(old.1), old.1)));
            }
            (resource, old)
        }))
    }
}

/// Bytes of memory that this process's control group and those above it may still take. Without version 2 of these groups, and
/// where they have no limit, that is everything.
pub fn group_memory() -> u64 {
    let mut text = [0; 1024];
    let n = sys::read_small(c"/proc/self/cgroup", &mut text);
    let mut lines = text[..n].split(|b| *b == b'\n');
    let mut group = lines.find_map(|l| l.strip_prefix(b"0::"));
    let mut left = u64::MAX;
    while let Some(path) = group {
        if let (Some(most), Some(now)) = (
            group_number(path, b"/memory.max\0"),
            group_number(path, b"/memory.current\0"),
        ) {
            left = left.min(most.saturating_sub(now));
        }
        group = path.iter().rposition(|b| *b == b'/').map(|i| &path[..i]);
    }
    left
}

/// The number in a file of a control group.
fn group_number(path: &[u8], file: &[u8]) -> Option<u64> {
    let name = [b"/sys/fs/cgroup", path, file].concat();
    let mut text = [0; 32];
    let n = sys::read_small(CStr::from_bytes_until_nul(&name).ok()?, &mut text);
    sys::number(text[..n].trim_ascii())
}

/// Soft and hard limits: `RLIMIT_AS`, then `RLIMIT_DATA`.
pub type Limits = [[u64; 2]; 2];

/// The limits of one process. A child that borrows its parent's memory has its own.
pub type Shared = Arc<Lock<Limits>>;
