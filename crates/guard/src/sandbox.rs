//! Takes from this process whatever playing a recording does not need: nearly all system calls, and the file system.
//!
//! What is translated from a recording is checked before it may run. Should something get through nevertheless, it finds
//! itself in a process that can compute, use the files that it has open, and ask for some more ([`crate::outside`]).

use std::io;
use std::ptr::null;

/// What the kernel has taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walls {
    /// System calls are filtered (`seccomp`).
    pub calls: bool,
    /// The version of Landlock that keeps this process from the file system and the network; 0: none does.
    pub landlock: u32,
}

/// Sets the walls up, for all threads of this process and all that come. What the kernel does not have is left out.
pub fn enter() -> Walls {
    // SAFETY: plain system calls without memory.
    let kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 };
    if !kept {
        return Walls::default();
    }
    // In this order: the filter knows no Landlock.
    let landlock = leave_file_system().unwrap_or(0);
    Walls {
        landlock,
        calls: filter_calls().is_ok(),
    }
}

const LANDLOCK_CREATE_RULESET: i64 = 444;
const LANDLOCK_RESTRICT_SELF: i64 = 446;
/// Asks for the version.
const VERSION: u32 = 1;

/// `struct landlock_ruleset_attr`: what needs a permission from now on. None is given.
#[repr(C)]
#[derive(Default)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

/// Whatever concerns the file system, the network, and processes that are not in here, needs permissions that nobody has.
/// Returns Landlock's version.
fn leave_file_system() -> io::Result<u32> {
    // SAFETY: asks for a number.
    let version =
        unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, null::<Ruleset>(), 0usize, VERSION) };
    if version < 1 {
        return Err(io::Error::last_os_error());
    }
    let version = version as u32;
    let kinds = match version {
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    let rules = Ruleset {
        files: (1 << kinds) - 1,
        // To bind and to connect by TCP.
        net: if version >= 4 { 3 } else { 0 },
        // Abstract sockets, and signals.
        scoped: if version >= 6 { 3 } else { 0 },
    };
    // Older kernels take a longer structure if what they do not know is zero.
    // SAFETY: the structure has the size that is said.
    let fd = unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, &rules, size_of_val(&rules), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made; it is closed once.
    let done = unsafe {
        let done = libc::syscall(LANDLOCK_RESTRICT_SELF, fd, 0);
        let e = io::Error::last_os_error();
        libc::close(fd as i32);
        if done == 0 { Ok(()) } else { Err(e) }
    };
    done.map(|()| version)
}

/// What a system call may be called with.
#[derive(Clone, Copy)]
enum If {
    Always,
    /// An argument is one of these numbers (their low 32 bits).
    OneOf(usize, &'static [u32]),
    /// These bits of an argument are set, and those are not.
    Bits(usize, u32, u32),
    /// An argument is zero.
    Zero(usize),
    /// An argument is the number of this process.
    Own(usize),
}

const THREAD: u32 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u32;
/// Namespaces, and being traced.
const NEVER: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_PTRACE) as u32;
/// Which pages are in memory (`PAGEMAP_SCAN`), whether something is a terminal, how wide it is, and flags of
/// descriptors.
const IOCTLS: &[u32] = &[0xc060_6610, 0x5401, 0x5413, 0x5421, 0x5451];
const FCNTLS: &[u32] = &[
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
];
/// What only concerns this process: no pages are declared broken.
const ADVICE: &[u32] = &[
    libc::MADV_NORMAL as u32,
    libc::MADV_RANDOM as u32,
    libc::MADV_SEQUENTIAL as u32,
    libc::MADV_WILLNEED as u32,
    libc::MADV_DONTNEED as u32,
    libc::MADV_FREE as u32,
    libc::MADV_REMOVE as u32,
    libc::MADV_HUGEPAGE as u32,
    libc::MADV_NOHUGEPAGE as u32,
    libc::MADV_DONTDUMP as u32,
    libc::MADV_POPULATE_READ as u32,
    libc::MADV_POPULATE_WRITE as u32,
    // Guard pages, by which newer C libraries end stacks.
    102,
    103,
];
const PR_SET_VMA: u32 = 0x5356_4d41;

