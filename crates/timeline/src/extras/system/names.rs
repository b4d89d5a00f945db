//! Names of the numbers that system calls take.

use hindsight_syscalls::Set;

type Names = &'static [(u64, &'static str)];

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        &[$((hindsight_syscalls::abi::$name as u64, stringify!($name))),*]
    };
}

/// The names of a set. Combinations of bits stand before their parts.
// Long: a table of names.
#[rustfmt::skip]
pub fn names(set: Set) -> Names {
    match set {
        Set::Open => &[
            (0o100, "O_CREAT"), (0o200, "O_EXCL"), (0o400, "O_NOCTTY"), (0o1000, "O_TRUNC"), (0o2000, "O_APPEND"),
            (0o4000, "O_NONBLOCK"), (0o4010000, "O_SYNC"), (0o10000, "O_DSYNC"), (0o20000, "O_ASYNC"),
            (0o40000, "O_DIRECT"), (0o100000, "O_LARGEFILE"), (0o400000, "O_NOFOLLOW"), (0o1000000, "O_NOATIME"),
            (0o2000000, "O_CLOEXEC"), (0o10000000, "O_PATH"), (0o20200000, "O_TMPFILE"), (0o200000, "O_DIRECTORY"),
        ],
        Set::Access => &[(0, "F_OK"), (4, "R_OK"), (2, "W_OK"), (1, "X_OK")],
        Set::At => names![
            AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_NO_AUTOMOUNT, AT_EMPTY_PATH
        ],
        Set::Protection => names![PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP],
        Set::Mapping => names![
            MAP_SHARED_VALIDATE, MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_DENYWRITE,
            MAP_EXECUTABLE, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_NONBLOCK, MAP_STACK, MAP_HUGETLB, MAP_SYNC,
            MAP_FIXED_NOREPLACE
        ],
        Set::Remapping => names![MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP],
        Set::Advice => names![
            MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_REMOVE,
            MADV_DONTFORK, MADV_DOFORK, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
            MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_COLD, MADV_PAGEOUT
        ],
        Set::Syncing => names![MS_ASYNC, MS_INVALIDATE, MS_SYNC],
        Set::Whence => names![SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE],
        Set::SignalHow => names![SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK],
        Set::Clock => names![
            CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW,
            CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_REALTIME_ALARM,
            CLOCK_BOOTTIME_ALARM, CLOCK_TAI
        ],
        Set::ClockFlags => names![TIMER_ABSTIME],
        Set::Resource => names![
            RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_RSS, RLIMIT_NPROC,
            RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_AS, RLIMIT_LOCKS, RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE,
            RLIMIT_RTPRIO, RLIMIT_RTTIME
        ],
        Set::Family => names![AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG],
        Set::SocketType => names![
            SOCK_SEQPACKET, SOCK_RAW, SOCK_STREAM, SOCK_DGRAM, SOCK_CLOEXEC, SOCK_NONBLOCK
        ],
        Set::Protocol => names![IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6],
        Set::MessageFlags => names![
            MSG_OOB, MSG_PEEK, MSG_DONTROUTE, MSG_CTRUNC, MSG_TRUNC, MSG_DONTWAIT, MSG_EOR, MSG_WAITALL, MSG_CONFIRM,
            MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_MORE, MSG_WAITFORONE, MSG_FASTOPEN, MSG_CMSG_CLOEXEC
        ],
        Set::Shutdown => names![SHUT_RD, SHUT_WR, SHUT_RDWR],
        Set::Level => &[
            (1, "SOL_SOCKET"), (0, "SOL_IP"), (6, "SOL_TCP"), (17, "SOL_UDP"), (41, "SOL_IPV6"), (270, "SOL_NETLINK"),
        ],
        Set::OptionName => names![
            SO_DEBUG, SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_DONTROUTE, SO_BROADCAST, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE,
            SO_OOBINLINE, SO_PRIORITY, SO_LINGER, SO_REUSEPORT, SO_PASSCRED, SO_PEERCRED, SO_ACCEPTCONN, SO_PROTOCOL,
            SO_DOMAIN
        ],
        Set::EpollOp => names![EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL],
        Set::EpollFlags => names![EPOLL_CLOEXEC],
        Set::EventFlags => names![EFD_CLOEXEC, EFD_NONBLOCK, EFD_SEMAPHORE],
        Set::TimerFlags => names![TFD_CLOEXEC, TFD_NONBLOCK],
        Set::SignalFdFlags => names![SFD_CLOEXEC, SFD_NONBLOCK],
        Set::PipeFlags => names![O_NONBLOCK, O_DIRECT, O_CLOEXEC],
        Set::Dup3Flags => names![O_CLOEXEC],
        Set::Accept => names![SOCK_CLOEXEC, SOCK_NONBLOCK],
        Set::CloneFlags => names![
            CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_PIDFD, CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT,
            CLONE_THREAD, CLONE_NEWNS, CLONE_SYSVSEM, CLONE_SETTLS, CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID,
            CLONE_DETACHED, CLONE_UNTRACED, CLONE_CHILD_SETTID, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
            CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_IO
        ],
        Set::FutexOp => names![
            FUTEX_WAIT, FUTEX_WAKE, FUTEX_FD, FUTEX_REQUEUE, FUTEX_CMP_REQUEUE, FUTEX_WAKE_OP, FUTEX_LOCK_PI,
            FUTEX_UNLOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET, FUTEX_WAIT_REQUEUE_PI,
            FUTEX_CMP_REQUEUE_PI
        ],
        Set::Random => names![GRND_NONBLOCK, GRND_RANDOM],
        Set::MemoryFile => names![MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB],
        Set::FcntlCommand => names![
            F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_SETOWN, F_GETOWN,
            F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS, F_OFD_GETLK, F_OFD_SETLK,
            F_OFD_SETLKW
        ],
        Set::Request => names![
            TCGETS, TCSETS, TCSETSW, TCSETSF, TIOCGWINSZ, TIOCSWINSZ, TIOCGPGRP, TIOCSPGRP, TIOCSCTTY, TIOCNOTTY,
            FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, FICLONE
        ],
        Set::ArchCode => &[
            (0x1001, "ARCH_SET_GS"), (0x1002, "ARCH_SET_FS"), (0x1003, "ARCH_GET_FS"), (0x1004, "ARCH_GET_GS"),
            (0x1011, "ARCH_GET_CPUID"), (0x1012, "ARCH_SET_CPUID"),
        ],
        Set::Prctl => names![
            PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME,
            PR_GET_SECCOMP, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
            PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_VMA,
            PR_SET_PTRACER
        ],
        Set::WaitOptions => &[
            (1, "WNOHANG"), (2, "WSTOPPED"), (8, "WCONTINUED"), (0x2000_0000, "__WNOTHREAD"), (0x4000_0000, "__WALL"),
            (0x8000_0000, "__WCLONE"),
        ],
        Set::WaitStatus => names![WNOHANG, WSTOPPED, WEXITED, WCONTINUED, WNOWAIT],
        Set::WaitKind => names![P_ALL, P_PID, P_PGID, P_PIDFD],
        Set::Lock => names![LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN],
        Set::Timer => &[(0, "ITIMER_REAL"), (1, "ITIMER_VIRTUAL"), (2, "ITIMER_PROF")],
        Set::Usage => &[(0, "RUSAGE_SELF"), (u32::MAX as u64, "RUSAGE_CHILDREN"), (1, "RUSAGE_THREAD")],
        Set::PriorityKind => names![PRIO_PROCESS, PRIO_PGRP, PRIO_USER],
        Set::StatxFlags => names![
            AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC, AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_EMPTY_PATH
        ],
        Set::StatxMask => &[
            (0xfff, "STATX_ALL"), (0x7ff, "STATX_BASIC_STATS"), (1, "STATX_TYPE"), (2, "STATX_MODE"),
            (4, "STATX_NLINK"), (8, "STATX_UID"), (0x10, "STATX_GID"), (0x20, "STATX_ATIME"), (0x40, "STATX_MTIME"),
            (0x80, "STATX_CTIME"), (0x100, "STATX_INO"), (0x200, "STATX_SIZE"), (0x400, "STATX_BLOCKS"),
            (0x800, "STATX_BTIME"), (0x1000, "STATX_MNT_ID"), (0x2000, "STATX_DIOALIGN"),
        ],
        Set::Rename => names![RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT],
        Set::Inotify => names![IN_CLOEXEC, IN_NONBLOCK],
        Set::InotifyMask => names![
            IN_ACCESS, IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_CLOSE_NOWRITE, IN_OPEN, IN_MOVED_FROM, IN_MOVED_TO,
            IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF, IN_ONLYDIR, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_MASK_ADD,
            IN_ISDIR, IN_ONESHOT
        ],
        Set::CloseRange => &[(2, "CLOSE_RANGE_UNSHARE"), (4, "CLOSE_RANGE_CLOEXEC")],
        Set::Membarrier => &[
            (0, "MEMBARRIER_CMD_QUERY"), (1, "MEMBARRIER_CMD_GLOBAL"), (2, "MEMBARRIER_CMD_GLOBAL_EXPEDITED"),
            (4, "MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED"), (8, "MEMBARRIER_CMD_PRIVATE_EXPEDITED"),
            (16, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED"),
        ],
        Set::Fallocate => names![
            FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_ZERO_RANGE,
            FALLOC_FL_INSERT_RANGE
        ],
        Set::FileAdvice => names![
            POSIX_FADV_NORMAL, POSIX_FADV_RANDOM, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED,
            POSIX_FADV_NOREUSE
        ],
        Set::Scheduler => names![SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, SCHED_DEADLINE],
        Set::Mount => names![
            MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_SYNCHRONOUS, MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND,
            MS_MOVE, MS_REC, MS_SILENT, MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_RELATIME, MS_STRICTATIME
        ],
        Set::Unmount => names![MNT_FORCE, MNT_DETACH, MNT_EXPIRE, UMOUNT_NOFOLLOW],
        Set::SpliceFlags => names![SPLICE_F_MOVE, SPLICE_F_NONBLOCK, SPLICE_F_MORE, SPLICE_F_GIFT],
        Set::PidfdFlags => names![PIDFD_NONBLOCK],
        Set::LockAll => names![MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT],
        Set::IpcCreate => &[(0o1000, "IPC_CREAT"), (0o2000, "IPC_EXCL")],
        Set::QueueCommand => &[
            (0, "IPC_RMID"), (1, "IPC_SET"), (2, "IPC_STAT"), (3, "IPC_INFO"), (11, "MSG_STAT"), (12, "MSG_INFO"),
            (13, "MSG_STAT_ANY"),
        ],
        Set::Ptrace => names![
            PTRACE_TRACEME, PTRACE_PEEKTEXT, PTRACE_PEEKDATA, PTRACE_PEEKUSER, PTRACE_POKETEXT, PTRACE_POKEDATA,
            PTRACE_POKEUSER, PTRACE_CONT, PTRACE_KILL, PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_ATTACH,
            PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SETOPTIONS, PTRACE_GETEVENTMSG, PTRACE_GETSIGINFO, PTRACE_SETSIGINFO,
            PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_LISTEN
        ],
        Set::Seccomp => &[
            (0, "SECCOMP_SET_MODE_STRICT"), (1, "SECCOMP_SET_MODE_FILTER"), (2, "SECCOMP_GET_ACTION_AVAIL"),
            (3, "SECCOMP_GET_NOTIF_SIZES"),
        ],
        Set::XattrFlags => names![XATTR_CREATE, XATTR_REPLACE],
        Set::RseqFlags => &[(1, "RSEQ_FLAG_UNREGISTER")],
        Set::HandleFlags => &[
            (1, "AT_HANDLE_MNT_ID_UNIQUE"), (2, "AT_HANDLE_CONNECTABLE"), (0x200, "AT_HANDLE_FID"),
            (0x400, "AT_SYMLINK_FOLLOW"), (0x1000, "AT_EMPTY_PATH"),
        ],
    }
}

/// Names of what `poll` and `epoll` report.
pub const EVENTS: Names = &[
    (0x1, "IN"),
    (0x2, "PRI"),
    (0x4, "OUT"),
    (0x40, "RDNORM"),
    (0x80, "RDBAND"),
    (0x100, "WRNORM"),
    (0x200, "WRBAND"),
    (0x400, "MSG"),
    (0x8, "ERR"),
    (0x10, "HUP"),
    (0x20, "NVAL"),
    (0x2000, "RDHUP"),
    (0x1000_0000, "EXCLUSIVE"),
    (0x2000_0000, "WAKEUP"),
    (0x4000_0000, "ONESHOT"),
    (0x8000_0000, "ET"),
];

pub const SIGACTION: Names = &[
    (0x0400_0000, "SA_RESTORER"),
    (0x0800_0000, "SA_ONSTACK"),
    (0x1000_0000, "SA_RESTART"),
    (0x4000_0000, "SA_NODEFER"),
    (0x8000_0000, "SA_RESETHAND"),
    (1, "SA_NOCLDSTOP"),
    (2, "SA_NOCLDWAIT"),
    (4, "SA_SIGINFO"),
];

pub const FILE_SYSTEMS: Names = &[
    (0xef53, "EXT2_SUPER_MAGIC"),
    (0x0102_1994, "TMPFS_MAGIC"),
    (0x9fa0, "PROC_SUPER_MAGIC"),
    (0x6265_6572, "SYSFS_MAGIC"),
    (0x1cd1, "DEVPTS_SUPER_MAGIC"),
    (0x794c_7630, "OVERLAYFS_SUPER_MAGIC"),
    (0x9123_683e, "BTRFS_SUPER_MAGIC"),
    (0x5846_5342, "XFS_SUPER_MAGIC"),
];

/// Flags with which a file system is mounted.
pub const MOUNTED: Names = &[
    (0x20, "ST_VALID"),
    (1, "ST_RDONLY"),
    (2, "ST_NOSUID"),
    (4, "ST_NODEV"),
    (8, "ST_NOEXEC"),
    (0x10, "ST_SYNCHRONOUS"),
    (0x40, "ST_MANDLOCK"),
    (0x400, "ST_NOATIME"),
    (0x800, "ST_NODIRATIME"),
    (0x1000, "ST_RELATIME"),
];

/// What a file's mode has beside the permissions.
pub const FILE_BITS: Names = names![S_ISUID, S_ISGID, S_ISVTX];

pub const FILE_ATTRIBUTES: Names = names![
    STATX_ATTR_COMPRESSED,
    STATX_ATTR_IMMUTABLE,
    STATX_ATTR_APPEND,
    STATX_ATTR_NODUMP,
    STATX_ATTR_ENCRYPTED,
    STATX_ATTR_AUTOMOUNT,
    STATX_ATTR_MOUNT_ROOT,
    STATX_ATTR_VERITY,
    STATX_ATTR_DAX
];

pub const FILE_TYPES: Names = &[
    (0o140000, "S_IFSOCK"),
    (0o120000, "S_IFLNK"),
    (0o100000, "S_IFREG"),
    (0o060000, "S_IFBLK"),
    (0o040000, "S_IFDIR"),
    (0o020000, "S_IFCHR"),
    (0o010000, "S_IFIFO"),
];
