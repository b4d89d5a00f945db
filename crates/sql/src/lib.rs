//! The execution as tables: `hindsight sql`.
//!
//! DataFusion plans and executes queries. What is here makes the rows, in batches, from a recording.

mod bounds;
mod choose;
mod clock;
mod column;
mod command;
mod convert;
mod engine;
mod export;
mod files;
mod functions;
mod missing;
mod names;
mod numerals;
mod prompt;
mod recording;
mod recordings;
mod rows;
mod show;
mod sums;
mod table;
mod tables;
mod values;
mod words;

pub use command::run;
