//! What is done about each system call of the program that runs.

use libc::*;

/// What is done about a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The kernel does it: it concerns memory, signals or the process itself.
    Own,
    /// The kernel does it. It changes descriptors.
    Descriptors,
    /// It is answered with the recorded ids.
    Identity,
    /// It asks for the time.
    Time,
    /// It asks something and changes nothing, so it may be asked again, also of this machine.
    Query,
    /// It takes something in, once.
    Input,
    /// It reads the next bytes of a descriptor.
    Read,
    /// It writes bytes to a descriptor.
    Write,
    /// It changes something outside of the process. It is never done.
    Effect,
    /// It opens a file by its path.
    Open,
    /// It makes descriptors of another kind.
    Make,
    /// It makes a process or a thread.
    Fork,
    /// It loads another program.
    Exec,
    /// It waits for a child.
    Wait,
    /// It waits for a signal.
    Suspend,
    /// It sends a signal.
    Kill,
    /// It maps a file.
    Map,
    /// It cannot be fed.
    Refused(&'static str),
}

impl Class {
    /// Whether calls of this class are looked for among the recorded ones.
    pub fn is_matched(self) -> bool {
        !matches!(
            self,
            Class::Own | Class::Descriptors | Class::Identity | Class::Map | Class::Refused(_)
        )
    }
}

/// Calls that the kernel does without anybody looking.
pub const UNSEEN: &[i64] = &[
    SYS_brk,
    SYS_munmap,
    SYS_mprotect,
    SYS_pkey_mprotect,
    SYS_madvise,
    SYS_mremap,
    SYS_msync,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_sigaltstack,
    SYS_arch_prctl,
    SYS_futex,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_membarrier,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_pkey_alloc,
    SYS_pkey_free,
];

/// The class of the call with this number and these arguments.
pub fn class(number: u64, a: &[u64; 6]) -> Class {
    let number = number as i64;
    if UNSEEN.contains(&number) {
        return Class::Own;
    }
    match number {
        SYS_close | SYS_close_range | SYS_dup | SYS_dup2 | SYS_dup3 => Class::Descriptors,
        SYS_fcntl => match a[1] as i32 {
            F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD => Class::Descriptors,
            F_SETFL | F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW | F_SETOWN => Class::Effect,
            _ => Class::Query,
        },
        SYS_ioctl if [FIOCLEX, FIONCLEX].contains(&(a[1] as u32 as u64)) => Class::Descriptors,
        SYS_getpid | SYS_gettid | SYS_set_tid_address => Class::Identity,
        SYS_clock_gettime | SYS_gettimeofday | SYS_time => Class::Time,
        SYS_mmap if a[3] as i32 & MAP_ANONYMOUS != 0 => Class::Own,
        SYS_mmap => Class::Map,
        SYS_read | SYS_pread64 | SYS_readv | SYS_preadv | SYS_preadv2 | SYS_getrandom => {
            Class::Read
        }
        // What is only looked at stays there.
        SYS_recvfrom if a[3] as i32 & (MSG_PEEK | MSG_ERRQUEUE) != 0 => Class::Input,
        SYS_recvmsg if a[2] as i32 & (MSG_PEEK | MSG_ERRQUEUE) != 0 => {
            Class::Refused("it looks at messages without taking them")
        }
        SYS_recvfrom | SYS_recvmsg => Class::Read,
        SYS_write | SYS_pwrite64 | SYS_writev | SYS_pwritev | SYS_pwritev2 | SYS_sendto
        | SYS_sendmsg => Class::Write,
        SYS_open | SYS_openat | SYS_openat2 | SYS_creat => Class::Open,
        SYS_pipe | SYS_pipe2 | SYS_socketpair | SYS_socket | SYS_eventfd | SYS_eventfd2
        | SYS_timerfd_create | SYS_signalfd | SYS_signalfd4 | SYS_epoll_create
        | SYS_epoll_create1 | SYS_inotify_init | SYS_inotify_init1 | SYS_accept | SYS_accept4
        | SYS_memfd_create | SYS_pidfd_open => Class::Make,
        SYS_clone if a[0] as i32 & CLONE_THREAD != 0 => Class::Refused("it starts a second thread"),
        SYS_fork | SYS_vfork | SYS_clone | SYS_clone3 => Class::Fork,
        SYS_execve => Class::Exec,
        SYS_wait4 | SYS_waitid => Class::Wait,
        SYS_pause | SYS_rt_sigsuspend => Class::Suspend,
        SYS_kill | SYS_tkill | SYS_tgkill | SYS_rt_sigqueueinfo | SYS_rt_tgsigqueueinfo => {
            Class::Kill
        }
        SYS_prctl => prctl_class(a[0] as i32),
        SYS_prlimit64 if a[2] != 0 => Class::Effect,
        _ => named(number),
    }
}

