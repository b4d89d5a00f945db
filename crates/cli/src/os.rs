//! The system calls that the standard library has no form for.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

/// A descriptor of the same file that is at least 100: programs expect low numbers to be free, and
/// 0 to 2 may be closed.
pub fn raise(file: File) -> io::Result<File> {
    // SAFETY: duplicates a descriptor; the new one is owned by nobody else.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) {
            -1 => Ok(file),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// A file in memory, closed on exec.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: makes a descriptor that is owned by nobody else.
    let f = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(fd))
    };
    raise(f)
}

/// Whether the kernel would execute this file.
pub fn executable(path: &Path) -> bool {
    let Ok(p) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a zero-terminated string.
    unsafe { libc::faccessat(libc::AT_FDCWD, p.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// The effective user.
pub fn user() -> u32 {
    // SAFETY: touches no memory.
    unsafe { libc::geteuid() }
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct Signals(libc::sigset_t);

impl Signals {
    pub fn of(list: &[i32]) -> Signals {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initializes the set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for s in list {
                libc::sigaddset(set.as_mut_ptr(), *s);
            }
            Signals(set.assume_init())
        }
    }

    /// Blocks these signals in this thread; what was blocked before.
    pub fn block(&self) -> Signals {
        self.mask(libc::SIG_BLOCK)
    }

    /// Makes these the blocked ones.
    pub fn restore(&self) {
        self.mask(libc::SIG_SETMASK);
    }

    /// Unblocks these.
    pub fn unblock(&self) {
        self.mask(libc::SIG_UNBLOCK);
    }

    fn mask(&self, how: i32) -> Signals {
        let mut old = Signals::of(&[]);
        // SAFETY: both sets are valid.
        unsafe { libc::pthread_sigmask(how, &self.0, &mut old.0) };
        old
    }

    /// Takes one of these signals, which must be blocked: its number, and whether a process sent
    /// it (and not the kernel, for instance for a key).
    pub fn take(&self, timeout: Duration) -> Option<(i32, bool)> {
        let t = libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: valid pointers; the kernel fills the information in when it returns a signal,
        // and it is plain numbers, zeroed before.
        unsafe {
            let n = libc::sigtimedwait(&self.0, info.as_mut_ptr(), &t);
            (n > 0).then(|| (n, info.assume_init().si_code <= 0))
        }
    }
}

/// Whether somebody wants this process to end whose signal has not been taken yet.
pub fn is_told_to_end() -> bool {
    let mut set = Signals::of(&[]).0;
    // SAFETY: a valid set, which the call fills.
    unsafe {
        libc::sigpending(&mut set) == 0
            && [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
                .iter()
                .any(|s| libc::sigismember(&set, *s) == 1)
    }
}

/// Sets the disposition of `signal` to the default; whether it was ignored.
pub fn default_disposition(signal: i32) -> bool {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN }
}

/// Sends a signal.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// A child process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit status, unless a signal was deadly.
    pub status: Result<i32, i32>,
    pub cpu: Duration,
    pub peak_kib: u64,
}

/// The state of the child `pid`, if it has ended.
pub fn poll_child(pid: i32) -> io::Result<Option<Ended>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: valid pointers; the usage is plain numbers, zeroed before.
    let (n, usage) = unsafe {
        let n = libc::wait4(pid, &mut status, libc::WNOHANG, usage.as_mut_ptr());
        (n, usage.assume_init())
    };
    match n {
        0 => Ok(None),
        n if n == pid => Ok(Some(Ended {
            status: if libc::WIFSIGNALED(status) {
                Err(libc::WTERMSIG(status))
            } else {
                Ok(libc::WEXITSTATUS(status))
            },
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            peak_kib: usage.ru_maxrss as u64,
        })),
        _ => Err(io::Error::last_os_error()),
    }
}

fn time(t: libc::timeval) -> Duration {
    Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000)
}

/// Processor time of this process.
pub fn own_cpu() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a valid pointer to plain numbers, zeroed before.
    let u = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    time(u.ru_utime) + time(u.ru_stime)
}

/// Ends this process by `signal`, without a core file.
pub fn die_by(signal: i32) -> ! {
    // SAFETY: no memory is involved but the limit, which is valid.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        Signals::of(&[signal]).unblock();
        libc::kill(libc::getpid(), signal);
    }
    // A signal that is not deadly to us after all.
    std::process::exit(128 + signal)
}

/// Limits of which the recorder's own memory is to take nothing from the program.
const MEMORY_LIMITS: [libc::__rlimit_resource_t; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];

