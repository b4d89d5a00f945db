//! The facade: a recording, and places in it.

pub mod cursor;
pub mod places;
pub mod timeline;
pub mod times;