/// What does not concern the outside the kernel does.
fn prctl_class(code: i32) -> Class {
    const VMA: i32 = 0x5356_4d41;
    match code {
        PR_SET_NAME | PR_GET_NAME | PR_SET_PDEATHSIG | PR_GET_PDEATHSIG | VMA => Class::Own,
        PR_CAPBSET_READ | PR_GET_DUMPABLE | PR_GET_KEEPCAPS | PR_GET_NO_NEW_PRIVS
        | PR_GET_SECCOMP | PR_GET_SECUREBITS | PR_GET_TIMERSLACK => Class::Query,
        _ => Class::Effect,
    }
}

fn named(number: i64) -> Class {
    match number {
        SYS_stat
        | SYS_fstat
        | SYS_lstat
        | SYS_newfstatat
        | SYS_statx
        | SYS_access
        | SYS_faccessat
        | SYS_faccessat2
        | SYS_readlink
        | SYS_readlinkat
        | SYS_getcwd
        | SYS_statfs
        | SYS_fstatfs
        | SYS_getxattr
        | SYS_lgetxattr
        | SYS_fgetxattr
        | SYS_listxattr
        | SYS_llistxattr
        | SYS_flistxattr
        | SYS_uname
        | SYS_getuid
        | SYS_geteuid
        | SYS_getgid
        | SYS_getegid
        | SYS_getresuid
        | SYS_getresgid
        | SYS_getgroups
        | SYS_getppid
        | SYS_getpgrp
        | SYS_getpgid
        | SYS_getsid
        | SYS_getrlimit
        | SYS_prlimit64
        | SYS_sched_getaffinity
        | SYS_sched_getparam
        | SYS_sched_getscheduler
        | SYS_sched_get_priority_max
        | SYS_sched_get_priority_min
        | SYS_getpriority
        | SYS_capget
        | SYS_clock_getres
        | SYS_ioctl
        | SYS_lseek
        | SYS_personality
        | SYS_get_mempolicy
        | SYS_ioprio_get
        | SYS_getcpu => Class::Query,
        SYS_getdents
        | SYS_getdents64
        | SYS_poll
        | SYS_ppoll
        | SYS_select
        | SYS_pselect6
        | SYS_epoll_wait
        | SYS_epoll_pwait
        | SYS_epoll_pwait2
        | SYS_getsockname
        | SYS_getpeername
        | SYS_getsockopt
        | SYS_connect
        | SYS_nanosleep
        | SYS_clock_nanosleep
        | SYS_getrusage
        | SYS_times
        | SYS_sysinfo
        | SYS_getitimer
        | SYS_timerfd_gettime
        | SYS_timer_gettime
        | SYS_timer_getoverrun
        | SYS_rt_sigtimedwait
        | SYS_sendfile
        | SYS_copy_file_range
        | SYS_splice
        | SYS_tee
        | SYS_alarm
        | SYS_setitimer
        | SYS_umask
        | SYS_chdir
        | SYS_fchdir
        | SYS_shmget
        | SYS_semget
        | SYS_msgget
        | SYS_setsid
        | SYS_inotify_add_watch
        | SYS_mq_timedreceive
        | SYS_msgrcv => Class::Input,
        SYS_rename
        | SYS_renameat
        | SYS_renameat2
        | SYS_mkdir
        | SYS_mkdirat
        | SYS_rmdir
        | SYS_link
        | SYS_linkat
        | SYS_unlink
        | SYS_unlinkat
        | SYS_symlink
        | SYS_symlinkat
        | SYS_chmod
        | SYS_fchmod
        | SYS_fchmodat
        | SYS_fchmodat2
        | SYS_chown
        | SYS_fchown
        | SYS_lchown
        | SYS_fchownat
        | SYS_utime
        | SYS_utimes
        | SYS_utimensat
        | SYS_futimesat
        | SYS_mknod
        | SYS_mknodat
        | SYS_truncate
        | SYS_ftruncate
        | SYS_fallocate
        | SYS_fsync
        | SYS_fdatasync
        | SYS_sync
        | SYS_syncfs
        | SYS_sync_file_range
        | SYS_flock
        | SYS_fadvise64
        | SYS_readahead
        | SYS_setxattr
        | SYS_lsetxattr
        | SYS_fsetxattr
        | SYS_removexattr
        | SYS_lremovexattr
        | SYS_fremovexattr
        | SYS_setuid
        | SYS_setgid
        | SYS_setreuid
        | SYS_setregid
        | SYS_setgroups
        | SYS_setresuid
        | SYS_setresgid
        | SYS_setfsuid
        | SYS_setfsgid
        | SYS_setpgid
        | SYS_setpriority
        | SYS_setrlimit
        | SYS_sched_setparam
        | SYS_sched_setscheduler
        | SYS_sched_setaffinity
        | SYS_capset
        | SYS_bind
        | SYS_listen
        | SYS_shutdown
        | SYS_setsockopt
        | SYS_epoll_ctl
        | SYS_timerfd_settime
        | SYS_timer_create
        | SYS_timer_settime
        | SYS_timer_delete
        | SYS_inotify_rm_watch
        | SYS_seccomp
        | SYS_chroot
        | SYS_ioprio_set
        | SYS_sethostname
        | SYS_landlock_create_ruleset
        | SYS_landlock_add_rule
        | SYS_landlock_restrict_self
        | SYS_set_mempolicy
        | SYS_mbind
        | SYS_unshare
        | SYS_mlockall
        | SYS_munlockall => Class::Effect,
        SYS_shmat | SYS_shmdt | SYS_shmctl => Class::Refused("it shares memory (shmat)"),
        SYS_io_uring_setup | SYS_io_uring_enter | SYS_io_uring_register => {
            Class::Refused("it uses io_uring")
        }
        SYS_io_setup | SYS_io_submit | SYS_io_getevents => {
            Class::Refused("it uses asynchronous input and output (io_submit)")
        }
        SYS_recvmmsg | SYS_sendmmsg => Class::Refused("it moves several messages in a call"),
        SYS_ptrace => Class::Refused("it traces processes"),
        SYS_userfaultfd => Class::Refused("it uses userfaultfd"),
        SYS_process_vm_readv | SYS_process_vm_writev => {
            Class::Refused("it accesses memory of other processes")
        }
        _ => Class::Refused("it makes a system call that cannot be fed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_this_machine_is_never_passed_on() {
        let passed = [Class::Own, Class::Descriptors];
        for name in [
            "unlink",
            "rename",
            "kill",
            "connect",
            "sendto",
            "write",
            "setuid",
            "mkdirat",
            "mount",
            "reboot",
            "ptrace",
            "bpf",
            "setns",
            "tgkill",
            "io_uring_enter",
            "execveat",
            "truncate",
        ] {
            let number = hindsight_timeline::syscall_number(name).unwrap();
            assert!(!passed.contains(&class(number, &[0; 6])), "{name}");
        }
    }

    #[test]
    fn threads_are_refused_and_processes_are_not() {
        let of = |flags: i32| class(SYS_clone as u64, &[flags as u64, 0, 0, 0, 0, 0]);
        assert_eq!(of(SIGCHLD), Class::Fork);
        assert!(matches!(of(CLONE_VM | CLONE_THREAD), Class::Refused(_)));
    }
}