/// All that is allowed. What opens, connects, executes, signals others, or changes rights is not among it.
const ALLOWED: &[(i64, If)] = &[
    // Open files. Their places and kinds may be asked for by name: that opens nothing.
    (libc::SYS_read, If::Always),
    (libc::SYS_write, If::Always),
    (libc::SYS_readv, If::Always),
    (libc::SYS_writev, If::Always),
    (libc::SYS_pread64, If::Always),
    (libc::SYS_pwrite64, If::Always),
    (libc::SYS_lseek, If::Always),
    (libc::SYS_close, If::Always),
    (libc::SYS_fstat, If::Always),
    (libc::SYS_stat, If::Always),
    (libc::SYS_lstat, If::Always),
    (libc::SYS_newfstatat, If::Always),
    (libc::SYS_statx, If::Always),
    (libc::SYS_readlink, If::Always),
    (libc::SYS_readlinkat, If::Always),
    (libc::SYS_getcwd, If::Always),
    (libc::SYS_ftruncate, If::Always),
    (libc::SYS_fallocate, If::Always),
    (libc::SYS_fsync, If::Always),
    (libc::SYS_fdatasync, If::Always),
    (libc::SYS_flock, If::Always),
    (libc::SYS_poll, If::Always),
    (libc::SYS_ppoll, If::Always),
    (libc::SYS_fcntl, If::OneOf(1, FCNTLS)),
    (libc::SYS_ioctl, If::OneOf(1, IOCTLS)),
    // Connections that there are.
    (libc::SYS_sendmsg, If::Always),
    (libc::SYS_recvmsg, If::Always),
    (libc::SYS_sendto, If::Zero(4)),
    (libc::SYS_recvfrom, If::Always),
    (libc::SYS_shutdown, If::Always),
    // Memory.
    (libc::SYS_mmap, If::Always),
    (libc::SYS_mprotect, If::Always),
    (libc::SYS_munmap, If::Always),
    (libc::SYS_mremap, If::Always),
    (libc::SYS_madvise, If::OneOf(2, ADVICE)),
    (libc::SYS_brk, If::Always),
    (libc::SYS_memfd_create, If::Always),
    // Threads, and signals to this process.
    (libc::SYS_clone, If::Bits(0, THREAD, NEVER)),
    (libc::SYS_futex, If::Always),
    (libc::SYS_set_robust_list, If::Always),
    (libc::SYS_set_tid_address, If::Always),
    (libc::SYS_rseq, If::Always),
    (libc::SYS_sched_yield, If::Always),
    (libc::SYS_sched_getaffinity, If::Always),
    (libc::SYS_getcpu, If::Always),
    (libc::SYS_membarrier, If::Always),
    (libc::SYS_rt_sigaction, If::Always),
    (libc::SYS_rt_sigprocmask, If::Always),
    (libc::SYS_rt_sigreturn, If::Always),
    (libc::SYS_sigaltstack, If::Always),
    (libc::SYS_tgkill, If::Own(0)),
    (libc::SYS_restart_syscall, If::Always),
    (libc::SYS_exit, If::Always),
    (libc::SYS_exit_group, If::Always),
    // Time, and what this process is.
    (libc::SYS_clock_gettime, If::Always),
    (libc::SYS_clock_getres, If::Always),
    (libc::SYS_clock_nanosleep, If::Always),
    (libc::SYS_nanosleep, If::Always),
    (libc::SYS_gettimeofday, If::Always),
    (libc::SYS_time, If::Always),
    (libc::SYS_getpid, If::Always),
    (libc::SYS_getppid, If::Always),
    (libc::SYS_gettid, If::Always),
    (libc::SYS_getuid, If::Always),
    (libc::SYS_geteuid, If::Always),
    (libc::SYS_getgid, If::Always),
    (libc::SYS_getegid, If::Always),
    (libc::SYS_getrusage, If::Always),
    (libc::SYS_getrlimit, If::Always),
    (libc::SYS_prlimit64, If::Zero(2)),
    (libc::SYS_sysinfo, If::Always),
    (libc::SYS_uname, If::Always),
    (libc::SYS_getrandom, If::Always),
    (libc::SYS_arch_prctl, If::Always),
    (
        libc::SYS_prctl,
        If::OneOf(
            0,
            &[
                libc::PR_SET_NAME as u32,
                libc::PR_GET_NAME as u32,
                PR_SET_VMA,
            ],
        ),
    ),
];

