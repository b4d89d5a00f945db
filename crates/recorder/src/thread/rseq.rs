//! Areas of restartable sequences that the program has registered.

use crate::sys;

/// An area of restartable sequences as the program registered it: address, length, signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rseq {
    pub addr: u64,
    pub len: u32,
    pub sig: u32,
}

pub const UNREGISTER: u64 = 1;

/// Makes the call of the area's registration, or of the end of that.
pub fn tell_kernel(r: Rseq, flags: u64) {
    let a = [r.addr, r.len as u64, flags, r.sig as u64, 0, 0];
    // SAFETY: an area of the program that it had registered itself.
    let _ = unsafe { sys::raw(linux_raw_sys::general::__NR_rseq, a) };
}
