//! What the arguments and results of system calls mean: one line for each call.

use self::Arg::*;
use self::Set::*;

/// What an argument is. Where another argument has its length, the number is that argument's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A signed number of 32 bits.
    Int,
    /// A signed number of 64 bits.
    Long,
    /// An unsigned number of 32 bits.
    Uint,
    /// An unsigned number of 64 bits.
    Size,
    /// An address, or a number of which only the bits matter.
    Hex,
    /// A descriptor.
    Fd,
    /// A descriptor of a folder, for relative paths.
    Dir,
    /// Permissions of a file.
    Mode,
    /// Permissions of a file, for `open`, which reads them only if it creates a file. The number is the index of the
    /// flags.
    ModeIf(u8),
    /// The number of a device.
    Device,
    /// The number of a signal.
    Signal,
    /// Named bits.
    Flags(Set),
    /// One of several named numbers.
    One(Set),
    /// Named bits in memory, after the call.
    FlagsBehind(Set),
    /// A text in memory that ends with a zero byte.
    Text,
    /// A list of pointers to texts.
    Texts,
    /// A list of pointers to texts that is only counted: the environment.
    Environment,
    /// Bytes that the call reads. Another argument has their number.
    Bytes(u8),
    /// Bytes that the call writes. It returns their number.
    Filled,
    /// A text that the call writes, with or without a zero at the end. The call returns its length.
    FilledText,
    /// A structure or number that the call reads.
    In(Shape),
    /// A structure or number that the call writes.
    Out(Shape),
    /// A structure or number that the call reads and writes.
    InOut(Shape),
    /// Several structures that the call reads. Another argument has their number.
    Ins(Shape, u8),
    /// Several structures that the call writes. It returns their number.
    Outs(Shape),
    /// A list of buffers: what they hold before the call.
    Buffers(u8),
    /// A list of buffers: what the call has written.
    FilledBuffers(u8),
    /// The address of a socket that the call reads. Another argument is its length.
    Address(u8),
    /// The address of a socket that the call writes. Another argument points to its length.
    FilledAddress(u8),
    /// A message to a socket.
    Message,
    /// A message from a socket.
    FilledMessage,
    /// The descriptors of `poll`: what is awaited, and what has come.
    Polled(u8),
    /// An argument that depends on the request of `ioctl`, `fcntl`, `prctl`, `arch_prctl` or `futex`. Some requests
    /// have none.
    Requested,
    /// A value of a socket's option that the call reads. The number is the index of its length.
    Value(u8),
    /// A value of a socket's option that the call writes. The number is the index of its length.
    FilledValue(u8),
    /// A set of descriptors of `select`, before the call.
    Descriptors,
    /// A set of processors that the call reads. Another argument has its length in bytes.
    Processors(u8),
    /// A set of processors that the call writes. It returns its length in bytes.
    FilledProcessors,
}

/// Sets of names for numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as what they are for")]
pub enum Set {
    Open,
    Access,
    At,
    Protection,
    Mapping,
    Remapping,
    Advice,
    Syncing,
    Whence,
    SignalHow,
    Clock,
    ClockFlags,
    Resource,
    Family,
    SocketType,
    Protocol,
    MessageFlags,
    Shutdown,
    Level,
    OptionName,
    EpollOp,
    EpollFlags,
    EventFlags,
    TimerFlags,
    SignalFdFlags,
    PipeFlags,
    CloneFlags,
    FutexOp,
    Random,
    MemoryFile,
    FcntlCommand,
    Request,
    ArchCode,
    Prctl,
    WaitOptions,
    WaitKind,
    WaitStatus,
    Lock,
    Timer,
    Usage,
    PriorityKind,
    StatxFlags,
    StatxMask,
    Rename,
    Inotify,
    InotifyMask,
    CloseRange,
    Membarrier,
    Fallocate,
    FileAdvice,
    Scheduler,
    Mount,
    Unmount,
    Accept,
    SpliceFlags,
    PidfdFlags,
    Dup3Flags,
    LockAll,
    IpcCreate,
    Ptrace,
    Seccomp,
    XattrFlags,
    RseqFlags,
}

