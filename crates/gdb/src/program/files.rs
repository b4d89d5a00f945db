//! Files that gdb reads through the connection:
//! - the program's files, from the trace;
//! - some files of `/proc`;
//! - separate debug files.
//!
//! gdb shows names from them to its user, so these are escaped.

use hindsight_packets::{Errno, Status};
use hindsight_symbols::DebugPaths;
use hindsight_text::{bytes, line};
use hindsight_timeline::{Position, Timeline};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Open files at a time.
const MAX_FILES: usize = 64;

/// The open files.
#[derive(Default)]
pub struct Files {
    open: Vec<Option<Arc<Vec<u8>>>>,
}

impl Files {
    /// Opens a file of a program image, as it is at a position.
    pub fn open(
        &mut self,
        timeline: &Timeline,
        image: u32,
        at: Position,
        name: &[u8],
    ) -> Result<u32, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NotFound)?;
        let content = content(timeline, image, at, name).ok_or(Errno::NotFound)?;
        let free = self.open.iter().position(Option::is_none);
        let fd = match free {
            Some(i) => i,
            None if self.open.len() < MAX_FILES => {
                self.open.push(None);
                self.open.len() - 1
            }
            None => return Err(Errno::TooManyOpen),
        };
        self.open[fd] = Some(Arc::new(content));
        Ok(fd as u32)
    }

    fn file(&self, fd: u32) -> Result<&Arc<Vec<u8>>, Errno> {
        let file = self.open.get(fd as usize).and_then(Option::as_ref);
        file.ok_or(Errno::BadDescriptor)
    }

    /// What is in a file from `offset` on, at most `len` bytes.
    pub fn read(&self, fd: u32, offset: u64, len: usize) -> Result<&[u8], Errno> {
        let file = self.file(fd)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = &file[from.min(file.len())..];
        Ok(&rest[..rest.len().min(len)])
    }

    pub fn status(&self, fd: u32) -> Result<Status, Errno> {
        Ok(Status {
            inode: fd + 1,
            size: self.file(fd)?.len() as u64,
        })
    }

    pub fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.file(fd)?;
        self.open[fd as usize] = None;
        Ok(())
    }
}

fn content(timeline: &Timeline, image: u32, at: Position, name: &str) -> Option<Vec<u8>> {
    if let Some(rest) = name.strip_prefix("/proc/") {
        let (_, what) = rest.split_once('/')?;
        return proc_file(timeline, image, at, what);
    }
    let modules = timeline.modules(image).ok()?;
    // Programs name files by links too (`/lib64/ld-linux-x86-64.so.2`). The client knows the escaped names.
    let exact = modules.iter().find(|m| line(&m.path) == name);
    let alike = || {
        let file = |p: &str| p.rsplit('/').next().map(str::to_string);
        modules.iter().find(|m| file(&m.path) == file(name))
    };
    if let Some(m) = exact.or_else(alike).filter(|m| m.hash.is_some()) {
        return timeline.module_bytes(m.hash?).ok();
    }
    // The client checks whether it fits. Clients get no other files of this machine.
    DebugPaths::default().read(Path::new(name))
}

/// Where a link of `/proc` points. The recording knows two: the program's file, and the folder in which the first
/// program was started.
pub fn link(timeline: &Timeline, image: u32, name: &[u8]) -> Result<String, Errno> {
    let name = std::str::from_utf8(name).map_err(|_| Errno::NotFound)?;
    let what = name.strip_prefix("/proc/").and_then(|r| r.split_once('/'));
    let first = || {
        let all = timeline.processes().ok()?;
        (all.first()?.image == image)
            .then(|| bytes(timeline.trace().header().cwd.as_bytes()).into_owned())
    };
    let target = match what {
        Some((_, "exe")) => {
            let modules = timeline.modules(image).ok();
            modules.and_then(|m| Some(line(&m.first()?.path).into_owned()))
        }
        Some((_, "cwd")) => first(),
        _ => None,
    };
    target.ok_or(Errno::NotFound)
}

fn proc_file(timeline: &Timeline, image: u32, at: Position, what: &str) -> Option<Vec<u8>> {
    let what = what.rsplit("task/").next().unwrap_or(what);
    let what = what.rsplit('/').next().unwrap_or(what);
    match what {
        "maps" | "smaps" => Some(maps(timeline, image, at)?.into_bytes()),
        "cmdline" => {
            let first = timeline.processes().ok()?.into_iter().next()?;
            let header = timeline.trace().header();
            if first.image == image {
                let mut out = Vec::new();
                for a in &header.argv {
                    out.extend_from_slice(bytes(a.as_bytes()).as_bytes());
                    out.push(0);
                }
                return Some(out);
            }
            let command = timeline.trace().command(image);
            Some(line(&command).replace(' ', "\0").into_bytes())
        }
        _ => None,
    }
}

/// What is mapped, as `/proc/PID/maps` shows it.
pub fn maps(timeline: &Timeline, image: u32, at: Position) -> Option<String> {
    let mut out = String::new();
    for m in timeline.mappings(image, at).ok()? {
        let _ = writeln!(
            out,
            "{:x}-{:x} {} {:08x} 00:00 0 {:>26}",
            m.start,
            m.end,
            m.rights(),
            m.offset,
            line(&m.path)
        );
    }
    Some(out)
}
