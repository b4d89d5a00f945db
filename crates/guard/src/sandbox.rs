//! The sandbox: takes away from this process what playing a recording does not need. That is nearly all
//! system calls, and the file system.
//!
//! Code that is translated from a recording is checked before it may run. If something gets through
//! nevertheless, it can only compute, use the files that are open, and ask for some more
//! ([`crate::outside`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::null;

/// The restrictions that the kernel enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walls {
    /// System calls are filtered (`seccomp`).
    pub calls: bool,
    /// The version of Landlock that blocks the file system and the network; 0 if there is none.
    pub landlock: u32,
}

/// Restricts all threads of this process, present and future. Leaves out what the kernel does not support.
pub fn enter() -> Walls {
    // SAFETY: a plain system call that accesses no memory.
    let kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 };
    if !kept {
        return Walls::default();
    }
    // Landlock comes first, because the filter does not allow its calls.
    let landlock = leave_file_system().unwrap_or(0);
    Walls {
        landlock,
        calls: filter_calls().is_ok(),
    }
}

const LANDLOCK_CREATE_RULESET: i64 = 444;
const LANDLOCK_RESTRICT_SELF: i64 = 446;
/// The flag that asks for the version.
const VERSION: u32 = 1;

/// `struct landlock_ruleset_attr`: the actions that need a permission from now on. No permission is given.
#[repr(C)]
#[derive(Default)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

/// From now on, everything that concerns the file system, the network, or processes outside the sandbox needs
/// permissions that nobody has. Returns Landlock's version.
fn leave_file_system() -> io::Result<u32> {
    // SAFETY: the call only returns a number.
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
        // Binding and connecting TCP sockets.
        net: if version >= 4 { 3 } else { 0 },
        // Abstract sockets, and signals.
        scoped: if version >= 6 { 3 } else { 0 },
    };
    // Older kernels accept a longer structure if the unknown part is zero.
    // SAFETY: the size is the structure's.
    let fd = unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, &rules, size_of_val(&rules), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and is closed once.
    let done = unsafe {
        let done = libc::syscall(LANDLOCK_RESTRICT_SELF, fd, 0);
        let e = io::Error::last_os_error();
        libc::close(fd as i32);
        if done == 0 { Ok(()) } else { Err(e) }
    };
    done.map(|()| version)
}

/// Rules under which a process may read files, and changes none. It reads no devices, connects to nothing, and signals no process
/// that does not obey the same rules, as far as the kernel knows such rules. The process that is to obey them passes the
/// descriptor to `landlock_restrict_self`.
///
/// # Errors
/// The kernel has no Landlock, or there are no descriptors left.
pub fn changes_nothing() -> io::Result<OwnedFd> {
    /// Writing, removing, making files of all kinds.
    const CHANGES: u64 = 1 << 1 | 0x1ff << 4;
    const READ: u64 = 1 << 2;
    const MOVE: u64 = 1 << 13;
    const TRUNCATE: u64 = 1 << 14;
    const CONTROL_DEVICE: u64 = 1 << 15;
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    let known = |since: i64, version: i64, what: u64| if version >= since { what } else { 0 };
    // SAFETY: the call only returns a number.
    let version =
        unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, null::<Ruleset>(), 0usize, VERSION) };
    if version < 1 {
        return Err(io::Error::last_os_error());
    }
    let rules = Ruleset {
        files: CHANGES
            | READ
            | known(2, version, MOVE)
            | known(3, version, TRUNCATE)
            | known(5, version, CONTROL_DEVICE),
        net: known(4, version, 3),
        scoped: known(6, version, ABSTRACT_SOCKETS | SIGNALS),
    };
    // Older kernels accept a longer structure if the unknown part is zero.
    // SAFETY: the size is the structure's.
    let fd = unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, &rules, size_of_val(&rules), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    let set = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // All but devices may be read.
    let folders = std::fs::read_dir("/")?.filter_map(|e| e.ok().map(|e| e.path()));
    let folders = folders.filter(|p| p != Path::new("/dev"));
    for path in folders.chain([Path::new("/dev/shm").to_owned()]) {
        // Entries that lead nowhere have nothing to read.
        if let Ok(place) = named(&path) {
            allow(&set, &place, READ)?;
        }
    }
    Ok(set)
}

