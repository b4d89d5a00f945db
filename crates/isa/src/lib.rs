//! The virtual processor as recorder and replay see it: the layout of the per-thread context
//! that translated code addresses, the register state in a form that does not depend on the
//! host, the geometry of the read predictor and the reasons for leaving translated code.
//!
//! Everything here is part of the trace's meaning: recorder and replay must be built from the
//! same definitions. The crate needs neither `std` nor an allocator.
#![no_std]

pub mod cpuid;
pub mod ctx;
pub mod desc;
pub mod kept;
pub mod mark;
pub mod observe;
pub mod predictor;
pub mod state;
pub mod string;
pub mod targets;
pub mod xsave;

pub use ctx::{Ctx, Executed};
pub use desc::{Desc, DescKind};
pub use kept::Kept;
pub use predictor::Predictor;
pub use state::{CpuState, VecState};
