//! What a recording consists of, as front ends list it.

use crate::Position;
use hindsight_events::GapReason;
use hindsight_trace::ModuleHash;
use std::fmt;

/// A thread of a recording: the number of its stream, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An instant of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadInstant {
    /// The thread.
    pub thread: ThreadId,
    /// Instructions that the thread has completed.
    pub count: u64,
}

/// A program image: a process between `fork` or `execve` and the next `execve` or its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Number of the image, from 1.
    pub image: u32,
    /// The image that it came from; 0 for the first.
    pub parent: u32,
    /// It came by `execve`, and so has its parent's process id; otherwise by `fork`.
    pub by_exec: bool,
    /// Process id on the recording machine.
    pub pid: i32,
    /// Its command line, as far as it is known.
    pub command: String,
    /// Its threads, in the order in which they began.
    pub threads: Vec<ThreadId>,
    /// The first instant of any of its threads.
    pub begin: Position,
    /// The last one.
    pub end: Position,
}

/// How a thread ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By `exit` or `exit_group` with this status.
    Exit(u32),
    /// Killed by this signal.
    Signal(u32),
    /// `execve` replaced the program.
    Exec,
    /// The recorder left the process, which went on by itself.
    Detached,
    /// The recorder could not go on, for this reason.
    Unsupported(String),
    /// The recording does not say: the thread was killed by another's end, or the trace is cut.
    Unknown,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Names it in this recording.
    pub id: ThreadId,
    /// Thread id on the recording machine.
    pub tid: i32,
    /// Process id on the recording machine: its own for a child that still ran in its parent's
    /// memory (`vfork`).
    pub pid: i32,
    /// The program image whose code it executes.
    pub image: u32,
    /// The program's name, which is also the thread's unless it was given another ([`Timeline::names`]); empty if not known.
    pub name: String,
    /// The first instant.
    pub first: Position,
    /// The last instant: all its instructions are completed.
    pub last: Position,
    /// Instructions completed at `first`; 0 unless the recording began later than the thread.
    pub from: u64,
    /// Instructions completed at `last`.
    pub to: u64,
    /// How it ended.
    pub ending: Ending,
}

/// A mapped file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Path when it was mapped.
    pub path: String,
    /// Lowest mapped address.
    pub start: u64,
    /// Behind the highest mapped address.
    pub end: u64,
    /// Its mappings.
    pub parts: Vec<Mapping>,
    /// When it was first mapped, where the recording says: `None` for what was there from the beginning.
    pub load: Option<Position>,
    /// When its last mapping was removed; `None`: never.
    pub unload: Option<Position>,
    /// Names its content ([`crate::Timeline::module_bytes`]), if the trace has it.
    pub hash: Option<ModuleHash>,
}

/// A stretch of mapped memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// As for `mmap`.
    pub prot: u32,
    /// As for `mmap`.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The file, `[stack]` and the like, or empty.
    pub path: String,
}

