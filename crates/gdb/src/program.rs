//! What the client asks about the program's files.

pub mod files;
pub mod libraries;
