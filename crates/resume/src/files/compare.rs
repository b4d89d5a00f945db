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
/// The kernel's times of files may lag by so much, in nanoseconds.
const TICK: i64 = 10_000_000;
/// File systems of memory, in which a write through a mapping leaves no time: `tmpfs`, `ramfs`, `hugetlbfs`.
const WITHOUT_TIMES: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

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
    let began = i64::try_from(r.state.began_ms)
        .unwrap_or(0)
        .saturating_mul(1_000_000);
    let is_now = stat_of(&meta);
    let is_old = is_now.changed.max(is_now.modified) < began.saturating_sub(TICK);
    if stat == Some(is_now) && is_old && has_times(&file) {
        // Of what was read of it some may have come from elsewhere then, but it did not change.
        if unsure.is_none()
            && let Some(at) = first_difference(r, stored, &file)?
        {
            return differs(format!("has other content now, at offset {at}"));
        }
        return Ok(Comparison::Same(
            "not changed since the recording began".into(),
        ));
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

fn stat_of(meta: &std::fs::Metadata) -> Stat {
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

/// Whether the kernel notes a time whenever somebody changes a file.
fn has_times(file: &File) -> bool {
    // SAFETY: all of it may be zero, and the kernel fills it in.
    let mut of: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), &mut of) };
    done == 0 && !WITHOUT_TIMES.contains(&(of.f_type as u64 & 0xffff_ffff))
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
