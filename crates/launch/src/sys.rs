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

/// A set of signals, as the kernel has it: that of the C library leaves two out.
#[derive(Clone, Copy)]
pub struct Signals(u64);

/// A signal that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    pub signal: i32,
    code: i32,
    /// The process that sent it.
    pub from: i32,
    value: u64,
}

impl Came {
    /// Whether a process sent it (and not the kernel, for instance for a key).
    pub fn sent(&self) -> bool {
        self.code <= 0
    }

    /// Sends the same to a process, or to a group if that is negative.
    pub fn pass_to(&self, pid: i32) {
        if self.code != libc::SI_QUEUE || pid < 0 {
            return kill(pid, self.signal);
        }
        // What the kernel lets a process say in the name of another: number, code, sender, value.
        let mut info = [0u64; 16];
        info[0] = self.signal as u32 as u64;
        info[1] = self.code as u32 as u64;
        info[2] = self.from as u32 as u64 | (user() as u64) << 32;
        info[3] = self.value;
        // SAFETY: the kernel reads the 128 bytes of the information.
        unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, self.signal, info.as_ptr()) };
    }
}

impl Signals {
    pub fn of(list: &[i32]) -> Signals {
        Signals(list.iter().fold(0, |set, s| set | 1 << (s - 1)))
    }

    /// All that can be blocked.
    pub fn all() -> Signals {
        Signals(!0)
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
        let mut old = 0u64;
        // SAFETY: both sets are of the 8 bytes that the kernel is told.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &self.0, &mut old, 8) };
        Signals(old)
    }

    /// Takes one of these signals, which must be blocked.
    pub fn take(&self, timeout: Duration) -> Option<Came> {
        let t = libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        };
        let mut info = [0u64; 16];
        // SAFETY: valid pointers: a set of 8 bytes, the 128 bytes of the information, a time.
        let n =
            unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &self.0, info.as_mut_ptr(), &t, 8) };
        (n > 0).then_some(Came {
            signal: n as i32,
            code: info[1] as i32,
            from: info[2] as i32,
            value: info[3],
        })
    }
}

/// Stops this process as `signal` does by default, until it is continued. The signal is blocked.
pub fn stop_by(signal: i32) {
    // SAFETY: no handler is installed, and what was there comes back.
    let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
    kill(own_id(), signal);
    let set = Signals::of(&[signal]);
    set.unblock();
    set.block();
    // SAFETY: as above.
    unsafe { libc::signal(signal, before) };
}

/// This process.
pub fn own_id() -> i32 {
    std::process::id() as i32
}

/// The parent of this process.
pub fn parent() -> i32 {
    // SAFETY: touches no memory.
    unsafe { libc::getppid() }
}

/// The group of a process; this one's if that is 0. -1: there is no such process.
pub fn group(pid: i32) -> i32 {
    // SAFETY: touches no memory.
    unsafe { libc::getpgid(pid) }
}

/// If this process's group has the terminal, another group of the session gets it.
pub fn hand_terminal_to(group_id: i32) {
    let Ok(terminal) = File::open("/dev/tty") else {
        return;
    };
    // SAFETY: plain system calls with an open descriptor.
    unsafe {
        if libc::tcgetpgrp(terminal.as_raw_fd()) == group(0) {
            libc::tcsetpgrp(terminal.as_raw_fd(), group_id);
        }
    }
}

/// Whether somebody wants this process to end whose signal has not been taken yet.
pub fn is_told_to_end() -> bool {
    let mut set = 0u64;
    // SAFETY: the kernel fills a set of 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &mut set, 8) };
    set & Signals::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).0 != 0
}

/// Leaves session and group, and with them the terminal and its signals.
pub fn leave_session() {
    // SAFETY: touches no memory.
    unsafe { libc::setsid() };
}

/// Sets the name that `ps` shows of this process; at most 15 bytes count.
pub fn set_name(name: &CStr) {
    // SAFETY: a zero-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// This process is killed when its parent ends.
pub fn end_with_parent() {
    // SAFETY: touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Makes a copy of this process, which runs `child` and ends; its process id. Only while this process has one thread.
pub fn fork(child: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: there is one thread, so the child may run anything.
    match unsafe { libc::fork() } {
        0 => {
            // Nothing of the parent's is cleaned up.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: nothing that the parent has to do at its end is done twice.
            unsafe { libc::_exit(0) }
        }
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Whether the child `pid` has ended; if it has, nothing is left of it.
pub fn reap(pid: i32) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Waits until the child `pid` has ended.
pub fn reap_at_once(pid: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Closes a descriptor that nobody owns, as a copied process has them.
pub fn close(fd: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::close(fd) };
}

/// Clears the memory of this process's arguments, which `/proc` says to be from `start` to `end`. For a process that
/// does not look at them any more.
pub fn clear_arguments(start: u64, end: u64) {
    let len = end.saturating_sub(start) as usize;
    // SAFETY: the kernel has put the arguments there, on the stack of this process; what the standard library
    // gives out are copies.
    unsafe { std::ptr::write_bytes(start as *mut u8, 0, len) };
}

/// The state letter of a process: `T` if it is stopped.
pub fn state(pid: i32) -> Option<u8> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = text.iter().rposition(|b| *b == b')')?;
    text.get(end + 2).copied()
}

/// How many threads of a process are in the state of this letter.
pub fn threads_in(pid: i32, letter: u8) -> usize {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let ids = threads
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok());
    ids.filter(|tid: &i32| state(*tid) == Some(letter)).count()
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

/// What has become of a child.
pub enum Change {
    Ended(Ended),
    /// By this signal.
    Stopped(i32),
}

/// What has become of the child `pid`.
pub fn poll_child(pid: i32) -> io::Result<Option<Change>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: valid pointers; the usage is plain numbers, zeroed before.
    let (n, usage) = unsafe {
        let n = libc::wait4(
            pid,
            &mut status,
            libc::WNOHANG | libc::WUNTRACED,
            usage.as_mut_ptr(),
        );
        (n, usage.assume_init())
    };
    match n {
        0 => Ok(None),
        n if n == pid && libc::WIFSTOPPED(status) => {
            Ok(Some(Change::Stopped(libc::WSTOPSIG(status))))
        }
        n if n == pid => Ok(Some(Change::Ended(Ended {
            status: if libc::WIFSIGNALED(status) {
                Err(libc::WTERMSIG(status))
            } else {
                Ok(libc::WEXITSTATUS(status))
            },
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            peak_kib: usage.ru_maxrss as u64,
        }))),
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
        libc::_exit(crate::status::FAILED)
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
