//! What the other half has said, checked. It is kept outside of this process's memory where it may be large.

use crate::wire::{self, Frame};
use crate::{During, Error, Result};
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::OpenKind;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

/// The kernel lets no process have more mappings by default.
const MOST_MAPPINGS: usize = 65_530;
/// More threads are not made.
const MOST_THREADS: usize = 4096;
/// Descriptors of higher numbers are not made.
const MOST_DESCRIPTORS: usize = 1 << 20;
/// The most stretches of memory, and of files.
const MOST_STRETCHES: usize = 1 << 22;
/// The most bytes of files' contents.
const MOST_CONTENT: u64 = 1 << 30;
/// The longest path or name.
const LONGEST: usize = 4096;
/// The first address above the memory of programs, and the lowest address that they get.
const TOP: u64 = 0x7fff_ffff_f000;
const BOTTOM: u64 = 0x1_0000;
pub const PAGE: u64 = 4096;

/// A file's content, as far as it is known.
#[derive(Default)]
pub struct Content {
    pub size: Option<u64>,
    /// Stretches, in order: offset, length, and where the bytes are kept.
    pub known: Vec<(u64, u64, u64)>,
    /// Stretches that are not known and have changed since.
    pub lost: Vec<(u64, u64)>,
}

/// A process, as the recording tells it.
pub struct Received {
    /// All but its memory.
    pub state: ProcessState,
    /// Stretches of memory, in order: address, length, and where the bytes are kept.
    pub(crate) memory: Vec<(u64, u64, u64)>,
    /// Memory that is not known: address and length.
    pub(crate) unknown: Vec<(u64, u64)>,
    /// The same where nobody may access it.
    pub(crate) reserved: Vec<(u64, u64)>,
    pub(crate) files: Vec<Content>,
    spool: File,
    end: u64,
}

impl Received {
    /// Receives a process.
    ///
    /// # Errors
    /// - It is none that can be.
    /// - It is too large for this machine.
    pub fn from(stream: impl Read) -> Result<Received> {
        let mut from = std::io::BufReader::with_capacity(1 << 20, stream);
        let mut next = || {
            wire::receive(&mut from).during(|| "the half that reads the recording has ended".into())
        };
        let Frame::State(json) = next()? else {
            return Err(Error::Nonsense("does not begin with its state"));
        };
        let state: ProcessState =
            serde_json::from_slice(&json).map_err(|_| Error::Nonsense("does not decode"))?;
        drop(json);
        check(&state)?;
        let mut r = Received {
            state,
            memory: Vec::new(),
            unknown: Vec::new(),
            reserved: Vec::new(),
            files: Vec::new(),
            spool: unnamed().during(|| "making a file in memory".into())?,
            end: 0,
        };
        let most = available() / 2;
        let mut content = 0;
        loop {
            match next()? {
                Frame::Memory(at, bytes) => r.add_memory(at, &bytes)?,
                Frame::Unknown(at, len, reserved) => {
                    let list = if reserved {
                        &mut r.reserved
                    } else {
                        &mut r.unknown
                    };
                    list.push((at, len));
                    if list.len() > MOST_STRETCHES {
                        return Err(Error::Nonsense("has too many stretches"));
                    }
                }
                Frame::File(n, size) if n as usize == r.files.len() => {
                    r.files.push(Content {
                        size,
                        ..Content::default()
                    });
                    if r.files.len() > MOST_DESCRIPTORS {
                        return Err(Error::Nonsense("has too many files"));
                    }
                }
                Frame::Content(n, at, bytes) => {
                    content += bytes.len() as u64;
                    let kept = r.keep(&bytes)?;
                    let f = r.file(n, content)?;
                    let behind = f.known.last().is_none_or(|l| l.0 + l.1 <= at);
                    if !behind
                        || at.checked_add(bytes.len() as u64).is_none()
                        || f.known.len() > MOST_STRETCHES
                    {
                        return Err(Error::Nonsense("has files that cannot be"));
                    }
                    f.known.push((at, bytes.len() as u64, kept));
                }
                Frame::Lost(n, at, len) => {
                    let f = r.file(n, content)?;
                    f.lost.push((at, len));
                    if f.lost.len() > MOST_STRETCHES {
                        return Err(Error::Nonsense("has files that cannot be"));
                    }
                }
                Frame::End => break,
                _ => return Err(Error::Nonsense("comes out of order")),
            }
            if r.end > most {
                return Err(Error::Refused(format!(
                    "the process has more than {} MiB of memory, which is half of what this machine has left",
                    most >> 20
                )));
            }
        }
        r.check_files()?;
        Ok(r)
    }

    fn add_memory(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let wrong = Err(Error::Nonsense("has memory where nothing is mapped"));
        let Some(end) = at.checked_add(bytes.len() as u64) else {
            return wrong;
        };
        let behind = self.memory.last().is_none_or(|l| l.0 + l.1 <= at);
        let all = &self.state.mappings;
        let i = all.partition_point(|m| m.end <= at);
        let inside = all.get(i).is_some_and(|m| m.start <= at && end <= m.end);
        if bytes.is_empty() || !behind || !inside || self.memory.len() >= MOST_STRETCHES {
            return wrong;
        }
        let kept = self.keep(bytes)?;
        self.memory.push((at, bytes.len() as u64, kept));
        Ok(())
    }

