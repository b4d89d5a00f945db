//! What each system call does to the descriptors of a process, and what it moves through them.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::super::system::ERRORS;
use hindsight_syscalls::abi::*;

/// The kernel moves no more bytes in a call (`MAX_RW_COUNT`). A forged recording may say otherwise.
const MOST: u64 = 0x7fff_f000;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the descriptor to the program.
    In,
    /// From the program to the descriptor.
    Out,
}

/// Where the bytes of a call are in memory.
#[allow(missing_docs, reason = "named as what they are")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// There.
    Buffer(u64),
    /// In a list of this many buffers (`struct iovec`).
    List(u64, u64),
    /// In the list of a message (`struct msghdr`).
    Message(u64),
}

/// What a call did to descriptors. Descriptors are `fd`, `from` and `to`; `on_exec` says that the next program does not get
/// it; addresses of memory are `at`, `address` and `path`.
#[allow(missing_docs, reason = "named as what they are")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing to descriptors, as far as is known.
    Nothing,
    /// It opened a file by its path, which stands in memory.
    Open {
        fd: i32,
        dir: i32,
        path: u64,
        flags: Flags,
    },
    /// It made a descriptor of another kind.
    Made {
        fd: i32,
        what: &'static str,
        on_exec: bool,
    },
    /// It made two descriptors, whose numbers stand in memory: of a pipe, or else of two sockets.
    Pair {
        at: u64,
        pipe: bool,
        on_exec: bool,
    },
    /// It copied a descriptor.
    Copy {
        from: i32,
        to: i32,
        on_exec: bool,
    },
    /// It closed these.
    Close {
        first: i32,
        last: i32,
    },
    /// It chose whether the next program gets these.
    OnExec {
        first: i32,
        last: i32,
        close: bool,
    },
    /// It accepted a connection. The address of the peer stands in memory, and its length at `len`.
    Accept {
        fd: i32,
        listener: i32,
        address: u64,
        len: u64,
        on_exec: bool,
    },
    /// It connected a socket to an address, or gave it one.
    Address {
        fd: i32,
        address: u64,
        len: u64,
        peer: bool,
    },
    /// It told the address of a socket or of its peer, with the length at `len`.
    Told {
        fd: i32,
        address: u64,
        len: u64,
        peer: bool,
    },
    /// It made a thread or a process. `None`: memory says whether both have the same descriptors (`clone3`).
    Fork {
        child: i32,
        shares: Option<bool>,
    },
    /// It is about to load another program, if it does not fail.
    Exec,
    /// The descriptors of the thread became its own. Perhaps it closed some of them, or chose that the next program gets
    /// them not.
    Unshare(Option<(i32, i32, bool)>),
    /// The working directory became this path, or that of a descriptor.
    Folder(u64),
    FolderOf(i32),
    /// It moved bytes between memory and a descriptor.
    Move {
        fd: i32,
        way: Way,
        parts: Parts,
        len: u64,
    },
    /// It filled memory with random bytes, without a descriptor.
    Random {
        at: u64,
        len: u64,
    },
    /// It told where in a file the next bytes are read or written, or else chose that.
    Seek {
        fd: i32,
        to: u64,
        moves: bool,
    },
    /// It mapped a file.
    Map {
        fd: i32,
    },
    /// It moved messages between memory and a descriptor (`struct mmsghdr`).
    Messages {
        fd: i32,
        way: Way,
        at: u64,
        count: u64,
    },
    /// It moved bytes from a descriptor to another one. They never were in memory.
    Between {
        from: i32,
        to: i32,
        len: u64,
    },
    /// It may move bytes, or make descriptors, in ways that are not recorded.
    Hidden,
}

/// How a file is opened.
#[allow(missing_docs, reason = "named as what they are")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    Are(u32),
    /// They stand in memory (`struct open_how`).
    At(u64),
}

