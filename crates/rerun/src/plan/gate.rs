//! The last look at a call before the kernel does it: what stands in the registers must be in this list.
//!
//! It knows nothing of the recording, nor of why a call is to be done. So no mistake elsewhere lets a program change
//! anything. Landlock's rules say the same once more.

use super::class::{ADVICE, Class, UNSEEN, class, opens_to_change};
use libc::*;

/// Requests to a file that only ask: for a terminal and its size, and how many bytes there are.
pub const REQUESTS: [u32; 3] = [TCGETS as u32, TIOCGWINSZ as u32, FIONREAD as u32];

/// What may be said of a new process. The low byte is the signal that it ends with.
const FORKS: u64 = (0xff
    | CLONE_VM
    | CLONE_VFORK
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_SETTID
    | CLONE_CHILD_CLEARTID) as u64;

/// Calls that ask about files, and about the process itself.
const ASKING: &[i64] = &[
    SYS_stat,
    SYS_fstat,
    SYS_lstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_access,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlink,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_uname,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_getppid,
    SYS_getpgrp,
    SYS_getpgid,
    SYS_getsid,
    SYS_getrlimit,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_getpriority,
    SYS_capget,
    SYS_clock_getres,
    SYS_lseek,
    SYS_get_mempolicy,
    SYS_ioprio_get,
    SYS_getcpu,
    SYS_getdents,
    SYS_getdents64,
    SYS_getrusage,
    SYS_times,
    SYS_sysinfo,
    SYS_getitimer,
];

/// Calls that concern nothing but the process and its children, or what its descriptors lead to. These are: regular files and
/// folders, open for reading; pipes, pairs of sockets and memory that its own processes have made; counters (`eventfd`)
/// that stand for other things; and `/dev/null`.
const INNER: &[i64] = &[
    SYS_close,
    SYS_close_range,
    SYS_dup,
    SYS_dup2,
    SYS_dup3,
    SYS_brk,
    SYS_mmap,
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_preadv,
    SYS_preadv2,
    SYS_write,
    SYS_pwrite64,
    SYS_writev,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_pipe,
    SYS_pipe2,
    SYS_memfd_create,
    SYS_eventfd2,
    SYS_fork,
    SYS_vfork,
    SYS_execve,
    SYS_wait4,
    SYS_waitid,
    SYS_pause,
    SYS_rt_sigsuspend,
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_chdir,
    SYS_fchdir,
    SYS_umask,
    SYS_futex,
    SYS_sched_yield,
    SYS_exit,
];

/// What must be said of a new thread: it shares all with the one that makes it.
const SHARES: u64 = (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD) as u64;
/// What else may be said of it.
const THREADS: u64 = SHARES
    | (CLONE_SYSVSEM
        | CLONE_SETTLS
        | CLONE_PARENT_SETTID
        | CLONE_CHILD_SETTID
        | CLONE_CHILD_CLEARTID
        | CLONE_DETACHED) as u64;

/// Whether the kernel may do this call for a thread: its process, and itself.
pub fn may_run(number: u64, a: &[u64; 6], (pid, tid): (i32, i32)) -> bool {
    let is_own = |id: u64| id as i32 == pid;
    let is_self = |id: u64| id as i32 == tid;
    match number as i64 {
        SYS_madvise => (a[2] as u32 as u64) < ADVICE,
        n if UNSEEN.contains(&n) || ASKING.contains(&n) || INNER.contains(&n) => true,
        SYS_open | SYS_openat => !opens_to_change(number, a),
        SYS_socketpair => a[0] as i32 == AF_UNIX,
        // The kernel takes the low half only.
        SYS_clone if a[0] & SHARES == SHARES => a[0] as u32 as u64 & !THREADS == 0,
        SYS_clone => a[0] as u32 as u64 & !FORKS == 0 && !shares(a[0]),
        SYS_fcntl => matches!(
            a[1] as i32,
            F_DUPFD
                | F_DUPFD_CLOEXEC
                | F_GETFD
                | F_SETFD
                | F_GETFL
                | F_GETPIPE_SZ
                | F_GET_SEALS
                | F_ADD_SEALS
        ),
        SYS_ioctl => {
            let request = a[1] as u32;
            [FIOCLEX, FIONCLEX].contains(&(request as u64)) || REQUESTS.contains(&request)
        }
        SYS_prctl => matches!(class(number, a), Class::Own | Class::Query),
        SYS_prlimit64 => a[2] == 0,
        SYS_personality => a[0] as u32 == u32::MAX,
        SYS_kill | SYS_rt_sigqueueinfo => is_own(a[0]),
        SYS_tkill => is_self(a[0]),
        SYS_tgkill | SYS_rt_tgsigqueueinfo => is_own(a[0]) && is_self(a[1]),
        _ => false,
    }
}

