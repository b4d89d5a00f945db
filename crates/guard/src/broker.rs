//! The broker: the process that has a file system and opens files for the process that plays a recording.

use crate::outside::{self, Compared, Op};
use crate::regular::{self, Links};
use crate::{private, sandbox, wire, within};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The files that a process that plays a recording may ask for.
pub struct Allowed {
    /// The recordings.
    pub recordings: Vec<PathBuf>,
    /// Files beside the recordings that may be written. A file that is to replace one of them has the name
    /// that [`private::temporary`] gives.
    pub side: Vec<PathBuf>,
    /// Folders of files that recordings share. Their names are 32 hexadecimal digits.
    pub shared: Vec<PathBuf>,
    /// Folders of debug files.
    pub debug: Vec<PathBuf>,
    /// Whether a file has the content with this name.
    pub is_called: fn(&File, &[u8; 16]) -> bool,
    /// Any file of this machine may be compared with what is recorded of it ([`outside::compare`]).
    pub compares: bool,
    /// The folder below which files may be made ([`outside::extract`]).
    pub extract: Option<OwnedFd>,
}

impl Allowed {
    fn readable(&self, path: &Path) -> bool {
        let is_shared = || {
            let digits =
                |n: &OsStr| n.len() == 32 && n.as_bytes().iter().all(u8::is_ascii_hexdigit);
            let folder = self.shared.iter().any(|s| path.parent() == Some(s));
            folder && path.file_name().is_some_and(digits)
        };
        self.is_recording(path) || self.side.iter().any(|s| s == path) || is_shared()
    }

    fn is_recording(&self, path: &Path) -> bool {
        self.recordings.iter().any(|r| r == path)
    }

    fn writable(&self, path: &Path) -> bool {
        let is = |s: &PathBuf| s == path || private::temporary(s) == path;
        self.side.iter().any(is)
    }

    /// Compares a file with what is recorded: a name of a content and its size, or nothing.
    fn compare(&self, path: &Path, wanted: &[u8]) -> io::Result<Compared> {
        if wanted.is_empty() {
            return Ok(outside::compare_here(path, None, |_| false));
        }
        let wanted = wanted.split_first_chunk::<16>();
        let (name, size) = wanted.ok_or(ErrorKind::InvalidInput)?;
        let size = size.try_into().map_err(|_| ErrorKind::InvalidInput)?;
        let size = u64::from_le_bytes(size);
        let same = |f: &File| (self.is_called)(f, name);
        Ok(outside::compare_here(path, Some(size), same))
    }

    /// Answers a question if it is allowed.
    fn answer(&self, question: &[u8], with: Option<File>) -> io::Result<Option<File>> {
        let refused = || Error::from_raw_os_error(libc::EACCES);
        let parse = || {
            let (op, rest) = question.split_first()?;
            let (len, rest) = rest.split_first_chunk()?;
            let (one, other) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let op = Op::ALL.into_iter().find(|o| *o as u8 == *op)?;
            Some((op, one, other))
        };
        let (op, one, other) = parse().ok_or(ErrorKind::InvalidInput)?;
        let path = Path::new(OsStr::from_bytes(one));
        let allow = |is: bool| if is { Ok(()) } else { Err(refused()) };
        match op {
            Op::Read => {
                allow(self.readable(path))?;
                // The user named the recording, so it may be a link. Anybody can foresee the other names.
                let links = match self.is_recording(path) {
                    true => Links::Follow,
                    false => Links::Refuse,
                };
                regular::open(path, links).map(Some)
            }
            Op::Within => {
                allow(self.debug.iter().any(|d| d == path))?;
                within::open(path, Path::new(OsStr::from_bytes(other))).map(Some)
            }
            Op::Content => {
                let wanted = other.split_first_chunk::<16>();
                let (name, size) = wanted.ok_or(ErrorKind::InvalidInput)?;
                let size = size.try_into().map_err(|_| ErrorKind::InvalidInput)?;
                let file = outside::sized(path, u64::from_le_bytes(size));
                let file = file.filter(|f| (self.is_called)(f, name));
                file.map(Some).ok_or_else(refused)
            }
            Op::Write => {
                allow(self.side.iter().any(|s| s == path))?;
                private::open_or_create(path).map(Some)
            }
            Op::New => {
                allow(self.writable(path))?;
                private::create_new(path).map(Some)
            }
            Op::Unnamed => {
                allow(self.side.iter().any(|s| private::folder_of(s) == path))?;
                private::create_unnamed(path).map(Some)
            }
            Op::Link => {
                allow(self.writable(path))?;
                let file = with.ok_or(ErrorKind::InvalidInput)?;
                private::link(&file, path).map(|()| None)
            }
            Op::Rename => {
                let to = Path::new(OsStr::from_bytes(other));
                let fits = self.side.iter().any(|s| s == to) && path == private::temporary(to);
                allow(fits)?;
                fs::rename(path, to).map(|()| None)
            }
            Op::Remove => {
                let fits = self.side.iter().any(|s| private::temporary(s) == path);
                allow(fits)?;
                fs::remove_file(path).map(|()| None)
            }
            Op::Compare => {
                allow(self.compares)?;
                match self.compare(path, other)? {
                    Compared::Same => Ok(None),
                    other => Err(Error::from_raw_os_error(other.errno())),
                }
            }
            Op::Extract => {
                let folder = self.extract.as_ref().ok_or_else(refused)?;
                within::create(folder.as_fd(), path).map(Some)
            }
        }
    }
}