/// What was asked for at a call, and what came of it.
pub fn effect(number: u64, a: &[u64; 6], result: Option<u64>) -> Effect {
    let fd = |i: usize| a[i] as i32;
    let Some(r) = result else {
        return match number {
            __NR_execve | __NR_execveat => Effect::Exec,
            _ => Effect::Nothing,
        };
    };
    if r >= ERRORS {
        let unknown = r == (-EBADF as i64) as u64;
        return match number {
            // A descriptor is closed even if that has told an error.
            __NR_close if !unknown => Effect::Close {
                first: fd(0),
                last: fd(0),
            },
            __NR_connect if r == (-EINPROGRESS as i64) as u64 => address(a, true),
            _ => Effect::Nothing,
        };
    }
    match number {
        __NR_open | __NR_openat | __NR_openat2 | __NR_creat => opened(number, a, r as i32),
        __NR_close | __NR_close_range | __NR_unshare => closed(number, a),
        __NR_dup | __NR_dup2 | __NR_dup3 | __NR_fcntl | __NR_ioctl => copied(number, a, r),
        __NR_pipe | __NR_pipe2 => Effect::Pair {
            at: a[0],
            pipe: true,
            on_exec: number == __NR_pipe2 && fd(1) & O_CLOEXEC != 0,
        },
        __NR_socketpair => Effect::Pair {
            at: a[3],
            pipe: false,
            on_exec: fd(1) & SOCK_CLOEXEC != 0,
        },
        __NR_accept | __NR_accept4 => Effect::Accept {
            fd: r as i32,
            listener: fd(0),
            address: a[1],
            len: a[2],
            on_exec: number == __NR_accept4 && fd(3) & SOCK_CLOEXEC != 0,
        },
        __NR_getsockname | __NR_getpeername => Effect::Told {
            fd: fd(0),
            address: a[1],
            len: a[2],
            peer: number == __NR_getpeername,
        },
        __NR_connect => address(a, true),
        __NR_bind => address(a, false),
        __NR_fork | __NR_vfork => Effect::Fork {
            child: r as i32,
            shares: Some(false),
        },
        __NR_clone => Effect::Fork {
            child: r as i32,
            shares: Some(fd(0) & CLONE_FILES != 0),
        },
        __NR_clone3 => Effect::Fork {
            child: r as i32,
            shares: None,
        },
        __NR_getrandom if r > 0 => Effect::Random {
            at: a[0],
            len: r.min(a[1]).min(MOST),
        },
        __NR_lseek => Effect::Seek {
            fd: fd(0),
            to: r,
            // Asking for the place moves nothing.
            moves: (a[1], a[2] as i32) != (0, SEEK_CUR),
        },
        __NR_mmap if fd(3) & MAP_ANONYMOUS == 0 => Effect::Map { fd: fd(4) },
        __NR_chdir => Effect::Folder(a[0]),
        __NR_fchdir => Effect::FolderOf(fd(0)),
        __NR_io_submit | __NR_io_uring_setup | __NR_pidfd_getfd => Effect::Hidden,
        _ => match made(number, a) {
            Some((what, on_exec)) => Effect::Made {
                fd: r as i32,
                what,
                on_exec,
            },
            None => moved(number, a, r),
        },
    }
}

fn opened(number: u64, a: &[u64; 6], fd: i32) -> Effect {
    let (dir, path, flags) = match number {
        __NR_open => (AT_FDCWD, a[0], Flags::Are(a[1] as u32)),
        __NR_creat => (
            AT_FDCWD,
            a[0],
            Flags::Are((O_CREAT | O_WRONLY | O_TRUNC) as u32),
        ),
        __NR_openat => (a[0] as i32, a[1], Flags::Are(a[2] as u32)),
        _ => (a[0] as i32, a[1], Flags::At(a[2])),
    };
    Effect::Open {
        fd,
        dir,
        path,
        flags,
    }
}

fn address(a: &[u64; 6], peer: bool) -> Effect {
    Effect::Address {
        fd: a[0] as i32,
        address: a[1],
        len: a[2] as u32 as u64,
        peer,
    }
}

/// Calls that close descriptors, or make them a thread's own.
fn closed(number: u64, a: &[u64; 6]) -> Effect {
    if number == __NR_unshare {
        return match a[0] as i32 & CLONE_FILES {
            0 => Effect::Nothing,
            _ => Effect::Unshare(None),
        };
    }
    // Descriptors are numbers of 31 bits, and a range may go beyond.
    let limited = |n: u64| (n as u32).min(i32::MAX as u32) as i32;
    let first = limited(a[0]);
    if number == __NR_close {
        return Effect::Close { first, last: first };
    }
    let (last, flags) = (limited(a[1]), a[2] as u32);
    let close = flags & CLOSE_RANGE_CLOEXEC == 0;
    match (flags & CLOSE_RANGE_UNSHARE != 0, close) {
        (true, _) => Effect::Unshare(Some((first, last, close))),
        (false, true) => Effect::Close { first, last },
        (false, false) => Effect::OnExec {
            first,
            last,
            close: true,
        },
    }
}

