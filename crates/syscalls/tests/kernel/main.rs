//! Makes system calls, and compares what changes in memory with what was said.

mod queues;

use hindsight_syscalls::{Class, Memory, Range, number, outputs};
use std::ffi::CString;

/// Reads this process's memory through the kernel. So bad addresses do no harm.
struct Own;

impl Memory for Own {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        let local = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let remote = libc::iovec {
            iov_base: addr as *mut _,
            iov_len: buf.len(),
        };
        // SAFETY: `local` describes `buf`; the kernel checks `remote`.
        let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        n == buf.len() as isize
    }
}

const SIZE: usize = 1 << 16;

/// Memory for a call's arguments. Each slot is 4 KiB.
struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    fn new(fill: u8) -> Arena {
        Arena {
            bytes: vec![fill; SIZE],
        }
    }

    fn at(&self, slot: usize) -> u64 {
        self.bytes.as_ptr() as u64 + 4096 * slot as u64
    }

    fn put(&mut self, slot: usize, offset: usize, b: &[u8]) {
        let at = 4096 * slot + offset;
        self.bytes[at..at + b.len()].copy_from_slice(b);
    }
}

fn call(nr: u64, a: &[u64; 6]) -> i64 {
    // SAFETY: the tests pass pointers into their arenas, or to constants.
    let r = unsafe { libc::syscall(nr as i64, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if r == -1 {
        -std::io::Error::last_os_error().raw_os_error().unwrap() as i64
    } else {
        r
    }
}

/// Makes a call twice, in memory with different contents, so that every written byte shows. `prepare` puts its inputs
/// into the arena and returns the arguments.
fn check(name: &str, want: Class, prepare: &dyn Fn(&mut Arena) -> [u64; 6]) -> i64 {
    let nr = number(name).unwrap();
    let mut last = 0;
    for fill in [0x5a, 0xa5] {
        let mut arena = Arena::new(fill);
        let args = prepare(&mut arena);
        let before = arena.bytes.clone();
        let ret = call(nr, &args);
        let mut claimed = vec![false; SIZE];
        let base = arena.at(0);
        let class = outputs(nr as u32, &args, ret, &Own, &mut |r: Range| {
            for a in r.addr..r.addr.saturating_add(r.len.min(1 << 20)) {
                if let Some(c) = claimed.get_mut(a.wrapping_sub(base) as usize) {
                    *c = true;
                }
            }
        });
        assert_eq!(class, want, "{name} returned {ret}");
        // The kernel has written without the compiler's knowledge.
        let now = std::hint::black_box(&mut arena).bytes.as_slice();
        let wrong: Vec<_> = (0..SIZE)
            .filter(|i| now[*i] != before[*i] && !claimed[*i] && class == Class::Known)
            .collect();
        assert!(wrong.is_empty(), "{name} wrote {wrong:x?}, not said");
        last = ret;
    }
    last
}

fn known(name: &str, prepare: &dyn Fn(&mut Arena) -> [u64; 6]) -> i64 {
    check(name, Class::Known, prepare)
}

#[test]
fn calls_about_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let text: Vec<u8> = (0..20000u32).map(|i| (i * 7) as u8).collect();
    std::fs::write(&path, text).unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
    let name = |p: &str| CString::new(dir.path().join(p).to_str().unwrap()).unwrap();
    let (file, link, top) = (name("file"), name("link"), name(""));
    // SAFETY: a valid path.
    let fd = unsafe { libc::open(file.as_ptr(), libc::O_RDONLY) } as u64;
    // SAFETY: as above.
    let dir_fd = unsafe { libc::open(top.as_ptr(), libc::O_RDONLY) } as u64;
    let p = |c: &CString| c.as_ptr() as u64;
    assert_eq!(known("read", &|m| [fd, m.at(1), 4096, 0, 0, 0]), 4096);
    assert_eq!(known("pread64", &|m| [fd, m.at(1), 8192, 12, 0, 0]), 8192);
    // It is not known how much of the buffer was filled before the fault.
    check("pread64", Class::Unknown, &|_| [fd, 8, 8192, 12, 0, 0]);
    assert_eq!(known("lseek", &|_| [fd, 100, 0, 0, 0, 0]), 100);
    let iov = |m: &mut Arena| {
        for (i, len) in [10u64, 4000, 500].into_iter().enumerate() {
            let base = m.at(2 + i);
            m.put(1, 16 * i, &base.to_le_bytes());
            m.put(1, 16 * i + 8, &len.to_le_bytes());
        }
        m.at(1)
    };
    assert_eq!(known("readv", &|m| [fd, iov(m), 3, 0, 0, 0]), 4510);
    assert_eq!(known("preadv", &|m| [fd, iov(m), 3, 19000, 0, 0]), 1000);
    for (call, first) in [("stat", p(&file)), ("lstat", p(&link)), ("fstat", fd)] {
        assert_eq!(known(call, &|m| [first, m.at(1), 0, 0, 0, 0]), 0);
    }
    let cwd = libc::AT_FDCWD as u64;
    assert_eq!(
        known("newfstatat", &|m| [cwd, p(&file), m.at(1), 0, 0, 0]),
        0
    );
    assert_eq!(
        known("statx", &|m| [cwd, p(&file), 0, 0xfff, m.at(1), 0]),
        0
    );
    assert_eq!(known("statfs", &|m| [p(&top), m.at(1), 0, 0, 0, 0]), 0);
    assert_eq!(known("readlink", &|m| [p(&link), m.at(1), 100, 0, 0, 0]), 4);
    assert_eq!(
        known("readlinkat", &|m| [cwd, p(&link), m.at(1), 100, 0, 0]),
        4
    );
    assert!(known("getdents64", &|m| [dir_fd, m.at(1), 4096, 0, 0, 0]) >= 0);
    assert!(known("getcwd", &|m| [m.at(1), 4096, 0, 0, 0, 0]) > 0);
    known("ioctl", &|m| [fd, libc::TCGETS, m.at(1), 0, 0, 0]);
    assert_eq!(
        known("ioctl", &|m| [fd, libc::FIONREAD, m.at(1), 0, 0, 0]),
        0
    );
    check("ioctl", Class::Unknown, &|m| {
        [fd, 0x1234_5678, m.at(1), 0, 0, 0]
    });
    assert_eq!(
        known("fcntl", &|m| {
            // F_RDLCK from the start of the file.
            m.put(1, 0, &[0; 32]);
            [fd, libc::F_GETLK as u64, m.at(1), 0, 0, 0]
        }),
        0
    );
    known("sendfile", &|m| {
        m.put(1, 0, &[0; 8]);
        [fd, fd, m.at(1), 10, 0, 0]
    });
}

/// These came with Linux 6.13 and 6.17. Before, and in file systems without attributes, they write nothing.
#[test]
fn calls_about_attributes_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let (cwd, path) = (libc::AT_FDCWD as u64, path.as_ptr() as u64);
    let name = c"user.hindsight".as_ptr() as u64;
    let args = |m: &mut Arena, size: u32| {
        let value = m.at(2);
        m.put(2, 0, b"seven b");
        m.put(1, 0, &value.to_le_bytes());
        m.put(1, 8, &size.to_le_bytes());
        m.put(1, 12, &[0; 4]);
        m.at(1)
    };
    let set = known("setxattrat", &|m| [cwd, path, 0, name, args(m, 7), 16]);
    let got = known("getxattrat", &|m| {
        m.put(2, 0, &[0; 100]);
        [cwd, path, 0, name, args(m, 100), 16]
    });
    let listed = known("listxattrat", &|m| [cwd, path, 0, m.at(1), 4096, 0]);
    if set == 0 {
        assert_eq!(got, 7);
        assert!(listed >= 15, "{listed}");
    }
    known("removexattrat", &|_| [cwd, path, 0, name, 0, 0]);
    for len in [24, 4096] {
        known("file_getattr", &|m| [cwd, path, m.at(1), len, 0, 0]);
    }
}

