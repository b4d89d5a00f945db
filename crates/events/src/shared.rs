//! What the memory is made of that recorder and collector share: words that several threads change, and bytes that one
//! side writes and the other one copies.
//!
//! With `--cfg loom` both are loom's, and everything that counts things is small: then the tests in `models.rs` try all
//! orders in which two threads can run.

#[cfg(not(all(test, loom)))]
pub use core::sync::atomic::*;
#[cfg(all(test, loom))]
pub use loom::sync::atomic::*;

use alloc::vec::Vec;

/// A byte of a ring's data.
#[cfg(not(all(test, loom)))]
pub type Byte = u8;
#[cfg(all(test, loom))]
pub type Byte = loom::cell::UnsafeCell<u8>;

/// Copies `len` bytes at `from` to the end of `to`.
///
/// # Safety
/// They are mapped.
#[cfg(not(all(test, loom)))]
pub unsafe fn copy_out(from: *const Byte, len: usize, to: &mut Vec<u8>) {
    to.reserve(len);
    // SAFETY: the caller answers for the source. `reserve` made that much room behind the vector's content. No reference to
    // the source exists, and any bytes are valid. If the program changes them meanwhile, only the copy's content varies.
    unsafe {
        let end = to.as_mut_ptr().add(to.len());
        core::ptr::copy_nonoverlapping(from, end, len);
        to.set_len(to.len() + len);
    }
}

/// Copies `bytes` to `to`.
///
/// # Safety
/// `to` is mapped, for that many bytes, and nobody else uses them meanwhile.
#[cfg(not(all(test, loom)))]
pub unsafe fn copy_in(bytes: &[u8], to: *mut Byte) {
    // SAFETY: the caller answers for the destination.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

#[cfg(all(test, loom))]
#[expect(clippy::missing_safety_doc, reason = "as above")]
pub unsafe fn copy_out(from: *const Byte, len: usize, to: &mut Vec<u8>) {
    for i in 0..len {
        // SAFETY: the model's ring is that long, and loom looks who uses the byte.
        to.push(unsafe { (*from.add(i)).with(|b| *b) });
    }
}

#[cfg(all(test, loom))]
#[expect(clippy::missing_safety_doc, reason = "as above")]
pub unsafe fn copy_in(bytes: &[u8], to: *mut Byte) {
    for (i, new) in bytes.iter().enumerate() {
        // SAFETY: as above.
        unsafe { (*to.add(i)).with_mut(|b| *b = *new) };
    }
}
