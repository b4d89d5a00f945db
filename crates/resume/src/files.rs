//! What the descriptors of the process will lead to on this machine. Files are opened as names first (`O_PATH`). What is shown
//! is where such a name leads, and what is opened later is the same file, whatever its path leads to by then.

mod compare;
mod other;

use crate::received::Received;
use crate::{Error, Result};
use hindsight_inspect::state::{Open, OpenKind};
use hindsight_text::bytes as shown;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// What becomes of files that are not what they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Nothing goes on.
    Same,
    /// The process gets copies with the recorded contents.
    Recorded,
}

/// Flags of `open` that a file gets again.
const FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT;

/// How a descriptor gets what it leads to.
pub enum Way {
    /// It leads to what this process has under this number.
    Inherited(i32),
    /// A file, as a name: opened with these flags, at this place.
    Reopen(OwnedFd, i32, Option<u64>),
    /// It is open.
    Ready(OwnedFd),
    /// It leads nowhere: all calls on it fail with EBADF, and nothing else gets its number.
    Nowhere,
}

/// A process that can be made, and what will be done.
pub struct Prepared {
    pub(crate) received: Received,
    /// For each of what is open.
    pub(crate) ways: Vec<Way>,
    /// The program's file on this machine, if it is the recorded one.
    pub(crate) program: Option<OwnedFd>,
    /// Where the copies of files are.
    pub copies: Option<PathBuf>,
    /// Words of memory that become others.
    pub(crate) raised: Vec<(u64, u64)>,
    /// What each descriptor will lead to, in words.
    pub descriptors: Vec<(Vec<i32>, String)>,
    /// Files that are opened for writing: their paths on this machine.
    pub written: Vec<String>,
    /// What is lost.
    pub lost: Vec<String>,
    /// What is different all the same.
    pub notes: Vec<String>,
}

impl Prepared {
    /// The process.
    pub fn state(&self) -> &hindsight_inspect::ProcessState {
        &self.received.state
    }

    /// The descriptors that lead somewhere, by what they lead to.
    pub fn kept(&self) -> impl Iterator<Item = (&[i32], &str)> {
        let all = self.descriptors.iter().zip(&self.ways);
        let kept = all.filter(|(_, way)| !matches!(way, Way::Nowhere));
        kept.map(|((numbers, text), _)| (numbers.as_slice(), text.as_str()))
    }

    /// Looks for the files of a process. `same` says whether a file has the content of this hash. Copies of files come into a
    /// new folder.
    ///
    /// # Errors
    /// - Memory is not known.
    /// - Files are not what they were, and `choice` does not allow that.
    pub fn new(
        received: Received,
        choice: Choice,
        same: &dyn Fn(&File, &[u8; 16]) -> bool,
    ) -> Result<Prepared> {
        if received.state.threads.len() > 1 {
            return Err(Error::Refused(format!(
                "the process has {} threads at this place, and only one thread can go on so far",
                received.state.threads.len()
            )));
        }
        memory_is_known(&received)?;
        let mut p = Prepared {
            ways: Vec::new(),
            program: None,
            copies: None,
            raised: crate::make::xsave::too_little_room(&received)?,
            descriptors: Vec::new(),
            written: Vec::new(),
            lost: received.state.lost.clone(),
            notes: received.state.notes.clone(),
            received,
        };
        for (at, room) in p.raised.clone() {
            p.notes.push(format!(
                "the dynamic loader's word at {at:#x} becomes {room}: this processor has more registers to save than the program was shown"
            ));
        }
        p.reserved();
        p.program = p.find_program(same);
        let mut refused = Vec::new();
        let mut copies: Vec<Option<PathBuf>> = vec![None; p.received.files.len()];
        let mut pipes = Vec::new();
        for i in 0..p.received.state.open.len() {
            let open = p.received.state.open[i].clone();
            let numbers: Vec<i32> = p
                .received
                .state
                .descriptors
                .iter()
                .filter(|d| d.1 as usize == i)
                .map(|d| d.0)
                .collect();
            let found = match &open.kind {
                OpenKind::File {
                    path,
                    stored,
                    unsure,
                } => p.file(
                    (path, *stored, unsure.as_deref()),
                    &open,
                    choice,
                    &mut copies,
                ),
                OpenKind::Folder { path, read } => p.folder(path, *read),
                OpenKind::Unnamed {
                    what,
                    stored,
                    unsure,
                } => p.unnamed((what, *stored, unsure.as_deref()), &open),
                _ => p.other(i, &open, &mut pipes),
            };
            let (way, text) = match found {
                Ok(found) => found,
                Err(Error::Refused(why)) => {
                    refused.push(why);
                    (Way::Nowhere, String::new())
                }
                Err(e) => return Err(e),
            };
            if matches!(way, Way::Nowhere) {
                let list = numbers
                    .iter()
                    .map(i32::to_string)
                    .collect::<Vec<_>>()
                    .join(", ");
                p.lost.push(format!(
                    "descriptor {list}: {text}. Calls on it fail with EBADF"
                ));
            } else if open.shared && !matches!(open.kind, OpenKind::Standard(_)) {
                p.notes.push(format!(
                    "{text}: other processes had it, too, and are not there"
                ));
            }
            p.descriptors.push((numbers, text));
            p.ways.push(way);
        }
        if !refused.is_empty() {
            let mut all = refused.join("; ");
            if choice == Choice::Same {
                all.push_str(". `--files recorded` gives the process copies with the recorded contents, where these are known");
            }
            return Err(Error::Refused(all));
        }
        Ok(p)
    }