#[test]
fn handles_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().to_str().unwrap()).unwrap();
    let (cwd, path) = (libc::AT_FDCWD as u64, path.as_ptr() as u64);
    // One handle is as long as it may be, one is longer than it is, and several have too little room.
    let handle = |room: u32, flags: i32| {
        known("name_to_handle_at", &|m| {
            m.put(1, 0, &room.to_le_bytes());
            [cwd, path, m.at(1), m.at(2), flags as u64, 0]
        })
    };
    let mut len = [0u32; 40];
    let at = len.as_mut_ptr() as u64;
    let nr = number("name_to_handle_at").unwrap();
    let got = call(nr, &[cwd, path, at, at + 152, 0, 0]);
    let len = std::hint::black_box(len)[0];
    let lacking = -libc::EOVERFLOW as i64;
    // Some file systems have no handles.
    assert!([lacking, -libc::EOPNOTSUPP as i64].contains(&got), "{got}");
    // The kernels that have no numbers of mounts with eight bytes know no such flag.
    let unique = libc::AT_HANDLE_MNT_ID_UNIQUE;
    for flags in [0, unique, libc::AT_SYMLINK_FOLLOW] {
        let made = [handle(128, flags), handle(len, flags)];
        let short = [handle(0, flags), handle(len.saturating_sub(1), flags)];
        if got == lacking && (flags != unique || made[0] != -libc::EINVAL as i64) {
            assert_eq!((made, short), ([0; 2], [lacking; 2]), "flags {flags:#x}");
        }
    }
    assert!(handle(129, 0) < 0);
    // The number of the mount stands in the handle, which is written behind it.
    for within in [0, 4, 8] {
        known("name_to_handle_at", &|m| {
            m.put(1, 0, &128u32.to_le_bytes());
            [cwd, path, m.at(1), m.at(1) + within, 0, 0]
        });
    }
    check("name_to_handle_at", Class::Unknown, &|m| {
        m.put(1, 0, &128u32.to_le_bytes());
        [cwd, 8, m.at(1), m.at(2), 0, 0]
    });
}

