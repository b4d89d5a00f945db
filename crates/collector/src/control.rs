mod kept;
mod presence;

use crate::futex;
use crate::handed::Inbox;
use hindsight_events::consumer::Consumer;
use hindsight_events::ring::{self, Ctl, Header, RINGS, Stripe, commons, file_len};
use hindsight_events::shared_cache::{self, SharedCache};
use kept::Kept;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// The control file: the memory that is shared with the recorded process. The program can write
/// anything there.
pub struct Control {
    file: File,
    base: *mut u8,
    /// Bytes that are mapped.
    len: usize,
    rings: usize,
    consumed: AtomicBool,
    /// Bytes of the recorder's image.
    image_len: AtomicU32,
    /// The program has overwritten some of this memory.
    damaged: AtomicBool,
    /// A recorded process was seen to have the file (see [`Control::is_left`]).
    held: AtomicBool,
    /// Where processes hand files over.
    files: Option<Inbox>,
    /// What an earlier recording has left.
    kept: OnceLock<Kept>,
}

/// The producer of a ring, as the ring says. The numbers may be anybody's (see
/// [`Control::is_shared_with`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// It has begun its stream.
    pub begun: bool,
    /// It has ended its stream.
    pub ended: bool,
    /// Its process id.
    pub pid: i32,
    /// Its thread id.
    pub tid: i32,
}

