//! Hands files that are in memory to the collector, as descriptors. So the collector reads what the
//! program has mapped. By then the name may lead elsewhere, or it may lead anywhere only for the
//! program.
//!
//! The socket for that exists only for a moment, and only in processes of one thread. So nobody
//! sees it.

use crate::stream::ring::{self, FileBoxName};
use crate::{line, sys};
use core::ffi::CStr;
use linux_raw_sys::errno::{EAGAIN, EINTR};

/// How often sending is tried, a millisecond apart, while the collector has not taken earlier
/// files.
const TRIES: u32 = 2000;

/// Hands an open file over. False if there is no way to the collector from here, as in another
/// network namespace.
pub fn hand(fd: i32) -> bool {
    let Some(to) = ring::file_box() else {
        return false;
    };
    // The file is opened anew: locks and position of the program's descriptor belong to the
    // program.
    let path = line!("/proc/self/fd/{fd}\0");
    let path = CStr::from_bytes_until_nul(path.as_bytes()).unwrap_or(c"");
    let opened = sys::open_read(path);
    let sent = send(opened.unwrap_or(fd), to);
    if let Ok(fd) = opened {
        sys::close(fd);
    }
    sent
}

/// Hands an open file to the collector, as this descriptor has it.
pub fn send(fd: i32, [name, token]: FileBoxName) -> bool {
    let bytes = |[a, b]: [u64; 2]| ((b as u128) << 64 | a as u128).to_le_bytes();
    let (name, token) = (bytes(name), bytes(token));
    for _ in 0..TRIES {
        match sys::send_descriptor(fd, &name, &token).map_err(|e| e as u32) {
            Ok(()) => return true,
            Err(EAGAIN | EINTR) => {
                ring::nudge();
                sys::sleep_ms(1);
            }
            Err(_) => return false,
        }
    }
    false
}