#[test]
fn calls_about_sockets_and_waiting() {
    known("socketpair", &|m| [1, 1, 0, m.at(1), 0, 0]);
    let mut pair = [0i32; 2];
    // SAFETY: room for both descriptors.
    assert_eq!(unsafe { libc::socketpair(1, 2, 0, pair.as_mut_ptr()) }, 0);
    let (a, b) = (pair[0] as u64, pair[1] as u64);
    let send = |text: &[u8]| {
        // SAFETY: `text` is readable.
        unsafe { libc::send(pair[0], text.as_ptr().cast(), text.len(), 0) };
    };
    let got = known("recvfrom", &|m| {
        send(b"hello");
        m.put(2, 0, &100u32.to_le_bytes());
        [b, m.at(1), 4096, 0, m.at(3), m.at(2)]
    });
    assert_eq!(got, 5);
    // More is returned than fits.
    let got = known("recvfrom", &|m| {
        send(&[7; 3000]);
        [b, m.at(1), 20, libc::MSG_TRUNC as u64, 0, 0]
    });
    assert_eq!(got, 3000);
    let got = known("recvmsg", &|m| {
        send(b"a message");
        m.put(1, 0, &[0; 56]);
        m.put(1, 0, &m.at(2).to_le_bytes());
        m.put(1, 8, &64u32.to_le_bytes());
        m.put(1, 16, &m.at(3).to_le_bytes());
        m.put(1, 24, &1u64.to_le_bytes());
        m.put(1, 32, &m.at(5).to_le_bytes());
        m.put(1, 40, &256u64.to_le_bytes());
        m.put(3, 0, &m.at(4).to_le_bytes());
        m.put(3, 8, &4000u64.to_le_bytes());
        [b, m.at(1), 0, 0, 0, 0]
    });
    assert_eq!(got, 9);
    let got = known("getsockname", &|m| {
        m.put(2, 0, &110u32.to_le_bytes());
        [a, m.at(1), m.at(2), 0, 0, 0]
    });
    assert_eq!(got, 0);
    let got = known("getsockopt", &|m| {
        m.put(2, 0, &8u32.to_le_bytes());
        [a, 1, libc::SO_RCVBUF as u64, m.at(1), m.at(2), 0]
    });
    assert_eq!(got, 0);

    send(b"x");
    let poll = |m: &mut Arena| {
        let mut fd = [0; 8];
        fd[..4].copy_from_slice(&(b as u32).to_le_bytes());
        fd[4] = 1;
        m.put(1, 0, &fd);
        m.put(2, 0, &[0; 16]);
    };
    let got = known("poll", &|m| {
        poll(m);
        [m.at(1), 1, 0, 0, 0, 0]
    });
    assert_eq!(got, 1);
    let got = known("ppoll", &|m| {
        poll(m);
        [m.at(1), 1, m.at(2), 0, 8, 0]
    });
    assert_eq!(got, 1);
    let got = known("select", &|m| {
        m.put(1, 0, &[0; 128]);
        m.put(1, b as usize / 8, &[1 << (b % 8)]);
        m.put(2, 0, &[0; 16]);
        [b + 1, m.at(1), 0, 0, m.at(2), 0]
    });
    assert_eq!(got, 1);
    // SAFETY: no pointers.
    let epoll = unsafe { libc::epoll_create1(0) } as u64;
    known("epoll_ctl", &|m| {
        m.put(1, 0, &[1, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        [epoll, 1, b, m.at(1), 0, 0]
    });
    assert_eq!(known("epoll_wait", &|m| [epoll, m.at(1), 10, 0, 0, 0]), 1);
    assert_eq!(known("pipe2", &|m| [m.at(1), 0, 0, 0, 0, 0]), 0);
}

#[test]
fn calls_about_the_process_and_time() {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Arena) -> [u64; 6]);
    let zeros = |m: &mut Arena, slot: usize, n: usize| m.put(slot, 0, &vec![0; n]);
    let cases: [Case; 27] = [
        ("uname", &|m| [m.at(1), 0, 0, 0, 0, 0]),
        ("sysinfo", &|m| [m.at(1), 0, 0, 0, 0, 0]),
        ("getrusage", &|m| [0, m.at(1), 0, 0, 0, 0]),
        ("times", &|m| [m.at(1), 0, 0, 0, 0, 0]),
        ("gettimeofday", &|m| [m.at(1), m.at(2), 0, 0, 0, 0]),
        ("time", &|m| [m.at(1), 0, 0, 0, 0, 0]),
        ("clock_gettime", &|m| [1, m.at(1), 0, 0, 0, 0]),
        ("clock_getres", &|m| [1, m.at(1), 0, 0, 0, 0]),
        ("adjtimex", &|m| {
            zeros(m, 1, 208);
            [m.at(1), 0, 0, 0, 0, 0]
        }),
        ("getitimer", &|m| [0, m.at(1), 0, 0, 0, 0]),
        ("setitimer", &|m| {
            zeros(m, 1, 32);
            [0, m.at(1), m.at(2), 0, 0, 0]
        }),
        ("getrlimit", &|m| [7, m.at(1), 0, 0, 0, 0]),
        ("prlimit64", &|m| [0, 7, 0, m.at(1), 0, 0]),
        ("rt_sigpending", &|m| [m.at(1), 8, 0, 0, 0, 0]),
        ("rt_sigprocmask", &|m| [0, 0, m.at(1), 8, 0, 0]),
        ("rt_sigaction", &|m| [10, 0, m.at(1), 8, 0, 0]),
        ("sigaltstack", &|m| [0, m.at(1), 0, 0, 0, 0]),
        ("capget", &|m| {
            m.put(1, 0, &0x20080522u32.to_le_bytes());
            m.put(1, 4, &[0; 4]);
            [m.at(1), m.at(2), 0, 0, 0, 0]
        }),
        ("getresuid", &|m| [m.at(1), m.at(2), m.at(3), 0, 0, 0]),
        ("getgroups", &|m| [512, m.at(1), 0, 0, 0, 0]),
        ("sched_getaffinity", &|m| [0, 128, m.at(1), 0, 0, 0]),
        ("sched_getparam", &|m| [0, m.at(1), 0, 0, 0, 0]),
        ("sched_rr_get_interval", &|m| [0, m.at(1), 0, 0, 0, 0]),
        ("sched_getattr", &|m| [0, m.at(1), 48, 0, 0, 0]),
        ("getcpu", &|m| [m.at(1), m.at(2), 0, 0, 0, 0]),
        ("getrandom", &|m| [m.at(1), 3000, 0, 0, 0, 0]),
        ("prctl", &|m| {
            [libc::PR_GET_NAME as u64, m.at(1), 0, 0, 0, 0]
        }),
    ];
    for (name, prepare) in cases {
        let ret = known(name, prepare);
        assert!(ret >= 0, "{name} returned {ret}");
    }
    known("wait4", &|m| [u64::MAX, m.at(1), 1, m.at(2), 0, 0]);
    known("nanosleep", &|m| {
        zeros(m, 1, 16);
        [m.at(1), m.at(2), 0, 0, 0, 0]
    });
    known("timer_create", &|m| [0, 0, m.at(1), 0, 0, 0]);
    check("io_uring_setup", Class::Unknown, &|m| {
        [0, m.at(1), 0, 0, 0, 0]
    });
    check("ptrace", Class::Unknown, &|_| [99999, 0, 0, 0, 0, 0]);
}

