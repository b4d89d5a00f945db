//! Signals and exceptions: from the recorder's handler to the program's, or to the end of the process.

pub mod actions;
pub mod cores;
pub mod death;
pub mod delivery;
pub mod doom;
pub mod exceptions;
pub mod frame;
pub mod handler;
pub mod requests;
pub mod sharers;
pub mod stepping;
pub mod traced;
