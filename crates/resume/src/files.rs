//! What the descriptors of the process will lead to on this machine. Files are opened as names first (`O_PATH`). What is shown
//! is where such a name leads, and what is opened later is the same file, whatever its path leads to by then.

pub(crate) mod compare;
pub(crate) mod mapped;
mod other;
mod words;

use crate::received::Received;
use crate::{Error, Result};
use compare::Comparison;
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::{Open, OpenKind, Stat, plain};
use hindsight_text::bytes as shown;
use mapped::Again;
use other::Pipes;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
pub use words::may_begin;

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
/// More files are not opened for writing: the list of them must be read.
const MOST_WRITTEN: usize = 40;

/// Where in a file the next bytes are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    At(u64),
    End,
    /// It has none.
    Without,
}

/// How a descriptor gets what it leads to.
pub enum Way {
    /// It leads to what this process has under this number.
    Inherited(i32),
    /// A file, as a name: opened with these flags, at this place.
    Reopen(OwnedFd, i32, Place),
    /// A copy of a file with the recorded content, which has yet to be made.
    Copy(u32, i32, Place),
    /// The same as a file in memory, without a name.
    Memory(u32, i32, Place),
    /// It is open.
    Ready(OwnedFd),
    /// It leads nowhere: nothing can be read from it or written to it, and nothing else gets its number.
    Nowhere,
}

/// A process that can be made, and what will be done.
pub struct Prepared {
    pub(crate) received: Received,
    /// For each of what is open.
    pub(crate) ways: Vec<Way>,
    /// The program's file on this machine, if it is the recorded one.
    pub(crate) program: Option<OwnedFd>,
    /// Files that are mapped again.
    pub(crate) again: Again,
    /// The working directory, as a name, and where that leads.
    pub(crate) folder: OwnedFd,
    /// Where the working directory is on this machine.
    pub working: String,
    /// What each descriptor will lead to, in words.
    pub descriptors: Vec<(Vec<i32>, String)>,
    /// Files that are opened for writing: their paths on this machine, or of what they are copies. Copies come first.
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

    /// Looks for the files of a process. `same` says whether a file has the content of this hash. Nothing is made but pipes and
    /// the like.
    ///
    /// # Errors
    /// - Memory is not known, or something else without which the process would go on wrongly.
    /// - Files are not what they were, and `choice` does not allow that.
    pub fn new(
        received: Received,
        choice: Choice,
        same: &dyn Fn(&File, &[u8; 16]) -> bool,
    ) -> Result<Prepared> {
        let again = Again::new(&received)?;
        words::may_go_on(&received, &again)?;
        let (folder, working) = working(&received)?;
        let mut p = Prepared {
            ways: Vec::new(),
            program: None,
            again,
            folder,
            working,
            descriptors: Vec::new(),
            written: Vec::new(),
            lost: received.state.lost.iter().map(|l| escaped(l)).collect(),
            notes: received.state.notes.iter().map(|n| escaped(n)).collect(),
            received,
        };
        if p.received.left > 0 {
            p.notes.push(format!(
                "{} bytes on stacks are not known, and are zero: they lie below a stack's end, or a thread that has ended has left them",
                p.received.left
            ));
        }
        p.say_of_process();
        p.program = p.find_program(same);
        p.find_all(choice)?;
        if p.ways.iter().any(|w| matches!(w, Way::Copy(..))) {
            p.notes.push("copies stand for files that are open. What the program opens by its path from here on is of this machine, also what belongs to these files (a database's journal). What others that are not recorded have written to these files since the program last looked is not in the copies".into());
        }
        if p.written.len() > MOST_WRITTEN {
            return Err(Error::Refused(format!(
                "the process has {} files open for writing, more than anybody reads in a list",
                p.written.len()
            )));
        }
        p.mapped_and_written()?;
        Ok(p)
    }

    fn find_all(&mut self, choice: Choice) -> Result<()> {
        let state = &self.received.state;
        let mut numbers: Vec<Vec<i32>> = vec![Vec::new(); state.open.len()];
        for (fd, open, _) in &state.descriptors {
            numbers[*open as usize].push(*fd);
        }
        let mut refused = Vec::new();
        let mut pipes = Pipes::new(&self.received.state);
        for (i, numbers) in numbers.into_iter().enumerate() {
            let open = self.received.state.open[i].clone();
            let found = match &open.kind {
                OpenKind::File {
                    path,
                    stored,
                    stat,
                    unsure,
                } => self.file((path, *stored, *stat, unsure.as_deref()), &open, choice),
                OpenKind::Folder { path, stat } => Ok(folder(&self.received.state, path, *stat)),
                OpenKind::Unnamed {
                    what,
                    stored,
                    unsure,
                } => Ok(self.unnamed((what, *stored, unsure.as_deref()), &open)),
                _ => self.other(&open, &mut pipes),
            };
            let (way, text) = match found {
                Ok(found) => found,
                Err(Error::Refused(why)) => {
                    refused.push(why);
                    (Way::Nowhere, String::new())
                }
                Err(e) => return Err(e),
            };
            let list = numbers.iter().map(i32::to_string).collect::<Vec<_>>();
            if matches!(way, Way::Inherited(_)) && open.lock.is_some() {
                self.lost.push(format!(
                    "of descriptor {}: a lock of `flock` that it had: it has none now",
                    list.join(", ")
                ));
            }
            if matches!(way, Way::Nowhere) {
                self.lost.push(format!(
                    "descriptor {}: {text}. Nothing can be read from it or written to it (EBADF)",
                    list.join(", ")
                ));
            } else if open.shared && !matches!(open.kind, OpenKind::Standard(_)) {
                self.notes.push(format!(
                    "{text}: other processes had it, too, and are not there"
                ));
            }
            self.descriptors.push((numbers, text));
            self.ways.push(way);
        }
        if refused.is_empty() {
            return Ok(());
        }
        let mut all = refused.join("; ");
        if choice == Choice::Same {
            all.push_str(". `--files recorded` gives the process copies with the recorded contents, where all of these are known");
        }
        Err(Error::Refused(all))
    }

