//! Travel in recordings, compared with a plain forward replay that logs everything.

#[path = "../real_programs/harness.rs"]
#[allow(dead_code)]
mod harness;
mod oracle;
mod questions;