/// A buffer that is not writable as a whole may hold more than the call says.
#[test]
fn short_buffers() {
    struct Short(u64);
    impl Memory for Short {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            Own.read(addr, buf)
        }

        fn takes(&self, addr: u64, len: u64) -> bool {
            addr + len <= self.0
        }
    }
    let iov = [0x10000u64, 100, 0x20000, 4000, 0x30000, 10];
    let told = |name: &str, args: [u64; 6], ret: i64, end: u64| {
        let mut out = Vec::new();
        let nr = number(name).unwrap() as u32;
        let class = outputs(nr, &args, ret, &Short(end), &mut |r| {
            out.push((r.addr, r.len))
        });
        assert_eq!(class, Class::Known);
        out
    };
    let read = [0, 0x10000, 5000, 0, 0, 0];
    assert_eq!(told("read", read, 4096, 0x12000), [(0x10000, 4096)]);
    assert_eq!(told("read", read, 4096, 0x11000), [(0x10000, 5000)]);
    assert_eq!(told("read", read, 5000, 0x11000), [(0x10000, 5000)]);
    let readv = [0, iov.as_ptr() as u64, 3, 0, 0, 0];
    let first = [(0x10000, 100), (0x20000, 20)];
    assert_eq!(told("readv", readv, 120, 0x40000), first);
    let more = [(0x10000, 100), (0x20000, 4000)];
    assert_eq!(told("readv", readv, 120, 0x20800), more);
    // Nothing of the next buffer is counted.
    let next = [(0x10000, 100), (0x20000, 4000)];
    assert_eq!(told("readv", readv, 100, 0x20800), next);
}