impl Mapping {
    /// Whether others may have the same memory (`MAP_SHARED`).
    pub fn is_shared(&self) -> bool {
        const SHARED: u32 = 1;
        self.flags & SHARED != 0
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happening {
    /// Before the instruction that it belongs to.
    pub position: Position,
    /// The thread that it happened to, or that did it.
    pub thread: ThreadId,
    /// Instructions of the thread completed.
    pub count: u64,
    /// What it was.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A system call; `result` is what it returned in rax, `None` if it did not return there.
    Syscall {
        /// Number of the call (x86-64).
        number: u64,
        /// What rdi, rsi, rdx, r10, r8 and r9 held before it.
        args: [u64; 6],
        /// What rax held behind it; from -4095 to -1, an error. `None`: it did not return.
        result: Option<u64>,
    },
    /// A signal is delivered, or an exception.
    Signal {
        /// Number of the signal, from 1.
        number: u8,
        /// `si_code` of `siginfo_t`.
        code: i32,
        /// `si_addr`: for exceptions the address that was accessed, or of the instruction.
        address: u64,
    },
    /// The thread's first instant.
    ThreadBegin,
    /// The thread's last instant.
    ThreadEnd(Ending),
    /// A program image begins.
    ProcessBegin {
        /// Number of the program image.
        image: u32,
    },
    /// The last thread of an image ends.
    ProcessEnd {
        /// Number of the program image.
        image: u32,
    },
    /// A file was mapped.
    ModuleLoad {
        /// Path of the file.
        path: String,
        /// First address of its mappings.
        start: u64,
        /// Behind the last address.
        end: u64,
    },
    /// The last mapping of a file went.
    ModuleUnload {
        /// Path of the file.
        path: String,
        /// First address that its mappings had.
        start: u64,
        /// Behind the last address.
        end: u64,
    },
    /// The thread goes on unrecorded.
    GapBegin {
        /// Why it was not recorded.
        reason: GapReason,
    },
    /// It is recorded again.
    GapEnd,
    /// The program said something, by `hindsight.h`.
    Mark {
        /// The name that the program gave.
        name: String,
        /// Bytes that it gave with it.
        payload: Vec<u8>,
    },
    /// The process is recorded so from here on; `reason`: why it is no longer quiet.
    Regime {
        /// It is the quiet one from here on; otherwise the checked one.
        quiet: bool,
        /// Why, in words.
        reason: String,
    },
}

/// Which happenings to list. The default lists all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only of this thread.
    pub thread: Option<ThreadId>,
    /// Only of this program image.
    pub image: Option<u32>,
    /// Not before this instant.
    pub from: Option<Position>,
    /// Before this instant.
    pub until: Option<Position>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<KindOf>,
    /// Only system calls with these numbers; empty: all.
    pub syscalls: Vec<u64>,
}

/// Kinds of happenings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KindOf {
    /// System calls.
    Syscall,
    /// Signals, exceptions among them.
    Signal,
    /// Begin and end of threads.
    Thread,
    /// Begin and end of program images.
    Process,
    /// Files that come and go in memory.
    Module,
    /// Signals that an instruction of the thread raised: a fault, a trap.
    Exception,
    /// Where recording stops and goes on.
    Gap,
    /// What the program marked.
    Mark,
    /// Changes of the regime.
    Regime,
}

impl Kind {
    /// Whether it is a signal that an instruction raised, and not one that was sent.
    pub fn is_exception(&self) -> bool {
        // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS; what was sent has a code that is not
        // positive.
        matches!(
            self,
            Kind::Signal {
                number: 4 | 5 | 7 | 8 | 11 | 31,
                code: 1..,
                ..
            }
        )
    }

    /// Which kind it is; exceptions are signals.
    pub fn of(&self) -> KindOf {
        match self {
            Kind::Syscall { .. } => KindOf::Syscall,
            Kind::Signal { .. } => KindOf::Signal,
            Kind::ThreadBegin | Kind::ThreadEnd(_) => KindOf::Thread,
            Kind::ProcessBegin { .. } | Kind::ProcessEnd { .. } => KindOf::Process,
            Kind::ModuleLoad { .. } | Kind::ModuleUnload { .. } => KindOf::Module,
            Kind::GapBegin { .. } | Kind::GapEnd => KindOf::Gap,
            Kind::Mark { .. } => KindOf::Mark,
            Kind::Regime { .. } => KindOf::Regime,
        }
    }
}

/// What one thread did between two neighbouring sequencing events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The thread that runs it.
    pub thread: ThreadId,
    /// Number of the event that opens it; 0: none.
    pub opens: u64,
    /// Number of the event that closes it; `None`: the thread's last segment.
    pub closes: Option<u64>,
    /// Instructions of the thread completed at its start.
    pub from: u64,
    /// Instructions of the thread completed at its end.
    pub to: u64,
}

impl Segment {
    /// Whether it was over when `other` began. Of two segments neither of which is before the
    /// other, both ran at the same time.
    pub fn before(&self, other: &Segment) -> bool {
        match self.thread == other.thread {
            true => self.opens < other.opens,
            false => self.closes.is_some_and(|c| c <= other.opens),
        }
    }
}
