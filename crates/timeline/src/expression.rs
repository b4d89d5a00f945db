//! Conditions of breakpoints as data: programs of a small stack machine.
//!
//! ```
//! use hindsight_timeline::expression::{Binary, Expression, Operand};
//! use hindsight_timeline::{Breakpoint, regs};
//! // Stops at 0x401000 where rdi is 5.
//! let rdi = Operand::General(regs::RDI as u8);
//! let mut b = Breakpoint::at(1, 0x401000);
//! b.condition = Some(Expression::compare(rdi, Binary::Equal, 5).into());
//! ```

pub use hindsight_replay::{Binary, Expression, Look, Operand, Step};
