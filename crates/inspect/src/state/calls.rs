//! Which system calls say something about a process, besides those about its memory and its files.

use libc::*;

/// The calls are numbered below this.
const MOST: i64 = 1024;
/// Calls that leave nothing behind in the kernel, or only what is followed elsewhere (memory, descriptors). All others say
/// something about a process.
#[rustfmt::skip]
const PASSING: [i64; 184] = [
    SYS_read, SYS_write, SYS_open, SYS_close, SYS_stat, SYS_fstat, SYS_lstat, SYS_poll, SYS_lseek, SYS_mmap,
    SYS_mprotect, SYS_munmap, SYS_ioctl, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_access, SYS_pipe,
    SYS_select, SYS_sched_yield, SYS_msync, SYS_mincore, SYS_dup, SYS_dup2, SYS_pause, SYS_nanosleep,
    SYS_getitimer, SYS_getpid, SYS_sendfile, SYS_socket, SYS_connect, SYS_accept, SYS_sendto, SYS_recvfrom, SYS_sendmsg,
    SYS_recvmsg, SYS_shutdown, SYS_bind, SYS_listen, SYS_getsockname, SYS_getpeername, SYS_socketpair, SYS_setsockopt,
    SYS_getsockopt, SYS_exit, SYS_wait4, SYS_kill, SYS_uname, SYS_fcntl, SYS_flock, SYS_fsync, SYS_fdatasync,
    SYS_truncate, SYS_ftruncate, SYS_getdents, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_rename, SYS_mkdir, SYS_rmdir,
    SYS_creat, SYS_link, SYS_unlink, SYS_symlink, SYS_readlink, SYS_chmod, SYS_fchmod, SYS_chown, SYS_fchown,
    SYS_lchown, SYS_gettimeofday, SYS_getrlimit, SYS_getrusage, SYS_sysinfo, SYS_times, SYS_getuid, SYS_syslog,
    SYS_getgid, SYS_geteuid, SYS_getegid, SYS_getppid, SYS_getpgrp, SYS_getgroups, SYS_getresuid, SYS_getresgid,
    SYS_getpgid, SYS_getsid, SYS_capget, SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo, SYS_utime,
    SYS_mknod, SYS_statfs, SYS_fstatfs, SYS_getpriority, SYS_sched_getparam, SYS_sched_getscheduler,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_sync, SYS_gettid,
    SYS_readahead, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_tkill,
    SYS_time, SYS_futex, SYS_sched_getaffinity, SYS_epoll_create, SYS_getdents64, SYS_restart_syscall, SYS_fadvise64,
    SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_settime, SYS_clock_gettime, SYS_clock_getres,
    SYS_clock_nanosleep, SYS_exit_group, SYS_epoll_wait, SYS_epoll_ctl, SYS_tgkill, SYS_utimes, SYS_get_mempolicy,
    SYS_waitid, SYS_ioprio_get, SYS_inotify_init, SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_openat, SYS_mkdirat,
    SYS_mknodat, SYS_fchownat, SYS_futimesat, SYS_newfstatat, SYS_unlinkat, SYS_renameat, SYS_linkat, SYS_symlinkat,
    SYS_readlinkat, SYS_fchmodat, SYS_faccessat, SYS_get_robust_list, SYS_splice, SYS_tee, SYS_sync_file_range,
    SYS_vmsplice, SYS_utimensat, SYS_signalfd, SYS_timerfd_create, SYS_eventfd, SYS_fallocate, SYS_timerfd_settime,
    SYS_timerfd_gettime, SYS_accept4, SYS_signalfd4, SYS_eventfd2, SYS_epoll_create1, SYS_dup3, SYS_pipe2,
    SYS_inotify_init1, SYS_preadv, SYS_pwritev, SYS_rt_tgsigqueueinfo, SYS_recvmmsg, SYS_syncfs, SYS_sendmmsg,
    SYS_getcpu, SYS_process_vm_readv, SYS_kcmp,
];
/// The same, of later kernels.
#[rustfmt::skip]
const PASSING_LATER: [i64; 16] = [
    SYS_renameat2, SYS_getrandom, SYS_memfd_create, SYS_copy_file_range, SYS_preadv2, SYS_pwritev2, SYS_statx,
    SYS_pidfd_send_signal, SYS_pidfd_open, SYS_close_range, SYS_openat2, SYS_faccessat2, SYS_futex_waitv, SYS_fchmodat2,
    CACHESTAT, SYS_clock_adjtime,
];
/// The number of `cachestat`.
const CACHESTAT: i64 = 451;
/// What `madvise` may be told without a trace: what is read ahead, what is discarded, what a core dump has, huge pages.
#[rustfmt::skip]
pub const ADVICE: [i32; 13] = [
    MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
    MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT, MADV_COLLAPSE,
];
/// Sets and gets the bases of FS and GS, which are registers.
pub const BASES: std::ops::RangeInclusive<u64> = 0x1001..=0x1004;
/// Commands of `membarrier` that register the process.
pub const REGISTERS: u64 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8;
/// The calls that say something about a process.
pub fn telling() -> Vec<u64> {
    let passes = |n: &i64| PASSING.contains(n) || PASSING_LATER.contains(n);
    (0..MOST).filter(|n| !passes(n)).map(|n| n as u64).collect()
}

/// Options of `prctl` that leave nothing behind, or that is restored.
pub const HARMLESS: [i32; 5] = [
    PR_SET_NAME,
    PR_GET_NAME,
    PR_GET_DUMPABLE,
    PR_SET_VMA,
    PR_CAPBSET_READ,
];

/// Options of `prctl` that only ask.
pub fn is_question(option: i32) -> bool {
    [
        2, 3, 5, 7, 9, 11, 13, 16, 19, 21, 23, 25, 27, 30, 34, 37, 39, 42, 46,
    ]
    .contains(&option)
}