    /// The program's file, if this machine has it.
    fn find_program(&mut self, same: &dyn Fn(&File, &[u8; 16]) -> bool) -> Option<OwnedFd> {
        let (path, hash) = &self.received.state.program;
        let found = named(path).ok().filter(|name| {
            let harmless = name
                .metadata()
                .is_ok_and(|m| m.is_file() && m.mode() & 0o6000 == 0 && m.mode() & 0o111 != 0);
            let opened = || reopened(name, libc::O_RDONLY);
            harmless && hash.is_some_and(|h| opened().is_ok_and(|f| same(&f, &h)))
        });
        if found.is_none() {
            self.notes.push(format!(
                "{} is not what it was: /proc/PID/exe leads to hindsight",
                shown(path)
            ));
        }
        found.map(OwnedFd::from)
    }

    /// A file with a path.
    fn file(
        &mut self,
        (path, stored, stat, unsure): (&[u8], u32, Option<Stat>, Option<&str>),
        open: &Open,
        choice: Choice,
    ) -> Result<(Way, String)> {
        let flags = open.flags & FLAGS;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // What these lead to depends on who asks.
        let others: [&[u8]; 3] = [b"/proc/", b"/dev/fd", b"/dev/std"];
        let plain = plain(path);
        if others.iter().any(|o| plain.starts_with(o)) {
            return Ok((
                Way::Nowhere,
                format!("{}, which is another file for each process", shown(path)),
            ));
        }
        let name = match named(path) {
            Ok(n) => Some(n),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Ok((Way::Nowhere, format!("{}: {e}", shown(path)))),
        };
        if let Some(name) = &name {
            let meta = name.metadata().map_err(|e| refuse(path, &e))?;
            let is_folder = path.ends_with(b"/.") || path.ends_with(b"/..");
            if meta.is_dir() && is_folder && !writes {
                return Ok(folder(&self.received.state, path, stat));
            }
            if !meta.is_file() {
                return Ok(special(path, name, &meta, flags));
            }
            // A link may lead to what this command has open.
            let has_name = name.metadata().is_ok_and(|m| m.nlink() > 0);
            if !has_name || hindsight_guard::kernel::shows_itself(name).unwrap_or(true) {
                return Ok((
                    Way::Nowhere,
                    format!("{}, a file of the kernel's, or without a name", shown(path)),
                ));
            }
        }
        let Some(place) = place(open, flags) else {
            let text = format!("{}, of which is not known where it stood", shown(path));
            return Ok((Way::Nowhere, text));
        };
        let compared = match &name {
            None => Comparison::Differs("is not there".to_owned()),
            Some(name) => compare::compare(&self.received, (stored, stat, unsure), writes, name)?,
        };
        let at = at(place);
        match (compared, name) {
            (Comparison::Same(how), Some(name)) => {
                let real = real(&name).map_err(|e| refuse(path, &e))?;
                let kind = if writes { "for writing" } else { "for reading" };
                if writes && !self.written.contains(&real) {
                    self.written.push(real.clone());
                }
                let text = format!("{real}, {kind}{at}: {how}");
                Ok((Way::Reopen(name.into(), flags, place), text))
            }
            (Comparison::Differs(why), _) if choice == Choice::Same => {
                Err(Error::Refused(format!("{} {why}", shown(path))))
            }
            _ => {
                if let Err(why) = compare::is_whole(&self.received, stored, unsure) {
                    let path = shown(path);
                    let why = format!("{path} cannot be made again: {why}");
                    return Err(Error::Refused(why));
                }
                let text = format!(
                    "a copy of {} as the program last saw it, in a new folder",
                    shown(path)
                );
                if writes && !self.written.contains(&text) {
                    // What is no copy matters more, and is read last.
                    self.written.insert(0, text.clone());
                }
                if open.lock.is_some() {
                    self.notes
                        .push(format!("{text}: its lock (`flock`) excludes nobody"));
                }
                Ok((Way::Copy(stored, flags, place), format!("{text}{at}")))
            }
        }
    }