    /// Says what comes back as zero.
    fn reserved(&mut self) {
        let len: u64 = self.received.reserved.iter().map(|r| r.1).sum();
        if let Some((at, _)) = self.received.reserved.first() {
            self.notes.push(format!(
                "{len} bytes of memory that nobody may access (PROT_NONE), the first at {at:#x}, are not known: they are zero"
            ));
        }
        for m in self.received.state.mappings.iter().filter(|m| m.shared) {
            let what = if m.name.is_empty() { "memory" } else { &m.name };
            self.notes.push(format!(
                "{} at {:#x} was shared: it is a copy now, which nobody else sees",
                hindsight_text::line(what),
                m.start
            ));
        }
    }

    /// The program's file, if this machine has it.
    fn find_program(&mut self, same: &dyn Fn(&File, &[u8; 16]) -> bool) -> Option<OwnedFd> {
        let (path, hash) = &self.received.state.program;
        let name = named(path).ok()?;
        let meta = name.metadata().ok()?;
        let harmless = meta.is_file() && meta.mode() & 0o6000 == 0 && meta.mode() & 0o111 != 0;
        let is = harmless
            && hash.is_some_and(|h| reopened(&name, libc::O_RDONLY).is_ok_and(|f| same(&f, &h)));
        if !is {
            self.notes.push(format!(
                "{} is not what it was: /proc/PID/exe leads to hindsight",
                shown(path)
            ));
        }
        is.then(|| name.into())
    }

    /// A file with a path.
    fn file(
        &mut self,
        (path, stored, unsure): (&[u8], u32, Option<&str>),
        open: &Open,
        choice: Choice,
        copies: &mut [Option<PathBuf>],
    ) -> Result<(Way, String)> {
        let flags = open.flags & FLAGS;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let name = match named(path) {
            Ok(n) => Some(n),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Ok((Way::Nowhere, format!("{}: {e}", shown(path)))),
        };
        let meta = name
            .as_ref()
            .map(File::metadata)
            .transpose()
            .map_err(|e| refuse(path, &e))?;
        if let (Some(name), Some(meta)) = (&name, &meta)
            && !meta.is_file()
        {
            return Ok(special(path, name, meta, flags));
        }
        if let Some(name) = &name
            && hindsight_guard::kernel::shows_itself(name).unwrap_or(true)
        {
            return Ok((
                Way::Nowhere,
                format!("{}, a file of the kernel's", shown(path)),
            ));
        }
        if open.place.is_none() && flags & libc::O_APPEND == 0 {
            return Ok((
                Way::Nowhere,
                format!("{}, of which is not known where it stood", shown(path)),
            ));
        }
        if let Some(copy) = &copies[stored as usize] {
            return self.copied(path, copy.clone(), open);
        }
        let differs = match &name {
            None => Some("is not there".to_owned()),
            Some(name) => compare::differs(&self.received, stored, unsure, name)?,
        };
        let Some(why) = differs else {
            let name = name.ok_or_else(|| Error::Refused(shown(path).to_string()))?;
            let real = real(&name).map_err(|e| refuse(path, &e))?;
            let real = shown(real.as_os_str().as_bytes()).to_string();
            let how = if writes { "for writing" } else { "for reading" };
            if writes && !self.written.contains(&real) {
                self.written.push(real.clone());
            }
            let seen = compare::seen(&self.received, stored);
            let text = format!("{real}, {how}{}: {seen}", at(open));
            return Ok((Way::Reopen(name.into(), flags, open.place), text));
        };
        match choice {
            Choice::Same => Err(Error::Refused(format!("{} {why}", shown(path)))),
            Choice::Recorded => {
                let copy = compare::rebuild(
                    &self.received,
                    stored,
                    unsure,
                    name.as_ref(),
                    &mut self.copies,
                    path,
                )?;
                copies[stored as usize] = Some(copy.clone());
                self.copied(path, copy, open)
            }
        }
    }

