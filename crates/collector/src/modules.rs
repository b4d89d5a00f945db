//! The files of a recording. Each is stored once. Code and memory that holds the same as a file is
//! not stored again.

use crate::handed::{Handed, Inbox};
use crate::output::Output;
use hindsight_events::Event;
use hindsight_trace::chunk::MAX_MODULE;
use hindsight_trace::files::{self, State};
use hindsight_trace::{ModuleHash, Text};
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

/// Bytes of a page.
const PAGE: usize = 4096;

/// The most paths and states of files that are remembered. When there are more, all are forgotten.
const MOST_PATHS: usize = 1 << 16;

/// The most pages of files by which code is recognised.
const MOST_PAGES: usize = 4 << 20;

/// Bytes of the longest path that the kernel takes.
const MOST_PATH: usize = 4096;
/// Nanoseconds. If a file's last change is less old, it counts as young.
const YOUNG: u64 = 2_000_000_000;

/// The modules that are in the trace.
#[derive(Default)]
pub struct Modules {
    /// For each path: which file was there, and its number. `None`: it cannot be read.
    paths: HashMap<Vec<u8>, Option<(State, u32)>>,
    /// Numbers of files that were in memory, by device, inode, size and time of the last change.
    /// When such a file is named again, its path may be another file's.
    states: HashMap<[u64; 4], u32>,
    handed: Handed,
    hashes: HashSet<ModuleHash>,
    /// Module and offset of each page, by the hash of its content.
    pages: HashMap<ModuleHash, (u32, u64)>,
    count: u32,
}

impl Modules {
    /// Takes a file into the trace. Fails only if the trace cannot be written.
    pub fn add<W: Write>(&mut self, out: &mut Output<W>, path: &[u8]) -> io::Result<()> {
        match self.paths.contains_key(path) || path.len() > MOST_PATH {
            true => Ok(()),
            false => self.take(out, path),
        }
    }

    fn take<W: Write>(&mut self, out: &mut Output<W>, path: &[u8]) -> io::Result<()> {
        // It is no error if a file is gone or cannot be read. The streams have the code that ran.
        // Only names for it are missing.
        let found = match open(path) {
            Some((file, state)) => self.take_opened(out, path, &file, state)?,
            None => None,
        };
        self.remember(path, found);
        Ok(())
    }

    fn remember(&mut self, path: &[u8], found: Option<(State, u32)>) {
        if self.paths.len() >= MOST_PATHS {
            self.paths.clear();
        }
        self.paths.insert(path.to_vec(), found);
    }

    fn take_opened<W: Write>(
        &mut self,
        out: &mut Output<W>,
        path: &[u8],
        file: &File,
        before: State,
    ) -> io::Result<Option<(State, u32)>> {
        let text = || Text::from(path);
        let is_told = tells_changes(file);
        let known = match is_told {
            true => out.known_module(text(), &before)?,
            false => None,
        };
        let (state, hash, pages) = match known {
            Some((hash, pages)) => (before, hash, pages),
            None => {
                let Some((state, content)) = read(file, before) else {
                    return Ok(None);
                };
                let hash = out.module(text(), &content)?;
                if is_told {
                    out.note_module(&state, hash);
                }
                let new = !self.hashes.contains(&hash);
                (
                    state,
                    hash,
                    if new {
                        files::pages(&content)
                    } else {
                        Vec::new()
                    },
                )
            }
        };
        if self.hashes.insert(hash) {
            self.index(pages);
        }
        self.count += 1;
        Ok(Some((state, self.count - 1)))
    }

    /// A file that was handed over, by device and inode.
    pub fn handed(&mut self, inbox: Option<&Inbox>, id: [u64; 2]) -> Option<File> {
        self.handed.take(inbox, &[id[0], id[1], 0, 0])
    }

