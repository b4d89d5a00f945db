//! What a run is to stop at, and what it stopped at.

use crate::{Ending, Position, Result, ThreadId};
use hindsight_isa::{CpuState, VecState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Which way to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To later instants.
    Forward,
    /// To earlier instants.
    Backward,
}

/// Whose instructions count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those of the cursor's thread.
    Thread,
    /// Those of all threads of its program image, in the total order.
    Process,
    /// Those of all threads of the recording, in the total order.
    All,
}

/// Ends whatever was given a clone of it, from any thread.
#[derive(Clone, Default, Debug)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// One that is not yet set.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// What runs with it ends soon, with [`Reason::Cancelled`] or [`crate::Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Makes it usable again.
    pub fn reset(&self) {
        self.0.store(false, Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// [`crate::Error::Cancelled`] if it was.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(crate::Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// The state in which a condition is evaluated: before the instruction at the breakpoint.
pub trait View {
    /// General registers, instruction pointer, flags, segment bases.
    fn registers(&self) -> CpuState;
    /// Vector, mask and x87 registers.
    fn vectors(&self) -> VecState;
    /// Copies memory as the thread knows it by its own accesses (and code); `false` if any of it is not
    /// known so. What other threads wrote is seen once this one has read it. Addresses count modulo
    /// 2^32 here.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<bool>;
}

/// Decides whether a breakpoint counts.
pub type Condition<'a> = Box<dyn FnMut(&mut dyn View) -> bool + 'a>;

/// Stops before an instruction.
pub struct Breakpoint<'a> {
    /// The caller's name for it.
    pub id: u64,
    /// Of the instruction.
    pub address: u64,
    /// Only in this program image.
    pub image: Option<u32>,
    /// Only in this thread.
    pub thread: Option<ThreadId>,
    /// Only when this holds.
    pub condition: Option<Condition<'a>>,
}

impl Breakpoint<'_> {
    /// Without a condition, wherever the address occurs.
    pub fn at(id: u64, address: u64) -> Breakpoint<'static> {
        Breakpoint {
            id,
            address,
            image: None,
            thread: None,
            condition: None,
        }
    }
}

/// Accesses that a watchpoint is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Either.
    Access,
}

impl Watch {
    /// Whether reads count, and whether writes do.
    pub(crate) fn kinds(self) -> (bool, bool) {
        match self {
            Watch::Read => (true, false),
            Watch::Write => (false, true),
            Watch::Access => (true, true),
        }
    }
}

/// Stops at accesses to memory by instructions of the program, and at what the kernel writes for it
/// where the recording says so (system calls in the quiet regime, frames of signals). Forwards behind
/// the instruction, backwards before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchpoint {
    /// The caller's name for it.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes; 0 stops nowhere.
    pub len: u64,
    /// Which accesses count.
    pub watch: Watch,
    /// Only in this program image.
    pub image: Option<u32>,
}

/// All registers of a thread at an instant.
#[derive(Clone, Debug)]
pub struct Registers {
    /// General registers, instruction pointer, flags and segment bases.
    pub general: CpuState,
    /// Vector, mask and x87 registers.
    pub vectors: VecState,
}

/// A register whose change stops: forwards behind the instruction, backwards before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    General(u8),
    /// The flags of [`hindsight_isa::state::RFLAGS_MASK`].
    Flags,
    /// Base of the FS segment.
    FsBase,
    /// Base of the GS segment.
    GsBase,
    /// zmm0 to zmm31, all bits.
    Vector(u8),
    /// k0 to k7.
    Mask(u8),
}

impl Register {
    /// Whether it differs between two states.
    pub fn differs(self, a: (&CpuState, &VecState), b: (&CpuState, &VecState)) -> bool {
        let at = |n: u8, len: usize| (n as usize).min(len - 1);
        match self {
            Register::General(n) => a.0.gpr[at(n, 16)] != b.0.gpr[at(n, 16)],
            Register::Flags => a.0.rflags != b.0.rflags,
            Register::FsBase => a.0.fs_base != b.0.fs_base,
            Register::GsBase => a.0.gs_base != b.0.gs_base,
            Register::Vector(n) => a.1.zmm[at(n, 32)] != b.1.zmm[at(n, 32)],
            Register::Mask(n) => a.1.k[at(n, 8)] != b.1.k[at(n, 8)],
        }
    }
}

