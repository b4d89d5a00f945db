//! The virtual processor, as recorder and replay see it:
//!
//! - the context block of a thread, which translated code addresses ([`Ctx`]);
//! - the general purpose registers, their names and numbers ([`regs`]);
//! - the register state, in a form that does not depend on the host ([`CpuState`], [`VecState`]);
//! - the geometry of the shadow memory ([`Predictor`]);
//! - the reasons for leaving translated code ([`Desc`]);
//! - which instructions need which features ([`features`]);
//! - in what makers of processors differ ([`approximate`], [`left_open`]);
//! - which instructions have a result that no virtual processor can compute ([`outside`], [`transcendental`]).
//!
//! All of it is part of the meaning of a trace: recorder and replay must be built from the same
//! definitions. The crate does not need `std`.
#![no_std]

pub mod approximate;
pub mod cpuid;
pub mod ctx;
pub mod desc;
pub mod features;
pub mod ibl;
pub mod lazy_flags;
pub mod left_open;
pub mod mark;
pub mod observe;
pub mod outside;
pub mod predictor;
pub mod regs;
pub mod runs;
pub mod state;
pub mod string;
pub mod transcendental;
pub mod xsave;

pub use approximate::{Approximations, Finer};
pub use ctx::{Ctx, Executed};
pub use desc::{Desc, DescKind};
pub use features::{Features, Lacking};
pub use lazy_flags::LazyFlags;
pub use left_open::LeftOpen;
pub use outside::comes_from_outside;
pub use predictor::Predictor;
pub use state::{CpuState, High, VecState};
pub use transcendental::Transcendental;
