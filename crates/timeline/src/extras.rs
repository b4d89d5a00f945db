//! Further answers, built on those of the facade.

pub mod branch;
pub mod cut;
pub mod descriptors;
mod exits;
pub mod gaps;
pub mod names;
pub mod registers;
pub mod route;
pub mod states;
pub mod system;
mod within;
