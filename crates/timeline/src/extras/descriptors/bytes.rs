//! The bytes that a call moved.

use super::effects::{Parts, Way};
use super::{number, recorded};
use crate::extras::system::Seen;
use crate::{Cursor, OpenFile, Position, Result, ThreadId};

/// This many bytes are looked up at a time. An answer takes a hundred times as much memory.
const AT_A_TIME: u64 = 1 << 16;
/// The most buffers of a list (`IOV_MAX`).
const MOST_BUFFERS: u64 = 1024;
/// The size of an entry of a list of buffers.
const ENTRY: u64 = 16;

/// Bytes that a call moved through a descriptor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Transfer {
    /// The instant before the call.
    pub position: Position,
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The number of instructions that the thread had completed.
    pub count: u64,
    /// The thread's process id.
    pub pid: i32,
    /// The call's number.
    pub number: u64,
    /// The descriptor. -1: the call has none.
    pub fd: i32,
    /// What the descriptor leads to.
    pub file: OpenFile,
    /// Whether they were read or written.
    pub way: Way,
    /// Where in the file they are. `None`: that is not known, or it is no file.
    pub offset: Option<u64>,
    /// How many bytes it were.
    pub len: u64,
    /// Where they are in memory. `None`: they never were there, because the kernel moved them from another descriptor.
    pub(super) parts: Option<Parts>,
}

/// The bytes of a transfer, by which they can be found later.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    thread: ThreadId,
    count: u64,
    way: Way,
    len: u64,
    parts: Option<Parts>,
}

impl Transfer {
    /// Whether the bytes were in the program's memory.
    pub fn is_in_memory(&self) -> bool {
        self.parts.is_some()
    }

    /// What finds the bytes.
    pub fn content(&self) -> Content {
        Content {
            thread: self.thread,
            count: self.count,
            way: self.way,
            len: self.len,
            parts: self.parts,
        }
    }

    /// Hands the bytes to `each`, as [`Content::bytes`] does.
    ///
    /// # Errors
    /// The recording does not answer, or `each` fails.
    pub fn bytes(
        &self,
        cursor: &mut Cursor,
        each: &mut dyn FnMut(&[Option<u8>]) -> Result<()>,
    ) -> Result<()> {
        self.content().bytes(cursor, each)
    }
}

impl Content {
    /// Where the bytes are in memory, if they are in one buffer.
    pub fn buffer(&self) -> Option<u64> {
        match self.parts {
            Some(Parts::Buffer(at)) => Some(at),
            _ => None,
        }
    }

    /// Hands the bytes to `each`, in order and in pieces of at most 64 KiB. `None` stands for a byte that is not known. Does
    /// nothing if they were not in memory.
    ///
    /// # Errors
    /// The recording does not answer, or `each` fails.
    pub fn bytes(
        &self,
        cursor: &mut Cursor,
        each: &mut dyn FnMut(&[Option<u8>]) -> Result<()>,
    ) -> Result<()> {
        if self.parts.is_none() {
            return Ok(());
        }
        let buffers = self.buffers(cursor)?;
        let mut from = 0;
        while from < self.len {
            let piece = self.piece(cursor, &buffers, from)?;
            from += piece.len() as u64;
            each(&piece)?;
        }
        Ok(())
    }

    /// One piece of the bytes: at least one byte and at most 64 KiB, behind `from` others, of which there must be more.
    /// `None` stands for a byte that is not known. `buffers` are those of [`Content::buffers`].
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn piece(
        &self,
        cursor: &mut Cursor,
        buffers: &[(u64, u64)],
        from: u64,
    ) -> Result<Vec<Option<u8>>> {
        let mut before = from;
        for &(at, len) in buffers {
            if before < len {
                let n = (len - before).min(AT_A_TIME);
                let behind = self.way == Way::In;
                let at = at.wrapping_add(before);
                return recorded(cursor, self.at()).read(at, n as usize, behind);
            }
            before -= len;
        }
        // The list was not known, or shorter than the call says.
        Ok(vec![None; (self.len - from).min(AT_A_TIME) as usize])
    }

    fn at(&self) -> (ThreadId, u64) {
        (self.thread, self.count)
    }

    /// Where the bytes are in memory: address and length of each buffer, in order. Fewer bytes than were moved: of the others
    /// that is not known.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn buffers(&self, cursor: &mut Cursor) -> Result<Vec<(u64, u64)>> {
        let mut out = Vec::new();
        match self.parts {
            None => {}
            Some(Parts::Buffer(at)) => out.push((at, self.len)),
            Some(Parts::List(at, count)) => self.listed(cursor, (at, count), &mut out)?,
            Some(Parts::Message(at)) => {
                if let Some(list) = self.message(cursor, at)? {
                    self.listed(cursor, list, &mut out)?;
                }
            }
        }
        Ok(out)
    }

    /// The list of buffers of a message, and how many it has.
    fn message(&self, cursor: &mut Cursor, at: u64) -> Result<Option<(u64, u64)>> {
        let mut field = |n| number(cursor, self.at(), (at.wrapping_add(n), 8), false);
        Ok(match (field(16)?, field(24)?) {
            (Some(list), Some(count)) => Some((list, count)),
            _ => None,
        })
    }

    /// The buffers of a list. It stands in memory before the call, which may have overwritten it.
    fn listed(
        &self,
        cursor: &mut Cursor,
        (at, count): (u64, u64),
        out: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        let mut left = self.len;
        for i in 0..count.min(MOST_BUFFERS) {
            let entry = at.wrapping_add(ENTRY * i);
            let base = number(cursor, self.at(), (entry, 8), false)?;
            let len = number(cursor, self.at(), (entry.wrapping_add(8), 8), false)?;
            let (Some(base), Some(len)) = (base, len) else {
                break;
            };
            out.push((base, len.min(left)));
            left -= len.min(left);
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}
