//! What a trace says, without replaying anything.

pub mod clobbers;
mod endings;
mod happen;
pub mod maps;
mod order;
