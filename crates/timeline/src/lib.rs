//! Travel in a recording.
//!
//! [`Timeline::open`] opens a trace. It lists what the trace has: processes, threads, modules, events, segments. A
//! [`Cursor`] stands at one instant of it. It shows registers and memory, and steps and runs forwards and backwards. It
//! also tells who accessed memory last or first.
//!
//! ```
//! # let (_scene, trace) = hindsight_lab::example();
//! use hindsight_timeline::{Options, Timeline};
//! let t = Timeline::open(&trace, Options::default())?;
//! let mut c = t.cursor()?;
//! c.seek(t.range()?.1)?;
//! // Who wrote what the stack pointer points to?
//! let rsp = c.registers()?.gpr[hindsight_timeline::regs::RSP];
//! if let Some(w) = c.last_write(rsp, 8)? {
//!     println!("{} {:#x}", w.position, w.pc);
//!     c.seek(w.position)?;
//!     assert_eq!(c.position()?, w.position);
//! }
//! # Ok::<(), hindsight_timeline::Error>(())
//! ```
//!
//! `examples/tour.rs` shows the rest: lists, registers and memory, steps and runs in both directions.
//!
//! # Time
//!
//! Each thread counts its instructions. A [`Position`] names an instant for all threads. It has two numbers:
//!
//! - the segment: the order number of the event that opens it;
//! - the instructions that are completed in that segment.
//!
//! [`Timeline::position`] and [`Timeline::locate`] convert between a thread's count and a position.
//!
//! An instant is *before* the instruction with its number. A signal or a system call at an instant has not yet
//! happened. The end of a segment has the position of the next segment's start.
//!
//! # Nothing runs
//!
//! All instructions run on virtual processors. These touch no memory but their own, and make no system call for the
//! program. The trace is never changed.

#![deny(missing_docs)]

mod access;
mod base;
pub mod breakpath;
mod calls;
mod engine;
pub mod expression;
mod extras;
mod index;
mod model;
mod play;
mod recording;
mod scan;
mod search;
mod travel;
mod value;

pub use access::{Entry, Executed, FlowControl, Runs, Straight, Touch, Walk, Walked};
pub use base::similar::{did_you_mean, similar};
pub use calls::{Call, Return};
pub use engine::INDEX_CONSTANT;
pub use engine::interest::Dense;
/// What executes the instructions of a recording.
pub use hindsight_replay::Choice as Processor;
pub use hindsight_replay::{Run, Taken};

pub use engine::{Asking, Background, Depth, IndexStatus, Options};
pub use extras::branch::{Branch, Halted};
pub use extras::cut::CutRecording;
pub use extras::descriptors::effects;
pub use extras::descriptors::{
    Content, Descriptor, Descriptors, Flow, Mapped, Named, OpenFile, Paths, Told, Transfer, Unseen,
    Way, What,
};
pub use extras::gaps::Unrecorded;
pub use extras::names::Names;
pub use extras::registers::Changed;
pub use extras::route::{Candidates, Halt, Route, RouteLimits, Setting};
pub use extras::states::StatePoint;
pub use extras::system::{SystemCall, error_name, signal_name};
pub use hindsight_events::GapReason;
pub use hindsight_isa::{CpuState, VecState, regs};
pub use hindsight_replay::access::Access;
pub use hindsight_trace::ModuleHash;
pub use hindsight_trace::files::index_path;
pub use model::contents::{
    Ending, Filter, Happening, Kind, KindOf, Mapping, Module, Process, Segment, Thread, ThreadId,
    ThreadInstant,
};
pub use model::describe::{ParseKindError, syscall_name, syscall_number};
pub use model::error::{Error, Result};
pub use model::memory::{
    Candidate, Found, Ground, GroundSpan, KnownByte, Memory, Unnamed, Why, Written,
};
pub use model::moment::{Moment, in_order};
pub use model::place::{ParsePlaceError, Place, Which};
pub use model::position::{ParsePositionError, Position};
pub use model::stops::{
    At, Breakpoint, Cancel, Choice, Condition, ConditionCode, Direction, Reason, Register,
    Registers, Scope, Stop, Stops, View, Watch, WatchedValue, Watchpoint,
};
pub use search::Writes;
pub use travel::cursor::Cursor;
pub use travel::timeline::Timeline;