#[test]
fn buffers_that_meet_what_describes_them() {
    let meets = |name: &str, args: [u64; 6]| {
        hindsight_syscalls::overwrites_its_buffers(number(name).unwrap() as u32, &args, &Own)
    };
    let mut m = Arena::new(0);
    let (slot, header) = (m.at(2), m.at(1));
    for (base, want) in [
        (m.at(4), false),
        (slot - 12, false),
        (slot - 11, true),
        (slot + 8, true),
    ] {
        m.put(2, 0, &base.to_le_bytes());
        m.put(2, 8, &12u64.to_le_bytes());
        assert_eq!(meets("readv", [0, slot, 1, 0, 0, 0]), want);
    }
    m.put(1, 16, &slot.to_le_bytes());
    m.put(1, 24, &1u64.to_le_bytes());
    for (base, want) in [(m.at(4), false), (header + 40, true), (slot, true)] {
        m.put(2, 0, &base.to_le_bytes());
        assert_eq!(meets("recvmsg", [0, header, 0, 0, 0, 0]), want);
        assert_eq!(meets("recvmmsg", [0, header, 1, 0, 0, 0]), want);
    }
    m.put(5, 0, &16u32.to_le_bytes());
    for (at, want) in [(m.at(4), false), (m.at(5), true), (m.at(5) - 15, true)] {
        assert_eq!(meets("getsockopt", [0, 1, 1, at, m.at(5), 0]), want);
    }
}

#[test]
fn a_value_that_meets_what_describes_it() {
    let nr = number("getxattrat").unwrap() as u32;
    let mut m = Arena::new(0);
    for (at, want) in [
        (m.at(2), false),
        (m.at(1) - 100, false),
        (m.at(1) - 99, true),
    ] {
        m.put(1, 0, &at.to_le_bytes());
        m.put(1, 8, &100u32.to_le_bytes());
        let args = [0, 0, 0, 0, m.at(1), 16];
        assert_eq!(
            hindsight_syscalls::overwrites_its_buffers(nr, &args, &Own),
            want
        );
    }
}

