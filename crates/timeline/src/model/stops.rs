//! What a run is to stop at, and what it stopped at.

use crate::{Ending, Position, Result, ThreadId};
use hindsight_isa::{CpuState, VecState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Which way to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
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
    Read,
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
    pub address: u64,
    pub len: u64,
    pub watch: Watch,
    /// Only in this program image.
    pub image: Option<u32>,
}

/// A register whose change stops: forwards behind the instruction, backwards before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    General(u8),
    /// The flags of [`hindsight_isa::state::RFLAGS_MASK`].
    Flags,
    FsBase,
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

/// What a run stops at. The default stops at nothing but the end of the recording.
#[derive(Default)]
pub struct Stops<'a> {
    pub breakpoints: Vec<Breakpoint<'a>>,
    pub watchpoints: Vec<Watchpoint>,
    /// What watched memory holds where the run begins, by the `id` of a watchpoint for writes and of its
    /// length: that watchpoint then stops only where this changes. A write of which it cannot be known stops too.
    pub values: Vec<(u64, Vec<u8>)>,
    pub registers: Vec<Register>,
    /// Signals with these numbers; `Some` of an empty list: all.
    pub signals: Option<Vec<u8>>,
    /// System calls with these numbers, before and behind them; `Some` of an empty list: all.
    pub syscalls: Option<Vec<u64>>,
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
    Breakpoint {
        id: u64,
        address: u64,
    },
    /// `count`: instructions that the thread completed before the one that did it. `address` and
    /// `len`: what it accessed.
    Watchpoint {
        id: u64,
        count: u64,
        address: u64,
        len: u64,
        read: bool,
        write: bool,
        /// The kernel did it, in the system call or with the signal that is there.
        kernel: bool,
    },
    Register(Register),
    Signal {
        number: u8,
        code: i32,
        address: u64,
    },
    /// Before a system call.
    Syscall {
        number: u64,
    },
    /// Behind one.
    SyscallReturn {
        number: u64,
        result: Option<u64>,
    },
    ThreadBegin,
    ThreadEnd(Ending),
    ModuleLoad {
        path: String,
    },
    ModuleUnload {
        path: String,
    },
    Call {
        function: u64,
    },
    /// `value`: what rax holds.
    Return {
        function: u64,
        value: u64,
    },
    /// There is nothing further back.
    Begin,
    /// There is nothing more in this scope.
    End,
    Cancelled,
}

/// Where a run or step ended; the cursor is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    pub thread: ThreadId,
    pub position: Position,
    pub reason: Reason,
}
