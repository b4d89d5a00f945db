//! The process: started, emptied, filled with what the recorded one had, and let go.

mod inject;
mod layout;
mod threads;
mod vdso;
pub(crate) mod xsave;

use crate::files::{Prepared, Way, reopened};
use crate::{During, Error, Result};
use hindsight_inspect::state::{Lock, OpenKind};
use hindsight_remote::{Still, start_still};
use inject::Injector;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A process that stands still at the instant. It is killed unless it is let go.
pub struct Made {
    injector: Option<Injector>,
    pid: i32,
}

impl Made {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it go on.
    pub fn go(mut self) {
        if let Some(mut i) = self.injector.take() {
            i.process.release();
        }
    }

    /// Leaves it stopped, as by SIGSTOP: a debugger can attach to it, and SIGCONT lets it go on.
    pub fn stop(mut self) {
        if let Some(mut i) = self.injector.take() {
            // It gets the signal before it does anything.
            hindsight_remote::halt(self.pid);
            i.process.release();
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.injector.is_some() {
            hindsight_remote::end(self.pid);
        }
    }
}

impl Prepared {
    /// Makes the process. It executes nothing of the program until it is let go.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn make(&mut self) -> Result<Made> {
        let opened = self.open_all()?;
        let state = &self.received.state;
        let mut descriptors: Vec<(RawFd, RawFd)> = Vec::new();
        for (fd, open, _) in &state.descriptors {
            let own = match &self.ways[*open as usize] {
                Way::Inherited(n) => *n,
                _ => opened[*open as usize]
                    .as_ref()
                    .map_or(-1, AsRawFd::as_raw_fd),
            };
            descriptors.push((own, *fd));
        }
        let own_exe = File::open("/proc/self/exe").during(|| "opening hindsight".into())?;
        let program = self
            .program
            .as_ref()
            .map_or(own_exe.as_raw_fd(), AsRawFd::as_raw_fd);
        let text =
            |b: &[u8]| CString::new(b).map_err(|_| Error::Nonsense("has paths that cannot be"));
        let folder = state.folder.as_deref().map(text).transpose()?;
        let still = Still {
            program,
            arguments: vec![text(&state.program.0)?],
            folder,
            descriptors,
            pid: state.pid,
        };
        let started = start_still(&still);
        let process = started.during(|| {
            let folder = state.folder.as_deref().unwrap_or_default();
            format!("starting a process in {}", hindsight_text::bytes(folder))
        })?;
        let mut made = Made {
            pid: process.pid(),
            injector: None,
        };
        let injector = made
            .injector
            .insert(Injector::new(process, &state.mappings)?);
        layout::fill(injector, &self.received)?;
        for (at, room) in &self.raised {
            let done = injector.process.write(*at, &room.to_le_bytes());
            done.during(|| "giving the dynamic loader room".into())?;
        }
        self.descriptors(injector)?;
        threads::make(injector, &self.received)?;
        Ok(made)
    }

    /// Opens all that is open, each once.
    fn open_all(&self) -> Result<Vec<Option<OwnedFd>>> {
        let mut out: Vec<Option<OwnedFd>> = Vec::new();
        for (way, open) in self.ways.iter().zip(&self.received.state.open) {
            let step = || "opening a file of the process".to_owned();
            out.push(match way {
                Way::Inherited(_) => None,
                Way::Reopen(name, flags, place) => {
                    let mut file = reopened(name, *flags).during(step)?;
                    if let Some(at) = place.filter(|at| *at > 0) {
                        file.seek(SeekFrom::Start(at)).during(step)?;
                    }
                    for l in open.locks.iter().filter(|l| l.kind > 0) {
                        lock(&file, l).during(|| "taking a lock that the process had".into())?;
                    }
                    Some(file.into())
                }
                Way::Ready(fd) => Some(fd.try_clone().during(step)?),
                Way::Nowhere => Some(
                    crate::files::named(b"/dev/null")
                        .during(|| "opening /dev/null".into())?
                        .into(),
                ),
            });
        }
        Ok(out)
    }

    /// What belongs to the process's own descriptors: flags, what epoll waits for, locks.
    fn descriptors(&self, i: &Injector) -> Result<()> {
        let state = &self.received.state;
        let call = |what: &str, nr: i64, args: &[u64]| i.call(nr, args).during(|| what.to_owned());
        for (fd, open, on_exec) in &state.descriptors {
            let fd = *fd as u64;
            if *on_exec {
                call("fcntl", libc::SYS_fcntl, &[fd, libc::F_SETFD as u64, 1])?;
            }
            let of = &state.open[*open as usize];
            if matches!(self.ways[*open as usize], Way::Nowhere) {
                continue;
            }
            if let OpenKind::Epoll(all) = &of.kind {
                for e in all {
                    let mut event = [0; 12];
                    event[..4].copy_from_slice(&e.events.to_le_bytes());
                    event[4..].copy_from_slice(&e.data.to_le_bytes());
                    i.put(&event)?;
                    // What leads nowhere cannot be waited for.
                    let args = [fd, libc::EPOLL_CTL_ADD as u64, e.fd as u64, i.data()];
                    match i.call(libc::SYS_epoll_ctl, &args) {
                        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
                        Err(e) if e.raw_os_error() == Some(libc::EBADF) => {}
                        done => drop(done.during(|| "epoll_ctl".into())?),
                    }
                }
            }
            for l in of.locks.iter().filter(|l| l.kind == 0) {
                i.put(&flock(l))?;
                let args = [fd, libc::F_SETLK as u64, i.data()];
                i.call(libc::SYS_fcntl, &args)
                    .during(|| format!("taking a lock that descriptor {fd} had"))?;
            }
        }
        Ok(())
    }
}

/// `struct flock`.
fn flock(l: &Lock) -> [u8; 32] {
    let mut out = [0; 32];
    let kind = if l.exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    out[..2].copy_from_slice(&(kind as u16).to_le_bytes());
    out[8..16].copy_from_slice(&l.start.to_le_bytes());
    out[16..24].copy_from_slice(&l.len.to_le_bytes());
    out
}

/// Takes a lock that belongs to an open file.
fn lock(file: &File, l: &Lock) -> io::Result<()> {
    let how = if l.exclusive {
        libc::LOCK_EX
    } else {
        libc::LOCK_SH
    };
    let set = flock(l);
    // SAFETY: `flock` accesses no memory, and `fcntl` reads a whole `struct flock`.
    let done = unsafe {
        match l.kind {
            2 => libc::flock(file.as_raw_fd(), how | libc::LOCK_NB),
            _ => libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, set.as_ptr()),
        }
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
