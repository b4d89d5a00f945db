//! The execution as tables: `hindsight sql`.
//!
//! DataFusion plans and executes queries. What is here makes the rows, in batches, from a recording.

mod bounds;
mod clock;
mod column;
mod command;
mod engine;
mod functions;
mod numerals;
mod prompt;
mod recording;
mod rows;
mod show;
mod sums;
mod table;
mod tables;
mod words;

pub use command::run;
