//! Finds which instruction of a thread accessed memory last.

mod done;
mod here;
pub mod last;
mod runs;
mod several;
mod walk;

pub use crate::play::Last;
pub use done::Done;
pub use here::{accesses, first_writes};
pub use last::{Lasts, Target, last_effects};
pub use runs::{Entry, Executed, Runs};
pub use several::{Asked, last_of_several};
pub use walk::{FlowControl, Straight, Touch, Walk, Walked};

/// Up to this many instructions are looked at one by one.
pub const FEW: u64 = 24;
