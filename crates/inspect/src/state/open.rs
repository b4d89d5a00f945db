//! What a process can have open, in words that go to another process.

use serde::{Deserialize, Serialize};

/// Something that is open (an open file description).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// What it is.
    pub kind: OpenKind,
    /// Flags, as `open` takes them.
    pub flags: i32,
    /// Where the next bytes are read or written. `None`: that is not known, or there is no place.
    pub place: Option<u64>,
    /// Other processes had it, too.
    pub shared: bool,
    /// The lock of `flock` that it has. `Some(true)`: it excludes all others.
    pub lock: Option<bool>,
}

/// What is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum OpenKind {
    /// What the program began with under this number: 0, 1 or 2.
    Standard(i32),
    /// A file with a path.
    File {
        /// Its path then.
        path: Vec<u8>,
        /// Its content in [`super::Stored`].
        stored: u32,
        /// What the kernel last said of it to the program, unless it may have changed without the kernel noting a time.
        stat: Option<Stat>,
        /// Why its content may be another than in [`super::Stored`], in words.
        unsure: Option<String>,
    },
    /// A file without a name: it was deleted, or never had one.
    Unnamed {
        /// What it was, in words.
        what: String,
        /// Its content in [`super::Stored`].
        stored: u32,
        /// As for files.
        unsure: Option<String>,
    },
    /// A folder of which nothing was read yet.
    Folder {
        /// Its path.
        path: Vec<u8>,
        /// What the kernel last said of it to the program.
        stat: Option<Stat>,
    },
    /// An end of a pipe.
    Pipe {
        /// Numbers pipes.
        number: u64,
        /// It is the end that is read from.
        reads: bool,
        /// What was written and not read. `None`: that is not known.
        waiting: Option<Vec<u8>>,
    },
    /// A counter (`eventfd`). `None`: its value is not known.
    Counter(Option<u64>),
    /// A descriptor from which signals are read: which.
    Signals(u64),
    /// What cannot be made again, in words.
    Lost(String),
}

/// What the kernel said of a file. Times are in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stat {
    /// The number of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When its content was last changed.
    pub modified: i64,
    /// When anything of it was last changed. No program can choose this time.
    pub changed: i64,
}

impl Stat {
    /// From `struct stat` as the kernel fills it in. `None`: it is too short.
    pub(super) fn of_stat(b: &[u8]) -> Option<Stat> {
        Some(Stat {
            device: word(b, 0)?,
            inode: word(b, 8)?,
            size: word(b, 48)?,
            modified: time(word(b, 88)?, word(b, 96)?),
            changed: time(word(b, 104)?, word(b, 112)?),
        })
    }

    /// From `struct statx`.
    pub(super) fn of_statx(b: &[u8]) -> Option<Stat> {
        let half = |at: usize| word(b, at).map(|w| w as u32);
        Some(Stat {
            device: libc::makedev(half(136)?, half(140)?),
            inode: word(b, 32)?,
            size: word(b, 40)?,
            modified: time(word(b, 112)?, half(120)?.into()),
            changed: time(word(b, 96)?, half(104)?.into()),
        })
    }
}

fn time(seconds: u64, nanoseconds: u64) -> i64 {
    let seconds = (seconds as i64).saturating_mul(1_000_000_000);
    seconds.saturating_add(nanoseconds as i64)
}

fn word(b: &[u8], at: usize) -> Option<u64> {
    let part = b.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stat_is_read_as_the_kernel_writes_it() {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let meta = file.metadata().unwrap();
        let want = Stat {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
            changed: meta.ctime() * 1_000_000_000 + meta.ctime_nsec(),
        };
        use std::os::fd::AsRawFd;
        let (mut stat, mut statx) = ([0u64; 18], [0u64; 32]);
        // SAFETY: the kernel fills in a structure of 144 bytes, then one of 256.
        unsafe {
            assert_eq!(
                libc::syscall(libc::SYS_fstat, file.as_raw_fd(), stat.as_mut_ptr()),
                0
            );
            let args = (libc::AT_EMPTY_PATH, libc::STATX_BASIC_STATS);
            let at = c"".as_ptr();
            let done = libc::syscall(
                libc::SYS_statx,
                file.as_raw_fd(),
                at,
                args.0,
                args.1,
                statx.as_mut_ptr(),
            );
            assert_eq!(done, 0);
        }
        let bytes =
            |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
        assert_eq!(Stat::of_stat(&bytes(&stat)), Some(want));
        assert_eq!(Stat::of_statx(&bytes(&statx)), Some(want));
        assert_eq!(Stat::of_stat(&bytes(&stat)[..119]), None);
    }
}
