//! What a call is about. Two calls, a recorded one and one that is made now, may be the same if their keys are.

use super::class::{Class, class};
use super::table::FileId;
use hindsight_syscalls::{Arg, signature};
use libc::*;
use std::sync::Arc;

/// What a call is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The thread that makes it: 0 is the first one of its process.
    lane: u32,
    /// The call's number, or that of a call that does the same.
    number: u64,
    /// The paths that it was given.
    paths: Arc<[u8]>,
    /// What its descriptors lead to.
    files: [File; 2],
    /// What the descriptors lead to that it sends in a message.
    sent: Vec<File>,
    /// What else matters of its arguments.
    detail: [u64; 3],
}

/// What a descriptor leads to, on the recorded side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum File {
    /// The call has no such descriptor.
    None,
    /// No open file.
    Closed,
    /// This one.
    Is(FileId),
    /// One that is not recorded. It is equal to no other.
    Foreign(FileId),
}

impl Key {
    /// The same call, made by another thread.
    pub fn by(self, lane: u32) -> Key {
        Key { lane, ..self }
    }

    /// The same call, with which descriptors are sent that lead to these files.
    pub fn sending(self, sent: Vec<File>) -> Key {
        Key { sent, ..self }
    }

    /// The open file that the call is about.
    pub fn file(&self) -> File {
        self.files[0]
    }

    /// Whether only the paths differ.
    pub fn is_like(&self, other: &Key) -> bool {
        let all = |k: &Key| (k.lane, k.number, k.files, k.detail);
        all(self) == all(other) && self.sent == other.sent
    }
}

/// The key of a call. `texts` are the texts that it was given, `find` says what a descriptor leads to.
pub fn key(
    number: u64,
    args: &[u64; 6],
    texts: &[Option<Vec<u8>>],
    find: &dyn Fn(i32) -> File,
) -> Key {
    let mut files = [File::None; 2];
    let mut n = 0;
    let name = hindsight_timeline::syscall_name(number);
    for (arg, value) in signature(&name)
        .map_or(&[][..], |s| s.args)
        .iter()
        .zip(args)
    {
        let fd = *value as i32;
        let is_folder = *arg == Arg::Dir && fd != AT_FDCWD;
        if (*arg == Arg::Fd || is_folder) && n < 2 {
            files[n] = find(fd);
            n += 1;
        }
    }
    let mut paths = Vec::new();
    for text in texts.iter().flatten() {
        paths.extend_from_slice(text);
        paths.push(0);
    }
    // A path that leads from the root or from the working directory does not depend on a folder.
    if paths.first() == Some(&b'/') {
        files = [File::None; 2];
    }
    Key {
        lane: 0,
        number: same(number, args),
        paths: paths.into(),
        files,
        sent: Vec::new(),
        detail: detail(number, args),
    }
}

/// Calls that do the same have one number.
fn same(number: u64, args: &[u64; 6]) -> u64 {
    let one = match class(number, args) {
        Class::Write => SYS_write,
        Class::Read if number as i64 != SYS_getrandom => SYS_read,
        Class::Open => SYS_openat,
        Class::Fork => SYS_fork,
        Class::Thread => SYS_clone,
        Class::Wait => SYS_wait4,
        _ => match number as i64 {
            SYS_pipe2 => SYS_pipe,
            SYS_accept4 => SYS_accept,
            SYS_eventfd2 => SYS_eventfd,
            SYS_clock_nanosleep => SYS_nanosleep,
            SYS_ppoll => SYS_poll,
            SYS_epoll_pwait | SYS_epoll_pwait2 => SYS_epoll_wait,
            SYS_epoll_create1 => SYS_epoll_create,
            n => n,
        },
    };
    one as u64
}

