//! Values that a process has in common with copies of it.

use crate::sys::{self, PAGE, PROT_READ, PROT_WRITE, arena};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_SHARED};

/// A type of which any bytes are a value, and which has nothing to drop.
///
/// # Safety
/// That is so.
pub unsafe trait Plain {}

/// A value in memory that a `fork` does not copy. It begins as zeros, which take no memory until they are touched.
///
/// One process uses it at a time. Whoever makes a copy of the process sees to that.
pub struct Common<T: Plain>(NonNull<T>);

// SAFETY: it owns the value, as a box does.
unsafe impl<T: Plain + Send> Send for Common<T> {}

impl<T: Plain> Common<T> {
    /// Maps the memory. The error is an errno.
    pub fn new() -> sys::Result<Common<T>> {
        const { assert!(align_of::<T>() <= PAGE as usize && size_of::<T>() > 0) };
        let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
        let at = arena::map(Self::LEN, PROT_READ | PROT_WRITE, flags, -1, 0)?;
        NonNull::new(at as *mut T).map(Common).ok_or(0)
    }

    const LEN: u64 = (size_of::<T>() as u64).next_multiple_of(PAGE);
}

impl<T: Plain> Deref for Common<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has mapped that many bytes at the start of a page, which only `drop` unmaps. Any bytes are a value.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Plain> DerefMut for Common<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is the only reference in this process.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Plain> Drop for Common<T> {
    /// Takes the memory from this process only.
    fn drop(&mut self) {
        let _ = sys::munmap(self.0.as_ptr() as u64, Self::LEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: an array of integers.
    unsafe impl Plain for [u64; 1000] {}

    #[test]
    fn a_value_begins_as_zeros_and_stays() {
        let mut c = Common::<[u64; 1000]>::new().unwrap();
        assert!(c.iter().all(|n| *n == 0));
        c[999] = 7;
        assert_eq!(c[999], 7);
    }
}