/// `AUDIT_ARCH_X86_64`.
const ARCH: u32 = 0xc000_003e;
/// System calls of the x32 interface begin here; they would have other numbers.
const X32: u32 = 0x4000_0000;
/// Where `struct seccomp_data` has the number of the call, the interface, and the arguments.
const NUMBER: u32 = 0;
const INTERFACE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Builds a filter: a list of instructions that the kernel executes at each system call.
#[derive(Default)]
struct Filter(Vec<libc::sock_filter>);

impl Filter {
    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) {
        let code = code as u16;
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    }

    /// Goes on if what was loaded is `k`; otherwise leaves out the next `skip` instructions.
    fn equal(&mut self, k: u32, skip: u8) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, k);
    }

    fn and(&mut self, k: u32) {
        self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, k);
    }

    fn answer(&mut self, what: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, 0, 0, what);
    }

    fn refuse(&mut self, errno: i32) {
        self.answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    }

    /// What is done where the condition holds; the number of the call is loaded, and need not be behind.
    fn condition(&mut self, cond: If) {
        let low = |i: usize| ARGUMENTS + 8 * i as u32;
        match cond {
            If::Always => self.answer(libc::SECCOMP_RET_ALLOW),
            If::OneOf(i, list) => {
                self.load(low(i));
                for k in list {
                    self.equal(*k, 1);
                    self.answer(libc::SECCOMP_RET_ALLOW);
                }
            }
            If::Own(i) => {
                self.load(low(i));
                self.equal(std::process::id(), 1);
                self.answer(libc::SECCOMP_RET_ALLOW);
            }
            If::Bits(i, set, unset) => {
                self.load(low(i));
                self.and(set | unset);
                self.equal(set, 1);
                self.answer(libc::SECCOMP_RET_ALLOW);
            }
            If::Zero(i) => {
                self.load(low(i));
                self.equal(0, 3);
                self.load(low(i) + 4);
                self.equal(0, 1);
                self.answer(libc::SECCOMP_RET_ALLOW);
            }
        }
        self.refuse(libc::EPERM);
    }

    fn whole() -> Filter {
        let mut f = Filter::default();
        f.load(INTERFACE);
        f.equal(ARCH, 1);
        f.push(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1);
        f.answer(libc::SECCOMP_RET_KILL_PROCESS);
        f.load(NUMBER);
        f.push(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32);
        f.answer(libc::SECCOMP_RET_KILL_PROCESS);
        for (nr, cond) in ALLOWED {
            let mut inner = Filter::default();
            inner.condition(*cond);
            f.equal(*nr as u32, inner.0.len() as u8);
            f.0.extend(inner.0);
        }
        // Its flags are in memory, where they cannot be looked at: the C library then takes `clone`.
        f.equal(libc::SYS_clone3 as u32, 1);
        f.refuse(libc::ENOSYS);
        f.refuse(libc::EPERM);
        f
    }
}

fn filter_calls() -> io::Result<()> {
    let mut all = Filter::whole().0;
    let program = libc::sock_fprog {
        len: all.len() as u16,
        filter: all.as_mut_ptr(),
    };
    let set = |flags: libc::c_ulong| {
        // SAFETY: the program and its instructions live as long as the call, and have the length that is said.
        match unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &program,
            )
        } {
            0 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            // A thread has a filter of its own.
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    };
    // Without the guards against speculation that older kernels add, which cost what is executed most: nothing in this
    // process is to be kept secret from itself. Kernels before 4.17 do not know this flag.
    let sync = libc::SECCOMP_FILTER_FLAG_TSYNC;
    set(sync | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).or_else(|_| set(sync))
}