/// What a call leaves in memory when it fails.
#[test]
fn failures_that_write() {
    // SAFETY: makes a descriptor.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) } as u64;
    let socket_level = libc::SOL_SOCKET as u64;
    // For an unknown version, the kernel writes the one that it has.
    known("capget", &|m| {
        m.put(1, 0, &1u32.to_le_bytes());
        [m.at(1), m.at(2), 0, 0, 0, 0]
    });
    // The buffer is too short for the groups of the other side.
    known("getsockopt", &|m| {
        m.put(2, 0, &1u32.to_le_bytes());
        const SO_PEERGROUPS: u64 = 59;
        [socket, socket_level, SO_PEERGROUPS, m.at(1), m.at(2), 0]
    });
    check("getsockopt", Class::Unknown, &|m| {
        m.put(2, 0, &8u32.to_le_bytes());
        const SO_GET_FILTER: u64 = 26;
        [socket, socket_level, SO_GET_FILTER, m.at(1), m.at(2), 0]
    });
    // More pages than are mapped: those before the hole were looked at.
    //
    // SAFETY: fresh memory, given back at the end of the process.
    let pages = unsafe {
        let (flags, len) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 1 << 23);
        let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0);
        assert_eq!(libc::munmap(at.byte_add(len - 4096), 4096), 0);
        at as u64
    };
    let hole = known("mincore", &|m| [pages, (1 << 23) + 4096, m.at(1), 0, 0, 0]);
    assert_eq!(hole, -libc::ENOMEM as i64);
    known("adjtimex", &|m| {
        m.put(1, 0, &[0; 208]);
        // Few may set the frequency.
        m.put(1, 0, &2u32.to_le_bytes());
        m.put(1, 16, &(1u64 << 60).to_le_bytes());
        [m.at(1), 0, 0, 0, 0, 0]
    });
    known("seccomp", &|m| [3, 0, m.at(1), 0, 0, 0]);
    for code in [0x1003, 0x1021, 0x1022] {
        known("arch_prctl", &|m| [code, m.at(1), 0, 0, 0, 0]);
    }
    check("arch_prctl", Class::Unknown, &|m| {
        [0x4001, m.at(1), 0, 0, 0, 0]
    });
    // The result is written before all arguments are checked.
    let got = known("socketpair", &|m| [2, 1, 0, m.at(1), 0, 0]);
    assert_eq!(got, -libc::EOPNOTSUPP as i64);
    let got = known("waitid", &|m| [0, 0, m.at(1), libc::WEXITED as u64, 0, 0]);
    assert_eq!(got, -libc::ECHILD as i64);
    known("timer_create", &|m| {
        // SIGEV_NONE, with a clock that needs a right and a device.
        m.put(2, 0, &[0; 64]);
        m.put(2, 12, &1u32.to_le_bytes());
        [8, m.at(2), m.at(1), 0, 0, 0]
    });
    known("prctl", &|m| {
        let (set_mm, map_size) = (libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP_SIZE as u64);
        [set_mm, map_size, m.at(1), 0, 0, 0]
    });
    let mut pair = [0i32; 2];
    // SAFETY: room for both descriptors.
    assert_eq!(unsafe { libc::socketpair(1, 2, 0, pair.as_mut_ptr()) }, 0);
    let got = known("recvfrom", &|m| {
        // SAFETY: five bytes.
        unsafe { libc::send(pair[0], c"hello".as_ptr().cast(), 5, 0) };
        m.put(2, 0, &(-1i32).to_le_bytes());
        [pair[1] as u64, m.at(1), 4096, 0, m.at(3), m.at(2)]
    });
    assert_eq!(got, -libc::EINVAL as i64);
    const TCP_AO_GET_KEYS: u64 = 41;
    check("getsockopt", Class::Unknown, &|m| {
        m.put(2, 0, &8u32.to_le_bytes());
        [socket, 6, TCP_AO_GET_KEYS, m.at(1), m.at(2), 0]
    });
    // The call is refused before it reads them.
    known("poll", &|m| [m.at(1), 0xffff_ffff, 0, 0, 0, 0]);
    check("stat", Class::Unknown, &|_| {
        [c"/".as_ptr() as u64, 8, 0, 0, 0, 0]
    });
}