/// A descriptor that only names a file or folder.
fn named(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let place = options.read(true).custom_flags(libc::O_PATH).open(path)?;
    let m = place.metadata()?;
    match m.is_file() || m.is_dir() {
        true => Ok(place),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Adds a rule: what lies at a place may be accessed in these ways.
fn allow(set: &OwnedFd, place: &File, allowed: u64) -> io::Result<()> {
    /// `struct landlock_path_beneath_attr`, which has no padding.
    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        place: i32,
    }
    const LANDLOCK_ADD_RULE: i64 = 445;
    const PATH_BENEATH: i32 = 1;
    let rule = Beneath {
        allowed,
        place: place.as_raw_fd(),
    };
    // SAFETY: both descriptors are open, and the kernel reads a structure of this kind.
    let done = unsafe { libc::syscall(LANDLOCK_ADD_RULE, set.as_raw_fd(), PATH_BENEATH, &rule, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The condition under which a system call is allowed.
#[derive(Clone, Copy)]
enum If {
    Always,
    /// The low 32 bits of an argument are one of these numbers.
    OneOf(usize, &'static [u32]),
    /// The first bits of an argument are set, and the second ones are not.
    Bits(usize, u32, u32),
    /// An argument is zero.
    Zero(usize),
    /// An argument is the id of this process.
    Own(usize),
}

const THREAD: u32 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u32;
/// Flags that make namespaces, or let the child be traced.
const NEVER: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_PTRACE) as u32;
/// Which pages are in memory (`PAGEMAP_SCAN`), whether something is a terminal, how wide the terminal is, and
/// flags of descriptors.
const IOCTLS: &[u32] = &[0xc060_6610, 0x5401, 0x5413, 0x5421, 0x5451];
const FCNTLS: &[u32] = &[
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
];
/// Advice that affects only this process. Declaring pages broken is not among it.
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
    // Guard pages, with which newer C libraries end stacks.
    102,
    103,
];
const PR_SET_VMA: u32 = 0x5356_4d41;

/// The calls that are allowed. None of them opens, connects, executes, signals other processes, or changes
/// rights.
const ALLOWED: &[(i64, If)] = &[
    // Open files. Asking for a file's location and kind by name is allowed: it opens nothing.
    (libc::SYS_read, If::Always),
    (libc::SYS_write, If::Always),
    (libc::SYS_readv, If::Always),
    (libc::SYS_writev, If::Always),
    (libc::SYS_pread64, If::Always),
    (libc::SYS_pwrite64, If::Always),
    (libc::SYS_lseek, If::Always),
    (libc::SYS_close, If::Always),
    (libc::SYS_fstat, If::Always),
    (libc::SYS_newfstatat, If::Always),
    (libc::SYS_statx, If::Always),
    (libc::SYS_readlinkat, If::Always),
    (libc::SYS_getcwd, If::Always),
    (libc::SYS_ftruncate, If::Always),
    (libc::SYS_fallocate, If::Always),
    (libc::SYS_fsync, If::Always),
    (libc::SYS_fdatasync, If::Always),
    (libc::SYS_flock, If::Always),
    (libc::SYS_ppoll, If::Always),
    (libc::SYS_fcntl, If::OneOf(1, FCNTLS)),
    (libc::SYS_ioctl, If::OneOf(1, IOCTLS)),
    // Existing connections.
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
    (libc::SYS_clone, If::Bits(CLONE_FLAGS, THREAD, NEVER)),
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
    // Time, and facts about this process.
    (libc::SYS_clock_gettime, If::Always),
    (libc::SYS_clock_getres, If::Always),
    (libc::SYS_clock_nanosleep, If::Always),
    (libc::SYS_nanosleep, If::Always),
    (libc::SYS_gettimeofday, If::Always),
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

/// Calls that only this architecture has. Newer ones have other calls for the same.
#[cfg(target_arch = "x86_64")]
const OWN: &[i64] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
// `tkill`, by which musl's `abort` ends a process, is not among them: the filter cannot check whose thread it names. Then `abort`
// ends by SIGSEGV.
#[cfg(target_arch = "s390x")]
const OWN: &[i64] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_poll,
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "s390x")))]
const OWN: &[i64] = &[];