    /// The event that stands for a file in memory. `None` if the file is not what it was any more.
    pub fn file<W: Write>(
        &mut self,
        out: &mut Output<W>,
        inbox: Option<&Inbox>,
        event: &Event,
    ) -> io::Result<Option<Event<'static>>> {
        let Event::File {
            addr,
            len,
            offset,
            device,
            inode,
            size,
            modified,
            path,
        } = *event
        else {
            return Ok(None);
        };
        let wanted = [device, inode, size, modified];
        let mut found = self.states.get(&wanted).copied();
        if found.is_some() && !is_young(modified) {
            self.handed.forget(&wanted);
        } else if let Some(file) = self.handed.take(inbox, &wanted) {
            found = self.adopt(out, path, wanted, &file)?;
        } else if found.is_none() {
            found = self.named(out, path, &wanted)?;
        }
        if let Some(module) = found {
            if self.states.len() >= MOST_PATHS {
                self.states.clear();
            }
            self.states.insert(wanted, module);
        }
        Ok(found.map(|module| Event::FileOf {
            addr,
            len,
            module,
            offset,
        }))
    }

    /// The number of a file that a process has handed over.
    fn adopt<W: Write>(
        &mut self,
        out: &mut Output<W>,
        path: &[u8],
        wanted: [u64; 4],
        file: &File,
    ) -> io::Result<Option<u32>> {
        let Ok(m) = file.metadata() else {
            return Ok(None);
        };
        let state = state(&m);
        if let (false, Some(Some((s, number)))) = (is_young(wanted[3]), self.paths.get(path))
            && *s == state
        {
            return Ok(Some(*number));
        }
        let found = match identity(&state) == wanted && state.size <= MAX_MODULE {
            true => self.take_opened(out, path, file, state)?,
            false => None,
        };
        self.remember(path, found);
        Ok(found.map(|(_, number)| number))
    }

    /// The number of the file that the path leads to, if it is the one that is wanted.
    fn named<W: Write>(
        &mut self,
        out: &mut Output<W>,
        path: &[u8],
        wanted: &[u64; 4],
    ) -> io::Result<Option<u32>> {
        let known = |m: &Modules| match m.paths.get(path) {
            Some(Some((s, number))) if identity(s) == *wanted => Some(*number),
            _ => None,
        };
        // A file that is not the one that was in memory need not be read.
        let is_wanted = |s: State| identity(&s) == *wanted;
        if known(self).is_none() && open(path).is_some_and(|(_, s)| is_wanted(s)) {
            self.take(out, path)?;
        }
        Ok(known(self))
    }

    /// Takes what processes have handed over, to make room for more.
    pub fn receive(&mut self, inbox: &Inbox) {
        self.handed.receive(inbox);
    }

    fn index(&mut self, pages: Vec<ModuleHash>) {
        for (i, page) in pages.into_iter().enumerate() {
            if self.pages.len() >= MOST_PAGES {
                return;
            }
            if let Entry::Vacant(e) = self.pages.entry(page) {
                e.insert((self.count, (i * PAGE) as u64));
            }
        }
    }

    /// The event that stands for `event`, if that is code which a module holds.
    pub fn stand_in(&self, event: &Event) -> Option<Event<'static>> {
        let Event::Code { epoch, addr, bytes } = *event else {
            return None;
        };
        if bytes.len() != PAGE {
            return None;
        }
        let (module, offset) = *self.pages.get(&ModuleHash::of(bytes))?;
        Some(Event::CodeOf {
            epoch,
            addr,
            len: PAGE as u32,
            module,
            offset,
        })
    }
}

/// Which file it is, and in which state: device, inode, size, and time of the last change.
fn identity(s: &State) -> [u64; 4] {
    [s.device, s.inode, s.size, s.modified]
}

/// Whether a file that was changed at this time may be another one now. It may have been changed
/// again within the same tick of the file system's clock, or removed and replaced.
fn is_young(modified: u64) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let age = (now.unwrap_or_default().as_nanos() as u64).saturating_sub(modified);
    age < YOUNG
}

/// Opens a file whose content can be taken.
fn open(path: &[u8]) -> Option<(File, State)> {
    let path = std::ffi::OsStr::from_bytes(path);
    // Not devices and pipes: opening them may have effects.
    let m = std::fs::metadata(path).ok()?;
    if !m.is_file() || m.len() > MAX_MODULE {
        return None;
    }
    let file = File::open(path).ok()?;
    let state = state(&file.metadata().ok()?);
    Some((file, state))
}

/// The file's content, unless it changes meanwhile.
fn read(file: &File, before: State) -> Option<(State, Vec<u8>)> {
    // Reads at offsets, since others may have the descriptor, too, and move its position.
    let mut content = vec![0; before.size.min(MAX_MODULE) as usize];
    file.read_exact_at(&mut content, 0).ok()?;
    let after = state(&file.metadata().ok()?);
    let same = State {
        changed: before.changed,
        ..after
    } == before;
    (same && content.len() as u64 == after.size).then_some((after, content))
}

fn state(m: &Metadata) -> State {
    let time = |seconds: i64, rest: i64| {
        (seconds as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(rest as u64)
    };
    State {
        device: m.dev(),
        inode: m.ino(),
        size: m.size(),
        modified: time(m.mtime(), m.mtime_nsec()),
        changed: time(m.ctime(), m.ctime_nsec()),
    }
}

/// Whether each change of a file's content shows in the time of its last change. On a server, or
/// where a program is the file system, it may not. For a file in memory it does not, where the file
/// is mapped.
fn tells_changes(file: &File) -> bool {
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    const OVERLAY: i64 = 0x794c_7630;
    const SQUASHFS: i64 = 0x7371_7368;
    const EROFS: i64 = 0xe0f5_e1e2;
    let mut s = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call fills the structure if it succeeds, and it is read only then.
    let kind = unsafe {
        match libc::fstatfs(file.as_raw_fd(), s.as_mut_ptr()) {
            0 => s.assume_init().f_type,
            _ => return false,
        }
    };
    [EXT, XFS, BTRFS, F2FS, OVERLAY, SQUASHFS, EROFS].contains(&kind)
}
