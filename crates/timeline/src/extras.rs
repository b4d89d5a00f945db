//! What is made of the facade's answers.

pub mod branch;
mod exits;
pub mod names;
pub mod registers;
pub mod route;
pub mod system;
mod within;
