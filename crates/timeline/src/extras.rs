//! Further answers, built on those of the facade.

pub mod branch;
mod exits;
pub mod names;
pub mod registers;
pub mod route;
pub mod system;
mod within;