/// Whether a new process would run beside its parent in the same memory.
fn shares(flags: u64) -> bool {
    flags as i32 & (CLONE_VM | CLONE_VFORK) == CLONE_VM
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::{syscall_name, syscall_number};

    const PID: i32 = 77;

    fn may(name: &str, a: [u64; 6]) -> bool {
        may_run(syscall_number(name).unwrap(), &a, (PID, PID))
    }

    /// Whoever lets one more call run says so here.
    #[test]
    fn these_calls_may_run_and_no_others() {
        let own = [PID as u64, PID as u64, 0, 0, 0, 0];
        let some = [[0; 6], [1, 0, 0, 0, 0, 0], [u64::MAX; 6], own];
        let may = |n: &u64| some.iter().any(|a| may_run(*n, a, (PID, PID)));
        let names: Vec<String> = (0..1000).filter(may).map(syscall_name).collect();
        assert_eq!(names.join("\n"), include_str!("gate/calls.txt").trim_end());
    }

    #[test]
    fn what_reaches_others_may_not_run() {
        for (name, a) in [
            ("kill", [1, 9, 0, 0, 0, 0]),
            ("kill", [-1i64 as u64, 9, 0, 0, 0, 0]),
            ("tgkill", [PID as u64, 1, 9, 0, 0, 0]),
            ("fcntl", [3, F_SETOWN as u64, 1, 0, 0, 0]),
            ("fcntl", [3, 15, 1, 0, 0, 0]),
            ("fcntl", [3, 10, 9, 0, 0, 0]),
            ("fcntl", [3, F_NOTIFY as u64, 1, 0, 0, 0]),
            ("fcntl", [3, F_SETLEASE as u64, 0, 0, 0, 0]),
            ("fcntl", [3, F_SETFL as u64, O_ASYNC as u64, 0, 0, 0]),
            ("fcntl", [3, F_SETLK as u64, 0, 0, 0, 0]),
            ("open", [1, O_WRONLY as u64, 0, 0, 0, 0]),
            ("open", [1, O_TRUNC as u64, 0, 0, 0, 0]),
            ("openat", [3, 1, O_CREAT as u64, 0, 0, 0]),
            ("openat", [3, 1, O_RDWR as u64 | 1 << 32, 0, 0, 0]),
            ("socketpair", [AF_TIPC as u64, 0, 0, 0, 0, 0]),
            ("clone", [(CLONE_VM | CLONE_THREAD) as u64, 0, 0, 0, 0, 0]),
            ("clone", [CLONE_VM as u64, 0, 0, 0, 0, 0]),
            ("clone", [SHARES | CLONE_UNTRACED as u64, 0, 0, 0, 0, 0]),
            ("clone", [SHARES | CLONE_PTRACE as u64, 0, 0, 0, 0, 0]),
            ("clone", [SHARES | CLONE_NEWNS as u64, 0, 0, 0, 0, 0]),
            ("clone", [SHARES & !CLONE_FILES as u64, 0, 0, 0, 0, 0]),
            ("clone", [CLONE_FILES as u64, 0, 0, 0, 0, 0]),
            ("clone", [CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]),
            ("ioctl", [0, TIOCSTI, 0, 0, 0, 0]),
            ("madvise", [0, 4096, 100, 0, 0, 0]),
            ("prctl", [PR_SET_SECCOMP as u64, 0, 0, 0, 0, 0]),
            ("prlimit64", [1, 0, 8, 0, 0, 0]),
            ("personality", [0; 6]),
        ] {
            assert!(!may(name, a), "{name} {a:?}");
        }
        for (name, a) in [
            ("kill", [PID as u64, 9, 0, 0, 0, 0]),
            ("open", [1, O_CLOEXEC as u64, 0, 0, 0, 0]),
            ("clone", [SIGCHLD as u64, 0, 0, 0, 0, 0]),
            ("clone", [SHARES, 0, 0, 0, 0, 0]),
            ("madvise", [0, 4096, 4, 0, 0, 0]),
            ("prlimit64", [0, 0, 0, 8, 0, 0]),
        ] {
            assert!(may(name, a), "{name} {a:?}");
        }
    }
}
