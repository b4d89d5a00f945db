//! Memory mappings with an owner.

use crate::{Error, pagemap};
use std::ptr::null_mut;

/// A private anonymous mapping.
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is ordinary memory, and only the owner reads and writes it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes. They are zero, and not yet allocated.
    pub fn new(len: usize) -> Result<Mapping, Error> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let p = unsafe { libc::mmap(null_mut(), len, prot, flags, -1, 0) };
        if p == libc::MAP_FAILED {
            return Err(Error::address_space(len));
        }
        Ok(Mapping {
            base: p.cast(),
            len,
        })
    }

    /// Takes over an existing mapping.
    ///
    /// # Safety
    /// `len` bytes are mapped at `base`, and nobody else unmaps them.
    pub unsafe fn of(base: *mut u8, len: usize) -> Mapping {
        Mapping { base, len }
    }

    /// Maps `len` bytes at the address `base`. `None` if something is mapped there already.
    pub fn at(base: usize, len: usize) -> Option<Mapping> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a fresh mapping that replaces none.
        let p = unsafe { libc::mmap(base as *mut _, len, prot, flags, -1, 0) };
        if p == libc::MAP_FAILED {
            return None;
        }
        let map = Mapping {
            base: p.cast(),
            len,
        };
        // Before Linux 4.17 the kernel takes the address only as a hint.
        (p as usize == base).then_some(map)
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes whole pages zero again and releases their memory.
    pub fn discard(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies in the mapping, and nothing borrows it.
        if unsafe { libc::madvise(self.base.add(offset).cast(), len, libc::MADV_DONTNEED) } != 0 {
            return Err(Error::last_os("cannot release memory"));
        }
        Ok(())
    }

    /// Asks the kernel to use pages of 4 KiB only.
    pub fn small_pages(&mut self) {
        // SAFETY: advice about our own mapping. It may fail without harm.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_NOHUGEPAGE) };
    }

    /// Numbers of the pages of a range that are in memory, ascending, counted from the range's start.
    pub fn present(&self, offset: usize, len: usize) -> Result<Vec<u32>, Error> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        let start = self.base as u64 + offset as u64;
        pagemap::present(start, start + len as u64).map_err(|cause| Error::System {
            what: "cannot find out which pages are in memory",
            cause,
        })
    }

    /// Makes pages inaccessible.
    pub fn protect(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies in the mapping, and nothing borrows it.
        if unsafe { libc::mprotect(self.base.add(offset).cast(), len, libc::PROT_NONE) } != 0 {
            return Err(Error::last_os("cannot protect memory"));
        }
        Ok(())
    }

    /// Makes the pages at offsets `a` and `b` the same memory.
    pub fn alias(&mut self, a: usize, b: usize, len: usize) -> Result<(), Error> {
        assert!(a.max(b).checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: plain system calls. Both ranges lie in the mapping, and nothing borrows them.
        unsafe {
            let fd = libc::memfd_create(c"hindsight-window".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(Error::last_os("cannot create a memory file"));
            }
            let mut ok = libc::ftruncate(fd, len as libc::off_t) == 0;
            for at in [a, b] {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                ok = ok
                    && libc::mmap(self.base.add(at).cast(), len, prot, flags, fd, 0)
                        != libc::MAP_FAILED;
            }
            let result = if ok {
                Ok(())
            } else {
                Err(Error::last_os("cannot map a memory file"))
            };
            libc::close(fd);
            result
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