    fn copied(&mut self, path: &[u8], copy: PathBuf, open: &Open) -> Result<(Way, String)> {
        let name = named(copy.as_os_str().as_bytes()).map_err(|e| refuse(path, &e))?;
        let copy = shown(copy.as_os_str().as_bytes()).to_string();
        let text = format!("{copy}, a copy of {} as it was{}", shown(path), at(open));
        if open.flags & libc::O_ACCMODE != libc::O_RDONLY && !self.written.contains(&copy) {
            self.written.push(copy);
        }
        Ok((
            Way::Reopen(name.into(), open.flags & FLAGS, open.place),
            text,
        ))
    }

    fn folder(&mut self, path: &[u8], read: bool) -> Result<(Way, String)> {
        let text = format!("folder {}", shown(path));
        Ok(match named(path) {
            _ if read => (Way::Nowhere, format!("{text}, which was being read")),
            Ok(name) if name.metadata().is_ok_and(|m| m.is_dir()) => {
                (Way::Reopen(name.into(), libc::O_DIRECTORY, None), text)
            }
            Ok(_) => (Way::Nowhere, format!("{text}, which is none here")),
            Err(e) => (Way::Nowhere, format!("{text}: {e}")),
        })
    }

    /// A file without a name.
    fn unnamed(
        &mut self,
        (what, stored, unsure): (&str, u32, Option<&str>),
        open: &Open,
    ) -> Result<(Way, String)> {
        let what = hindsight_text::line(what).into_owned();
        if open.place.is_none() && open.flags & libc::O_APPEND == 0 {
            return Ok((Way::Nowhere, format!("{what}: where it stood is not known")));
        }
        Ok(match compare::in_memory(&self.received, stored, unsure)? {
            Ok(name) => {
                let text = format!(
                    "{what}: a new file in memory with the same content{}",
                    at(open)
                );
                (
                    Way::Reopen(name.into(), open.flags & FLAGS, open.place),
                    text,
                )
            }
            Err(why) => (Way::Nowhere, format!("{what}: {why}")),
        })
    }
}

fn at(open: &Open) -> String {
    match open.place {
        Some(n) => format!(", at {n}"),
        None => String::new(),
    }
}

fn refuse(path: &[u8], e: &io::Error) -> Error {
    Error::Refused(format!("{}: {e}", shown(path)))
}

/// What is no regular file: some devices are as good as any other of their kind.
fn special(path: &[u8], name: &File, meta: &std::fs::Metadata, flags: i32) -> (Way, String) {
    const DEVICES: [(u32, u32); 6] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];
    let kind = meta.file_type();
    let device = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let what = shown(path).to_string();
    if kind.is_char_device() && DEVICES.contains(&device) {
        return match name.try_clone() {
            Ok(name) => (Way::Reopen(name.into(), flags, None), what),
            Err(e) => (Way::Nowhere, format!("{what}: {e}")),
        };
    }
    if kind.is_dir() {
        return (Way::Nowhere, format!("{what}, which is a folder here"));
    }
    (Way::Nowhere, format!("{what}, a device, pipe or socket"))
}

/// Opens a file as a name: nothing is done to it, and nothing is waited for.
pub fn named(path: &[u8]) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH);
    options.open(OsStr::from_bytes(path))
}

/// Where a name leads, as the kernel tells it.
fn real(name: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", name.as_raw_fd()))
}

/// Opens the same file.
pub fn reopened(name: &impl AsRawFd, flags: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}\0", name.as_raw_fd());
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the path ends with a zero byte; the descriptor belongs to nobody else.
    unsafe {
        match libc::open(path.as_ptr().cast(), flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Fails if the process could read memory that is not known.
fn memory_is_known(r: &Received) -> Result<()> {
    let is_kernels = |at: u64| {
        let i = r.state.mappings.partition_point(|m| m.end <= at);
        r.state.mappings.get(i).is_some_and(|m| m.name == "[vdso]")
    };
    let unknown: Vec<&(u64, u64)> = r.unknown.iter().filter(|u| !is_kernels(u.0)).collect();
    let len: u64 = unknown.iter().map(|u| u.1).sum();
    let Some((at, first)) = unknown.first() else {
        return Ok(());
    };
    let i = r.state.mappings.partition_point(|m| m.end <= *at);
    let of = r.state.mappings.get(i).map_or("", |m| m.name.as_str());
    let of = if of.is_empty() {
        "memory without a name"
    } else {
        of
    };
    Err(Error::Unknown(format!(
        "{len} bytes of memory are not known, in {} stretches, so nothing can go on there. The first: {first} bytes at {at:#x} in {}",
        unknown.len(),
        hindsight_text::line(of)
    )))
}