/// The two sides of a split.
pub enum Side {
    /// The process that plays the recording. It prepares itself and then locks itself in ([`Inside::lock`]).
    Inside(Inside),
    /// The process that opens files for it.
    Outside(Broker),
}

/// The process that plays the recording, before it locks itself in.
pub struct Inside {
    socket: OwnedFd,
}

impl Inside {
    /// Gives up everything that playing a recording does not need.
    pub fn lock(self) -> sandbox::Walls {
        outside::ask_at(self.socket);
        sandbox::enter()
    }
}

/// Answers the questions of one process that plays a recording.
pub struct Broker {
    pid: libc::pid_t,
    socket: OwnedFd,
    allowed: Allowed,
}

/// Makes the process that plays a recording. The caller must be the only thread.
pub fn split(allowed: Allowed) -> io::Result<Side> {
    let (mine, its) = wire::pair()?;
    let parent = std::process::id();
    // SAFETY: this process has one thread, so the new process may do everything that this one may.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os_error()),
        0 => {
            drop(mine);
            // It dies with this process: without it, it can ask nobody, and nobody waits for it.
            // SAFETY: plain system calls that access no memory.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                if libc::getppid() != parent as i32 {
                    libc::_exit(2);
                }
            }
            Ok(Side::Inside(Inside { socket: its }))
        }
        pid => Ok(Side::Outside(Broker {
            pid,
            socket: mine,
            allowed,
        })),
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    Status(i32),
    Signal(i32),
}

impl Broker {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The descriptor is readable when there is a question, or the process has ended.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Waits for one question and answers it. Returns how the process ended, if it has ended.
    pub fn turn(&mut self) -> Option<ExitStatus> {
        let mut question = vec![0; wire::MOST];
        let answered = match wire::receive(self.fd(), &mut question) {
            Ok((n @ 1.., with)) => {
                let (errno, file) = match self.allowed.answer(&question[..n], with) {
                    Ok(file) => (0, file),
                    Err(e) => {
                        let other = match e.kind() {
                            ErrorKind::InvalidInput => libc::EINVAL,
                            _ => libc::EACCES,
                        };
                        (e.raw_os_error().unwrap_or(other), None)
                    }
                };
                let file = file.as_ref().map(AsFd::as_fd);
                wire::send(self.fd(), &i32::to_le_bytes(errno), file)
            }
            Ok((0, _)) => Err(ErrorKind::BrokenPipe.into()),
            Err(e) => Err(e),
        };
        answered.err().map(|_| self.end())
    }

    /// Waits for the end of the process, which can ask nobody any more. Kills it if it is not ending already,
    /// because others must not wait for it.
    fn end(&self) -> ExitStatus {
        let mut status = 0;
        // SAFETY: a plain system call. Nobody has waited for the process yet, so the id is still its own. If
        // it is ending already, this does not change how.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        loop {
            // SAFETY: the kernel fills in the status.
            let done = unsafe { libc::waitpid(self.pid, &mut status, 0) };
            if done == self.pid && libc::WIFSIGNALED(status) {
                return ExitStatus::Signal(libc::WTERMSIG(status));
            }
            if done == self.pid && libc::WIFEXITED(status) {
                return ExitStatus::Status(libc::WEXITSTATUS(status));
            }
            if done < 0 && Error::last_os_error().kind() != ErrorKind::Interrupted {
                return ExitStatus::Status(2);
            }
        }
    }

    /// Answers questions until the process has ended.
    pub fn serve(mut self) -> ExitStatus {
        forward(self.pid);
        loop {
            if let Some(end) = self.turn() {
                return end;
            }
        }
    }
}

/// The process to which signals are passed on.
static FORWARD: AtomicI32 = AtomicI32::new(0);

/// Passes signals that would end this process on to `pid`, if a process sent them. Signals of a terminal
/// reach `pid` anyway.
fn forward(pid: libc::pid_t) {
    FORWARD.store(pid, Relaxed);
    extern "C" fn pass(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel has filled in the structure, and `errno` is restored.
        unsafe {
            let errno = *libc::__errno_location();
            if (*info).si_code <= 0 && FORWARD.load(Relaxed) > 0 {
                libc::kill(FORWARD.load(Relaxed), signal);
            }
            *libc::__errno_location() = errno;
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the handler only loads a number and makes a system call.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            let mut old: libc::sigaction = std::mem::zeroed();
            let pass: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = pass;
            new.sa_sigaction = pass as libc::sighandler_t;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &new, &mut old);
            // Whoever started this process made it ignore this signal.
            if old.sa_sigaction == libc::SIG_IGN {
                libc::sigaction(signal, &old, std::ptr::null_mut());
            }
        }
    }
}

/// From now on signals that would end this process do so: the process to which they were passed on is gone. Those that are
/// ignored stay so.
pub fn end_forwarding() {
    FORWARD.store(0, Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: plain system calls; the structure is filled in before it is read.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            if now.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Ends this process with a signal, as its child was ended.
pub fn die_of(signal: i32) -> ! {
    // SAFETY: plain system calls that affect only this process. The set is initialized before it is used.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}
