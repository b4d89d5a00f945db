//! Questions in SQL, compared with what programs say of themselves and with other tools.

mod ask;
mod bounds;
mod calls;
mod converted;
mod cookbook;
mod exported;
mod forms;
mod heap;
mod hostile;
mod outside;
mod prompt;
mod several;
mod sums;
mod tables;
