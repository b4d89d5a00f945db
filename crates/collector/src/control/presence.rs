//! Whether anybody besides the collector has the control file.
//!
//! Each recorded process holds a lock on the file. The lock belongs to an open file that the
//! process and its children share. That lives as long as one of them has the file mapped or open.
//! So if the kernel lets the collector lock the file alone, nobody is left. That works in all
//! namespaces of process ids, and however they have ended. What is in the memory does not matter.

use super::Control;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

impl Control {
    /// Opens the file once more for the program, and locks it. It is closed on `execve`, and its
    /// descriptor is 100 or more. Where there is no `/proc`, it is a copy of [`Control::fd`].
    pub fn for_program(&self) -> io::Result<File> {
        let own = self.file.as_raw_fd();
        let path = format!("/proc/self/fd/{own}");
        let again = File::options().read(true).write(true).open(path);
        let (from, locked) = match &again {
            Ok(file) => (file, lock(file, libc::LOCK_SH)),
            Err(_) => (&self.file, false),
        };
        // SAFETY: the call duplicates a descriptor that is open. Nobody else owns the new one.
        let file = unsafe {
            match libc::fcntl(from.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) {
                -1 => from.try_clone()?,
                fd => File::from_raw_fd(fd),
            }
        };
        self.held.fetch_or(locked, Relaxed);
        Ok(file)
    }

    /// Whether nobody has the file any more. False if nobody was ever seen to have it.
    pub fn is_left(&self) -> bool {
        if !lock(&self.file, libc::LOCK_EX) {
            self.held.store(true, Relaxed);
            return false;
        }
        lock(&self.file, libc::LOCK_UN);
        self.held.load(Relaxed)
    }

    /// Whether a process has the file mapped. True if that cannot be seen. Needed since numbers of
    /// processes in the shared memory may be anybody's.
    pub fn is_shared_with(&self, pid: i32) -> bool {
        let Ok(own) = self.file.metadata() else {
            return true;
        };
        match fs::read_to_string(format!("/proc/{pid}/maps")) {
            Ok(maps) => maps.lines().any(|l| names(l, own.dev(), own.ino())),
            // There is no `/proc`, or the process is another user's.
            Err(_) => {
                fs::exists(format!("/proc/{pid}")).unwrap_or(true)
                    || !fs::exists("/proc/self").unwrap_or(false)
            }
        }
    }

    /// The processes that have the file mapped, in all namespaces of process ids, as far as `/proc`
    /// shows them.
    pub fn sharers(&self) -> Vec<i32> {
        let (Ok(own), Ok(list)) = (self.file.metadata(), fs::read_dir("/proc")) else {
            return Vec::new();
        };
        let has = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/maps"))
                .is_ok_and(|maps| maps.lines().any(|l| names(l, own.dev(), own.ino())))
        };
        list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(has)
            .collect()
    }
}

/// Whether a line of `/proc/PID/maps` names this file.
fn names(line: &str, device: u64, inode: u64) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let Some((major, minor)) = fields.next().and_then(|d| d.split_once(':')) else {
        return false;
    };
    let number = |s| u32::from_str_radix(s, 16).ok();
    let same = |major, minor| libc::makedev(major, minor) == device;
    number(major)
        .zip(number(minor))
        .is_some_and(|(a, b)| same(a, b))
        && fields.next().and_then(|i| i.parse().ok()) == Some(inode)
}

/// Changes the lock on an open file, if that is possible at once. Returns whether it was.
fn lock(file: &File, how: i32) -> bool {
    // SAFETY: the descriptor is open, and the call uses no memory.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_last_one_who_leaves_is_noticed() {
        let control = Control::new().unwrap();
        assert!(!control.is_left(), "nobody was ever there");
        let theirs = control.for_program().unwrap();
        assert!(!control.is_left());
        // The shell has the file open, and so has its child, even after the shell has ended.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 0.3 & read x"])
            .stdin(Stdio::piped())
            .stdout(theirs.try_clone().unwrap())
            .spawn()
            .unwrap();
        drop(theirs);
        assert!(!control.is_left());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!control.is_left(), "its child is still there");
        let begin = std::time::Instant::now();
        while !control.is_left() {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_has_the_file_mapped_is_known() {
        let control = Control::new().unwrap();
        assert!(control.is_shared_with(std::process::id() as i32));
        assert!(control.sharers().contains(&(std::process::id() as i32)));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let begin = std::time::Instant::now();
        // Until it executes the program, it is a copy of this process.
        while control.is_shared_with(child.id() as i32) {
            assert!(begin.elapsed().as_secs() < 60);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