/// Which of many things.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Choice<T> {
    /// None of them.
    #[default]
    Nothing,
    /// All of them.
    All,
    /// These; an empty list chooses nothing.
    Only(Vec<T>),
}

impl<T: PartialEq> Choice<T> {
    /// Whether nothing is chosen.
    pub fn is_nothing(&self) -> bool {
        match self {
            Choice::Nothing => true,
            Choice::All => false,
            Choice::Only(list) => list.is_empty(),
        }
    }

    /// Whether this one is chosen.
    pub fn has(&self, one: &T) -> bool {
        match self {
            Choice::Nothing => false,
            Choice::All => true,
            Choice::Only(list) => list.contains(one),
        }
    }
}

/// What the memory that a watchpoint is about holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedValue {
    /// The `id` of a watchpoint for writes.
    pub id: u64,
    /// As many bytes as it watches.
    pub bytes: Vec<u8>,
}

/// What a run stops at. The default stops at nothing but the end of the recording.
#[derive(Default)]
pub struct Stops<'a> {
    /// Before these instructions.
    pub breakpoints: Vec<Breakpoint<'a>>,
    /// At accesses to this memory.
    pub watchpoints: Vec<Watchpoint>,
    /// What watched memory holds where the run begins: a watchpoint for writes then stops only where this changes. A
    /// write of which it cannot be known stops too.
    pub values: Vec<WatchedValue>,
    /// Where one of these changes.
    pub registers: Vec<Register>,
    /// Signals, by their numbers.
    pub signals: Choice<u8>,
    /// System calls, by their numbers, before and behind them.
    pub syscalls: Choice<u64>,
    /// Begin and end of threads and program images.
    pub threads: bool,
    /// Modules that come and go.
    pub modules: bool,
    /// Calls of the functions that begin at these addresses, before their first instruction.
    pub calls: Vec<u64>,
    /// Returns from the functions that begin at these addresses, before the instruction that is
    /// returned to. Their calls are found first, which replays the threads in scope once
    /// ([`crate::Timeline::calls`]).
    pub returns: Vec<u64>,
}

/// Why a run or step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The step is done.
    Step,
    /// Before the instruction of a breakpoint.
    Breakpoint {
        /// The breakpoint's.
        id: u64,
        /// The instruction's.
        address: u64,
    },
    /// Something accessed what a watchpoint is about: forwards this is behind the instruction, backwards before it.
    Watchpoint {
        /// The watchpoint's.
        id: u64,
        /// Instructions that the thread completed before the one that did it.
        count: u64,
        /// What it accessed.
        address: u64,
        /// Bytes that it accessed.
        len: u64,
        /// It read.
        read: bool,
        /// It wrote.
        write: bool,
        /// The kernel did it, in the system call or with the signal that is there.
        kernel: bool,
    },
    /// This register changed.
    Register(Register),
    /// A signal comes here.
    Signal {
        /// Number of the signal, from 1.
        number: u8,
        /// `si_code` of `siginfo_t`.
        code: i32,
        /// `si_addr`.
        address: u64,
    },
    /// Before a system call.
    Syscall {
        /// Number of the call.
        number: u64,
    },
    /// Behind one.
    SyscallReturn {
        /// Number of the call.
        number: u64,
        /// What it returned. `None`: it did not.
        result: Option<u64>,
    },
    /// A thread begins.
    ThreadBegin,
    /// A thread has ended.
    ThreadEnd(Ending),
    /// A file is mapped.
    ModuleLoad {
        /// Path of the file.
        path: String,
    },
    /// The last mapping of a file goes.
    ModuleUnload {
        /// Path of the file.
        path: String,
    },
    /// A function is called.
    Call {
        /// Its address.
        function: u64,
    },
    /// `value`: what rax holds.
    Return {
        /// Address of the function.
        function: u64,
        /// What rax holds.
        value: u64,
    },
    /// There is nothing further back.
    Begin,
    /// There is nothing more in this scope.
    End,
    /// It was cancelled. The cursor is where it was before.
    Cancelled,
}

/// Where a run or step ended; the cursor is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The thread that the cursor is in.
    pub thread: ThreadId,
    /// Where the cursor is.
    pub position: Position,
    /// Why it stopped.
    pub reason: Reason,
}
