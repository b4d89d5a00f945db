//! Which system calls say something about a process, besides those about its memory and its files.

use hindsight_syscalls::abi::*;

/// Results from here on are errors.
pub const ERRORS: u64 = -4095i64 as u64;
/// The calls are numbered below this.
const MOST: u64 = 1024;
/// Calls that leave nothing behind in the kernel, or only what is followed elsewhere (memory, descriptors). All others say
/// something about a process.
#[rustfmt::skip]
const PASSING: [u64; 184] = [
    __NR_read, __NR_write, __NR_open, __NR_close, __NR_stat, __NR_fstat, __NR_lstat, __NR_poll, __NR_lseek, __NR_mmap,
    __NR_mprotect, __NR_munmap, __NR_ioctl, __NR_pread64, __NR_pwrite64, __NR_readv, __NR_writev, __NR_access, __NR_pipe,
    __NR_select, __NR_sched_yield, __NR_msync, __NR_mincore, __NR_dup, __NR_dup2, __NR_pause, __NR_nanosleep,
    __NR_getitimer, __NR_getpid, __NR_sendfile, __NR_socket, __NR_connect, __NR_accept, __NR_sendto, __NR_recvfrom, __NR_sendmsg,
    __NR_recvmsg, __NR_shutdown, __NR_bind, __NR_listen, __NR_getsockname, __NR_getpeername, __NR_socketpair, __NR_setsockopt,
    __NR_getsockopt, __NR_exit, __NR_wait4, __NR_kill, __NR_uname, __NR_fcntl, __NR_flock, __NR_fsync, __NR_fdatasync,
    __NR_truncate, __NR_ftruncate, __NR_getdents, __NR_getcwd, __NR_chdir, __NR_fchdir, __NR_rename, __NR_mkdir, __NR_rmdir,
    __NR_creat, __NR_link, __NR_unlink, __NR_symlink, __NR_readlink, __NR_chmod, __NR_fchmod, __NR_chown, __NR_fchown,
    __NR_lchown, __NR_gettimeofday, __NR_getrlimit, __NR_getrusage, __NR_sysinfo, __NR_times, __NR_getuid, __NR_syslog,
    __NR_getgid, __NR_geteuid, __NR_getegid, __NR_getppid, __NR_getpgrp, __NR_getgroups, __NR_getresuid, __NR_getresgid,
    __NR_getpgid, __NR_getsid, __NR_capget, __NR_rt_sigpending, __NR_rt_sigtimedwait, __NR_rt_sigqueueinfo, __NR_utime,
    __NR_mknod, __NR_statfs, __NR_fstatfs, __NR_getpriority, __NR_sched_getparam, __NR_sched_getscheduler,
    __NR_sched_get_priority_max, __NR_sched_get_priority_min, __NR_sched_rr_get_interval, __NR_sync, __NR_gettid,
    __NR_readahead, __NR_setxattr, __NR_lsetxattr, __NR_fsetxattr, __NR_getxattr, __NR_lgetxattr, __NR_fgetxattr,
    __NR_listxattr, __NR_llistxattr, __NR_flistxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr, __NR_tkill,
    __NR_time, __NR_futex, __NR_sched_getaffinity, __NR_epoll_create, __NR_getdents64, __NR_restart_syscall, __NR_fadvise64,
    __NR_timer_gettime, __NR_timer_getoverrun, __NR_timer_settime, __NR_clock_gettime, __NR_clock_getres,
    __NR_clock_nanosleep, __NR_exit_group, __NR_epoll_wait, __NR_epoll_ctl, __NR_tgkill, __NR_utimes, __NR_get_mempolicy,
    __NR_waitid, __NR_ioprio_get, __NR_inotify_init, __NR_inotify_add_watch, __NR_inotify_rm_watch, __NR_openat, __NR_mkdirat,
    __NR_mknodat, __NR_fchownat, __NR_futimesat, __NR_newfstatat, __NR_unlinkat, __NR_renameat, __NR_linkat, __NR_symlinkat,
    __NR_readlinkat, __NR_fchmodat, __NR_faccessat, __NR_get_robust_list, __NR_splice, __NR_tee, __NR_sync_file_range,
    __NR_vmsplice, __NR_utimensat, __NR_signalfd, __NR_timerfd_create, __NR_eventfd, __NR_fallocate, __NR_timerfd_settime,
    __NR_timerfd_gettime, __NR_accept4, __NR_signalfd4, __NR_eventfd2, __NR_epoll_create1, __NR_dup3, __NR_pipe2,
    __NR_inotify_init1, __NR_preadv, __NR_pwritev, __NR_rt_tgsigqueueinfo, __NR_recvmmsg, __NR_syncfs, __NR_sendmmsg,
    __NR_getcpu, __NR_process_vm_readv, __NR_kcmp,
];
/// The same, of later kernels.
#[rustfmt::skip]
const PASSING_LATER: [u64; 16] = [
    __NR_renameat2, __NR_getrandom, __NR_memfd_create, __NR_copy_file_range, __NR_preadv2, __NR_pwritev2, __NR_statx,
    __NR_pidfd_send_signal, __NR_pidfd_open, __NR_close_range, __NR_openat2, __NR_faccessat2, __NR_futex_waitv, __NR_fchmodat2,
    CACHESTAT, __NR_clock_adjtime,
];
/// The number of `cachestat`.
const CACHESTAT: u64 = 451;
/// What `madvise` may be told without a trace: what is read ahead, what is discarded, what a core dump has, huge pages.
#[rustfmt::skip]
pub const ADVICE: [u32; 13] = [
    MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
    MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT, MADV_COLLAPSE,
];
/// Sets and gets the bases of FS and GS, which are registers.
pub const BASES: std::ops::RangeInclusive<u64> = 0x1001..=0x1004;
/// Commands of `membarrier` that register the process.
pub const REGISTERS: u64 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8;
/// The calls that say something about a process.
pub fn telling() -> Vec<u64> {
    let passes = |n: &u64| PASSING.contains(n) || PASSING_LATER.contains(n);
    (0..MOST).filter(|n| !passes(n)).collect()
}

/// Options of `prctl` that leave nothing behind, or that is restored.
pub const HARMLESS: [u32; 5] = [
    PR_SET_NAME,
    PR_GET_NAME,
    PR_GET_DUMPABLE,
    PR_SET_VMA,
    PR_CAPBSET_READ,
];

/// Options of `prctl` that only ask.
pub fn is_question(option: u32) -> bool {
    [
        2, 3, 5, 7, 9, 11, 13, 16, 19, 21, 23, 25, 27, 30, 34, 37, 39, 42, 46,
    ]
    .contains(&option)
}
