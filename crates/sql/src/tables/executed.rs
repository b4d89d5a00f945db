//! Instructions and what they access. Nothing of this is stored: replay makes it again for what is asked.

mod accesses;
mod branches;
mod instructions;
mod names;
mod tape;

pub use accesses::Accesses;
pub use branches::Branches;
pub use instructions::Instructions;

use crate::column::Column;
use crate::column::Kind::{Address, Text, Word};
use crate::column::column;

const PC: Column = column("pc", Address, "address of the instruction");
const FUNCTION: Column = column(
    "function",
    Word,
    "the function that it is in; NULL: not known",
);
const LINE: Column = column(
    "line",
    Text,
    "its source line, as FILE:LINE; NULL: not known",
);