    fn file(&mut self, n: u32, content: u64) -> Result<&mut Content> {
        let last = n as usize + 1 == self.files.len() && content <= MOST_CONTENT;
        match self.files.last_mut().filter(|_| last) {
            Some(f) => Ok(f),
            None => Err(Error::Nonsense("has files that cannot be")),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.end;
        let kept = self.spool.write_all_at(bytes, at);
        kept.during(|| "keeping memory of the process".into())?;
        self.end += bytes.len() as u64;
        Ok(at)
    }

    /// Bytes that were kept.
    pub(crate) fn kept(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; len as usize];
        let read = self.spool.read_exact_at(&mut out, at);
        read.during(|| "reading memory that was kept".into())?;
        Ok(out)
    }

    /// Memory of the process, where all of it is known or zero.
    pub(crate) fn memory_at(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; len as usize];
        let end = at.saturating_add(len);
        let first = self.memory.partition_point(|m| m.0 + m.1 <= at);
        for m in self.memory[first..].iter().take_while(|m| m.0 < end) {
            let (from, to) = (m.0.max(at), (m.0 + m.1).min(end));
            let bytes = self.kept(m.2 + (from - m.0), to - from)?;
            out[(from - at) as usize..(to - at) as usize].copy_from_slice(&bytes);
        }
        Ok(out)
    }

    fn check_files(&self) -> Result<()> {
        let count = self.files.len();
        let exists = |n: &u32| (*n as usize) < count;
        let all = self.state.open.iter().all(|o| match &o.kind {
            OpenKind::File { stored, .. } | OpenKind::Unnamed { stored, .. } => exists(stored),
            _ => true,
        });
        match all {
            true => Ok(()),
            false => Err(Error::Nonsense("has files that are not told")),
        }
    }
}

/// A file in memory.
fn unnamed() -> std::io::Result<File> {
    // SAFETY: the name is a text that ends with a zero byte; the descriptor belongs to nobody else.
    unsafe {
        match libc::memfd_create(c"hindsight-resume".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Bytes of memory that this machine has left.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(1 << 30, |k| k << 10)
}

/// Whether a process may be as it is told.
fn check(s: &ProcessState) -> Result<()> {
    let fail = |what| Err(Error::Nonsense(what));
    if s.threads.is_empty() || s.threads.len() > MOST_THREADS {
        return fail("has no threads, or too many");
    }
    for t in &s.threads {
        let whole = t.registers.len() == 20
            && t.zmm.len() == 2048
            && t.masks.len() == 8
            && t.x87.len() == 128;
        if !whole || t.name.len() > LONGEST {
            return fail("has threads that cannot be");
        }
    }
    if s.mappings.is_empty() || s.mappings.len() > MOST_MAPPINGS {
        return fail("has no mappings, or too many");
    }
    let mut end = BOTTOM;
    for m in &s.mappings {
        let placed = m.start >= end && m.start < m.end && m.end <= TOP || m.name == "[vsyscall]";
        let whole = m.start.is_multiple_of(PAGE) && m.end.is_multiple_of(PAGE) && m.prot <= 7;
        if !placed || !whole || m.name.len() > LONGEST {
            return fail("has mappings that cannot be");
        }
        end = m.end;
    }
    if s.actions.iter().any(|a| !(1..=64).contains(&a.signal)) {
        return fail("has signals that do not exist");
    }
    if s.open.len() > MOST_DESCRIPTORS || s.descriptors.len() > MOST_DESCRIPTORS {
        return fail("has too many descriptors");
    }
    let mut last = -1;
    for (fd, open, _) in &s.descriptors {
        if *fd <= last || *fd as usize >= MOST_DESCRIPTORS || *open as usize >= s.open.len() {
            return fail("has descriptors that cannot be");
        }
        last = *fd;
    }
    let long = |p: &[u8]| p.len() > LONGEST || p.contains(&0);
    for o in &s.open {
        let wrong = match &o.kind {
            OpenKind::File { path, .. } | OpenKind::Folder { path, .. } => long(path),
            OpenKind::Epoll(all) => all.iter().any(|i| {
                let found = s.descriptors.binary_search_by_key(&i.fd, |d| d.0);
                found.is_err()
            }),
            OpenKind::Standard(n) => !(0..3).contains(n),
            OpenKind::Pipe { waiting, .. } => waiting.as_ref().is_some_and(|w| w.len() > 1 << 20),
            _ => false,
        };
        if wrong {
            return fail("has descriptors that cannot be");
        }
    }
    let texts = s.folder.as_deref().is_some_and(long) || long(&s.program.0);
    let heap = s.heap.is_some_and(|(a, b)| a > b || b > TOP);
    if texts || heap || s.auxiliary.len() > 4096 || s.umask.is_some_and(|m| m > 0o777) {
        return fail("does not fit together");
    }
    Ok(())
}
