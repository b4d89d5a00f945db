//! The name of the file that a thread mapped last.
//!
//! The kernel takes longer to name a descriptor's file than to map it, and programs may map parts of one
//! file thousands of times in a row. So the kernel is asked again only
//!
//! - if the descriptor is another one, or stands for another file;
//! - after a call of this thread that may have given the file another name;
//! - after [`RUN`] mappings. Other threads and processes may have given it another name.

use crate::sys;
use alloc::vec::Vec;

/// Mappings for which the kernel is asked once.
const RUN: u32 = 64;

/// See the module's description.
#[derive(Default)]
pub struct MappedFile(Option<Known>);

struct Known {
    fd: i32,
    /// Device and inode.
    file: (u64, u64),
    /// The canonical path. Empty if it cannot be found.
    path: Vec<u8>,
    /// For how many more mappings it is believed.
    left: u32,
}

impl MappedFile {
    /// Asks anew at the next mapping.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Path, and device with inode, of the file that was just mapped by this descriptor. The path
    /// is empty if it cannot be found.
    pub fn look(&mut self, fd: i32) -> (&[u8], Option<(u64, u64)>) {
        let Ok(st) = sys::fstat(fd) else {
            self.0 = None;
            return (&[], None);
        };
        let file = (st.st_dev, st.st_ino);
        let known = self.0.take();
        let known = known.filter(|k| k.left > 0 && (k.fd, k.file) == (fd, file));
        let mut known = known.unwrap_or_else(|| Known {
            fd,
            file,
            path: sys::fd_path(fd),
            left: RUN,
        });
        known.left -= 1;
        (&self.0.insert(known).path, Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::__NR_dup2;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    /// Each name is the present one where the thread may have changed it, and an old one for less
    /// than a run of mappings where somebody else has.
    #[test]
    #[cfg_attr(miri, ignore = "opens a file by a system call")]
    fn names_are_asked_for_when_they_may_have_changed() {
        let dir = std::env::temp_dir().join(format!("mapped-file-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let paths = ["a", "b", "c"].map(|name| dir.join(name));
        let bytes = paths.each_ref().map(|p| p.as_os_str().as_bytes());
        let file = File::create(&paths[0]).unwrap();
        let other = File::create(&paths[2]).unwrap();
        let fd = file.as_raw_fd();
        let mut mapped = MappedFile::default();
        let (path, id) = mapped.look(fd);
        assert_eq!(path, bytes[0]);
        assert!(id.is_some());
        fs::rename(&paths[0], &paths[1]).unwrap();
        assert_eq!((1..RUN).find(|_| mapped.look(fd).0 != bytes[0]), None);
        assert_eq!(mapped.look(fd), (bytes[1], id));
        fs::rename(&paths[1], &paths[0]).unwrap();
        mapped.forget();
        assert_eq!(mapped.look(fd), (bytes[0], id));
        // Another descriptor, and another file with the same descriptor.
        assert_eq!(mapped.look(other.as_raw_fd()).0, bytes[2]);
        assert_eq!(mapped.look(fd).0, bytes[0]);
        let args = [other.as_raw_fd() as u64, fd as u64, 0, 0, 0, 0];
        // SAFETY: both descriptors are this test's own, and the call touches no memory.
        assert_eq!(unsafe { sys::raw(__NR_dup2, args) }, fd as u64);
        assert_eq!(mapped.look(fd).0, bytes[2]);
        assert_eq!(mapped.look(-1), (&[][..], None));
        fs::remove_dir_all(&dir).unwrap();
    }
}
