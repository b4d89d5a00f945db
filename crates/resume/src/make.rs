//! The process: started, emptied, filled with what the recorded one had, and let go.

mod inject;
mod layout;
mod thread;
mod vdso;
mod xsave;

use crate::files::{Place, Prepared, Way, compare, reopened};
use crate::{During, Error, Result};
use hindsight_inspect::state::OpenKind;
use hindsight_remote::{Still, start_still};
use inject::Injector;
pub use layout::KERNELS;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A process that stands still at the instant. It is killed unless it is let go, and its copies of files are removed then.
pub struct Made {
    injector: Option<Injector>,
    pid: i32,
    copies: Option<TempDir>,
}

impl Made {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The folder of its copies of files, if it has any. It stays when the process goes on.
    pub fn copies(&self) -> Option<&Path> {
        self.copies.as_ref().map(TempDir::path)
    }

    /// Lets it go on.
    pub fn go(mut self) {
        self.release();
    }

    /// Leaves it stopped, as by SIGSTOP: a debugger can attach to it, and SIGCONT lets it go on. The folder of its copies.
    pub fn stop(mut self) -> Option<PathBuf> {
        if let Some(i) = &self.injector {
            hindsight_remote::halt(&i.process);
        }
        self.release()
    }

    fn release(&mut self) -> Option<PathBuf> {
        if let Some(mut i) = self.injector.take() {
            i.process.release();
        }
        self.copies.take().map(TempDir::keep)
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
    /// Makes the process. It executes nothing of the program until it is let go. Nothing of what was prepared is kept here: the
    /// process alone has its pipes.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn make(self) -> Result<Made> {
        let mut copies = None;
        let opened = self.open_all(&mut copies)?;
        let state = &self.received.state;
        let mut descriptors: Vec<(RawFd, RawFd)> = Vec::new();
        for (fd, open, _) in &state.descriptors {
            let own = match &self.ways[*open as usize] {
                Way::Inherited(n) => *n,
                Way::Ready(own) => own.as_raw_fd(),
                _ => opened[*open as usize]
                    .as_ref()
                    .map_or(-1, AsRawFd::as_raw_fd),
            };
            descriptors.push((own, *fd));
        }
        let mapped = self.mapped(&mut descriptors);
        let own_exe = File::open("/proc/self/exe").during(|| "opening hindsight".into())?;
        let program = self
            .program
            .as_ref()
            .map_or(own_exe.as_raw_fd(), AsRawFd::as_raw_fd);
        let text =
            |b: &[u8]| CString::new(b).map_err(|_| Error::Nonsense("has paths that cannot be"));
        let still = Still {
            program,
            arguments: vec![text(&state.program.0)?],
            folder: Some(self.folder.as_raw_fd()),
            descriptors,
            pid: state.pid,
        };
        let process = start_still(&still).during(|| "starting a process".into())?;
        let mut made = Made {
            pid: process.pid(),
            injector: None,
            copies,
        };
        let injector = made
            .injector
            .insert(Injector::new(process, &state.mappings)?);
        layout::fill(injector, &self.received, &mapped)?;
        for fd in mapped.values().collect::<BTreeSet<_>>() {
            injector
                .call(libc::SYS_close, &[*fd as u64])
                .during(|| "close".into())?;
        }
        for (fd, _, on_exec) in &state.descriptors {
            if *on_exec {
                let args = [*fd as u64, libc::F_SETFD as u64, 1];
                injector
                    .call(libc::SYS_fcntl, &args)
                    .during(|| "fcntl".into())?;
            }
        }
        thread::make(injector, &self.received)?;
        Ok(made)
    }

    /// Adds descriptors of the files that are mapped again, behind all others. These numbers, by the mappings' first addresses.
    fn mapped(&self, descriptors: &mut Vec<(RawFd, RawFd)>) -> BTreeMap<u64, RawFd> {
        let mut next = descriptors.iter().map(|d| d.1 + 1).max().unwrap_or(0);
        let mut numbers: BTreeMap<RawFd, RawFd> = BTreeMap::new();
        let mut mapped = BTreeMap::new();
        for (start, file) in &self.again.files {
            let number = *numbers.entry(file.as_raw_fd()).or_insert_with(|| {
                descriptors.push((file.as_raw_fd(), next));
                next += 1;
                next - 1
            });
            mapped.insert(*start, number);
        }
        mapped
    }

    /// Opens all files, each opening once.
    fn open_all(&self, folder: &mut Option<TempDir>) -> Result<Vec<Option<OwnedFd>>> {
        let mut out: Vec<Option<OwnedFd>> = Vec::new();
        // Several openings may lead to the same file.
        let mut made: HashMap<u32, File> = HashMap::new();
        for (way, open) in self.ways.iter().zip(&self.received.state.open) {
            let step = || "opening a file of the process".to_owned();
            let file = match way {
                Way::Inherited(_) | Way::Ready(_) => None,
                Way::Reopen(name, flags, place) => {
                    Some(at(reopened(name, *flags), *place).during(step)?)
                }
                Way::Copy(stored, flags, place) | Way::Memory(stored, flags, place) => {
                    if !made.contains_key(stored) {
                        made.insert(*stored, self.again(*stored, &open.kind, folder)?);
                    }
                    let file = made
                        .get(stored)
                        .map(|name| at(reopened(name, *flags), *place));
                    file.transpose().during(step)?
                }
                Way::Nowhere => {
                    let null = crate::files::named(b"/dev/null");
                    Some(null.during(|| "opening /dev/null".into())?)
                }
            };
            let leads = !matches!(way, Way::Nowhere);
            if let (Some(file), Some(exclusive), true) = (&file, open.lock, leads) {
                lock(file, exclusive).during(|| "taking a lock that the process had".into())?;
            }
            out.push(file.map(OwnedFd::from));
        }
        Ok(out)
    }

    /// Makes a file again, as a name.
    fn again(&self, stored: u32, kind: &OpenKind, folder: &mut Option<TempDir>) -> Result<File> {
        let OpenKind::File { path, .. } = kind else {
            return compare::in_memory(&self.received, stored);
        };
        let folder = match folder {
            Some(folder) => folder,
            None => {
                let new = tempfile::Builder::new()
                    .prefix("hindsight-resume-")
                    .tempdir();
                folder.insert(new.during(|| "making a folder for copies".into())?)
            }
        };
        compare::copy(&self.received, stored, folder.path(), path)
    }
}

/// A file at its place.
fn at(file: io::Result<File>, place: Place) -> io::Result<File> {
    let mut file = file?;
    match place {
        Place::At(n) if n > 0 => drop(file.seek(SeekFrom::Start(n))?),
        Place::End => drop(file.seek(SeekFrom::End(0))?),
        _ => {}
    }
    Ok(file)
}

/// Takes a lock that belongs to an open file (`flock`).
fn lock(file: &File, exclusive: bool) -> io::Result<()> {
    let how = if exclusive {
        libc::LOCK_EX
    } else {
        libc::LOCK_SH
    };
    // SAFETY: the call accesses no memory.
    match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