/// Which argument of `clone` has the flags. The kernel has the stack first on few architectures.
const CLONE_FLAGS: usize = if cfg!(target_arch = "s390x") { 1 } else { 0 };

/// The value of `AUDIT_ARCH_X86_64`, and so on: the interface whose numbers the filter has.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "s390x")]
const ARCH: u32 = 0x8000_0016;
/// System calls of the x32 interface of x86-64 have numbers from here on. Others have none that are so high.
const X32: u32 = 0x4000_0000;
/// Offsets in `struct seccomp_data` of the call's number, the interface and the arguments.
const NUMBER: u32 = 0;
const INTERFACE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Where the low half of an argument is in it.
const LOW: u32 = if cfg!(target_endian = "big") { 4 } else { 0 };

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

    /// Continues if the loaded value is `k`. Otherwise skips the next `skip` instructions.
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

    /// Allows the call if the condition holds, and refuses it otherwise. The call's number is loaded before,
    /// but not necessarily afterwards.
    fn condition(&mut self, cond: If) {
        let low = |i: usize| ARGUMENTS + 8 * i as u32 + LOW;
        let high = |i: usize| ARGUMENTS + 8 * i as u32 + (4 - LOW);
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
                self.load(high(i));
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
        let own = OWN.iter().map(|nr| (*nr, If::Always));
        for (nr, cond) in ALLOWED.iter().copied().chain(own) {
            let mut inner = Filter::default();
            inner.condition(cond);
            f.equal(nr as u32, inner.0.len() as u8);
            f.0.extend(inner.0);
        }
        // Its flags are in memory, which the filter cannot read. After this error the C library uses `clone`.
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
        // SAFETY: the program and its instructions outlive the call and have the stated length.
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
            // A thread already has a filter of its own.
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    };
    // Disables the guards against speculation that older kernels add with a filter. They slow down the code
    // that runs most, and nothing in this process is secret from itself. Kernels before 4.17 do not know this
    // flag.
    let sync = libc::SECCOMP_FILTER_FLAG_TSYNC;
    set(sync | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).or_else(|_| set(sync))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// What a shell's command ends with under the rules of [`changes_nothing`].
    fn status(command: &str) -> i32 {
        let rules = changes_nothing().unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::null());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: the closure only makes system calls that touch no memory.
        unsafe {
            shell.pre_exec(move || {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                match libc::syscall(LANDLOCK_RESTRICT_SELF, rules.as_raw_fd(), 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        shell.status().unwrap().code().unwrap()
    }

    #[test]
    fn files_are_read_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("kept"), "kept").unwrap();
        let (kept, made) = (at("kept"), at("made"));
        for good in [
            format!("read x < {kept}; test kept = $x"),
            "ls / /dev".into(),
            "read x < /proc/self/stat".into(),
        ] {
            assert_eq!(status(&good), 0, "{good}");
        }
        for bad in [
            format!("echo x > {kept}"),
            format!("echo x >> {kept}"),
            format!("echo x > {made}"),
            format!("rm {kept}"),
            format!("mv {kept} {made}"),
            format!("ln {kept} {made}"),
            format!("ln -s {kept} {made}"),
            format!("mkdir {made}"),
            format!("mkfifo {made}"),
            // Devices may not even be read.
            "read x < /dev/zero".into(),
            "echo x > /dev/null".into(),
        ] {
            assert_ne!(status(&bad), 0, "{bad}");
        }
        assert_eq!(std::fs::read(&kept).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn others_get_no_signal_where_the_kernel_knows_that() {
        // SAFETY: the call only returns a number.
        let version =
            unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, null::<Ruleset>(), 0usize, VERSION) };
        if version < 6 {
            eprintln!("skipped: this kernel's Landlock has no rules for signals");
            return;
        }
        let own = std::process::id();
        assert_ne!(status(&format!("kill -0 {own}")), 0);
        assert_eq!(status("kill -0 $$"), 0);
    }
}
