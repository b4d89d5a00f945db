//! The program's memory: what is mapped where, which reads of it need no comparison, and how much of it
//! the program may have.

pub mod asked;
pub mod backing;
pub mod brk;
pub mod commons;
pub mod fresh;
pub mod limits;
pub mod maps;
pub mod observe;
pub mod page_sharing;
pub mod placement;
pub mod regime;
pub mod shown;
