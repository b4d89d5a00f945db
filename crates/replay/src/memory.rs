//! Memory mappings with an owner.

use crate::Error;
use crate::pagemap::{self, Pages};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// How many pages of memory the calling thread has got so far: its page faults that needed no device.
pub fn page_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes a `rusage` there. All of its bytes are zero before, which is a valid one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_minflt as u64
}

/// Bytes in a large page.
pub const LARGE_PAGE: usize = 2 << 20;

/// Which pages the kernel is asked to use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSize {
    /// Those that it uses for all processes.
    AsUsual,
    /// Of 4 KiB only.
    Small,
    /// Of 2 MiB wherever it can.
    Large,
}

/// A private anonymous mapping.
pub struct Mapping {
    base: *mut u8,
    len: usize,
    size: PageSize,
    /// Where a file or nothing lies over it, ascending and apart: offsets.
    laid: Vec<Range<usize>>,
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
            size: PageSize::AsUsual,
            laid: Vec::new(),
        })
    }

    /// Takes over an existing mapping.
    ///
    /// # Safety
    /// `len` bytes are mapped at `base`, and nobody else unmaps them.
    pub unsafe fn of(base: *mut u8, len: usize) -> Mapping {
        Mapping {
            base,
            len,
            size: PageSize::AsUsual,
            laid: Vec::new(),
        }
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
            size: PageSize::AsUsual,
            laid: Vec::new(),
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
        self.take_off(offset..offset + len)?;
        // SAFETY: the range lies in the mapping, and nothing borrows it.
        if unsafe { libc::madvise(self.base.add(offset).cast(), len, libc::MADV_DONTNEED) } != 0 {
            return Err(Error::last_os("cannot release memory"));
        }
        Ok(())
    }

    /// Asks the kernel to use pages of 4 KiB only.
    pub fn small_pages(&mut self) {
        self.size = PageSize::Small;
        self.advise(0..self.len);
    }

    /// Asks the kernel to use pages of 2 MiB where it can. It may not be able to, or not be allowed to.
    pub fn large_pages(&mut self) {
        self.size = PageSize::Large;
        self.advise(0..self.len);
    }

    /// Whether the kernel was asked for pages of 2 MiB.
    pub fn has_large_pages(&self) -> bool {
        self.size == PageSize::Large
    }

    /// Asks for the size of pages in a range.
    fn advise(&self, range: Range<usize>) {
        let advice = match self.size {
            PageSize::AsUsual => return,
            PageSize::Small => libc::MADV_NOHUGEPAGE,
            PageSize::Large => libc::MADV_HUGEPAGE,
        };
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: advice about our own mapping. It may fail without harm.
        unsafe { libc::madvise(self.base.add(range.start).cast(), range.len(), advice) };
    }

    /// Lays whole pages of a file over a range: it then holds what they hold, and a page takes memory of its own only
    /// when it is written to. Ranges must be laid in ascending order, and apart from each other.
    pub fn lay(
        &mut self,
        offset: usize,
        len: usize,
        file: &MemoryFile,
        at: usize,
    ) -> Result<(), Error> {
        let range = offset..offset.saturating_add(len);
        assert!(range.end <= self.len && at.saturating_add(len) <= file.len());
        assert!(self.laid.last().is_none_or(|l| l.end <= offset));
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range lies in the mapping, and nothing borrows it. The file is long enough, and nobody makes it
        // shorter.
        let p = unsafe {
            let to = self.base.add(offset).cast();
            libc::mmap(to, len, prot, flags, file.fd.as_raw_fd(), at as libc::off_t)
        };
        if p == libc::MAP_FAILED {
            return Err(Error::last_os("cannot map a memory file"));
        }
        match self.laid.last_mut() {
            Some(last) if last.end == offset => last.end = range.end,
            _ => self.laid.push(range),
        }
        Ok(())
    }

    /// Makes whole pages of a range inaccessible, until somebody makes them accessible again. As with [`Mapping::lay`], ranges
    /// ascend, and [`Mapping::discard`] makes their pages zero.
    pub fn lay_nothing(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        assert!(self.laid.last().is_none_or(|l| l.end <= offset));
        // Noted before: if the system refuses, a part of it may be inaccessible.
        self.laid.push(offset..offset + len);
        self.protect(offset, len)
    }

    /// Where files or nothing lie over it, ascending: offsets.
    pub fn laid(&self) -> &[Range<usize>] {
        &self.laid
    }

    /// Takes off what lies over a range. The pages are zero then.
    fn take_off(&mut self, range: Range<usize>) -> Result<(), Error> {
        let first = self.laid.partition_point(|l| l.end <= range.start);
        let behind = self.laid.partition_point(|l| l.start < range.end);
        if first >= behind {
            return Ok(());
        }
        let mut rest = Vec::new();
        let mut failed = None;
        for l in &self.laid[first..behind] {
            if failed.is_some() {
                rest.push(l.clone());
                continue;
            }
            let (from, to) = (l.start.max(range.start), l.end.min(range.end));
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the range lies in the mapping, and nothing borrows it.
            let done = unsafe {
                let at = self.base.add(from).cast();
                let p = libc::mmap(at, to - from, prot, flags | libc::MAP_FIXED, -1, 0);
                p != libc::MAP_FAILED
            };
            self.advise(from..to);
            if !done {
                failed = Some(Error::last_os("cannot release memory"));
                rest.push(l.clone());
                continue;
            }
            rest.extend([l.start..from, to..l.end]);
        }
        rest.retain(|l| !l.is_empty());
        self.laid.splice(first..behind, rest);
        failed.map_or(Ok(()), Err)
    }

    /// Numbers of the pages of a range that are in memory, ascending, counted from the range's start.
    pub fn present(&self, offset: usize, len: usize) -> Result<Vec<u32>, Error> {
        self.pages(offset, len, Pages::Present)
    }

    /// The same for pages that are no page of a file that lies over them.
    pub fn own(&self, offset: usize, len: usize) -> Result<Vec<u32>, Error> {
        self.pages(offset, len, Pages::Own)
    }

    fn pages(&self, offset: usize, len: usize, which: Pages) -> Result<Vec<u32>, Error> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        let start = self.base as u64 + offset as u64;
        pagemap::pages(start, start + len as u64, which).map_err(|cause| Error::System {
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
        let fd = memory_file(len)?;
        for at in [a, b] {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: both ranges lie in the mapping, and nothing borrows them.
            let p = unsafe {
                let to = self.base.add(at).cast();
                libc::mmap(to, len, prot, flags, fd.as_raw_fd(), 0)
            };
            if p == libc::MAP_FAILED {
                return Err(Error::last_os("cannot map a memory file"));
            }
        }
        Ok(())
    }
}

