//! What processes are, how they are copied, and how they end.

use crate::outcome::Status;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The effective user.
pub fn user() -> u32 {
    // SAFETY: touches no memory.
    unsafe { libc::geteuid() }
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
            end_at_once()
        }
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Ends this process, which was made by [`fork`].
pub fn end_at_once() -> ! {
    // SAFETY: nothing that the parent has to do at its end is done twice.
    unsafe { libc::_exit(0) }
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

impl Ended {
    /// How it ended, as the library's callers have it.
    pub fn status(&self) -> Status {
        match self.status {
            Ok(status) => Status::Exited(status),
            Err(signal) => Status::Killed(signal),
        }
    }
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

/// Release of the running kernel.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or(String::new(), |s| s.trim().into())
}

/// A way to wait for the end of a process.
pub struct Ending(Option<OwnedFd>);

impl Ending {
    /// Of this one. Kernels before 5.3 have no such descriptors.
    pub fn of(pid: i32) -> Ending {
        // SAFETY: makes a descriptor that is owned by nobody else.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        };
        Ending(fd)
    }

    /// Waits for it, but no longer than this time; less where there is no descriptor.
    pub fn wait(&self, time: Duration) {
        let Some(fd) = &self.0 else {
            return std::thread::sleep(time.min(Duration::from_millis(10)));
        };
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid structure.
        unsafe { libc::poll(&mut poll, 1, time.as_millis() as i32) };
    }
}
