//! Ctrl-C in a session with gdb, or at a prompt. gdb tells its server of it only while the program runs. The server does not get the
//! terminal's signal itself. So other questions that take long (`seek`, `last-write`, memory whose index is not made yet)
//! are interrupted through a pipe, from the process that started gdb.

use anyhow::{Context, Result, bail};
use hindsight_gdb::Interrupt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Where the handler of the signal writes.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// From now on interrupts of this process can be read as bytes from what is returned, which is inherited by
/// the processes that it starts.
pub fn forward() -> Result<OwnedFd> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error()).context("pipe2");
    }
    // SAFETY: the kernel has just made them, and nobody else owns them.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: the descriptor is open; only its flags change, so that what is started has it, and reads wait.
    let set = unsafe {
        libc::fcntl(read.as_raw_fd(), libc::F_SETFD, 0)
            | libc::fcntl(read.as_raw_fd(), libc::F_SETFL, 0)
    };
    if set != 0 {
        return Err(std::io::Error::last_os_error()).context("fcntl");
    }
    // Open until the process ends: the handler may come at any time.
    PIPE.store(write.into_raw_fd(), Relaxed);
    handle();
    Ok(read)
}

/// Has interrupts handled as [`forward`] says. Returns how they were handled before.
fn handle() -> libc::sighandler_t {
    // SAFETY: the handler does nothing but an atomic load and a system call, on a descriptor that stays
    // open.
    unsafe {
        libc::signal(
            libc::SIGINT,
            tell as extern "C" fn(i32) as libc::sighandler_t,
        )
    }
}

/// Does something while interrupts go where [`forward`] sends them. A library may have a handler of its own otherwise.
pub fn forwarded<T>(what: impl FnOnce() -> T) -> T {
    let before = handle();
    let done = what();
    // SAFETY: this is how they were handled before.
    unsafe { libc::signal(libc::SIGINT, before) };
    done
}

extern "C" fn tell(_: i32) {
    // SAFETY: one byte of a constant. A full pipe has more interrupts than anybody needs; what `errno` says of
    // that concerns nobody, since this process only waits for another one.
    unsafe { libc::write(PIPE.load(Relaxed), [0u8].as_ptr().cast(), 1) };
}

/// Interrupts a session for each byte that can be read from an inherited descriptor.
pub fn listen(fd: i32, interrupt: Interrupt) -> Result<()> {
    each(fd, move || interrupt.send())
}

/// Calls this for each byte that can be read from an inherited descriptor.
pub fn each(fd: i32, mut interrupted: impl FnMut() + Send + 'static) -> Result<()> {
    // SAFETY: asks for the flags of a descriptor, whatever it is.
    if fd <= 2 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        bail!("descriptor {fd} is not open");
    }
    // SAFETY: it is open, and was made for this process, which uses it nowhere else.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1) = pipe.read(&mut byte) {
            interrupted();
        }
    });
    Ok(())
}

/// Takes no interrupts.
pub fn ignore() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
