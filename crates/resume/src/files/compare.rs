//! Whether files are what they were, and copies of what they were.

use super::{named, reopened};
use crate::received::Received;
use crate::{During, Result};
use hindsight_inspect::state::Stat;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// No larger copies are made.
const MOST: u64 = 4 << 30;
/// The kernel's times of files may lag by so much, in nanoseconds. Some file systems keep hundredths of seconds.
const TICK: i64 = 20_000_000;
/// The same where a file system keeps whole seconds, or every other one.
const SECONDS: i64 = 2_000_000_000;
/// File systems whose times do not show all changes. In those of memory a write through a mapping leaves none: `tmpfs`,
/// `ramfs`, `hugetlbfs`. The times of others come from another machine's clock, or from a program: NFS, SMB, CIFS, AFS, Ceph,
/// 9P, FUSE.
pub const WITHOUT_TIMES: [u64; 11] = [
    0x0102_1994,
    0x8584_58f6,
    0x9584_58f6,
    0x6969,
    0xfe53_4d42,
    0xff53_4d42,
    0x5346_414f,
    0x00c3_6400,
    0x0102_1997,
    0x6573_5546,
    0x517b,
];
/// `overlayfs`: in which file system its files are it does not tell.
pub const OVERLAY: u64 = 0x794c_7630;

/// What comes of a comparison.
pub enum Comparison {
    /// It is what it was, and why that is certain.
    Same(String),
    /// It is not, or nobody can tell: why.
    Differs(String),
}

/// Compares a file with what it was at the instant.
///
/// It is the same if nothing of it has changed since before the recording began, which the kernel says by its times. Else all of
/// its content must be known and equal. If it is to be written to, it must also be the same inode: another file with
/// the same content will not do.
pub fn compare(
    r: &Received,
    (stored, stat, unsure): (u32, Option<Stat>, Option<&str>),
    writes: bool,
    name: &File,
) -> Result<Comparison> {
    let differs = |why: String| Ok(Comparison::Differs(why));
    let file = match reopened(name, libc::O_RDONLY | libc::O_NONBLOCK) {
        Ok(f) => f,
        Err(e) => return differs(format!("cannot be read: {e}")),
    };
    let meta = file.metadata().during(|| "asking about a file".into())?;
    let content = &r.files[stored as usize];
    if let Some(was) = content.size.filter(|was| *was != meta.len()) {
        return differs(format!("had {was} bytes then, and has {} now", meta.len()));
    }
    let is_now = stat_of(&meta);
    let is_old = is_older(&is_now, r.began());
    let system = system(&file);
    if stat == Some(is_now) && is_old && !WITHOUT_TIMES.contains(&system) {
        // Of what was read of it some may have come from elsewhere then, but it did not change.
        if unsure.is_none()
            && let Some(at) = first_difference(r, stored, &file)?
        {
            return differs(format!("has other content now, at offset {at}"));
        }
        let how = "not changed since the recording began";
        return Ok(Comparison::Same(match system {
            OVERLAY => {
                format!("{how}, but for what a mapping changed, if the overlay is in memory")
            }
            _ => how.into(),
        }));
    }
    if let Some(why) = unsure {
        return differs(format!(
            "was changed since the recording began, or the program did not ask when, and cannot be compared: {}",
            hindsight_text::line(why)
        ));
    }
    if let Some(at) = first_difference(r, stored, &file)? {
        return differs(format!("has other content now, at offset {at}"));
    }
    match content.size.map(|size| (size, content.unseen(size))) {
        Some((_, 0)) => {}
        Some((size, unseen)) => {
            return differs(format!(
                "was changed since the recording began, or the program did not ask when, and {unseen} of its {size} bytes then are not known"
            ));
        }
        None => return differs("cannot be compared: its length then is not known".into()),
    }
    let is_inode = stat.is_some_and(|s| (s.device, s.inode) == (is_now.device, is_now.inode));
    if writes && !is_inode {
        return differs(
            "has the same content, but may be another file: the program did not ask which one it was".into(),
        );
    }
    Ok(Comparison::Same(format!(
        "all its {} bytes are the same",
        meta.len()
    )))
}

pub fn stat_of(meta: &std::fs::Metadata) -> Stat {
    let time = |seconds: i64, nanoseconds: i64| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    };
    Stat {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.len(),
        modified: time(meta.mtime(), meta.mtime_nsec()),
        changed: time(meta.ctime(), meta.ctime_nsec()),
    }
}

