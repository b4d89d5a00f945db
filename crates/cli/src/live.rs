//! Commands on live programs: to record them, and to run them with what was recorded.

pub mod attach;
pub mod cache;
pub mod dump;
mod handover;
pub mod mark;
pub mod record;
pub mod rerun;
pub mod resume;
