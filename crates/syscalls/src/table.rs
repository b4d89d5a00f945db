//! What is known of each system call: one entry for each, in the order of their numbers.
//!
//! Who adds a call adds a line here. Tests compare these facts with the code that deals with single
//! calls, and name what was forgotten.

use crate::abi;
use crate::arguments::Arg::{self, *};
use crate::arguments::Set::*;
use crate::arguments::Shape as S;

/// A system call.
pub(crate) struct Call {
    /// Its number on x86-64.
    pub number: u32,
    /// Its name, as in the kernel's headers.
    pub name: &'static str,
    /// What its arguments are.
    pub args: Args,
    /// What memory it writes.
    pub writes: Writes,
    /// What else is to know of it.
    pub traits: Traits,
}

/// What the arguments of a call are.
#[derive(Clone, Copy)]
pub(crate) struct Args {
    /// What each of them is, if it is known.
    pub told: Option<&'static [Arg]>,
    /// How many more there are.
    pub more: u8,
}

/// What memory of its own process a call writes. Mappings that it changes are another matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writes {
    /// None: it only reads.
    Nothing,
    /// If it succeeds, this many bytes where these arguments point to.
    Results(&'static [(usize, u64)]),
    /// The same, also if it fails: it is written before all is known to succeed, or says why it failed.
    Always(&'static [(usize, u64)]),
    /// `outputs.rs` says it in code.
    Coded,
    /// It may write any.
    Unknown,
}

/// Properties of calls, as bits.
pub type Traits = u16;

/// Nothing: the recorder passes the call to the kernel, and looks at nothing but what it wrote.
pub const PASSED: Traits = 0;
/// One of the commonest of the calls that can do nothing to the recorder, show nothing of it but its
/// descriptor, and make no new one. It goes to the kernel at once.
pub const DIRECT: Traits = 1 << 0;
/// The recorder does it itself, or has code of its own for it (`calls/perform.rs`).
pub const OWN: Traits = 1 << 1;
/// It changes mappings (`calls/mappings.rs`).
pub const MAPS: Traits = 1 << 2;
/// It names a file that may be the program's own, or one of `/proc` (`calls/paths.rs`).
pub const PATH: Traits = 1 << 3;
/// It fails with EBADF if its first argument is no open descriptor. That hides the recorder's.
pub const DESCRIPTOR: Traits = 1 << 4;
/// It may remove, replace or change a file, besides by what it opens.
pub const CHANGES_FILES: Traits = 1 << 5;
/// It needs anonymous memory, or gives memory a property that lasts. So the recorder must no longer
/// let the shadow share pages with memory.
pub const PINS: Traits = 1 << 6;
/// It may take rights away from the process (`code/rights.rs`).
pub const RIGHTS: Traits = 1 << 7;
/// Some other part of the recorder looks at it, before or behind it.
pub const WATCHED: Traits = 1 << 8;
/// It returns EINTR after any stop of its thread, or after one while it waits with a timeout on a
/// socket, and has done nothing then.
pub const REPEATABLE: Traits = 1 << 9;

/// Bytes of structures that the kernel writes on x86-64.
const STAT: u64 = 144;
const STATFS: u64 = 120;
const STATX: u64 = 256;
const RUSAGE: u64 = 144;
const SIGINFO: u64 = 128;
pub(crate) const TIMESPEC: u64 = 16;
pub(crate) const TIMEVAL: u64 = 16;
const ITIMER: u64 = 32;
const UTSNAME: u64 = 390;
const TIMEX: u64 = 208;
const SYSINFO: u64 = 112;

/// A name in the kernel's headers without what stands before all of them.
const fn stripped(name: &'static str) -> &'static str {
    name.split_at("__NR_".len()).1
}

/// Arguments, by what they are. `+ 1` stands for one more, which is of no use on this processor or
/// seldom given; a number for so many of which nothing is known.
macro_rules! args {
    ([$($arg:expr),*]) => { args!([$($arg),*] + 0) };
    ([$($arg:expr),*] + $more:literal) => { Args { told: Some(&[$($arg),*]), more: $more } };
    ($count:literal) => { Args { told: None, more: $count } };
}

macro_rules! calls {
    ($($nr:ident: $args:tt $(+ $more:literal)?, $writes:expr, $traits:expr;)*) => {
        &[$(Call {
            number: abi::$nr as u32,
            name: stripped(stringify!($nr)),
            args: args!($args $(+ $more)?),
            writes: $writes,
            traits: $traits,
        }),*]
    };
}

use self::Writes::*;

/// All of them, by number: arguments, what is written, properties.
#[rustfmt::skip]
pub(crate) const TABLE: &[Call] = calls! {
    __NR_read: [Fd, Filled, Size], Coded, DIRECT | DESCRIPTOR | REPEATABLE;
    __NR_write: [Fd, Bytes(2), Size], Nothing, DIRECT | DESCRIPTOR | REPEATABLE;
    __NR_open: [Text, Flags(Open), ModeIf(1)], Nothing, PATH;
    __NR_close: [Fd], Nothing, DESCRIPTOR;
    __NR_stat: [Text, Out(S::Stat)], Results(&[(1, STAT)]), PATH;
    __NR_fstat: [Fd, Out(S::Stat)], Results(&[(1, STAT)]), DIRECT | DESCRIPTOR;
    __NR_lstat: [Text, Out(S::Stat)], Results(&[(1, STAT)]), PASSED;
    __NR_poll: [Polled(1), Uint, Int], Coded, DIRECT;
    __NR_lseek: [Fd, Long, One(Whence)], Nothing, DIRECT | DESCRIPTOR;
    __NR_mmap: [Hex, Size, Flags(Protection), Flags(Mapping), Fd, Hex], Nothing, MAPS;
    __NR_mprotect: [Hex, Size, Flags(Protection)], Nothing, MAPS;
    __NR_munmap: [Hex, Size], Nothing, MAPS;
    __NR_brk: [Hex], Nothing, MAPS;
    __NR_rt_sigaction: [Signal, In(S::Sigaction), Out(S::Sigaction), Size], Results(&[(2, 32)]), OWN;
    __NR_rt_sigprocmask: [One(SignalHow), In(S::Sigset), Out(S::Sigset), Size], Results(&[(2, 8)]), OWN;
    __NR_rt_sigreturn: [], Unknown, OWN;
    __NR_ioctl: [Fd, One(Request), Requested], Coded, DESCRIPTOR;
    __NR_pread64: [Fd, Filled, Size, Long], Coded, DIRECT | DESCRIPTOR;
    __NR_pwrite64: [Fd, Bytes(2), Size, Long], Nothing, DIRECT | DESCRIPTOR;
    __NR_readv: [Fd, FilledBuffers(2), Int], Coded, DIRECT | DESCRIPTOR | REPEATABLE;
    __NR_writev: [Fd, Buffers(2), Int], Nothing, DIRECT | DESCRIPTOR | REPEATABLE;
    __NR_access: [Text, Flags(Access)], Nothing, PATH;
    __NR_pipe: [Out(S::Pair)], Results(&[(0, 8)]), PASSED;
    __NR_select: [Int, Descriptors, Descriptors, Descriptors, In(S::Timeval)], Coded, PASSED;
    __NR_sched_yield: [], Nothing, DIRECT;
    __NR_mremap: [Hex, Size, Size, Flags(Remapping), Requested], Nothing, MAPS;
    __NR_msync: [Hex, Size, Flags(Syncing)], Nothing, PASSED;
    __NR_mincore: [Hex, Size, Hex], Coded, PASSED;
    __NR_madvise: [Hex, Size, One(Advice)], Nothing, MAPS;
    __NR_shmget: [Hex, Size, Flags(IpcCreate)], Nothing, PASSED;
    __NR_shmat: [Int, Hex, Hex], Unknown, MAPS;
    __NR_shmctl: 3, Unknown, PASSED;
    __NR_dup: [Fd], Nothing, DESCRIPTOR;
    __NR_dup2: [Fd, Fd], Nothing, DESCRIPTOR;
    __NR_pause: [], Nothing, PASSED;
    __NR_nanosleep: [In(S::Timespec), Out(S::Timespec)], Always(&[(1, TIMESPEC)]), PASSED;
    __NR_getitimer: [One(Timer), Out(S::Itimerval)], Results(&[(1, ITIMER)]), PASSED;
    __NR_alarm: [Uint], Nothing, PASSED;
    __NR_setitimer: [One(Timer), In(S::Itimerval), Out(S::Itimerval)], Results(&[(2, ITIMER)]), PASSED;
    __NR_getpid: [], Nothing, DIRECT;
    __NR_sendfile: [Fd, Fd, InOut(S::Long), Size], Always(&[(2, 8)]), DESCRIPTOR;
    __NR_socket: [One(Family), Flags(SocketType), One(Protocol)], Nothing, PASSED;
    __NR_connect: [Fd, Address(2), Int], Nothing, REPEATABLE;
    __NR_accept: [Fd, FilledAddress(2), InOut(S::Int)], Coded, REPEATABLE;
    __NR_sendto: [Fd, Bytes(2), Size, Flags(MessageFlags), Address(5), Int], Nothing, DIRECT | REPEATABLE;
    __NR_recvfrom: [Fd, Filled, Size, Flags(MessageFlags), FilledAddress(5), InOut(S::Int)], Coded, DIRECT | REPEATABLE;
    __NR_sendmsg: [Fd, Message, Flags(MessageFlags)], Nothing, REPEATABLE;
    __NR_recvmsg: [Fd, FilledMessage, Flags(MessageFlags)], Coded, WATCHED | REPEATABLE;
    __NR_shutdown: [Fd, One(Shutdown)], Nothing, PASSED;
    __NR_bind: [Fd, Address(2), Int], Nothing, PASSED;
    __NR_listen: [Fd, Int], Nothing, PASSED;
    __NR_getsockname: [Fd, FilledAddress(2), InOut(S::Int)], Coded, PASSED;
    __NR_getpeername: [Fd, FilledAddress(2), InOut(S::Int)], Coded, PASSED;
    __NR_socketpair: [One(Family), Flags(SocketType), One(Protocol), Out(S::Pair)], Always(&[(3, 8)]), PASSED;
    __NR_setsockopt: [Fd, One(Level), One(OptionName), Arg::Value(4), Int], Nothing, PASSED;
    __NR_getsockopt: [Fd, One(Level), One(OptionName), FilledValue(4), InOut(S::Int)], Coded, PASSED;
    __NR_clone: [Requested, Requested, Requested, Requested, Requested], Coded, OWN | RIGHTS;
    __NR_fork: [], Nothing, OWN;
    __NR_vfork: [], Nothing, OWN;
    __NR_execve: [Text, Texts, Environment], Nothing, OWN;
    __NR_exit: [Int], Nothing, OWN;
    __NR_wait4: [Int, Out(S::Status), Flags(WaitOptions), Out(S::Rusage)], Results(&[(1, 4), (3, RUSAGE)]), WATCHED;
    __NR_kill: [Int, Signal], Nothing, OWN;
    __NR_uname: [Out(S::Utsname)], Results(&[(0, UTSNAME)]), PASSED;
    __NR_semget: [Hex, Int, Flags(IpcCreate)], Nothing, PASSED;
    __NR_semop: [Int, Ins(S::Sembuf, 2), Size], Nothing, REPEATABLE;
    __NR_semctl: 4, Unknown, PASSED;
    __NR_shmdt: [Hex], Unknown, MAPS;
    __NR_msgget: [Hex, Flags(IpcCreate)], Nothing, PASSED;
    __NR_msgsnd: 4, Nothing, PASSED;
    __NR_msgrcv: 5, Coded, PASSED;
    __NR_msgctl: [Int, One(QueueCommand), Requested], Coded, PASSED;
    __NR_fcntl: [Fd, One(FcntlCommand), Requested], Coded, DESCRIPTOR;
    __NR_flock: [Fd, Flags(Lock)], Nothing, DESCRIPTOR;
    __NR_fsync: [Fd], Nothing, DESCRIPTOR;
    __NR_fdatasync: [Fd], Nothing, DESCRIPTOR;
    __NR_truncate: [Text, Long], Nothing, PATH | CHANGES_FILES;
    __NR_ftruncate: [Fd, Long], Nothing, DESCRIPTOR | CHANGES_FILES;
    __NR_getdents: 3, Coded, PASSED;
    __NR_getcwd: [FilledText, Size], Coded, PASSED;
    __NR_chdir: [Text], Nothing, PASSED;
    __NR_fchdir: [Fd], Nothing, PASSED;
    __NR_rename: [Text, Text], Nothing, CHANGES_FILES;
    __NR_mkdir: [Text, Mode], Nothing, PASSED;
    __NR_rmdir: [Text], Nothing, CHANGES_FILES;
    __NR_creat: [Text, Mode], Nothing, WATCHED;
    __NR_link: [Text, Text], Nothing, PASSED;
    __NR_unlink: [Text], Nothing, CHANGES_FILES;
    __NR_symlink: [Text, Text], Nothing, PASSED;
    __NR_readlink: [Text, Filled, Size], Coded, PATH;
    __NR_chmod: [Text, Mode], Nothing, PATH;
    __NR_fchmod: [Fd, Mode], Nothing, DESCRIPTOR;
    __NR_chown: [Text, Int, Int], Nothing, PASSED;
    __NR_fchown: [Fd, Int, Int], Nothing, DESCRIPTOR;
    __NR_lchown: [Text, Int, Int], Nothing, PASSED;
    __NR_umask: [Mode], Nothing, PASSED;
    __NR_gettimeofday: [Out(S::Timeval), Out(S::Timezone)], Results(&[(0, TIMEVAL), (1, 8)]), DIRECT;
    __NR_getrlimit: [One(Resource), Out(S::Rlimit)], Results(&[(1, 16)]), WATCHED;
    __NR_getrusage: [One(Usage), Out(S::Rusage)], Results(&[(1, RUSAGE)]), DIRECT;
    __NR_sysinfo: [Out(S::Sysinfo)], Results(&[(0, SYSINFO)]), PASSED;
    __NR_times: [Out(S::Tms)], Results(&[(0, 32)]), DIRECT;
    __NR_ptrace: [One(Ptrace), Int, Hex, Hex], Unknown, WATCHED;
    __NR_getuid: [], Nothing, DIRECT;
    __NR_syslog: 3, Coded, PASSED;
    __NR_getgid: [], Nothing, PASSED;
    __NR_setuid: [Int], Nothing, RIGHTS;
    __NR_setgid: [Int], Nothing, RIGHTS;
    __NR_geteuid: [], Nothing, DIRECT;
    __NR_getegid: [], Nothing, PASSED;
    __NR_setpgid: [Int, Int], Nothing, PASSED;
    __NR_getppid: [], Nothing, DIRECT;
    __NR_getpgrp: [], Nothing, PASSED;
    __NR_setsid: [], Nothing, PASSED;
    __NR_setreuid: [Int, Int], Nothing, RIGHTS;
    __NR_setregid: [Int, Int], Nothing, RIGHTS;
    __NR_getgroups: [Int, Outs(S::Id)], Coded, PASSED;
    __NR_setgroups: [Int, Ins(S::Id, 0)], Nothing, RIGHTS;
    __NR_setresuid: [Int, Int, Int], Nothing, RIGHTS;
    __NR_getresuid: [Out(S::Int), Out(S::Int), Out(S::Int)], Results(&[(0, 4), (1, 4), (2, 4)]), PASSED;
    __NR_setresgid: [Int, Int, Int], Nothing, RIGHTS;
    __NR_getresgid: [Out(S::Int), Out(S::Int), Out(S::Int)], Results(&[(0, 4), (1, 4), (2, 4)]), PASSED;
    __NR_getpgid: [Int], Nothing, PASSED;
    __NR_setfsuid: [Int], Nothing, RIGHTS;
    __NR_setfsgid: [Int], Nothing, RIGHTS;
    __NR_getsid: [Int], Nothing, PASSED;
    __NR_capget: 2, Coded, PASSED;
    __NR_capset: 2, Coded, RIGHTS;
    __NR_rt_sigpending: [Out(S::Sigset), Size], Results(&[(0, 8)]), OWN;
    __NR_rt_sigtimedwait: [In(S::Sigset), Out(S::Siginfo), In(S::Timespec), Size], Results(&[(1, SIGINFO)]), OWN | REPEATABLE;
    __NR_rt_sigqueueinfo: 3, Nothing, OWN;
    __NR_rt_sigsuspend: [In(S::Sigset), Size], Nothing, OWN;
    __NR_sigaltstack: [In(S::Stack), Out(S::Stack)], Results(&[(1, 24)]), OWN;
    __NR_utime: 2, Nothing, PASSED;
    __NR_mknod: [Text, Mode, Device], Nothing, PASSED;
    __NR_uselib: 1, Unknown, PASSED;
    __NR_personality: [Hex], Nothing, PASSED;
    __NR_ustat: 2, Results(&[(1, 32)]), PASSED;
    __NR_statfs: [Text, Out(S::Statfs)], Results(&[(1, STATFS)]), PATH;
    __NR_fstatfs: [Fd, Out(S::Statfs)], Results(&[(1, STATFS)]), DESCRIPTOR;
    __NR_sysfs: 3, Unknown, PASSED;
    __NR_getpriority: [One(PriorityKind), Int], Nothing, PASSED;
    __NR_setpriority: [One(PriorityKind), Int, Int], Nothing, PASSED;
    __NR_sched_setparam: [Int, In(S::SchedParam)], Nothing, PASSED;
    __NR_sched_getparam: [Int, Out(S::SchedParam)], Results(&[(1, 4)]), PASSED;
    __NR_sched_setscheduler: [Int, One(Scheduler), In(S::SchedParam)], Nothing, PASSED;
    __NR_sched_getscheduler: [Int], Nothing, PASSED;
    __NR_sched_get_priority_max: [One(Scheduler)], Nothing, PASSED;
    __NR_sched_get_priority_min: [One(Scheduler)], Nothing, PASSED;
    __NR_sched_rr_get_interval: [Int, Out(S::Timespec)], Results(&[(1, TIMESPEC)]), PASSED;
    __NR_mlock: [Hex, Size], Nothing, PINS;
    __NR_munlock: [Hex, Size], Nothing, PASSED;
    __NR_mlockall: [Flags(LockAll)], Nothing, OWN;
    __NR_munlockall: [], Nothing, PASSED;
    __NR_vhangup: [], Nothing, PASSED;
    __NR_modify_ldt: 3, Unknown, PASSED;
    __NR_pivot_root: 2, Nothing, CHANGES_FILES | RIGHTS;
    __NR__sysctl: 1, Unknown, PASSED;
    __NR_prctl: [One(Prctl), Requested, Requested, Requested, Requested], Coded, OWN | RIGHTS;
    __NR_arch_prctl: [One(ArchCode), Requested], Coded, OWN;
    __NR_adjtimex: 1, Always(&[(0, TIMEX)]), PASSED;
    __NR_setrlimit: [One(Resource), In(S::Rlimit)], Nothing, WATCHED;
    __NR_chroot: [Text], Nothing, CHANGES_FILES | RIGHTS;
    __NR_sync: [], Nothing, PASSED;
    __NR_acct: [Text], Nothing, PASSED;
    __NR_settimeofday: [In(S::Timeval), In(S::Timezone)], Nothing, PASSED;
    __NR_mount: [Text, Text, Text, Flags(Mount), Text], Nothing, CHANGES_FILES;
    __NR_umount2: [Text, Flags(Unmount)], Nothing, CHANGES_FILES;
    __NR_swapon: 2, Unknown, PASSED;
    __NR_swapoff: [Text], Unknown, PASSED;
    __NR_reboot: 4, Unknown, PASSED;
    __NR_sethostname: [Bytes(1), Size], Nothing, PASSED;
    __NR_setdomainname: 2, Nothing, PASSED;
    __NR_iopl: 1, Unknown, PASSED;
    __NR_ioperm: 3, Unknown, PASSED;
    __NR_create_module: 2, Unknown, PASSED;
    __NR_init_module: 6, Unknown, PASSED;
    __NR_delete_module: 6, Unknown, PASSED;
    __NR_get_kernel_syms: 1, Unknown, PASSED;
    __NR_query_module: 5, Unknown, PASSED;
    __NR_quotactl: 4, Unknown, PASSED;
    __NR_nfsservctl: 3, Unknown, PASSED;
    __NR_getpmsg: 6, Unknown, PASSED;
    __NR_putpmsg: 6, Unknown, PASSED;
    __NR_afs_syscall: 6, Unknown, PASSED;
    __NR_tuxcall: 6, Unknown, PASSED;
    __NR_security: 6, Unknown, PASSED;
    __NR_gettid: [], Nothing, DIRECT;
    __NR_readahead: [Fd, Long, Size], Nothing, PASSED;
    __NR_setxattr: [Text, Text, Bytes(3), Size, Flags(XattrFlags)], Nothing, PASSED;
    __NR_lsetxattr: [Text, Text, Bytes(3), Size, Flags(XattrFlags)], Nothing, PASSED;
    __NR_fsetxattr: [Fd, Text, Bytes(3), Size, Flags(XattrFlags)], Nothing, PASSED;
    __NR_getxattr: [Text, Text, Filled, Size], Coded, PATH;
    __NR_lgetxattr: [Text, Text, Filled, Size], Coded, PASSED;
    __NR_fgetxattr: [Fd, Text, Filled, Size], Coded, PASSED;
    __NR_listxattr: [Text, Filled, Size], Coded, PATH;
    __NR_llistxattr: [Text, Filled, Size], Coded, PASSED;
    __NR_flistxattr: [Fd, Filled, Size], Coded, PASSED;
    __NR_removexattr: [Text, Text], Nothing, PASSED;
    __NR_lremovexattr: [Text, Text], Nothing, PASSED;
    __NR_fremovexattr: [Fd, Text], Nothing, PASSED;
    __NR_tkill: [Int, Signal], Nothing, OWN;
    __NR_time: [Out(S::Long)], Results(&[(0, 8)]), DIRECT;
    __NR_futex: [Hex, Flags(FutexOp), Uint, Requested, Requested, Requested], Coded, DIRECT;
    __NR_sched_setaffinity: [Int, Size, Processors(1)], Nothing, PASSED;
    __NR_sched_getaffinity: [Int, Size, FilledProcessors], Coded, PASSED;
    __NR_set_thread_area: 1, Unknown, PASSED;
    __NR_io_setup: 2, Unknown, PINS;
    __NR_io_destroy: 1, Unknown, PASSED;
    __NR_io_getevents: 5, Unknown, REPEATABLE;
    __NR_io_submit: 3, Unknown, PASSED;
    __NR_io_cancel: 3, Unknown, PASSED;
    __NR_get_thread_area: 1, Unknown, PASSED;
    __NR_lookup_dcookie: 3, Unknown, PASSED;
    __NR_epoll_create: [Int], Nothing, PASSED;
    __NR_epoll_ctl_old: 4, Unknown, PASSED;
    __NR_epoll_wait_old: 4, Unknown, PASSED;
    __NR_remap_file_pages: 5, Unknown, PINS;
    __NR_getdents64: [Fd, Out(S::Dirents), Size], Coded, WATCHED;
    __NR_set_tid_address: [Hex], Nothing, PASSED;
    __NR_restart_syscall: [], Unknown, PASSED;
    __NR_semtimedop: 4, Nothing, REPEATABLE;
    __NR_fadvise64: [Fd, Long, Size, One(FileAdvice)], Nothing, PASSED;
    __NR_timer_create: [One(Clock), Hex, Out(S::Int)], Always(&[(2, 4)]), PASSED;
    __NR_timer_settime: [Int, Flags(ClockFlags), In(S::Itimerspec), Out(S::Itimerspec)], Results(&[(3, ITIMER)]), PASSED;
    __NR_timer_gettime: [Int, Out(S::Itimerspec)], Results(&[(1, ITIMER)]), PASSED;
    __NR_timer_getoverrun: [Int], Nothing, PASSED;
    __NR_timer_delete: [Int], Nothing, PASSED;
    __NR_clock_settime: [One(Clock), In(S::Timespec)], Nothing, PASSED;
    __NR_clock_gettime: [One(Clock), Out(S::Timespec)], Results(&[(1, TIMESPEC)]), DIRECT;
    __NR_clock_getres: [One(Clock), Out(S::Timespec)], Results(&[(1, TIMESPEC)]), PASSED;
    __NR_clock_nanosleep: [One(Clock), Flags(ClockFlags), In(S::Timespec), Out(S::Timespec)], Always(&[(3, TIMESPEC)]), PASSED;
    __NR_exit_group: [Int], Nothing, OWN;
    __NR_epoll_wait: [Fd, Outs(S::EpollEvent), Int, Int], Coded, DIRECT | REPEATABLE;
    __NR_epoll_ctl: [Fd, One(EpollOp), Fd, In(S::EpollEvent)], Nothing, PASSED;
    __NR_tgkill: [Int, Int, Signal], Nothing, OWN;
    __NR_utimes: [Text, In(S::Timevals)], Nothing, PASSED;
    __NR_vserver: 6, Unknown, PASSED;
    __NR_mbind: 6, Unknown, PINS;
    __NR_set_mempolicy: 3, Unknown, PASSED;
    __NR_get_mempolicy: 5, Unknown, PASSED;
    __NR_mq_open: 4, Nothing, PASSED;
    __NR_mq_unlink: 1, Nothing, PASSED;
    __NR_mq_timedsend: 5, Nothing, PASSED;
    __NR_mq_timedreceive: 5, Coded, PASSED;
    __NR_mq_notify: 2, Nothing, PASSED;
    __NR_mq_getsetattr: 3, Results(&[(2, 64)]), PASSED;
    __NR_kexec_load: 6, Unknown, PASSED;
    __NR_waitid: [One(WaitKind), Int, Out(S::Siginfo), Flags(WaitStatus), Out(S::Rusage)], Always(&[(2, SIGINFO), (4, RUSAGE)]), WATCHED;
    __NR_add_key: 5, Unknown, PASSED;
    __NR_request_key: 4, Unknown, PASSED;
    __NR_keyctl: 5, Unknown, PASSED;
    __NR_ioprio_set: 3, Nothing, PASSED;
    __NR_ioprio_get: 2, Nothing, PASSED;
    __NR_inotify_init: [], Nothing, PASSED;
    __NR_inotify_add_watch: [Fd, Text, Flags(InotifyMask)], Nothing, PASSED;
    __NR_inotify_rm_watch: [Fd, Int], Nothing, PASSED;
    __NR_migrate_pages: 4, Unknown, PINS;
    __NR_openat: [Dir, Text, Flags(Open), ModeIf(2)], Nothing, PATH;
    __NR_mkdirat: [Dir, Text, Mode], Nothing, PASSED;
    __NR_mknodat: [Dir, Text, Mode, Device], Nothing, PASSED;
    __NR_fchownat: [Dir, Text, Int, Int, Flags(At)], Nothing, PASSED;
    __NR_futimesat: 3, Nothing, PASSED;
    __NR_newfstatat: [Dir, Text, Out(S::Stat), Flags(At)], Results(&[(2, STAT)]), PATH | DESCRIPTOR;
    __NR_unlinkat: [Dir, Text, Flags(At)], Nothing, CHANGES_FILES;
    __NR_renameat: [Dir, Text, Dir, Text], Nothing, CHANGES_FILES;
    __NR_linkat: [Dir, Text, Dir, Text, Flags(At)], Nothing, PASSED;
    __NR_symlinkat: [Text, Dir, Text], Nothing, PASSED;
    __NR_readlinkat: [Dir, Text, Filled, Size], Coded, PATH;
    __NR_fchmodat: [Dir, Text, Mode], Nothing, PASSED;
    __NR_faccessat: [Dir, Text, Flags(Access)], Nothing, PATH;
    __NR_pselect6: [Int, Descriptors, Descriptors, Descriptors, In(S::Timespec), In(S::SizedSigset)], Coded, OWN;
    __NR_ppoll: [Polled(1), Uint, In(S::Timespec), In(S::Sigset), Size], Coded, OWN;
    __NR_unshare: [Flags(CloneFlags)], Nothing, CHANGES_FILES | RIGHTS;
    __NR_set_robust_list: [Hex, Size], Nothing, PASSED;
    __NR_get_robust_list: [Int, Out(S::Hex), Out(S::Long)], Results(&[(1, 8), (2, 8)]), PASSED;
    __NR_splice: [Fd, InOut(S::Long), Fd, InOut(S::Long), Size, Flags(SpliceFlags)], Always(&[(1, 8), (3, 8)]), PASSED;
    __NR_tee: [Fd, Fd, Size, Flags(SpliceFlags)], Nothing, PASSED;
    __NR_sync_file_range: [Fd, Long, Long, Uint], Nothing, PASSED;
    __NR_vmsplice: 4, Unknown, PINS;
    __NR_move_pages: 6, Unknown, PINS;
    __NR_utimensat: [Dir, Text, In(S::Times), Flags(At)], Nothing, PASSED;
    __NR_epoll_pwait: [Fd, Outs(S::EpollEvent), Int, Int, In(S::Sigset), Size], Coded, OWN | REPEATABLE;
    __NR_signalfd: [Fd, In(S::Sigset), Size], Nothing, PASSED;
    __NR_timerfd_create: [One(Clock), Flags(TimerFlags)], Nothing, PASSED;
    __NR_eventfd: [Uint], Nothing, PASSED;
    __NR_fallocate: [Fd, Flags(Fallocate), Long, Long], Nothing, DESCRIPTOR;
    __NR_timerfd_settime: [Fd, Flags(ClockFlags), In(S::Itimerspec), Out(S::Itimerspec)], Results(&[(3, ITIMER)]), PASSED;
    __NR_timerfd_gettime: [Fd, Out(S::Itimerspec)], Results(&[(1, ITIMER)]), PASSED;
    __NR_accept4: [Fd, FilledAddress(2), InOut(S::Int), Flags(Accept)], Coded, REPEATABLE;
    __NR_signalfd4: [Fd, In(S::Sigset), Size, Flags(SignalFdFlags)], Nothing, PASSED;
    __NR_eventfd2: [Uint, Flags(EventFlags)], Nothing, PASSED;
    __NR_epoll_create1: [Flags(EpollFlags)], Nothing, PASSED;
    __NR_dup3: [Fd, Fd, Flags(Dup3Flags)], Nothing, DESCRIPTOR;
    __NR_pipe2: [Out(S::Pair), Flags(PipeFlags)], Results(&[(0, 8)]), PASSED;
    __NR_inotify_init1: [Flags(Inotify)], Nothing, PASSED;
    __NR_preadv: [Fd, FilledBuffers(2), Int, Long] + 1, Coded, DESCRIPTOR;
    __NR_pwritev: [Fd, Buffers(2), Int, Long] + 1, Nothing, DESCRIPTOR;
    __NR_rt_tgsigqueueinfo: 4, Nothing, OWN;
    __NR_perf_event_open: 5, Unknown, PASSED;
    __NR_recvmmsg: 5, Coded, WATCHED | REPEATABLE;
    __NR_fanotify_init: 2, Nothing, PASSED;
    __NR_fanotify_mark: 5, Nothing, PASSED;
    __NR_prlimit64: [Int, One(Resource), In(S::Rlimit), Out(S::Rlimit)], Results(&[(3, 16)]), WATCHED;
    __NR_name_to_handle_at: [Dir, Text, FileHandle, MountId(4), Flags(HandleFlags)], Coded, PATH | DESCRIPTOR;
    __NR_open_by_handle_at: 3, Unknown, PASSED;
    __NR_clock_adjtime: 2, Results(&[(1, TIMEX)]), PASSED;
    __NR_syncfs: [Fd], Nothing, DESCRIPTOR;
    __NR_sendmmsg: 4, Coded, PASSED;
    __NR_setns: [Fd, Flags(CloneFlags)], Nothing, CHANGES_FILES | RIGHTS;
    __NR_getcpu: [Out(S::Uint), Out(S::Uint), Hex], Always(&[(0, 4), (1, 4)]), PASSED;
    __NR_process_vm_readv: 6, Coded, PASSED;
    __NR_process_vm_writev: 6, Unknown, WATCHED;
    __NR_kcmp: 5, Unknown, PASSED;
    __NR_finit_module: 6, Unknown, PASSED;
    __NR_sched_setattr: 3, Always(&[(1, 4)]), PASSED;
    __NR_sched_getattr: 4, Coded, PASSED;
    __NR_renameat2: [Dir, Text, Dir, Text, Flags(Rename)], Nothing, CHANGES_FILES;
    __NR_seccomp: [One(Seccomp), Uint, Hex], Coded, OWN | RIGHTS;
    __NR_getrandom: [Filled, Size, Flags(Random)], Coded, PASSED;
    __NR_memfd_create: [Text, Flags(MemoryFile)], Nothing, PASSED;
    __NR_kexec_file_load: 6, Unknown, PASSED;
    __NR_bpf: 3, Unknown, PASSED;
    __NR_execveat: [Dir, Text, Texts, Environment, Flags(At)], Nothing, OWN;
    __NR_userfaultfd: 1, Unknown, PINS;
    __NR_membarrier: [One(Membarrier), Uint] + 1, Nothing, PASSED;
    __NR_mlock2: [Hex, Size, Uint], Nothing, PINS;
    __NR_copy_file_range: [Fd, InOut(S::Long), Fd, InOut(S::Long), Size, Uint], Always(&[(1, 8), (3, 8)]), PASSED;
    __NR_preadv2: [Fd, FilledBuffers(2), Int, Long, Hex, Hex], Coded, PASSED;
    __NR_pwritev2: [Fd, Buffers(2), Int, Long, Hex, Hex], Nothing, PASSED;
    __NR_pkey_mprotect: [Hex, Size, Flags(Protection), Int], Nothing, MAPS | PINS;
    __NR_pkey_alloc: [Uint, Uint], Nothing, OWN;
    __NR_pkey_free: [Int], Nothing, PASSED;
    __NR_statx: [Dir, Text, Flags(StatxFlags), Flags(StatxMask), Out(S::Statx)], Results(&[(4, STATX)]), PATH | DESCRIPTOR;
    __NR_io_pgetevents: 6, Unknown, OWN | REPEATABLE;
    __NR_rseq: [Hex, Hex, Flags(RseqFlags), Hex], Nothing, OWN;
    __NR_pidfd_send_signal: [Fd, Signal, In(S::Siginfo), Uint], Nothing, OWN;
    __NR_io_uring_setup: 2, Unknown, PINS;
    __NR_io_uring_enter: 6, Unknown, OWN | REPEATABLE;
    __NR_io_uring_register: 4, Unknown, PASSED;
    __NR_open_tree: 3, Unknown, PASSED;
    __NR_move_mount: 5, Unknown, PASSED;
    __NR_fsopen: 2, Unknown, PASSED;
    __NR_fsconfig: 5, Unknown, PASSED;
    __NR_fsmount: 3, Unknown, PASSED;
    __NR_fspick: 3, Unknown, PASSED;
    __NR_pidfd_open: [Int, Flags(PidfdFlags)], Nothing, PASSED;
    __NR_clone3: [InOut(S::CloneArgs), Size], Coded, OWN | RIGHTS;
    __NR_close_range: [Uint, Uint, Flags(CloseRange)], Nothing, WATCHED;
    __NR_openat2: [Dir, Text, In(S::OpenHow), Size], Nothing, PATH;
    __NR_pidfd_getfd: [Fd, Fd, Uint], Unknown, PASSED;
    __NR_faccessat2: [Dir, Text, Flags(Access), Flags(At)], Nothing, PATH;
    __NR_process_madvise: 5, Unknown, PINS;
    __NR_epoll_pwait2: [Fd, Outs(S::EpollEvent), Int, In(S::Timespec), In(S::Sigset), Size], Coded, OWN | REPEATABLE;
    __NR_mount_setattr: 5, Unknown, PASSED;
    __NR_quotactl_fd: 4, Unknown, PASSED;
    __NR_landlock_create_ruleset: 3, Nothing, PASSED;
    __NR_landlock_add_rule: 4, Nothing, PASSED;
    __NR_landlock_restrict_self: 2, Nothing, RIGHTS;
    __NR_memfd_secret: 1, Unknown, PASSED;
    __NR_process_mrelease: 2, Unknown, PASSED;
    __NR_futex_waitv: 5, Nothing, PASSED;
    __NR_set_mempolicy_home_node: 4, Unknown, PINS;
    __NR_cachestat: 4, Results(&[(2, 40)]), PASSED;
    __NR_fchmodat2: [Dir, Text, Mode, Flags(At)], Nothing, PASSED;
    __NR_map_shadow_stack: 6, Unknown, PASSED;
    __NR_futex_wake: 4, Unknown, PASSED;
    __NR_futex_wait: 6, Unknown, PASSED;
    __NR_futex_requeue: 4, Unknown, PASSED;
    __NR_statmount: 4, Unknown, PASSED;
    __NR_listmount: 4, Unknown, PASSED;
    __NR_lsm_get_self_attr: 4, Unknown, PASSED;
    __NR_lsm_set_self_attr: 4, Unknown, PASSED;
    __NR_lsm_list_modules: 3, Unknown, PASSED;
    __NR_mseal: 3, Unknown, PINS;
    __NR_setxattrat: [Dir, Text, Flags(At), Text, Hex, Size], Nothing, PASSED;
    __NR_getxattrat: [Dir, Text, Flags(At), Text, Hex, Size], Coded, PATH;
    __NR_listxattrat: [Dir, Text, Flags(At), Filled, Size], Coded, PATH;
    __NR_removexattrat: [Dir, Text, Flags(At), Text], Nothing, PASSED;
    __NR_open_tree_attr: 5, Unknown, PASSED;
    __NR_file_getattr: [Dir, Text, Hex, Size, Flags(At)], Coded, PATH;
    __NR_file_setattr: [Dir, Text, Hex, Size, Flags(At)], Nothing, PASSED;
};

/// Numbers from here on are of calls that came later than this table.
const END: usize = TABLE[TABLE.len() - 1].number as usize + 1;

/// The properties by number, for those who look at every call.
static TRAITS: [Traits; END] = {
    let mut out = [PASSED; END];
    let mut i = 0;
    while i < TABLE.len() {
        out[TABLE[i].number as usize] = TABLE[i].traits;
        i += 1;
    }
    out
};

/// What is written, by number.
static WRITES: [Writes; END] = {
    let mut out = [Unknown; END];
    let mut i = 0;
    while i < TABLE.len() {
        out[TABLE[i].number as usize] = TABLE[i].writes;
        i += 1;
    }
    out
};

/// Whether the call with this number has one of these properties.
#[inline]
pub fn has(nr: u32, traits: Traits) -> bool {
    TRAITS.get(nr as usize).is_some_and(|t| t & traits != 0)
}

/// What the call with this number writes.
#[inline]
pub(crate) fn writes(nr: u32) -> Writes {
    WRITES.get(nr as usize).copied().unwrap_or(Unknown)
}

fn call(nr: u64) -> Option<&'static Call> {
    let nr = u32::try_from(nr).ok()?;
    let at = TABLE.binary_search_by_key(&nr, |c| c.number).ok()?;
    Some(&TABLE[at])
}

/// The name of a system call, as in the kernel's headers.
pub fn name(nr: u64) -> Option<&'static str> {
    call(nr).map(|c| c.name)
}

/// The number of a system call with this name.
pub fn number(name: &str) -> Option<u64> {
    let call = TABLE.iter().find(|c| c.name == name)?;
    Some(call.number as u64)
}

/// The names of all system calls.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|c| c.name)
}

/// The number of arguments of a system call. 6 if it is not known.
pub fn arguments(nr: u64) -> usize {
    call(nr).map_or(6, |c| {
        c.args.told.map_or(0, <[_]>::len) + c.args.more as usize
    })
}

#[cfg(test)]
mod tests;