/// What a pointer points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the kernel's structures")]
pub enum Shape {
    Stat,
    Statx,
    Statfs,
    Timespec,
    Timeval,
    Timezone,
    /// Two times: of the last access and of the last change.
    Times,
    Timevals,
    Itimerval,
    Itimerspec,
    Rlimit,
    Rusage,
    Utsname,
    Sysinfo,
    Sigaction,
    Sigset,
    Stack,
    Siginfo,
    /// A set of signals and its size, in the form of `pselect6`.
    SizedSigset,
    Int,
    Uint,
    Long,
    Hex,
    /// Two descriptors.
    Pair,
    EpollEvent,
    CloneArgs,
    SchedParam,
    Tms,
    Status,
    /// Numbers of groups.
    Id,
    Dirents,
    OpenHow,
    Sembuf,
    Winsize,
}

/// What a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A number.
    Number,
    /// An address, or bits.
    Address,
    /// The call does not return if it succeeds.
    Nothing,
    /// A mask of permissions: the old one.
    Octal,
}

/// What a call takes and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What each argument is.
    pub args: &'static [Arg],
    /// What the result is.
    pub returns: Returns,
}

/// The signature of the call with this name. `None`: only its number of arguments is known.
pub fn signature(name: &str) -> Option<Signature> {
    let args = TABLE.iter().find(|(n, _)| *n == name)?.1;
    let returns = match name {
        "mmap" | "mremap" | "brk" | "shmat" => Returns::Address,
        "exit" | "exit_group" | "rt_sigreturn" => Returns::Nothing,
        "umask" => Returns::Octal,
        _ => Returns::Number,
    };
    Some(Signature { args, returns })
}

use self::Shape as S;