/// The limits on address space and data, soft and hard, which the recorder keeps for the program.
pub fn memory_limits() -> [[u64; 2]; 2] {
    MEMORY_LIMITS.map(|r| {
        let l = limit(r);
        [l.rlim_cur, l.rlim_max]
    })
}

/// Lifts them as far as that is allowed.
fn lift_memory_limits() {
    for r in MEMORY_LIMITS {
        let old = limit(r);
        let free = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        let most = libc::rlimit {
            rlim_cur: old.rlim_max,
            ..old
        };
        // SAFETY: valid pointers.
        unsafe {
            if libc::setrlimit(r, &free) != 0 {
                libc::setrlimit(r, &most);
            }
        }
    }
}

/// As [`memory_limits`], of another process; lifts them as far as that is allowed.
pub fn lift_limits_of(pid: i32) -> [libc::rlimit; 2] {
    MEMORY_LIMITS.map(|r| {
        let Some(old) = limit_of(pid, r, None) else {
            return limit(r);
        };
        let soft = |cur| libc::rlimit {
            rlim_cur: cur,
            ..old
        };
        let free = libc::rlimit {
            rlim_max: libc::RLIM_INFINITY,
            ..soft(libc::RLIM_INFINITY)
        };
        if limit_of(pid, r, Some(&free)).is_none() {
            limit_of(pid, r, Some(&soft(old.rlim_max)));
        }
        old
    })
}

/// Undoes [`lift_limits_of`].
pub fn restore_limits_of(pid: i32, old: &[libc::rlimit; 2]) {
    for (r, old) in MEMORY_LIMITS.into_iter().zip(old) {
        limit_of(pid, r, Some(old));
    }
}

/// Sets (if given) a limit of another process; the one before.
fn limit_of(
    pid: i32,
    resource: libc::__rlimit_resource_t,
    new: Option<&libc::rlimit>,
) -> Option<libc::rlimit> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid pointers, or none.
    let done = unsafe { libc::prlimit(pid, resource, new, &mut old) };
    (done == 0).then_some(old)
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut l = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid pointer.
    unsafe { libc::getrlimit(resource, &mut l) };
    l
}

/// How to start a program.
pub struct Exec<'a> {
    pub image: &'a File,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    /// Signals that the program starts with blocked.
    pub blocked: Signals,
    /// SIGCHLD is ignored.
    pub ignore_child: bool,
    /// Descriptor that stays open.
    pub keep: Option<i32>,
    /// Standard output goes where standard error goes.
    pub merge_output: bool,
}

/// Starts a program; its process id. Only while this process has one thread.
pub fn spawn(e: &Exec) -> io::Result<i32> {
    let pointers = |list: &[CString]| {
        list.iter()
            .map(|s| s.as_ptr().cast_mut())
            .chain([null_mut()])
            .collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(&e.argv), pointers(&e.env));
    // SAFETY: there is one thread, so the child may run anything; it calls only plain system
    // calls, with zero-terminated lists of zero-terminated strings.
    unsafe {
        let pid = libc::fork();
        if pid != 0 {
            return if pid < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(pid)
            };
        }
        if let Some(fd) = e.keep {
            libc::fcntl(fd, libc::F_SETFD, 0);
        }
        if e.merge_output {
            libc::dup2(2, 1);
        }
        if e.ignore_child {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        lift_memory_limits();
        e.blocked.restore();
        libc::fexecve(
            e.image.as_raw_fd(),
            argv.as_ptr().cast(),
            env.as_ptr().cast(),
        );
        crate::say(&format!(
            "the recorder could not be started: {}",
            io::Error::last_os_error()
        ));
        libc::_exit(crate::record::FAILED)
    }
}

/// The time of day where the user is: `YYYYMMDD-HHMM`, or with separators for people.
pub fn local_time(seconds: i64, for_people: bool) -> String {
    let mut tm = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: valid pointers; all-zero is a valid `tm`.
    let tm = unsafe {
        libc::localtime_r(&seconds, tm.as_mut_ptr());
        tm.assume_init()
    };
    let (y, mo, d) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    let (h, mi, s) = (tm.tm_hour, tm.tm_min, tm.tm_sec);
    if for_people {
        format!("{y}-{mo:02}-{d:02} {h:02}:{mi:02}:{s:02}")
    } else {
        format!("{y}{mo:02}{d:02}-{h:02}{mi:02}")
    }
}

/// Release of the running kernel.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or(String::new(), |s| s.trim().into())
}

/// A zero-terminated copy.
pub fn c_string(s: &OsStr) -> io::Result<CString> {
    CString::new(s.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
