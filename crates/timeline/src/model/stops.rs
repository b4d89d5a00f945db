//! What a run is to stop at, and what it stopped at.

use crate::{Ending, Position, Result, ThreadId};
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{Expression, Look, Operand};
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

/// Whose instructions a run or step follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those of the cursor's thread.
    Thread,
    /// Those of all threads of its program image, in the total order.
    Process,
    /// Those of all threads of the recording, in the total order.
    All,
}

/// Cancels what it was given to. Clones share one flag; any thread may set it.
///
/// A cursor gets it by [`crate::Cursor::cancellable`]. What several may use at the same time, such as a
/// [`crate::Timeline`], gets it with each question.
#[derive(Clone, Default, Debug)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Sets the flag. What was given it ends soon, with [`Reason::Cancelled`] or [`crate::Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Clears the flag.
    pub fn reset(&self) {
        self.0.store(false, Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Goes on only if the flag is not set.
    ///
    /// # Errors
    /// [`crate::Error::Cancelled`]
    pub fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(crate::Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// The state in which a condition is evaluated: before the breakpoint's instruction.
pub trait View {
    /// General registers, instruction pointer, flags, segment bases.
    fn registers(&self) -> CpuState;
    /// Vector, mask and x87 registers.
    fn vectors(&self) -> VecState;
    /// Copies memory as the thread knows it from its own accesses, and code. `false`: not all of it is known that way.
    /// The thread knows what others wrote once it has read it. Addresses count modulo 2^32 here.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<bool>;
}

/// Decides whether a run stops at a breakpoint.
pub enum Condition<'a> {
    /// Searches evaluate it where they meet the breakpoint, without a stop, and in several threads at the same time. Memory
    /// is what [`View::read`] shows. It stops where it cannot be evaluated.
    Expression(Arc<Expression>),
    /// Any code. Each time costs a microsecond or two.
    Code(ConditionCode<'a>),
}

/// Code that decides whether a condition holds.
pub type ConditionCode<'a> = Box<dyn FnMut(&mut dyn View) -> bool + 'a>;

impl<'a> Condition<'a> {
    /// A condition that is code.
    pub fn code(holds: impl FnMut(&mut dyn View) -> bool + 'a) -> Condition<'a> {
        Condition::Code(Box::new(holds))
    }

    /// Whether it holds.
    pub fn holds(&mut self, view: &mut dyn View) -> bool {
        match self {
            Condition::Expression(e) => e.holds(&mut At(view)),
            Condition::Code(code) => code(view),
        }
    }
}

impl From<Expression> for Condition<'_> {
    fn from(e: Expression) -> Self {
        Condition::Expression(Arc::new(e))
    }
}

/// A state, as an expression looks at it. What is not known of memory, it cannot read.
pub struct At<'a>(pub &'a mut dyn View);

impl Look for At<'_> {
    fn register(&self, operand: Operand) -> u64 {
        operand.of(&self.0.registers())
    }

    fn read(&mut self, address: u64, buf: &mut [u8]) -> bool {
        self.0.read(address, buf).unwrap_or(false)
    }
}

/// Stops before an instruction.
pub struct Breakpoint<'a> {
    /// The caller's number for it.
    pub id: u64,
    /// The address of the instruction.
    pub address: u64,
    /// Only in this program image.
    pub image: Option<u32>,
    /// Only in this thread.
    pub thread: Option<ThreadId>,
    /// Only when this holds.
    pub condition: Option<Condition<'a>>,
}

impl Breakpoint<'_> {
    /// A breakpoint without a condition, in all threads and program images.
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
    /// Whether reads count, and whether writes do, in this order.
    pub(crate) fn kinds(self) -> (bool, bool) {
        match self {
            Watch::Read => (true, false),
            Watch::Write => (false, true),
            Watch::Access => (true, true),
        }
    }
}

/// Stops at accesses to memory. Accesses of two kinds count:
///
/// - those of the program's instructions;
/// - what the kernel writes, where the recording says so: system calls in the quiet regime, frames of signals.
///
/// Forwards, a run stops after the instruction; backwards, before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchpoint {
    /// The caller's number for it.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Length in bytes. 0 stops nowhere.
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

/// A register whose change stops a run. Forwards, it stops after the instruction; backwards, before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// A general register: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15, by its number from 0.
    General(u8),
    /// The flags of [`hindsight_isa::state::RFLAGS_MASK`].
    Flags,
    /// Base of the FS segment.
    FsBase,
    /// Base of the GS segment.
    GsBase,
    /// zmm0 to zmm31, by number. All bits count.
    Vector(u8),
    /// k0 to k7, by number.
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

/// Chooses some of many things.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Choice<T> {
    /// None of them.
    #[default]
    Nothing,
    /// All of them.
    All,
    /// These. An empty list chooses nothing.
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
    /// What watched memory holds where the run begins. A watchpoint for writes that has a value here stops only where
    /// the value changes. It also stops at a write whose effect is not known.
    pub values: Vec<WatchedValue>,
    /// Where one of these changes.
    pub registers: Vec<Register>,
    /// Signals, by their numbers.
    pub signals: Choice<u8>,
    /// System calls, by their numbers. A run stops before and after each.
    pub syscalls: Choice<u64>,
    /// Begin and end of threads and program images.
    pub threads: bool,
    /// Files that are mapped and unmapped.
    pub modules: bool,
    /// Functions, by their first addresses. A run stops at each call, before the function's first instruction.
    pub calls: Vec<u64>,
    /// Functions, by their first addresses. A run stops at each return, before the instruction to which it goes. The
    /// calls must be known for this. Finding them replays the threads in scope once ([`crate::Timeline::calls`]).
    pub returns: Vec<u64>,
}

/// Why a run or step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The step is done.
    Step,
    /// Before the instruction of a breakpoint.
    Breakpoint {
        /// The breakpoint's number.
        id: u64,
        /// The instruction's address.
        address: u64,
    },
    /// Something accessed watched memory. Forwards, the cursor is after the access; backwards, before it.
    Watchpoint {
        /// The watchpoint's number.
        id: u64,
        /// The number of instructions that the thread completed before the access.
        count: u64,
        /// First address that was accessed.
        address: u64,
        /// Number of bytes that were accessed.
        len: u64,
        /// It read.
        read: bool,
        /// It wrote.
        write: bool,
        /// The kernel did it, in the system call or for the signal at this position.
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
    /// The cursor is before a system call.
    Syscall {
        /// Number of the call.
        number: u64,
    },
    /// The cursor is after a system call.
    SyscallReturn {
        /// Number of the call.
        number: u64,
        /// What it returned. `None`: it did not return.
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
    /// The last mapping of a file is removed.
    ModuleUnload {
        /// Path of the file.
        path: String,
    },
    /// A function is called.
    Call {
        /// Its address.
        function: u64,
    },
    /// A function returns.
    Return {
        /// Address of the function.
        function: u64,
        /// What rax holds.
        value: u64,
    },
    /// There is nothing earlier in this scope.
    Begin,
    /// There is nothing later in this scope.
    End,
    /// The run was cancelled. The cursor is where it was before.
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
