//! Starting a program.

use super::limits::lift_memory_limits;
use super::signals::Signals;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// How to start a program.
pub struct Exec {
    pub image: File,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    /// The folder to start it in, unless it is this process's.
    pub folder: Option<CString>,
    /// Standard input, output and error, where they are not this process's.
    pub streams: [Option<OwnedFd>; 3],
    /// Signals that the program starts with blocked.
    pub blocked: Signals,
    /// SIGCHLD is ignored.
    pub ignore_child: bool,
    /// SIGPIPE does what it does by default, whatever this process has made of it.
    pub default_pipe: bool,
    /// Descriptor that stays open.
    pub keep: Option<i32>,
    /// Standard output goes where standard error goes.
    pub merge_output: bool,
}

/// Starts a program; its process id. An error says why it could not be executed.
///
/// Other threads of this process may hold locks. So the child makes plain system calls only.
pub fn spawn(e: &Exec) -> io::Result<i32> {
    let pointers = |list: &[CString]| {
        list.iter()
            .map(|s| s.as_ptr().cast_mut())
            .chain([null_mut()])
            .collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(&e.argv), pointers(&e.env));
    let (mut failure, tell) = failure_pipe()?;
    // SAFETY: the child makes plain system calls, with zero-terminated lists of zero-terminated strings and open
    // descriptors, and ends.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let error = execute(e, &argv, &env);
            libc::write(
                tell.as_raw_fd(),
                (&raw const error).cast(),
                size_of::<i32>(),
            );
            libc::_exit(127)
        }
        pid
    };
    drop(tell);
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // The writing end is closed when the program is executed.
    let mut error = [0; 4];
    if failure.read_exact(&mut error).is_ok() {
        super::process::reap_at_once(pid);
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)));
    }
    Ok(pid)
}

/// In the child: becomes the program. The number of the error, if that fails.
///
/// # Safety
/// `argv` and `env` are lists of zero-terminated strings that end with a null pointer.
unsafe fn execute(e: &Exec, argv: &[*mut i8], env: &[*mut i8]) -> i32 {
    let error = || {
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)
    };
    // SAFETY: plain system calls with open descriptors, valid strings, and the lists that the caller vouches for.
    unsafe {
        if let Some(fd) = e.keep {
            libc::fcntl(fd, libc::F_SETFD, 0);
        }
        for (to, from) in e.streams.iter().enumerate() {
            if let Some(from) = from
                && libc::dup2(from.as_raw_fd(), to as i32) < 0
            {
                return error();
            }
        }
        if e.merge_output {
            libc::dup2(2, 1);
        }
        if let Some(folder) = &e.folder
            && libc::chdir(folder.as_ptr()) < 0
        {
            return error();
        }
        if e.ignore_child {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        if e.default_pipe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        lift_memory_limits();
        e.blocked.restore();
        libc::fexecve(
            e.image.as_raw_fd(),
            argv.as_ptr().cast(),
            env.as_ptr().cast(),
        );
    }
    error()
}

/// A pipe whose ends are closed by `execve`, and out of the way of the descriptors that programs expect to be free.
fn failure_pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors, which are owned by nobody else.
    let [read, write] = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        ends.map(|fd| File::from_raw_fd(fd))
    };
    Ok((super::files::raise(read)?, super::files::raise(write)?))
}
