//! File systems in which the kernel shows itself.
//!
//! Their files look regular, but belong to processes or to the machine. Some of them do something when they are read. Files
//! that are named by somebody else are none of these.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The numbers of these file systems (`linux/magic.h`, and the kernel's sources for those that stand nowhere else). The files
/// of `devtmpfs` are like those of `tmpfs`: apart from the devices they are plain files.
const KINDS: [u64; 24] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0x6573_5543, // fusectl
    0x6165_676c, // pstore
    0x4249_4e4d, // binfmt_misc
    0x6e73_6673, // nsfs
    0x6c6f_6f70, // binder
    0x0765_5821, // resctrl
    0xabba_1974, // xenfs
    0x6e66_7364, // nfsd
    0x6759_6969, // rpc_pipefs
    0x1980_0202, // mqueue
    0x0187,      // autofs
];

/// Whether an open file is in such a file system. It may be open only as a name (`O_PATH`).
pub fn shows_itself(file: &File) -> io::Result<bool> {
    // SAFETY: the structure is only numbers, for which zero is valid.
    let mut s: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is there to be written.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut s) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // The numbers have 32 bits.
    Ok(KINDS.contains(&(s.f_type as u64 & 0xffff_ffff)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn file_systems_are_told_apart() {
        let named = |path: &str| {
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(libc::O_PATH);
            shows_itself(&options.open(path).unwrap()).unwrap()
        };
        assert!(named("/proc/self/status"));
        assert!(named("/proc/self/../self/maps"));
        // It leads to a file elsewhere.
        assert!(!named("/proc/self/exe"));
        assert!(!named("/dev/null"));
        assert!(!shows_itself(&tempfile::tempfile().unwrap()).unwrap());
    }
}
