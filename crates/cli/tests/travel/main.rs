//! Travel in recordings, compared with a plain forward replay that logs everything.

mod calls;
mod grounds;
#[path = "../real_programs/harness.rs"]
#[allow(dead_code)]
mod harness;
mod index;
mod oracle;
mod places;
mod questions;
