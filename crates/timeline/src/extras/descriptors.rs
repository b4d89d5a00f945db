//! What descriptors are, and what moves through them.
//!
//! One pass over the recorded system calls of all processes derives what each descriptor leads to at an instant: it
//! follows opening, copying, closing, `fork` and `execve`. The calls are visited in their total order, by a merge of the
//! threads' lists. A call takes an order number before and behind it. It removes descriptors at the first one and adds
//! them at the second, so a number that is used again belongs to the right one.
//!
//! The bytes stand in the recorded memory. One cursor moves forward from call to call.

mod addresses;
mod bytes;
pub mod effects;
mod instant;
mod opening;
mod pass;
mod received;
mod table;
mod told;

pub use bytes::{Content, Transfer};
pub use effects::Way;
pub use instant::{Descriptor, Descriptors};
pub use table::{OpenFile, What};
pub use told::{Named, Told};

use super::system::{PATH, Recorded, until_zero};
use crate::{Cursor, Position, Result, ThreadId, Timeline};
use hindsight_syscalls::abi;
use pass::Pass;

/// Which paths are looked up. Each takes a look into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// Those of files that are opened for writing.
    Written,
    /// All of them.
    All,
}

/// What happens to a descriptor.
#[derive(Debug)]
#[non_exhaustive]
pub enum Flow<'a> {
    /// A file was opened by its path.
    Opened(&'a OpenFile),
    /// Bytes were read or written.
    Moved(&'a Transfer),
    /// A file was mapped. What is then read and written in memory is not visited.
    Mapped(&'a Mapped),
    /// A call about a descriptor succeeded. Only visited by [`Timeline::flow_told`].
    Told(&'a Told),
    /// A call changed what is found under a path. Only visited by [`Timeline::flow_told`].
    Named(&'a Named),
}

/// A file that a call mapped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mapped {
    /// The instant before the call.
    pub position: Position,
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The thread's process id.
    pub pid: i32,
    /// The descriptor.
    pub fd: i32,
    /// What the descriptor leads to.
    pub file: OpenFile,
    /// The address at which the mapping begins.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Flags, as `mmap` takes them.
    pub flags: u32,
    /// Where in the file it begins.
    pub offset: u64,
}

impl Mapped {
    /// Whether others may map the same memory (`MAP_SHARED`).
    pub fn is_shared(&self) -> bool {
        self.flags & abi::MAP_SHARED as u32 != 0
    }
}

/// What a pass could not see.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Unseen {
    /// Threads ran where they are not recorded. Descriptors may have become others there.
    pub gaps: bool,
    /// The program used `io_uring` or asynchronous input and output, or took descriptors out of other processes. What
    /// was moved that way is not recorded.
    pub hidden: bool,
    /// The program got descriptors over a socket (`SCM_RIGHTS`), or that cannot be excluded. What they led to is not recorded.
    pub received: bool,
}

impl Timeline {
    /// Visits everything that the recorded processes read and wrote through descriptors, in the order in which the calls
    /// began. `visit` may use the cursor, which it finds anywhere and may leave anywhere.
    ///
    /// Positions that are visited lie in the order of time. What is behind `until` is not looked at. Memory use grows with
    /// the descriptors that are open, and not with the number of calls.
    ///
    /// # Errors
    /// The recording does not answer, or `visit` fails.
    pub fn flow(
        &self,
        paths: Paths,
        until: Option<Position>,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<Unseen> {
        let mut pass = Pass::new(self, paths)?;
        pass.run(until, visit)
    }

    /// The same with all paths, and with other calls about descriptors and files: what is asked of them, and what becomes of
    /// them. These are visited once they have returned. A call that returns at `until` counts.
    ///
    /// # Errors
    /// The recording does not answer, or `visit` fails.
    pub fn flow_told(
        &self,
        until: Option<Position>,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<Unseen> {
        let mut pass = Pass::new(self, Paths::All)?;
        pass.tells = true;
        pass.inclusive = true;
        pass.run(until, visit)
    }
}

/// The path at an address before a call. `None`: it is not wholly known.
fn path(cursor: &mut Cursor, at: (ThreadId, u64), address: u64) -> Result<Option<Vec<u8>>> {
    let (bytes, ended) = until_zero(&mut recorded(cursor, at), address, PATH)?;
    let whole: Option<Vec<u8>> = bytes.into_iter().collect();
    Ok(whole.filter(|_| ended))
}

/// A number in memory before a call, or else behind it.
fn number(
    cursor: &mut Cursor,
    at: (ThreadId, u64),
    (address, len): (u64, usize),
    behind: bool,
) -> Result<Option<u64>> {
    use super::system::Seen;
    let b = recorded(cursor, at).read(address, len, behind)?;
    let more = |n: u64, b: &Option<u8>| b.map(|b| n << 8 | b as u64);
    Ok(b.iter().rev().try_fold(0, more))
}

fn recorded(cursor: &mut Cursor, (thread, count): (ThreadId, u64)) -> Recorded<'_> {
    Recorded {
        cursor,
        thread,
        count,
    }
}
