//! Areas of restartable sequences that the program has registered.

use crate::sys;

/// An area of restartable sequences as the program registered it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rseq {
    /// Its address.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Its signature.
    pub sig: u32,
}

/// `RSEQ_FLAG_UNREGISTER`
pub const UNREGISTER: u64 = 1;

/// Makes the kernel's call for an area. `flags` is 0 to register it, or [`UNREGISTER`].
pub fn tell_kernel(r: Rseq, flags: u64) {
    let a = [r.addr, r.len as u64, flags, r.sig as u64, 0, 0];
    // SAFETY: the kernel writes only to this area, which the program had registered itself.
    let _ = unsafe { sys::raw(linux_raw_sys::general::__NR_rseq, a) };
}
