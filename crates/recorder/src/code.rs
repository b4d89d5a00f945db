//! The program's code: its translations and versions, which of it is recorded, and the order of its
//! atomic operations.

pub mod allocators;
pub mod cache;
pub mod epochs;
pub mod mapping;
pub mod places;
pub mod processor;
pub mod rights;
pub mod select;
pub mod sequence;
pub mod shared_translations;
