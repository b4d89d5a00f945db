//! The program's memory: what is mapped where, which of it needs no comparison, what the program may have.

pub mod backing;
pub mod brk;
pub mod limits;
pub mod maps;
pub mod observe;
pub mod page_sharing;
pub mod placement;
pub mod regime;
pub mod shown;