// SAFETY: the mapping is owned by this value. It is accessed only through atomics, and by the
// single consumer for each ring that the collector takes, which copies.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Makes a control file and maps it. Its descriptor is 100 or more, since programs expect low
    /// numbers to be free. It is closed on `execve`. Fails if a limit on memory or file size leaves
    /// no room for two rings.
    pub fn new() -> io::Result<Control> {
        let name = c"hindsight-rings";
        // SAFETY: the calls use no memory but the name. Nobody else owns the descriptors that they
        // return.
        let file = unsafe {
            let low = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if low < 0 {
                return Err(io::Error::last_os_error());
            }
            let low = OwnedFd::from_raw_fd(low);
            let high = libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100);
            // A low limit on descriptors may leave no room up there.
            if high < 0 {
                File::from(low)
            } else {
                File::from_raw_fd(high)
            }
        };
        Control::in_file(file)
    }

    /// As [`Control::new`], in an empty memory file that somebody else has made.
    pub fn in_file(file: File) -> io::Result<Control> {
        let rings = grow(&file)?;
        let len = file.metadata()?.len().min(ring::LAYOUT) as usize;
        // SAFETY: a new mapping of a file of that length, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
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
            len,
            rings,
            consumed: AtomicBool::new(false),
            image_len: AtomicU32::new(0),
            damaged: AtomicBool::new(false),
            held: AtomicBool::new(false),
            files: Inbox::new().ok(),
            kept: OnceLock::new(),
        };
        if let Some(inbox) = &c.files {
            inbox.announce(&c.header().files);
        }
        c.header().next_image.store(1, Relaxed);
        c.header().room.store(ring::RING_BYTES as u32, Relaxed);
        c.header().sequence.store(1, Relaxed);
        c.set_constants();
        Ok(c)
    }

    /// Writes what never changes. Returns whether it was there already.
    fn set_constants(&self) -> bool {
        let h = self.header();
        let signed = [
            (&h.collector_pid, std::process::id() as i32),
            (&h.collector_fd, self.fd().as_raw_fd()),
        ];
        let unsigned = [
            (&h.rings, self.rings as u32),
            (&h.image_len, self.image_len.load(Relaxed)),
        ];
        let mut same = true;
        for (word, value) in signed {
            same &= word.swap(value, Relaxed) == value;
        }
        for (word, value) in unsigned {
            same &= word.swap(value, Relaxed) == value;
        }
        // Last: whoever sees the magic number sees the others.
        same & (h.magic.swap(ring::MAGIC, AcqRel) == ring::MAGIC)
    }

    /// From now on the calling process is the one that reads the rings.
    pub fn adopt(&self) {
        self.set_constants();
    }

    /// Processes that this one makes from now on do not have the memory. Otherwise they would be taken for recorded ones.
    pub fn keep_from_children(&self) {
        // SAFETY: the mapping of this length stays as it is in this process.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_DONTFORK) };
    }

    /// Looks whether the program has overwritten what the recorder relies on, and restores it.
    pub(crate) fn inspect(&self) {
        if !self.set_constants() {
            self.note_damage();
        }
    }

    /// Notes that the program has overwritten some of this memory.
    pub(crate) fn note_damage(&self) {
        self.damaged.store(true, Relaxed);
    }

    /// Whether the program was seen to have overwritten some of this memory. Then its recorder may
    /// wait for something that never comes.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// The file's descriptor, for the recorded process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header page and lives as long as `self`. The header
        // holds only atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The control page of ring `i`, for a producer. Panics if there is no such ring.
    pub fn ctl(&self, i: usize) -> &Ctl {
        assert!(i < self.rings);
        // SAFETY: the mapping has a control page for each ring, and lives as long as `self`. The
        // page holds only atomics.
        unsafe { &*self.base.add(ring::ctl_offset(i)).cast::<Ctl>() }
    }

    /// The producers of rings that are taken, as the rings say.
    pub fn producers(&self) -> Vec<Producer> {
        let mut out = Vec::new();
        for (w, word) in self.header().live.iter().enumerate() {
            let set = word.load(Acquire);
            let taken = (0..64).filter(|b| set >> b & 1 != 0).map(|b| w * 64 + b);
            out.extend(taken.filter(|i| *i < self.rings).map(|i| {
                let c = self.ctl(i);
                let life = c.state.load(Acquire);
                Producer {
                    ended: life == ring::state::ENDED,
                    begun: matches!(life, ring::state::LIVE | ring::state::ENDED),
                    pid: c.pid.load(Relaxed),
                    tid: c.tid.load(Relaxed),
                }
            }));
        }
        out
    }

    /// The locks for atomic operations.
    pub fn stripes(&self) -> &[Stripe] {
        // SAFETY: the locks lie in the mapping, at a multiple of a page, and `self` keeps it. They
        // are only atomics.
        unsafe {
            let first = self.base.add(ring::STRIPES_OFFSET).cast::<Stripe>();
            std::slice::from_raw_parts(first, ring::STRIPES)
        }
    }

    /// Tells the recorded process that the collector lives. Has to be called a few times a second.
    pub fn beat(&self) {
        self.header().heartbeat.fetch_add(1, Relaxed);
    }

    /// Makes the collector look at the rings now.
    pub fn wake(&self) {
        self.header().wake.fetch_add(1, Release);
        futex::wake(&self.header().wake);
    }

    /// Puts the recorder's executable image into the file, for the programs that the recorded one
    /// executes. Fails if it is too large.
    pub fn set_image(&self, image: &[u8]) -> io::Result<()> {
        if image.len() > ring::IMAGE_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // Not by a write to the file, since a limit on file sizes may apply.
        //
        // SAFETY: the mapping has `IMAGE_BYTES` there, and the image is not longer. Only the
        // recorder reads them, and only later.
        unsafe {
            let to = self.base.add(ring::IMAGE);
            std::ptr::copy_nonoverlapping(image.as_ptr(), to, image.len());
        }
        self.image_len.store(image.len() as u32, Relaxed);
        self.header().image_len.store(image.len() as u32, Release);
        Ok(())
    }

    /// What the recording's program images share. `None` if there was no room for it.
    pub fn shared_cache(&self) -> Option<SharedCache<'_>> {
        let at = file_len(self.rings);
        // SAFETY: the mapping has that many bytes there, and they are used through this type only.
        (self.len >= at + shared_cache::LEN)
            .then(|| unsafe { SharedCache::new(self.base.add(at)) })
            .map(|shared| shared.with_kept(self.kept.get().map_or(&[], Kept::bytes)))
    }

    /// Lets all program images find the translated code in a file that an earlier recording has left. `names`
    /// is where its names are in the file, `entries` where its entries begin (see
    /// [`shared_cache::Stock`]). Returns how many there are. The program has not begun yet.
    pub fn share_kept(&self, file: File, names: Range<usize>, entries: usize) -> usize {
        let Ok(kept) = Kept::map(file) else { return 0 };
        let kept = self.kept.get_or_init(|| kept);
        let (Some(shared), Some(names)) = (self.shared_cache(), kept.bytes().get(names)) else {
            return 0;
        };
        let inode = kept.file.metadata().map_or(0, |m| m.ino());
        let words = [
            kept.file.as_raw_fd() as u64,
            inode,
            kept.bytes().len() as u64,
        ];
        for (to, word) in self.header().kept.iter().zip(words) {
            to.store(word, Release);
        }
        shared.adopt(names, entries)
    }

    /// The number of rings.
    pub fn rings(&self) -> usize {
        self.rings
    }

    /// Gives the memory of an image's common cells back: none of its threads is recorded any more.
    pub(crate) fn forget_commons(&self, image: u32) {
        let Some(at) = commons::offset(image) else {
            return;
        };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let before = self.blocks();
        // The file may have no such part. Then there is nothing to give back.
        //
        // SAFETY: the call uses no memory of this process, and the collector has not mapped this part of the file.
        unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                mode,
                at as i64,
                commons::BYTES as i64,
            )
        };
        let given = before.saturating_sub(self.blocks());
        let less = |n: u64| Some(n.saturating_sub(given));
        let _ = self.header().commons.fetch_update(AcqRel, Relaxed, less);
    }

    /// Reads common cells of an image, from cell `cell` on. `None`: it has none there, or they cannot be read.
    pub(crate) fn read_commons(&self, image: u32, cell: u64, to: &mut [u8]) -> Option<()> {
        let at = commons::offset(image)?;
        let end = cell.checked_add(to.len() as u64)?;
        if end > commons::BYTES {
            return None;
        }
        self.file.read_exact_at(to, at + cell).ok()
    }

    /// Bytes of memory that the file takes, without common cells.
    pub(crate) fn memory(&self) -> u64 {
        self.blocks()
            .saturating_sub(self.header().commons.load(Relaxed))
    }

    /// Bytes of memory that the file takes.
    fn blocks(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.blocks() * 512)
    }

    /// Where processes hand files over.
    pub(crate) fn files(&self) -> Option<&Inbox> {
        self.files.as_ref()
    }

    /// Says that the caller alone takes the reading ends of the rings, each once. Panics if
    /// somebody has said so before.
    pub(crate) fn take_consumers(&self) {
        assert!(
            !self.consumed.swap(true, AcqRel),
            "the rings have a consumer"
        );
    }

    /// The reading end of ring `i` (see [`Control::take_consumers`]).
    pub(crate) fn consumer(&self, i: usize) -> Consumer {
        assert!(i < self.rings);
        // SAFETY: `base` is the mapping of a whole control file. It outlives the consumers, since
        // `Collector` borrows `self` beside them. There is one consumer per ring, as
        // `take_consumers` demands.
        unsafe { Consumer::new(self.base, i) }
    }
}

