//! The types of which questions and answers are made.

pub mod contents;
pub mod describe;
pub mod error;
pub mod memory;
pub mod moment;
pub mod place;
pub mod position;
pub mod stops;
