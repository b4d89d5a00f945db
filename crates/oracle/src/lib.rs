//! What tests and measurements of travel are compared with. A plain replay runs forward, one instruction after the other,
//! and logs everything. There is no index in it, no search, no cache: nothing of what it is the judge of.
//!
//! - [`plain`]: one thread, completely: all its states, accesses, and the history of each byte.
//! - [`questions`]: random questions about a recording with any threads, asked in several ways.

pub mod plain;
pub mod questions;