/// Whether nobody has changed a file since a time, in nanoseconds since 1970.
pub fn is_older(is: &Stat, than: i64) -> bool {
    // Chance makes a time of whole seconds only once in many.
    let tick = match is.changed % 1_000_000_000 {
        0 => SECONDS,
        _ => TICK,
    };
    is.changed.max(is.modified) < than.saturating_sub(tick)
}

/// The number of a file's file system. Of one that does not tell, it is that of `tmpfs`.
pub fn system(file: &File) -> u64 {
    // SAFETY: all of it may be zero, and the kernel fills it in.
    let mut of: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), &mut of) };
    match done {
        0 => of.f_type as u64 & 0xffff_ffff,
        _ => WITHOUT_TIMES[0],
    }
}

/// Where a file first has another byte than is known. `None`: nowhere.
fn first_difference(r: &Received, stored: u32, file: &File) -> Result<Option<u64>> {
    for (at, len, kept) in &r.files[stored as usize].known {
        let want = r.kept(*kept, *len)?;
        let mut is = vec![0; *len as usize];
        let there = file.read_exact_at(&mut is, *at).is_ok();
        if !there || is != want {
            let same = is.iter().zip(&want).take_while(|(a, b)| a == b).count();
            return Ok(Some(at + same as u64));
        }
    }
    Ok(None)
}

/// The length of a file whose content is known wholly, or why it is not.
pub fn is_whole(
    r: &Received,
    stored: u32,
    unsure: Option<&str>,
) -> std::result::Result<u64, String> {
    if let Some(why) = unsure {
        return Err(hindsight_text::line(why).into_owned());
    }
    let content = &r.files[stored as usize];
    let Some(size) = content.size else {
        return Err("its length then is not known".into());
    };
    match content.unseen(size) {
        _ if size > MOST => Err("it is too long".into()),
        0 => Ok(size),
        unseen => Err(format!("{unseen} of its {size} bytes are not known")),
    }
}

/// Makes a copy of a file as it was, all of which is known, in a folder of copies. It is opened as a name.
pub fn copy(r: &Received, stored: u32, folder: &Path, path: &[u8]) -> Result<File> {
    let step = || format!("making a copy of {}", hindsight_text::bytes(path));
    let base = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let base: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(base);
    let mut to = folder.join(base);
    if base.is_empty() || to.exists() {
        to = folder.join(format!("copy-{stored}"));
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let out = options.open(&to).during(step)?;
    fill(r, stored, &out).during(step)?;
    let name = named(format!("/proc/self/fd/{}", out.as_raw_fd()).as_bytes());
    name.during(step)
}

/// The same as a new file in memory.
pub fn in_memory(r: &Received, stored: u32) -> Result<File> {
    let step = || "making a file in memory".into();
    // SAFETY: the name is a text that ends with a zero byte; the descriptor belongs to nobody else.
    let file = unsafe {
        match libc::memfd_create(c"hindsight".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(io::Error::last_os_error()).during(step),
            fd => File::from_raw_fd(fd),
        }
    };
    fill(r, stored, &file).during(step)?;
    named(format!("/proc/self/fd/{}", file.as_raw_fd()).as_bytes()).during(step)
}

fn fill(r: &Received, stored: u32, to: &File) -> io::Result<()> {
    let content = &r.files[stored as usize];
    let size = content.size.unwrap_or(0);
    to.set_len(size)?;
    for (at, len, kept) in &content.known {
        let len = (*len).min(size.saturating_sub(*at));
        let bytes = r.kept(*kept, len).map_err(io::Error::other)?;
        to.write_all_at(&bytes, *at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change within the same tick of the file system's clock leaves no other time.
    #[test]
    fn a_time_of_whole_seconds_is_coarse() {
        let second = 1_000_000_000;
        let is = |changed: i64| Stat {
            modified: second,
            changed,
            ..Stat::default()
        };
        let began = 100 * second;
        assert!(is_older(&is(began - second / 2 + 1), began));
        assert!(!is_older(&is(began - TICK / 2), began));
        assert!(!is_older(&is(began - second), began));
        assert!(is_older(&is(began - 3 * second), began));
        assert!(!is_older(&is(began + 1), began));
    }
}