/// A file in memory with `len` zeros.
fn memory_file(len: usize) -> Result<OwnedFd, Error> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::memfd_create(c"hindsight-window".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last_os("cannot create a memory file"));
    }
    // SAFETY: the descriptor is new, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel fills in the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    if len as u64 > limit.rlim_cur {
        // A larger file would end the process by a signal.
        return Err(Error::System {
            what: "cannot create a memory file",
            cause: std::io::Error::from_raw_os_error(libc::EFBIG),
        });
    }
    // SAFETY: a plain system call.
    match unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } {
        0 => Ok(fd),
        _ => Err(Error::last_os("cannot create a memory file")),
    }
}

/// Bytes in a file in memory, whose pages can be laid over a mapping. All of it is mapped here too, so it counts as memory of
/// this process.
pub struct MemoryFile {
    map: Mapping,
    fd: OwnedFd,
}

impl MemoryFile {
    /// Makes a file of `len` zeros. Its pages take memory when they are written to.
    pub fn new(len: usize) -> Result<MemoryFile, Error> {
        let fd = memory_file(len)?;
        let mut map = Mapping::new(len.max(1))?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        if len > 0 {
            // SAFETY: the range is our own fresh mapping.
            let p = unsafe {
                let to = map.base().cast();
                libc::mmap(to, len, prot, flags, fd.as_raw_fd(), 0)
            };
            if p == libc::MAP_FAILED {
                return Err(Error::last_os("cannot map a memory file"));
            }
        }
        map.len = len;
        Ok(MemoryFile { map, fd })
    }

    fn len(&self) -> usize {
        self.map.len
    }

    /// Leaves out what is behind `len` bytes. It must not have been written to.
    pub fn shorten(&mut self, len: usize) {
        assert!(len <= self.map.len);
        // SAFETY: the range lies in our own mapping, and nothing borrows it.
        unsafe {
            let end = len.next_multiple_of(4096);
            if end < self.map.len {
                libc::munmap(self.map.base.add(end).cast(), self.map.len - end);
            }
        }
        self.map.len = len;
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes are mapped there, and they change only through `bytes_mut`.
        unsafe { std::slice::from_raw_parts(self.map.base, self.map.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nothing else refers to them. Private mappings of the file see the change only in pages that
        // they have not copied, and none is made while it is being filled.
        unsafe { std::slice::from_raw_parts_mut(self.map.base, self.map.len) }
    }
}

// SAFETY: a file that several threads have may only be read.
unsafe impl Sync for MemoryFile {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
