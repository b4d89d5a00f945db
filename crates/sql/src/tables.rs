//! The tables of a recording.

mod calls;
mod coverage;
mod events;
mod executed;
mod grep;
mod heap;
mod lists;
mod memory;
mod origin;
mod profile;
mod transfers;
mod values;

pub use calls::{Calls, EveryCall, number};
pub use coverage::Coverage;
pub use events::{Events, Gaps, Marks, Segments, Signals, Syscalls};
pub use executed::{Accesses, Branches, Instructions};
pub use grep::GrepMemory;
pub use heap::Heap;
pub use lists::{Modules, Processes, Threads};
pub use memory::{At, LastWrite, MemoryAt, RegistersAt, Stack, Variables, Writes};
pub use origin::OriginOf;
pub use profile::Profile;
pub use transfers::Transfers;
pub use values::ValuesOf;

/// The columns of tables that functions make.
pub mod columns {
    pub use super::calls::CALLS;
    pub use super::grep::GREP;
    pub use super::memory::{MEMORY, REGISTERS, STACK, VARIABLES, WRITES};
    pub use super::origin::ORIGIN;
    pub use super::values::VALUES;
}

use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use hindsight_timeline::{Position, ThreadId};
use std::sync::Arc;

/// Fills the five columns with which most tables begin: position, time, thread, process, count.
fn instant(
    r: &Recording,
    out: &mut Rows,
    position: Position,
    time: i64,
    (thread, count): (ThreadId, u64),
) -> Result<(), Stop> {
    if out.wants(&[0]) {
        out.text(0, position.to_string());
    }
    out.int(1, time);
    out.int(2, i64::from(thread.0));
    if out.wants(&[3]) {
        out.int(3, i64::from(r.image(thread)?));
    }
    out.int(4, count as i64);
    Ok(())
}

/// A table that is always there: its name, what it is about, and what makes it.
pub struct Named {
    /// Its name in queries.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// The table.
    pub table: Arc<dyn Table>,
}

/// All tables that need no argument.
pub fn all() -> Vec<Named> {
    let named = |name, about, table| Named { name, about, table };
    vec![
        named(
            "processes",
            "a program image: a process from `fork` or `execve` to the next `execve` or its end",
            Arc::new(Processes),
        ),
        named("threads", "a thread", Arc::new(Threads)),
        named(
            "modules",
            "a file that a program image had mapped",
            Arc::new(Modules),
        ),
        named(
            "segments",
            "what a thread did between two of its ordered events",
            Arc::new(Segments),
        ),
        named(
            "gaps",
            "a stretch of a thread that was not recorded",
            Arc::new(Gaps),
        ),
        named("events", "anything that happened", Arc::new(Events)),
        named("syscalls", "a system call", Arc::new(Syscalls)),
        named(
            "signals",
            "a signal or an exception that was delivered",
            Arc::new(Signals),
        ),
        named(
            "marks",
            "a mark that the program set through hindsight.h",
            Arc::new(Marks),
        ),
        named(
            "output",
            "a call that gave bytes out through a descriptor",
            Arc::new(Transfers::OUT),
        ),
        named(
            "input",
            "a call that took bytes in through a descriptor",
            Arc::new(Transfers::IN),
        ),
        named(
            "instructions",
            "an instruction that was executed; made by replay for the times and threads that are asked for",
            Arc::new(Instructions),
        ),
        named(
            "reads",
            "a read of memory by an instruction; made by replay",
            Arc::new(Accesses::READS),
        ),
        named(
            "writes",
            "a write to memory by an instruction; made by replay",
            Arc::new(Accesses::WRITES),
        ),
        named(
            "branches",
            "a jump, call, return or conditional branch; made by replay",
            Arc::new(Branches),
        ),
        named(
            "calls",
            "a call of a function, of all there were; made by replay. For those of one function ask `calls('FUNCTION')`",
            Arc::new(EveryCall),
        ),
        named(
            "heap",
            "memory that the program asked for, until it gave it back; made by replay",
            Arc::new(Heap),
        ),
        named(
            "coverage",
            "code that was executed, and how often: blocks, source lines and functions; made by replay",
            Arc::new(Coverage),
        ),
        named(
            "profile",
            "a function as it was called along one path, with what it cost; made by replay",
            Arc::new(Profile),
        ),
    ]
}