/// Calls that copy descriptors, or say what the next program gets of them.
fn copied(number: u64, a: &[u64; 6], r: u64) -> Effect {
    let (from, to) = (a[0] as i32, r as i32);
    let on_exec = |close: bool| Effect::OnExec {
        first: from,
        last: from,
        close,
    };
    let copy = |on_exec: bool| match from == to {
        true => Effect::Nothing,
        false => Effect::Copy { from, to, on_exec },
    };
    match (number, a[1] as u32) {
        (__NR_dup | __NR_dup2, _) => copy(false),
        (__NR_dup3, _) => copy(a[2] as i32 & O_CLOEXEC != 0),
        (__NR_fcntl, F_DUPFD) => copy(false),
        (__NR_fcntl, F_DUPFD_CLOEXEC) => copy(true),
        (__NR_fcntl, F_SETFD) => on_exec(a[2] as i32 & FD_CLOEXEC != 0),
        (__NR_ioctl, request) if request == FIOCLEX => on_exec(true),
        (__NR_ioctl, request) if request == FIONCLEX => on_exec(false),
        _ => Effect::Nothing,
    }
}

/// What descriptor a call returns, and whether the next program does not get it.
fn made(number: u64, a: &[u64; 6]) -> Option<(&'static str, bool)> {
    let flag = |i: usize, bit: i32| a[i] as i32 & bit != 0;
    Some(match number {
        __NR_socket => ("socket", flag(1, SOCK_CLOEXEC)),
        __NR_eventfd => ("eventfd", false),
        __NR_eventfd2 => ("eventfd", flag(1, EFD_CLOEXEC)),
        __NR_timerfd_create => ("timerfd", flag(1, TFD_CLOEXEC)),
        // With a descriptor these two change it and return its number.
        __NR_signalfd if a[0] as i32 == -1 => ("signalfd", false),
        __NR_signalfd4 if a[0] as i32 == -1 => ("signalfd", flag(3, SFD_CLOEXEC)),
        __NR_epoll_create => ("epoll", false),
        __NR_epoll_create1 => ("epoll", flag(0, EPOLL_CLOEXEC)),
        __NR_inotify_init => ("inotify", false),
        __NR_inotify_init1 => ("inotify", flag(0, IN_CLOEXEC)),
        __NR_fanotify_init => ("fanotify", flag(0, 1)),
        __NR_memfd_create => ("memfd", flag(1, MFD_CLOEXEC as i32)),
        __NR_memfd_secret => ("memfd", flag(0, O_CLOEXEC)),
        __NR_pidfd_open => ("pidfd", true),
        __NR_userfaultfd => ("userfaultfd", flag(0, O_CLOEXEC)),
        __NR_perf_event_open => ("perf", flag(4, 8)),
        __NR_mq_open => ("message queue", true),
        __NR_landlock_create_ruleset if a[0] != 0 => ("landlock", true),
        __NR_open_by_handle_at => ("file by handle", flag(2, O_CLOEXEC)),
        __NR_open_tree => ("mount", flag(2, O_CLOEXEC)),
        __NR_fsopen => ("mount", flag(1, 1)),
        __NR_fsmount => ("mount", flag(1, 1)),
        __NR_fspick => ("mount", flag(2, 1)),
        _ => return None,
    })
}

/// Calls that move bytes.
fn moved(number: u64, a: &[u64; 6], r: u64) -> Effect {
    let fd = a[0] as i32;
    let peeks = |i: usize| a[i] as i32 & (MSG_PEEK | MSG_ERRQUEUE) != 0;
    let (way, parts, len) = match number {
        __NR_read | __NR_pread64 => (Way::In, Parts::Buffer(a[1]), r.min(a[2])),
        // With MSG_TRUNC more may be returned than was received.
        __NR_recvfrom if !peeks(3) => (Way::In, Parts::Buffer(a[1]), r.min(a[2])),
        __NR_write | __NR_pwrite64 | __NR_sendto => (Way::Out, Parts::Buffer(a[1]), r.min(a[2])),
        __NR_readv | __NR_preadv | __NR_preadv2 => (Way::In, Parts::List(a[1], a[2]), r),
        __NR_writev | __NR_pwritev | __NR_pwritev2 => (Way::Out, Parts::List(a[1], a[2]), r),
        __NR_recvmsg if !peeks(2) => (Way::In, Parts::Message(a[1]), r),
        __NR_sendmsg => (Way::Out, Parts::Message(a[1]), r),
        __NR_recvmmsg if !peeks(3) => return messages(a, Way::In, r),
        __NR_sendmmsg => return messages(a, Way::Out, r),
        // Into the writing end of a pipe. At the reading end it reads instead (`Table` knows which it is).
        __NR_vmsplice => (Way::Out, Parts::List(a[1], a[2]), r),
        __NR_sendfile => return between(a[1], a[0], r),
        __NR_splice | __NR_copy_file_range => return between(a[0], a[2], r),
        __NR_tee => return between(a[0], a[1], r),
        _ => return Effect::Nothing,
    };
    match len.min(MOST) {
        0 => Effect::Nothing,
        len => Effect::Move {
            fd,
            way,
            parts,
            len,
        },
    }
}