#[rustfmt::skip]
const TABLE: &[(&str, &[Arg])] = &[
    ("read", &[Fd, Filled, Size]),
    ("write", &[Fd, Bytes(2), Size]),
    ("open", &[Text, Flags(Open), ModeIf(1)]),
    ("close", &[Fd]),
    ("stat", &[Text, Out(S::Stat)]),
    ("fstat", &[Fd, Out(S::Stat)]),
    ("lstat", &[Text, Out(S::Stat)]),
    ("poll", &[Polled(1), Uint, Int]),
    ("lseek", &[Fd, Long, One(Whence)]),
    ("mmap", &[Hex, Size, Flags(Protection), Flags(Mapping), Fd, Hex]),
    ("mprotect", &[Hex, Size, Flags(Protection)]),
    ("munmap", &[Hex, Size]),
    ("brk", &[Hex]),
    ("rt_sigaction", &[Signal, In(S::Sigaction), Out(S::Sigaction), Size]),
    ("rt_sigprocmask", &[One(SignalHow), In(S::Sigset), Out(S::Sigset), Size]),
    ("rt_sigreturn", &[]),
    ("ioctl", &[Fd, One(Request), Requested]),
    ("pread64", &[Fd, Filled, Size, Long]),
    ("pwrite64", &[Fd, Bytes(2), Size, Long]),
    ("readv", &[Fd, FilledBuffers(2), Int]),
    ("writev", &[Fd, Buffers(2), Int]),
    ("access", &[Text, Flags(Access)]),
    ("pipe", &[Out(S::Pair)]),
    ("select", &[Int, Descriptors, Descriptors, Descriptors, In(S::Timeval)]),
    ("sched_yield", &[]),
    ("mremap", &[Hex, Size, Size, Flags(Remapping), Requested]),
    ("msync", &[Hex, Size, Flags(Syncing)]),
    ("mincore", &[Hex, Size, Hex]),
    ("madvise", &[Hex, Size, One(Advice)]),
    ("dup", &[Fd]),
    ("dup2", &[Fd, Fd]),
    ("dup3", &[Fd, Fd, Flags(Dup3Flags)]),
    ("pause", &[]),
    ("nanosleep", &[In(S::Timespec), Out(S::Timespec)]),
    ("getitimer", &[One(Timer), Out(S::Itimerval)]),
    ("alarm", &[Uint]),
    ("setitimer", &[One(Timer), In(S::Itimerval), Out(S::Itimerval)]),
    ("getpid", &[]),
    ("sendfile", &[Fd, Fd, InOut(S::Long), Size]),
    ("socket", &[One(Family), Flags(SocketType), One(Protocol)]),
    ("connect", &[Fd, Address(2), Int]),
    ("accept", &[Fd, FilledAddress(2), InOut(S::Int)]),
    ("accept4", &[Fd, FilledAddress(2), InOut(S::Int), Flags(Accept)]),
    ("sendto", &[Fd, Bytes(2), Size, Flags(MessageFlags), Address(5), Int]),
    ("recvfrom", &[Fd, Filled, Size, Flags(MessageFlags), FilledAddress(5), InOut(S::Int)]),
    ("sendmsg", &[Fd, Message, Flags(MessageFlags)]),
    ("recvmsg", &[Fd, FilledMessage, Flags(MessageFlags)]),
    ("shutdown", &[Fd, One(Shutdown)]),
    ("bind", &[Fd, Address(2), Int]),
    ("listen", &[Fd, Int]),
    ("getsockname", &[Fd, FilledAddress(2), InOut(S::Int)]),
    ("getpeername", &[Fd, FilledAddress(2), InOut(S::Int)]),
    ("socketpair", &[One(Family), Flags(SocketType), One(Protocol), Out(S::Pair)]),
    ("setsockopt", &[Fd, One(Level), One(OptionName), Arg::Value(4), Int]),
    ("getsockopt", &[Fd, One(Level), One(OptionName), FilledValue(4), InOut(S::Int)]),
    ("clone", &[Requested, Requested, Requested, Requested, Requested]),
    ("clone3", &[InOut(S::CloneArgs), Size]),
    ("fork", &[]),
    ("vfork", &[]),
    ("execve", &[Text, Texts, Environment]),
    ("execveat", &[Dir, Text, Texts, Environment, Flags(At)]),
    ("exit", &[Int]),
    ("exit_group", &[Int]),
    ("wait4", &[Int, Out(S::Status), Flags(WaitOptions), Out(S::Rusage)]),
    ("waitid", &[One(WaitKind), Int, Out(S::Siginfo), Flags(WaitStatus), Out(S::Rusage)]),
    ("kill", &[Int, Signal]),
    ("tkill", &[Int, Signal]),
    ("tgkill", &[Int, Int, Signal]),
    ("uname", &[Out(S::Utsname)]),
    ("semget", &[Hex, Int, Flags(IpcCreate)]),
    ("semop", &[Int, Ins(S::Sembuf, 2), Size]),
    ("shmget", &[Hex, Size, Flags(IpcCreate)]),
    ("shmdt", &[Hex]),
    ("fcntl", &[Fd, One(FcntlCommand), Requested]),
    ("flock", &[Fd, Flags(Lock)]),
    ("fsync", &[Fd]),
    ("fdatasync", &[Fd]),
    ("truncate", &[Text, Long]),
    ("ftruncate", &[Fd, Long]),
    ("getdents64", &[Fd, Out(S::Dirents), Size]),
    ("getcwd", &[FilledText, Size]),
    ("chdir", &[Text]),
    ("fchdir", &[Fd]),
    ("rename", &[Text, Text]),
    ("renameat", &[Dir, Text, Dir, Text]),
    ("renameat2", &[Dir, Text, Dir, Text, Flags(Rename)]),
    ("mkdir", &[Text, Mode]),
    ("mkdirat", &[Dir, Text, Mode]),
    ("rmdir", &[Text]),
    ("creat", &[Text, Mode]),
    ("link", &[Text, Text]),
    ("linkat", &[Dir, Text, Dir, Text, Flags(At)]),
    ("unlink", &[Text]),
    ("unlinkat", &[Dir, Text, Flags(At)]),
    ("symlink", &[Text, Text]),
    ("symlinkat", &[Text, Dir, Text]),
    ("readlink", &[Text, Filled, Size]),
    ("readlinkat", &[Dir, Text, Filled, Size]),
    ("chmod", &[Text, Mode]),
    ("fchmod", &[Fd, Mode]),
    ("fchmodat", &[Dir, Text, Mode]),
    ("chown", &[Text, Int, Int]),
    ("fchown", &[Fd, Int, Int]),
    ("lchown", &[Text, Int, Int]),
    ("fchownat", &[Dir, Text, Int, Int, Flags(At)]),
    ("mknod", &[Text, Mode, Device]),
    ("mknodat", &[Dir, Text, Mode, Device]),
    ("umask", &[Mode]),
    ("gettimeofday", &[Out(S::Timeval), Out(S::Timezone)]),
    ("settimeofday", &[In(S::Timeval), In(S::Timezone)]),
    ("getrlimit", &[One(Resource), Out(S::Rlimit)]),
    ("setrlimit", &[One(Resource), In(S::Rlimit)]),
    ("prlimit64", &[Int, One(Resource), In(S::Rlimit), Out(S::Rlimit)]),
    ("getrusage", &[One(Usage), Out(S::Rusage)]),
    ("sysinfo", &[Out(S::Sysinfo)]),
    ("times", &[Out(S::Tms)]),
    ("ptrace", &[One(Ptrace), Int, Hex, Hex]),
    ("getuid", &[]),
    ("getgid", &[]),
    ("setuid", &[Int]),
    ("setgid", &[Int]),
    ("geteuid", &[]),
    ("getegid", &[]),
    ("setpgid", &[Int, Int]),
    ("getppid", &[]),
    ("getpgrp", &[]),
    ("setsid", &[]),
    ("setreuid", &[Int, Int]),
    ("setregid", &[Int, Int]),
    ("getgroups", &[Int, Outs(S::Id)]),
    ("setgroups", &[Int, Ins(S::Id, 0)]),
    ("setresuid", &[Int, Int, Int]),
    ("getresuid", &[Out(S::Int), Out(S::Int), Out(S::Int)]),
    ("setresgid", &[Int, Int, Int]),
    ("getresgid", &[Out(S::Int), Out(S::Int), Out(S::Int)]),
    ("getpgid", &[Int]),
    ("setfsuid", &[Int]),
    ("setfsgid", &[Int]),
    ("getsid", &[Int]),
    ("rt_sigpending", &[Out(S::Sigset), Size]),
    ("rt_sigtimedwait", &[In(S::Sigset), Out(S::Siginfo), In(S::Timespec), Size]),
    ("rt_sigsuspend", &[In(S::Sigset), Size]),
    ("sigaltstack", &[In(S::Stack), Out(S::Stack)]),
    ("statfs", &[Text, Out(S::Statfs)]),
    ("fstatfs", &[Fd, Out(S::Statfs)]),
    ("getpriority", &[One(PriorityKind), Int]),
    ("setpriority", &[One(PriorityKind), Int, Int]),
    ("sched_setparam", &[Int, In(S::SchedParam)]),
    ("sched_getparam", &[Int, Out(S::SchedParam)]),
    ("sched_setscheduler", &[Int, One(Scheduler), In(S::SchedParam)]),
    ("sched_getscheduler", &[Int]),
    ("sched_get_priority_max", &[One(Scheduler)]),
    ("sched_get_priority_min", &[One(Scheduler)]),
    ("sched_rr_get_interval", &[Int, Out(S::Timespec)]),
    ("sched_setaffinity", &[Int, Size, Processors(1)]),
    ("sched_getaffinity", &[Int, Size, FilledProcessors]),
    ("mlock", &[Hex, Size]),
    ("munlock", &[Hex, Size]),
    ("mlockall", &[Flags(LockAll)]),
    ("munlockall", &[]),
    ("prctl", &[One(Prctl), Requested, Requested, Requested, Requested]),
    ("arch_prctl", &[One(ArchCode), Requested]),
    ("chroot", &[Text]),
    ("sync", &[]),
    ("syncfs", &[Fd]),
    ("mount", &[Text, Text, Text, Flags(Mount), Text]),
    ("umount2", &[Text, Flags(Unmount)]),
    ("sethostname", &[Bytes(1), Size]),
    ("gettid", &[]),
    ("readahead", &[Fd, Long, Size]),
    ("setxattr", &[Text, Text, Bytes(3), Size, Flags(XattrFlags)]),
    ("lsetxattr", &[Text, Text, Bytes(3), Size, Flags(XattrFlags)]),
    ("fsetxattr", &[Fd, Text, Bytes(3), Size, Flags(XattrFlags)]),
    ("getxattr", &[Text, Text, Filled, Size]),
    ("lgetxattr", &[Text, Text, Filled, Size]),
    ("fgetxattr", &[Fd, Text, Filled, Size]),
    ("listxattr", &[Text, Filled, Size]),
    ("llistxattr", &[Text, Filled, Size]),
    ("flistxattr", &[Fd, Filled, Size]),
    ("removexattr", &[Text, Text]),
    ("lremovexattr", &[Text, Text]),
    ("fremovexattr", &[Fd, Text]),
    ("time", &[Out(S::Long)]),
    ("futex", &[Hex, Flags(FutexOp), Uint, Requested, Requested, Requested]),
    ("set_tid_address", &[Hex]),
    ("restart_syscall", &[]),
    ("fadvise64", &[Fd, Long, Size, One(FileAdvice)]),
    ("timer_create", &[One(Clock), Hex, Out(S::Int)]),
    ("timer_settime", &[Int, Flags(ClockFlags), In(S::Itimerspec), Out(S::Itimerspec)]),
    ("timer_gettime", &[Int, Out(S::Itimerspec)]),
    ("timer_getoverrun", &[Int]),
    ("timer_delete", &[Int]),
    ("clock_settime", &[One(Clock), In(S::Timespec)]),
    ("clock_gettime", &[One(Clock), Out(S::Timespec)]),
    ("clock_getres", &[One(Clock), Out(S::Timespec)]),
    ("clock_nanosleep", &[One(Clock), Flags(ClockFlags), In(S::Timespec), Out(S::Timespec)]),
    ("epoll_create", &[Int]),
    ("epoll_create1", &[Flags(EpollFlags)]),
    ("epoll_ctl", &[Fd, One(EpollOp), Fd, In(S::EpollEvent)]),
    ("epoll_wait", &[Fd, Outs(S::EpollEvent), Int, Int]),
    ("epoll_pwait", &[Fd, Outs(S::EpollEvent), Int, Int, In(S::Sigset), Size]),
    ("utimensat", &[Dir, Text, In(S::Times), Flags(At)]),
    ("utimes", &[Text, In(S::Timevals)]),
    ("openat", &[Dir, Text, Flags(Open), ModeIf(2)]),
    ("openat2", &[Dir, Text, In(S::OpenHow), Size]),
    ("newfstatat", &[Dir, Text, Out(S::Stat), Flags(At)]),
    ("faccessat", &[Dir, Text, Flags(Access)]),
    ("faccessat2", &[Dir, Text, Flags(Access), Flags(At)]),
    ("pselect6", &[Int, Descriptors, Descriptors, Descriptors, In(S::Timespec), In(S::SizedSigset)]),
    ("ppoll", &[Polled(1), Uint, In(S::Timespec), In(S::Sigset), Size]),
    ("unshare", &[Flags(CloneFlags)]),
    ("setns", &[Fd, Flags(CloneFlags)]),
    ("set_robust_list", &[Hex, Size]),
    ("get_robust_list", &[Int, Out(S::Hex), Out(S::Long)]),
    ("splice", &[Fd, InOut(S::Long), Fd, InOut(S::Long), Size, Flags(SpliceFlags)]),
    ("tee", &[Fd, Fd, Size, Flags(SpliceFlags)]),
    ("sync_file_range", &[Fd, Long, Long, Uint]),
    ("copy_file_range", &[Fd, InOut(S::Long), Fd, InOut(S::Long), Size, Uint]),
    ("fallocate", &[Fd, Flags(Fallocate), Long, Long]),
    ("signalfd4", &[Fd, In(S::Sigset), Size, Flags(SignalFdFlags)]),
    ("eventfd", &[Uint]),
    ("eventfd2", &[Uint, Flags(EventFlags)]),
    ("timerfd_create", &[One(Clock), Flags(TimerFlags)]),
    ("timerfd_settime", &[Fd, Flags(ClockFlags), In(S::Itimerspec), Out(S::Itimerspec)]),
    ("timerfd_gettime", &[Fd, Out(S::Itimerspec)]),
    ("pipe2", &[Out(S::Pair), Flags(PipeFlags)]),
    ("inotify_init", &[]),
    ("inotify_init1", &[Flags(Inotify)]),
    ("inotify_add_watch", &[Fd, Text, Flags(InotifyMask)]),
    ("inotify_rm_watch", &[Fd, Int]),
    ("preadv", &[Fd, FilledBuffers(2), Int, Long]),
    ("pwritev", &[Fd, Buffers(2), Int, Long]),
    ("preadv2", &[Fd, FilledBuffers(2), Int, Long, Hex, Hex]),
    ("pwritev2", &[Fd, Buffers(2), Int, Long, Hex, Hex]),
    ("signalfd", &[Fd, In(S::Sigset), Size]),
    ("fchmodat2", &[Dir, Text, Mode, Flags(At)]),
    ("epoll_pwait2", &[Fd, Outs(S::EpollEvent), Int, In(S::Timespec), In(S::Sigset), Size]),
    ("getcpu", &[Out(S::Uint), Out(S::Uint), Hex]),
    ("seccomp", &[One(Seccomp), Uint, Hex]),
    ("getrandom", &[Filled, Size, Flags(Random)]),
    ("memfd_create", &[Text, Flags(MemoryFile)]),
    ("membarrier", &[One(Membarrier), Uint]),
    ("mlock2", &[Hex, Size, Uint]),
    ("statx", &[Dir, Text, Flags(StatxFlags), Flags(StatxMask), Out(S::Statx)]),
    ("rseq", &[Hex, Hex, Flags(RseqFlags), Hex]),
    ("pidfd_open", &[Int, Flags(PidfdFlags)]),
    ("pidfd_send_signal", &[Fd, Signal, In(S::Siginfo), Uint]),
    ("close_range", &[Uint, Uint, Flags(CloseRange)]),
    ("pidfd_getfd", &[Fd, Fd, Uint]),
    ("personality", &[Hex]),
    ("acct", &[Text]),
    ("swapoff", &[Text]),
    ("vhangup", &[]),
    ("shmat", &[Int, Hex, Hex]),
    ("msgget", &[Hex, Flags(IpcCreate)]),
    ("pkey_alloc", &[Uint, Uint]),
    ("pkey_free", &[Int]),
    ("pkey_mprotect", &[Hex, Size, Flags(Protection), Int]),
];

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{arguments, names, number};
    use std::vec::Vec;

    /// Calls of which only the number of arguments is known. They are rare, for administrators, or of very old kernels.
    const WITHOUT: &str = "
        shmctl semctl msgsnd msgrcv msgctl getdents syslog capget capset rt_sigqueueinfo utime uselib ustat
        sysfs modify_ldt pivot_root _sysctl adjtimex swapon reboot setdomainname iopl ioperm create_module
        init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall
        tuxcall security set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area
        lookup_dcookie epoll_ctl_old epoll_wait_old remap_file_pages semtimedop vserver mbind set_mempolicy
        get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load
        add_key request_key keyctl ioprio_set ioprio_get migrate_pages futimesat vmsplice move_pages
        rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark name_to_handle_at
        open_by_handle_at clock_adjtime sendmmsg process_vm_readv process_vm_writev kcmp finit_module
        sched_setattr sched_getattr kexec_file_load bpf userfaultfd io_pgetevents io_uring_setup
        io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick process_madvise
        mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self
        memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat map_shadow_stack
        futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr
        lsm_list_modules mseal
    ";

    #[test]
    fn which_calls_have_no_signature_is_known() {
        let without: Vec<&str> = names().filter(|n| signature(n).is_none()).collect();
        let told: Vec<&str> = WITHOUT.split_whitespace().collect();
        assert_eq!(without, told);
    }

    #[test]
    fn signatures_fit_the_calls() {
        for (i, (name, args)) in TABLE.iter().enumerate() {
            let nr = number(name).unwrap_or_else(|| panic!("{name}: no such call"));
            // Two have an argument that has no use on this processor. One has a new argument that is seldom given.
            let fewer = matches!(*name, "preadv" | "pwritev" | "membarrier") as usize;
            assert_eq!(args.len() + fewer, arguments(nr), "{name}");
            assert!(TABLE[..i].iter().all(|t| t.0 != *name), "{name} twice");
            for a in *args {
                let other = match a {
                    ModeIf(n)
                    | Bytes(n)
                    | Ins(_, n)
                    | Buffers(n)
                    | FilledBuffers(n)
                    | Address(n)
                    | FilledAddress(n)
                    | Polled(n)
                    | Value(n)
                    | FilledValue(n)
                    | Processors(n) => *n,
                    _ => 0,
                };
                assert!((other as usize) < args.len().max(1), "{name}: {a:?}");
            }
        }
    }
}
