//! What runs and steps do, and what the client is told of them.

pub mod due;
pub mod go;
pub mod range;
pub mod stale;
pub mod tell;
