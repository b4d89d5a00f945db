//! System calls that name the program's own file, or other files of `/proc` that the kernel would
//! fill with what the recorder does.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::memory::page_sharing;
use crate::process::procfiles::{self, File};
use crate::stream::descriptor;
use crate::sys::{guard, program, stub};
use crate::thread::Thread;
use crate::thread::call::errno;
use crate::thread::pass::pass;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// How a call names a file.
struct Named {
    /// Index of the argument with the directory, if it has one.
    dir: Option<usize>,
    /// Index of the argument with the path.
    path: usize,
    /// What is asked for.
    what: What,
}

/// What a call asks for.
#[derive(Clone, Copy)]
enum What {
    /// A descriptor, opened with these flags.
    Open(u32),
    /// Where the link leads.
    Link,
    /// Something about the file behind the link.
    File,
}

fn named(nr: u32, a: &[u64; 6]) -> Option<Named> {
    let nofollow = |flags: u64| flags as u32 & AT_SYMLINK_NOFOLLOW != 0;
    let (dir, path, what) = match nr {
        __NR_open => (None, 0, What::Open(a[1] as u32)),
        __NR_openat => (Some(0), 1, What::Open(a[2] as u32)),
        __NR_openat2 => {
            let flags = guard::load_u64(a[2]).ok()?;
            (Some(0), 1, What::Open(flags as u32))
        }
        __NR_readlink => (None, 0, What::Link),
        __NR_readlinkat => (Some(0), 1, What::Link),
        __NR_stat | __NR_access | __NR_statfs | __NR_getxattr | __NR_listxattr | __NR_chmod
        | __NR_truncate => (None, 0, What::File),
        __NR_faccessat => (Some(0), 1, What::File),
        // If they do not follow links, they are about the link itself.
        __NR_newfstatat | __NR_faccessat2 if nofollow(a[3]) => return None,
        __NR_statx | __NR_getxattrat | __NR_listxattrat if nofollow(a[2]) => return None,
        __NR_file_getattr if nofollow(a[4]) => return None,
        __NR_name_to_handle_at if a[4] as u32 & AT_SYMLINK_FOLLOW == 0 => return None,
        __NR_newfstatat
        | __NR_faccessat2
        | __NR_statx
        | __NR_getxattrat
        | __NR_listxattrat
        | __NR_file_getattr
        | __NR_name_to_handle_at => (Some(0), 1, What::File),
        _ => return None,
    };
    Some(Named { dir, path, what })
}

/// Performs the call if it is one of these and names such a file, otherwise returns `None`. The
/// inner `None`: a signal has to be delivered first.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Option<u64>> {
    let n = named(nr, a)?;
    let name = guard::read_path(a[n.path])?;
    let dir = n.dir.map_or(AT_FDCWD, |i| a[i] as i32);
    let (file, tid) = if name.is_empty() && matches!(n.what, What::Link) {
        // The descriptor stands for the link itself.
        procfiles::find(AT_FDCWD, &procfiles::link_of(dir)?)?
    } else {
        procfiles::find(dir, &name)?
    };
    match (file, n.what) {
        (File::Exe, What::Link) => Some(Some(read_link(a[n.path + 1], a[n.path + 2] as i32))),
        (File::Exe, What::Open(flags)) if flags & O_NOFOLLOW != 0 => None,
        (File::Exe, What::Open(flags)) => {
            if nr == __NR_openat2 && !follows_links(a) {
                return Some(Some(errno(ELOOP)));
            }
            match program::refuses(flags) {
                Some(e) => Some(Some(errno(e))),
                None => Some(on_file(t, nr, a, &n)),
            }
        }
        (File::Exe, What::File) => Some(on_file(t, nr, a, &n)),
        (File::Descriptors, What::File) => Some(counted(t, nr, a)),
        (File::Descriptors, _) => None,
        (_, What::Open(flags)) if flags & O_PATH == 0 => {
            // The file has to show the mappings that the program has made.
            page_sharing::end(t);
            Some(Some(procfiles::open(t, file, tid, flags)))
        }
        _ => None,
    }
}

/// Performs a call about the directory of descriptors. Does not count the recorder's descriptor in
/// its size.
fn counted(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    // Addresses of `st_size` and `stx_size`.
    let size = match nr {
        __NR_stat => a[1] + 48,
        __NR_newfstatat => a[2] + 48,
        __NR_statx => a[4] + 40,
        _ => return pass(t, nr, a),
    };
    let ret = pass(t, nr, a)?;
    if ret == 0
        && descriptor::fd().is_some()
        && let Ok(n @ 1..) = guard::load_u64(size)
    {
        let _ = guard::write(size, &(n - 1).to_le_bytes());
    }
    Some(ret)
}

/// Whether `openat2` follows links of the kind that `/proc` has.
fn follows_links(a: &[u64; 6]) -> bool {
    const NO_MAGICLINKS: u64 = 2;
    const NO_SYMLINKS: u64 = 4;
    guard::load_u64(a[2] + 16).is_ok_and(|r| r & (NO_MAGICLINKS | NO_SYMLINKS) == 0)
}

fn read_link(buf: u64, size: i32) -> u64 {
    if size <= 0 {
        return errno(EINVAL);
    }
    let link = program::link();
    let n = link.len().min(size as usize);
    match guard::write(buf, &link[..n]) {
        Ok(()) => n as u64,
        Err(_) => errno(EFAULT),
    }
}

/// Makes the program's call, with its own file in place of the link.
fn on_file(t: &mut Thread, nr: u32, a: &[u64; 6], n: &Named) -> Option<u64> {
    let (name, _held) = program::path();
    let mut a = *a;
    a[n.path] = name.as_ptr() as u64;
    // SAFETY: `name` lives until the call returns, and all other arguments are the program's own.
    // The call reads the file that the path names, and writes to memory of the program only.
    unsafe { stub::call(nr as u64, a, &t.inbox.full) }
}