/// Where a call says in which place of a file it reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where the last one ended.
    Next,
    /// There.
    At(u64),
    /// It stands in memory.
    Found(u64),
}

/// Where a call reads or writes. It does so in the descriptor that it reads, or else the one that it writes.
pub fn place(number: u64, a: &[u64; 6], way: Way) -> Place {
    let found = |at: u64| match at {
        0 => Place::Next,
        at => Place::Found(at),
    };
    match (number, way) {
        (__NR_preadv2 | __NR_pwritev2, _) if a[3] == u64::MAX => Place::Next,
        (
            __NR_pread64 | __NR_pwrite64 | __NR_preadv | __NR_pwritev | __NR_preadv2
            | __NR_pwritev2,
            _,
        ) => Place::At(a[3]),
        (__NR_sendfile, Way::In) => found(a[2]),
        (__NR_splice | __NR_copy_file_range, Way::In) => found(a[1]),
        (__NR_splice | __NR_copy_file_range, Way::Out) => found(a[3]),
        _ => Place::Next,
    }
}

fn messages(a: &[u64; 6], way: Way, count: u64) -> Effect {
    Effect::Messages {
        fd: a[0] as i32,
        way,
        at: a[1],
        count,
    }
}

fn between(from: u64, to: u64, len: u64) -> Effect {
    match len.min(MOST) {
        0 => Effect::Nothing,
        len => Effect::Between {
            from: from as i32,
            to: to as i32,
            len,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: u64, args: &[i64], result: i64) -> Effect {
        let mut a = [0; 6];
        for (to, from) in a.iter_mut().zip(args) {
            *to = *from as u64;
        }
        effect(number, &a, Some(result as u64))
    }

    #[test]
    fn only_what_was_moved_counts() {
        let out = |len| Effect::Move {
            fd: 1,
            way: Way::Out,
            parts: Parts::Buffer(0x1000),
            len,
        };
        assert_eq!(did(__NR_write, &[1, 0x1000, 10], 10), out(10));
        assert_eq!(did(__NR_write, &[1, 0x1000, 10], 3), out(3));
        assert_eq!(did(__NR_write, &[1, 0x1000, 10], 0), Effect::Nothing);
        let failed = -EPIPE as i64;
        assert_eq!(did(__NR_write, &[1, 0x1000, 10], failed), Effect::Nothing);
        assert_eq!(
            effect(__NR_write, &[1, 0x1000, 10, 0, 0, 0], None),
            Effect::Nothing
        );
        // A datagram that was longer than the buffer.
        let cut = did(__NR_recvfrom, &[4, 0x1000, 10, MSG_TRUNC as i64], 90);
        assert!(matches!(cut, Effect::Move { len: 10, .. }), "{cut:?}");
        let seen = did(__NR_recvfrom, &[4, 0x1000, 10, MSG_PEEK as i64], 9);
        assert_eq!(seen, Effect::Nothing);
    }

    #[test]
    fn copies_and_ends_of_descriptors() {
        let copy = |from, to, on_exec| Effect::Copy { from, to, on_exec };
        assert_eq!(did(__NR_dup, &[1], 5), copy(1, 5, false));
        assert_eq!(did(__NR_dup2, &[5, 1], 1), copy(5, 1, false));
        assert_eq!(did(__NR_dup2, &[5, 5], 5), Effect::Nothing);
        let dup3 = did(__NR_dup3, &[5, 1, O_CLOEXEC as i64], 1);
        assert_eq!(dup3, copy(5, 1, true));
        let at_10 = did(__NR_fcntl, &[1, F_DUPFD_CLOEXEC as i64, 10], 12);
        assert_eq!(at_10, copy(1, 12, true));
        let close = |first, last| Effect::Close { first, last };
        assert_eq!(did(__NR_close, &[5], 0), close(5, 5));
        assert_eq!(did(__NR_close, &[5], -EIO as i64), close(5, 5));
        assert_eq!(did(__NR_close, &[5], -EBADF as i64), Effect::Nothing);
        let rest = did(__NR_close_range, &[3, 0xffff_ffff, 0], 0);
        assert_eq!(rest, close(3, i32::MAX));
        let own = did(__NR_close_range, &[3, 9, 6], 0);
        assert_eq!(own, Effect::Unshare(Some((3, 9, false))));
    }
}
