//! What strangers can do: with their recordings, and as peers of a connection.

mod files;
#[path = "../real_programs/harness.rs"]
#[allow(dead_code)]
mod harness;
mod peers;
mod sandbox;
mod text;
