//! The memory of a recording that goes on, reached by the number of one of its processes.

use crate::error::{During, Error, ReachError, Result};
use hindsight_events::ring::Header;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Acquire;

/// Name of the memory that is shared with the collector, as `/proc` shows it.
const RINGS_NAME: &str = "/memfd:hindsight-rings (deleted)";

/// The first pages of the memory of a recording, as somebody else sees them.
pub(crate) struct Shared(*mut Header);

impl Shared {
    /// Those of the recording to which a process belongs. It is recorded, or records.
    pub fn of(pid: i32) -> Result<Shared> {
        Shared::map(&open(pid)?)
    }

    fn map(file: &File) -> Result<Shared> {
        let foreign = |why: String| Error::from(ReachError::Foreign(why));
        let size = file.metadata().map_err(|e| foreign(e.to_string()))?.len();
        if size < size_of::<Header>() as u64 {
            return Err(foreign("it is too short".into()));
        }
        // SAFETY: a new mapping, at an address the kernel chooses, of a file that is longer.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Header>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(foreign(std::io::Error::last_os_error().to_string()));
        }
        let shared = Shared(at.cast());
        if shared.header().magic.load(Acquire) != hindsight_events::ring::MAGIC {
            return Err(foreign(
                "it was made by another version of hindsight".into(),
            ));
        }
        Ok(shared)
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped as long as `self` lives; all fields are atomics.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`.
        unsafe { libc::munmap(self.0.cast(), size_of::<Header>()) };
    }
}

/// The memory that a recorded process shares with its collector, opened where the collector has it.
fn open(pid: i32) -> Result<File> {
    if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        return Err(ReachError::NoProcess(pid).into());
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .during_with(|| format!("cannot see what process {pid} has mapped"))?;
    let line = maps.lines().find(|l| l.ends_with(RINGS_NAME));
    let inode = line.and_then(|l| l.split_whitespace().nth(4)?.parse::<u64>().ok());
    let Some(inode) = inode else {
        return Err(ReachError::NotRecorded(pid).into());
    };
    let processes = fs::read_dir("/proc")?.flatten();
    for p in processes.filter(|p| p.file_name().to_string_lossy().parse::<i32>().is_ok()) {
        for fd in fs::read_dir(p.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if !fs::read_link(fd.path()).is_ok_and(|l| l.as_os_str() == RINGS_NAME) {
                continue;
            }
            let file = File::options().read(true).write(true).open(fd.path());
            if let Ok(file) = file
                && file.metadata().is_ok_and(|m| m.ino() == inode)
            {
                return Ok(file);
            }
        }
    }
    Err(ReachError::NoRecorder(pid).into())
}
