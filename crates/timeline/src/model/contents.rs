//! Threads, processes, modules and events, as front ends list them.

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

/// A program image: a process from `fork` or `execve` to the next `execve` or its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Number of the image, from 1.
    pub image: u32,
    /// The image that it came from; 0 for the first.
    pub parent: u32,
    /// It came by `execve` and has its parent's process id. Otherwise it came by `fork`.
    pub by_exec: bool,
    /// The recording has all that its program did since it was loaded. Not so if it was attached to, if a ring has lost the
    /// beginning, or if it came by `fork`.
    pub is_whole: bool,
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
#[non_exhaustive]
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
    /// The recording does not say: another thread's end killed it, or the trace is cut.
    Unknown,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Names it in this recording.
    pub id: ThreadId,
    /// Thread id on the recording machine.
    pub tid: i32,
    /// Process id on the recording machine. A child of `vfork` that runs in its parent's memory has its own.
    pub pid: i32,
    /// The program image whose code it executes.
    pub image: u32,
    /// The program's name; empty if not known. The thread has the same name unless it was given another
    /// ([`crate::Timeline::names`]).
    pub name: String,
    /// The first instant.
    pub first: Position,
    /// The last instant: all its instructions are completed.
    pub last: Position,
    /// Instructions completed at `first`. It is 0 unless the recording began after the thread.
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
    /// One past the highest mapped address.
    pub end: u64,
    /// Its mappings.
    pub parts: Vec<Mapping>,
    /// When it was first mapped. `None`: it was there from the beginning.
    pub load: Option<Position>,
    /// When its last mapping was removed. `None`: never.
    pub unload: Option<Position>,
    /// Names its content ([`crate::Timeline::module_bytes`]), if the trace has it.
    pub hash: Option<ModuleHash>,
}

/// A stretch of mapped memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Protection, as `mmap` takes it (`PROT_READ` and others).
    pub prot: u32,
    /// Flags, as `mmap` takes them (`MAP_SHARED` and others).
    pub flags: u32,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// The file's path, a name such as `[stack]`, or empty.
    pub path: String,
}

impl Mapping {
    /// Whether others may map the same memory (`MAP_SHARED`).
    pub fn is_shared(&self) -> bool {
        const SHARED: u32 = 1;
        self.flags & SHARED != 0
    }

    /// Whether it is private memory that belongs to no file (`MAP_PRIVATE | MAP_ANONYMOUS`). It has no offset.
    pub fn is_private_anonymous(&self) -> bool {
        const ANONYMOUS: u32 = 0x20;
        self.flags & ANONYMOUS != 0 && !self.is_shared()
    }

    /// What may be done with it, as `/proc/PID/maps` shows it: `rw-p`.
    pub fn rights(&self) -> String {
        let flag = |bit: u32, c: char| if self.prot & bit != 0 { c } else { '-' };
        let shared = if self.is_shared() { 's' } else { 'p' };
        [flag(1, 'r'), flag(2, 'w'), flag(4, 'x'), shared]
            .iter()
            .collect()
    }
}

/// An event: something that happened in a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happening {
    /// The instant before the instruction that it belongs to.
    pub position: Position,
    /// The thread that did it, or to which it happened.
    pub thread: ThreadId,
    /// The number of instructions that the thread had completed.
    pub count: u64,
    /// What it was.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A system call.
    Syscall {
        /// Number of the call (x86-64).
        number: u64,
        /// What rdi, rsi, rdx, r10, r8 and r9 held before it.
        args: [u64; 6],
        /// What rax held after it. Values from -4095 to -1 are errors. `None`: the call did not return there.
        result: Option<u64>,
    },
    /// A signal is delivered, or an exception.
    Signal {
        /// Number of the signal, from 1.
        number: u8,
        /// `si_code` of `siginfo_t`.
        code: i32,
        /// `si_addr`. For exceptions it is the address that was accessed, or that of the instruction.
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
        /// One past the last address.
        end: u64,
    },
    /// The last mapping of a file went.
    ModuleUnload {
        /// Path of the file.
        path: String,
        /// First address that its mappings had.
        start: u64,
        /// One past the last address.
        end: u64,
    },
    /// The thread goes on unrecorded.
    GapBegin {
        /// Why it was not recorded.
        reason: GapReason,
    },
    /// It is recorded again.
    GapEnd,
    /// The program set a mark through `hindsight.h`.
    Mark {
        /// The name that the program gave.
        name: String,
        /// The bytes that the program gave with the name.
        payload: Vec<u8>,
    },
    /// The regime changed.
    Regime {
        /// The quiet regime begins; otherwise the checked one.
        quiet: bool,
        /// Why it changed, in words.
        reason: String,
    },
}

/// Chooses events. The default chooses all.
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
    /// Only these kinds. An empty list chooses all.
    pub kinds: Vec<KindOf>,
    /// Only system calls with these numbers. An empty list chooses all.
    pub syscalls: Vec<u64>,
}

/// Kinds of happenings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KindOf {
    /// System calls.
    Syscall,
    /// Signals, exceptions among them.
    Signal,
    /// Begin and end of threads.
    Thread,
    /// Begin and end of program images.
    Process,
    /// Files are mapped and unmapped.
    Module,
    /// Signals that an instruction of the thread raised: a fault, a trap.
    Exception,
    /// Gaps: recording stops and goes on.
    Gap,
    /// What the program marked.
    Mark,
    /// Changes of the regime.
    Regime,
}

impl Kind {
    /// Whether an instruction raised the signal. Otherwise somebody sent it.
    pub fn is_exception(&self) -> bool {
        // These are SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS. A signal that somebody sent has no positive
        // code.
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

/// What one thread did between two neighbouring events of its own that have order numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The thread that runs it.
    pub thread: ThreadId,
    /// Order number of the event that opens it. 0: no event does.
    pub opens: u64,
    /// Order number of the event that closes it. `None`: it is the thread's last segment.
    pub closes: Option<u64>,
    /// Instructions of the thread completed at its start.
    pub from: u64,
    /// Instructions of the thread completed at its end.
    pub to: u64,
    /// Instructions before `from` that belong to it, and that the recording does not have. Positions count them.
    pub left_out: u64,
}

impl Segment {
    /// The position at which the thread has completed `count` instructions, which are in the segment.
    pub fn position(&self, count: u64) -> Position {
        let offset = count.saturating_sub(self.from);
        Position::new(self.opens, offset.saturating_add(self.left_out))
    }

    /// How many instructions the thread has completed at this offset of a position in the segment. `None`: the recording has
    /// no such instant.
    pub fn count(&self, offset: u64) -> Option<u64> {
        let count = self.from.checked_add(offset.checked_sub(self.left_out)?)?;
        (count <= self.to).then_some(count)
    }

    /// Whether this segment was over when `other` began (happens-before). If neither of two segments is before the
    /// other, they ran at the same time.
    pub fn before(&self, other: &Segment) -> bool {
        match self.thread == other.thread {
            true => self.opens < other.opens,
            false => self.closes.is_some_and(|c| c <= other.opens),
        }
    }
}
