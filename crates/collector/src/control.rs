use crate::futex;
use hindsight_events::ring::{self, Consumer, Ctl, FILE_LEN, Header, RINGS};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// The control file: the memory shared with the recorded process.
pub struct Control {
    file: File,
    base: *mut u8,
    consumed: AtomicBool,
}

// SAFETY: the mapping is accessed only through atomics and, below a ring's head, by the one
// consumer per ring that `consumers` hands out.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Makes a control file and maps it. Its descriptor is at least 100, out of the way of those
    /// a program expects to be free, and closed on exec.
    pub fn new() -> io::Result<Control> {
        let name = c"hindsight-rings";
        // SAFETY: plain system calls; the descriptor returned is owned by nobody else.
        let file = unsafe {
            let low = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if low < 0 {
                return Err(io::Error::last_os_error());
            }
            let low = OwnedFd::from_raw_fd(low);
            let high = libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100);
            // A low limit on descriptors leaves no room up there.
            if high < 0 {
                File::from(low)
            } else {
                File::from_raw_fd(high)
            }
        };
        grow(&file)?;
        // SAFETY: a new mapping of a file of that length, at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let c = Control {
            file,
            base: base.cast(),
            consumed: AtomicBool::new(false),
        };
        c.header()
            .collector_pid
            .store(std::process::id() as i32, Relaxed);
        c.header().collector_fd.store(c.fd().as_raw_fd(), Relaxed);
        c.header().next_image.store(1, Relaxed);
        c.header().magic.store(ring::MAGIC, Release);
        Ok(c)
    }

    /// The file's descriptor, for the recorded process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header page, lives as long as `self`, and holds
        // only atomics there.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The control page of ring `i`.
    pub fn ctl(&self, i: usize) -> &Ctl {
        assert!(i < RINGS);
        // SAFETY: within the mapping; only atomics.
        unsafe { &*self.base.add(ring::ctl_offset(i)).cast::<Ctl>() }
    }

    /// Tells the recorded process that the collector lives; a few times a second.
    pub fn beat(&self) {
        self.header().heartbeat.fetch_add(1, Relaxed);
    }

    /// Makes the collector look at the rings now.
    pub fn wake(&self) {
        self.header().wake.fetch_add(1, Release);
        futex::wake(&self.header().wake);
    }

    /// The reading ends of all rings; once.
    pub(crate) fn consumers(&self) -> Vec<Consumer> {
        assert!(
            !self.consumed.swap(true, AcqRel),
            "the rings have a consumer"
        );
        // SAFETY: a mapping of a whole control file, which the borrow checker cannot see to
        // outlive the consumers: `Collector` borrows `self` beside them. One per ring.
        (0..RINGS)
            .map(|i| unsafe { Consumer::new(self.base, i) })
            .collect()
    }
}

/// Gives the file its length. A limit on the size of files is meant for files on disk, so it is
/// lifted for a moment if it may be.
fn grow(file: &File) -> io::Result<()> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid pointer.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut old) };
    let low = old.rlim_cur < FILE_LEN as u64;
    if low {
        let lifted = libc::rlimit {
            rlim_cur: old.rlim_max,
            ..old
        };
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &lifted) };
    }
    let grown = file.set_len(FILE_LEN as u64);
    if low {
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &old) };
    }
    grown
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference outlives `self`.
        unsafe {
            libc::munmap(self.base.cast(), FILE_LEN);
        }
    }
}
