//! What the other half has said, checked. It is kept outside of this process's memory where it may be large.

mod check;

use crate::wire::{self, Frame};
use crate::{During, Error, Result, room};
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::Why;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

/// The most stretches of memory and of files, all together.
const MOST_STRETCHES: usize = 1 << 22;
/// The most bytes of files' contents.
const MOST_CONTENT: u64 = 1 << 30;
pub const PAGE: u64 = 4096;
pub use check::TOP;

/// A file's content, as far as it is known.
#[derive(Default)]
pub struct Content {
    pub size: Option<u64>,
    /// Stretches, in order: offset, length, and where the bytes are kept.
    pub known: Vec<(u64, u64, u64)>,
}

impl Content {
    /// How many of the first bytes are not known.
    pub fn unseen(&self, size: u64) -> u64 {
        let seen = |k: &(u64, u64, u64)| (k.0 + k.1).min(size).saturating_sub(k.0);
        size - self.known.iter().map(seen).sum::<u64>().min(size)
    }
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
    /// How many bytes are not known on which no program can rely.
    pub(crate) left: u64,
    pub(crate) files: Vec<Content>,
    spool: File,
    end: u64,
    /// Stretches so far.
    count: usize,
    /// Bytes of files' contents so far.
    content: u64,
}

impl Received {
    /// Receives a process. `may_begin` is asked before its memory comes, which may take long.
    ///
    /// # Errors
    /// - `may_begin` fails.
    /// - It is none that can be.
    /// - It is too large for this machine.
    /// - The other half has ended before it had said all ([`Error::Gone`]).
    pub fn from(
        stream: impl Read,
        may_begin: impl FnOnce(&ProcessState) -> Result<()>,
    ) -> Result<Received> {
        // What is kept here is there a second time in the process, and others want memory too.
        Received::within(stream, room::available() / 4, may_begin)
    }

    /// The same with at most so many bytes of memory and files.
    fn within(
        stream: impl Read,
        most: u64,
        may_begin: impl FnOnce(&ProcessState) -> Result<()>,
    ) -> Result<Received> {
        let mut from = std::io::BufReader::with_capacity(1 << 20, stream);
        let mut next = || {
            wire::receive(&mut from).map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => Error::Nonsense("does not decode"),
                _ => Error::Gone(e),
            })
        };
        let Frame::State(json) = next()? else {
            return Err(Error::Nonsense("does not begin with its state"));
        };
        let state: ProcessState =
            serde_json::from_slice(&json).map_err(|_| Error::Nonsense("does not decode"))?;
        drop(json);
        check::state(&state)?;
        may_begin(&state)?;
        let mut r = Received {
            state,
            memory: Vec::new(),
            unknown: Vec::new(),
            reserved: Vec::new(),
            left: 0,
            files: Vec::new(),
            spool: unnamed().during(|| "making a file in memory".into())?,
            end: 0,
            count: 0,
            content: 0,
        };
        loop {
            let frame = next()?;
            r.count += 1;
            if r.count > MOST_STRETCHES {
                return Err(Error::Nonsense("has too many stretches"));
            }
            match frame {
                Frame::Memory(at, bytes) => r.add_memory(at, &bytes)?,
                Frame::Unknown(at, len, why) => r.add_unknown(at, len, why)?,
                Frame::File(n, size) if n as usize == r.files.len() => {
                    r.files.push(Content {
                        size,
                        ..Content::default()
                    });
                    if r.files.len() > r.state.open.len() {
                        return Err(Error::Nonsense("has too many files"));
                    }
                }
                Frame::Content(n, at, bytes) => r.add_content(n, at, &bytes)?,
                Frame::End => break,
                _ => return Err(Error::Nonsense("comes out of order")),
            }
            if r.end > most {
                return Err(Error::Refused(format!(
                    "the process has more than {} MiB of memory, which is a quarter of what this machine has left",
                    most >> 20
                )));
            }
        }
        check::files(&r.state, r.files.len())?;
        Ok(r)
    }

    /// When the recording began, in nanoseconds since 1970.
    pub(crate) fn began(&self) -> i64 {
        let ms = i64::try_from(self.state.began_ms).unwrap_or(0);
        ms.saturating_mul(1_000_000)
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
        if bytes.is_empty() || !behind || !inside {
            return wrong;
        }
        let kept = self.keep(bytes)?;
        self.memory.push((at, bytes.len() as u64, kept));
        Ok(())
    }

    /// Whether nobody may access it, its mapping must say too.
    fn add_unknown(&mut self, at: u64, len: u64, why: Why) -> Result<()> {
        let all = &self.state.mappings;
        let i = all.partition_point(|m| m.end <= at);
        let of = all.get(i).filter(|m| m.start <= at);
        if len == 0 || len > TOP || of.is_none_or(|m| (m.prot == 0) != (why == Why::Reserved)) {
            return Err(Error::Nonsense("has memory where nothing is mapped"));
        }
        match why {
            Why::Needed => self.unknown.push((at, len)),
            Why::Reserved => self.reserved.push((at, len)),
            Why::Left => self.left = self.left.saturating_add(len),
        }
        Ok(())
    }

    fn add_content(&mut self, n: u32, at: u64, bytes: &[u8]) -> Result<()> {
        let wrong = Err(Error::Nonsense("has files that cannot be"));
        let len = bytes.len() as u64;
        self.content += len;
        let is_last = n as usize + 1 == self.files.len();
        if bytes.is_empty()
            || !is_last
            || self.content > MOST_CONTENT
            || at.checked_add(len).is_none()
        {
            return wrong;
        }
        let kept = self.keep(bytes)?;
        let Some(f) = self.files.last_mut() else {
            return wrong;
        };
        if f.known.last().is_some_and(|l| l.0 + l.1 > at) {
            return wrong;
        }
        f.known.push((at, len, kept));
        Ok(())
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

#[cfg(test)]
mod tests;
