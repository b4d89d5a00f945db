//! The file of translated code that an earlier recording has left.

use super::{LINK, namespace};
use crate::line;
use crate::sys::{self, PROT_READ, arena};
use core::ffi::CStr;
use core::sync::atomic::Ordering::*;
use hindsight_events::ring::Header;
use linux_raw_sys::general::*;

/// Maps the file, if the process can reach it. The collector has it open, so it is the very file
/// whose blocks the shared cache names. A program that changes its user or its `/proc` may not reach
/// it. Its code is translated anew then.
///
/// The header may hold anything. So may the file: what comes from there is checked as what other
/// images have left.
pub(super) fn map(header: &Header) {
    let [fd, inode, len] = [0, 1, 2].map(|i| header.kept[i].load(Acquire));
    if len == 0 || namespace() != 0 {
        return;
    }
    let pid = LINK.collector[0].load(Relaxed);
    let link = line!("/proc/{pid}/fd/{fd}\0");
    let link = CStr::from_bytes_until_nul(link.as_bytes()).unwrap_or(c"");
    let Ok(file) = sys::openat(AT_FDCWD, link, O_RDONLY | O_CLOEXEC | O_NONBLOCK) else {
        log!(Info, "kept translations cannot be reached");
        return;
    };
    let same = sys::fstat(file).is_ok_and(|s| {
        s.st_mode & S_IFMT == S_IFREG && s.st_ino == inode && s.st_size as u64 == len
    });
    if same && let Ok(at) = arena::map(len, PROT_READ, MAP_SHARED, file, 0) {
        LINK.kept[1].store(len, Relaxed);
        LINK.kept[0].store(at, Release);
    }
    sys::close(file);
}

/// What the file holds. Empty if there is none.
pub(super) fn bytes() -> &'static [u8] {
    match LINK.kept[0].load(Acquire) {
        0 => &[],
        // SAFETY: `map` mapped as many bytes there, which are never unmapped.
        at => unsafe {
            core::slice::from_raw_parts(at as *const u8, LINK.kept[1].load(Relaxed) as usize)
        },
    }
}