fn detail(number: u64, a: &[u64; 6]) -> [u64; 3] {
    let low = |n: u64| n as u32 as u64;
    match number as i64 {
        SYS_open => opened(a[1], a[2]),
        SYS_openat => opened(a[2], a[3]),
        SYS_creat => opened((O_CREAT | O_WRONLY | O_TRUNC) as u64, a[1]),
        SYS_fcntl if a[1] as i32 == F_SETFL => [low(a[1]), low(a[2]), 0],
        SYS_ioctl | SYS_fcntl | SYS_prctl | SYS_clock_gettime | SYS_clock_getres => {
            let at = usize::from(matches!(number as i64, SYS_ioctl | SYS_fcntl));
            [low(a[at]), 0, 0]
        }
        SYS_lseek => [a[1], low(a[2]), 0],
        SYS_socket | SYS_socketpair => [low(a[0]), low(a[1]) & 0xff, 0],
        SYS_getsockopt | SYS_setsockopt => [low(a[1]), low(a[2]), 0],
        SYS_prlimit64 => [low(a[1]), u64::from(a[2] != 0), 0],
        SYS_getrlimit | SYS_setrlimit | SYS_getrusage | SYS_getpgid | SYS_getsid | SYS_umask => {
            [low(a[0]), 0, 0]
        }
        // Ids of processes are the recorded ones.
        SYS_kill | SYS_tkill | SYS_rt_sigqueueinfo => [low(a[1]), low(a[0]), 0],
        SYS_tgkill | SYS_rt_tgsigqueueinfo => [low(a[2]), low(a[0]), 0],
        SYS_epoll_ctl | SYS_access => [low(a[1]), 0, 0],
        // What is changed in a file, or in what is said of it.
        SYS_truncate | SYS_ftruncate => [a[1], 0, 0],
        SYS_fallocate => [low(a[1]), a[2], a[3]],
        SYS_chmod | SYS_fchmod | SYS_mkdir => [low(a[1]), 0, 0],
        SYS_fchmodat | SYS_fchmodat2 | SYS_mkdirat | SYS_unlinkat => [low(a[2]), 0, 0],
        SYS_mknod => [low(a[1]), a[2], 0],
        SYS_mknodat => [low(a[2]), a[3], 0],
        SYS_chown | SYS_fchown | SYS_lchown => [low(a[1]), low(a[2]), 0],
        SYS_fchownat => [low(a[2]), low(a[3]), 0],
        SYS_renameat2 => [low(a[4]), 0, 0],
        SYS_faccessat | SYS_faccessat2 => [low(a[2]), 0, 0],
        _ => [0; 3],
    }
}

/// How a file is opened: whether it is written, whether it must be a folder, and what becomes of its content and its end. Of a
/// file that is made, who may use it.
fn opened(flags: u64, mode: u64) -> [u64; 3] {
    let flags = flags as i32;
    let how = flags & (O_DIRECTORY | O_TRUNC | O_APPEND);
    let mode = if flags & O_CREAT != 0 { mode } else { 0 };
    [
        u64::from(flags & (O_WRONLY | O_RDWR) != 0),
        how as u64,
        mode as u32 as u64,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i64, args: [u64; 6], text: Option<&str>) -> Key {
        let texts: Vec<_> = text
            .map(|t| Some(t.as_bytes().to_vec()))
            .into_iter()
            .collect();
        key(number as u64, &args, &texts, &|fd| File::Is(fd as u32))
    }

    #[test]
    fn sizes_and_addresses_do_not_matter_and_files_do() {
        let a = of(SYS_read, [3, 0x1000, 4096, 0, 0, 0], None);
        assert_eq!(a, of(SYS_read, [3, 0x7000, 65536, 0, 0, 0], None));
        assert_eq!(a, of(SYS_pread64, [3, 0x7000, 5, 0, 0, 0], None));
        assert_ne!(a, of(SYS_read, [4, 0x1000, 4096, 0, 0, 0], None));
        assert_ne!(a, of(SYS_write, [3, 0x1000, 4096, 0, 0, 0], None));
    }

    #[test]
    fn paths_and_requests_matter() {
        let at = AT_FDCWD as u64;
        let a = of(SYS_openat, [at, 1, 0, 0, 0, 0], Some("/a"));
        assert_eq!(a, of(SYS_open, [7, 0, 0, 0, 0, 0], Some("/a")));
        assert_ne!(a, of(SYS_openat, [at, 1, 0, 0, 0, 0], Some("/b")));
        assert_ne!(
            a,
            of(SYS_openat, [at, 1, O_RDWR as u64, 0, 0, 0], Some("/a"))
        );
        for how in [O_TRUNC, O_APPEND] {
            let open = |how: i32| {
                of(
                    SYS_open,
                    [7, (O_WRONLY | how) as u64, 0, 0, 0, 0],
                    Some("/a"),
                )
            };
            assert_ne!(open(0), open(how));
        }
        let made = |mode| of(SYS_creat, [7, mode, 0, 0, 0, 0], Some("/a"));
        assert_ne!(made(0o600), made(0o644));
        let flags = (O_CREAT | O_WRONLY | O_TRUNC) as u64;
        assert_eq!(
            made(0o600),
            of(SYS_open, [7, flags, 0o600, 0, 0, 0], Some("/a"))
        );
        let cut = |len| of(SYS_ftruncate, [3, len, 0, 0, 0, 0], None);
        assert_ne!(cut(0), cut(1));
        let filled = |from| of(SYS_fallocate, [3, 0, from, 9, 0, 0], None);
        assert_ne!(filled(0), filled(1));
        let seek = |to| of(SYS_lseek, [3, to, 0, 0, 0, 0], None);
        assert_ne!(seek(0), seek(1));
    }

    #[test]
    fn what_is_not_recorded_equals_nothing_that_is() {
        let a = key(SYS_read as u64, &[3, 0, 0, 0, 0, 0], &[], &|_| {
            File::Foreign(3)
        });
        assert_ne!(a, of(SYS_read, [3, 0, 0, 0, 0, 0], None));
    }
}