/// Bytes of address space that rings may have in any case.
const LEAST: u64 = 256 << 20;

/// Gives the file its length, and returns the number of rings in it. A limit on file sizes is meant
/// for files on disk. So it is lifted for a moment, if that is allowed.
fn grow(file: &File) -> io::Result<usize> {
    let old = limit(libc::RLIMIT_FSIZE);
    let low = old.rlim_cur < commons::END;
    if low {
        let lifted = libc::rlimit {
            rlim_cur: old.rlim_max,
            ..old
        };
        // SAFETY: `lifted` is a valid `rlimit`, which the call only reads.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &lifted) };
    }
    let room = limit(libc::RLIMIT_FSIZE).rlim_cur;
    // The program needs most of a limited address space itself.
    let space = (limit(libc::RLIMIT_AS).rlim_cur / 8).max(file_len(0) as u64 + LEAST);
    let rings = ring::rings_in(room.min(space));
    let whole = (file_len(rings) + shared_cache::LEN) as u64;
    let grown = if rings < 2 {
        Err(io::Error::from_raw_os_error(libc::EFBIG))
    } else if rings == RINGS && whole <= room.min(space) {
        // What lies behind is not mapped as a whole, so it takes no address space.
        file.set_len(if commons::END <= room {
            commons::END
        } else {
            whole
        })
    } else {
        file.set_len(file_len(rings) as u64)
    };
    if low {
        // SAFETY: `old` is a valid `rlimit`, which the call only reads.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &old) };
    }
    grown.map(|()| rings)
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut l = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the call writes to `l`, which is an `rlimit`.
    unsafe { libc::getrlimit(resource, &mut l) };
    l
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: `in_file` mapped it with this length. No reference outlives `self`.
        unsafe {
            libc::munmap(self.base.cast(), self.len);
        }
    }
}