    /// A file without a name.
    fn unnamed(
        &self,
        (what, stored, unsure): (&str, u32, Option<&str>),
        open: &Open,
    ) -> (Way, String) {
        let what = escaped(what);
        let flags = open.flags & FLAGS;
        let Some(place) = place(open, flags) else {
            return (Way::Nowhere, format!("{what}: where it stood is not known"));
        };
        match compare::is_whole(&self.received, stored, unsure) {
            Ok(_) => {
                let text = format!(
                    "{what}: a new file in memory with the same content{}",
                    at(place)
                );
                (Way::Memory(stored, flags, place), text)
            }
            Err(why) => (Way::Nowhere, format!("{what}: {why}")),
        }
    }
}

/// The working directory, as a name, and where that leads.
fn working(r: &Received) -> Result<(OwnedFd, String)> {
    let Some(path) = &r.state.folder else {
        return Err(Error::Refused("the working directory is not known".into()));
    };
    let name = named(path).map_err(|e| refuse(path, &e))?;
    if !name.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Error::Refused(format!(
            "{} is no folder here, and was the working directory",
            shown(path)
        )));
    }
    let moved = may_be_moved(&r.state, path, &name).map_err(|e| refuse(path, &e))?;
    let real = real(&name).map_err(|e| refuse(path, &e))?;
    if moved {
        return Err(Error::Refused(format!(
            "{} leads to {real}, or to one above it, which may have been renamed or deleted, and was the working directory",
            shown(path)
        )));
    }
    Ok((name.into(), real))
}

/// Whether the folder to which a path leads may have got another name, or was another one, when the process was there.
fn may_be_moved(s: &ProcessState, path: &[u8], name: &File) -> io::Result<bool> {
    let real = std::fs::read_link(format!("/proc/self/fd/{}", name.as_raw_fd()))?;
    let real = real.as_os_str().as_bytes();
    let Some(renamed) = &s.renamed else {
        return Ok(real != path);
    };
    let mut parts = [real, path]
        .into_iter()
        .flat_map(|p| p.split(|b| *b == b'/'));
    Ok(parts.any(|part| renamed.binary_search_by(|n| n.as_slice().cmp(part)).is_ok()))
}

fn folder(s: &ProcessState, path: &[u8], stat: Option<Stat>) -> (Way, String) {
    let nowhere = |why: String| (Way::Nowhere, format!("folder {}{why}", shown(path)));
    let name = match named(path) {
        Ok(name) => name,
        Err(e) => return nowhere(format!(": {e}")),
    };
    let Some(meta) = name.metadata().ok().filter(|m| m.is_dir()) else {
        return nowhere(", which is none here".into());
    };
    if stat.is_some_and(|s| (s.device, s.inode) != (meta.dev(), meta.ino())) {
        return nowhere(", which is another folder now".into());
    }
    if hindsight_guard::kernel::shows_itself(&name).unwrap_or(true) {
        return nowhere(", a folder of the kernel's".into());
    }
    if stat.is_none() && may_be_moved(s, path, &name).unwrap_or(true) {
        return nowhere(", which may have been renamed or deleted".into());
    }
    match real(&name) {
        Ok(real) => {
            let way = Way::Reopen(name.into(), libc::O_DIRECTORY, Place::Without);
            let how = match stat {
                Some(_) => "the same",
                None => "what has this path now, since the program did not ask which one it was",
            };
            (way, format!("folder {real}: {how}"))
        }
        Err(e) => nowhere(format!(": {e}")),
    }
}

/// Where the process stood. `None`: that is not known.
fn place(open: &Open, flags: i32) -> Option<Place> {
    // What is only ever written at the end stands there once something was written.
    let appends = flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY;
    open.place.map(Place::At).or(appends.then_some(Place::End))
}

fn at(place: Place) -> String {
    match place {
        Place::At(n) => format!(", at {n}"),
        Place::End => ", at its end".into(),
        Place::Without => String::new(),
    }
}

fn escaped(text: &str) -> String {
    hindsight_text::line(text).into_owned()
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
        return match (name.try_clone(), real(name)) {
            (Ok(name), Ok(real)) => (Way::Reopen(name.into(), flags, Place::Without), real),
            (Err(e), _) | (_, Err(e)) => (Way::Nowhere, format!("{what}: {e}")),
        };
    }
    if kind.is_dir() {
        return (Way::Nowhere, format!("{what}, which is a folder here"));
    }
    (Way::Nowhere, format!("{what}, a device, pipe or socket"))
}

/// Opens a file as a name: nothing is done to it, and nothing is waited for.
pub fn named(path: &[u8]) -> io::Result<File> {
    if !path.starts_with(b"/") {
        return Err(io::Error::other("its folder is not known"));
    }
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH);
    options.open(OsStr::from_bytes(path))
}

/// Where a name leads, as the kernel tells it.
fn real(name: &File) -> io::Result<String> {
    let path: PathBuf = std::fs::read_link(format!("/proc/self/fd/{}", name.as_raw_fd()))?;
    Ok(shown(path.as_os_str().as_bytes()).into_owned())
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
