//! Why an instruction is not executed.

use std::fmt;

/// Why an instruction cannot be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The code at the instruction pointer is not known.
    MissingCode,
    /// The bytes there are no instruction.
    NoInstruction,
    /// The processor would raise this exception.
    Exception(u8),
    /// This instruction is not supported, or not in this form.
    Unsupported(String),
    /// Its result is an approximation, or one that the manuals leave undefined, in which processors differ.
    Approximate(String),
    /// Only an event can say what it does.
    Outside(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fault::MissingCode => write!(f, "unknown code"),
            Fault::NoInstruction => write!(f, "not an instruction"),
            Fault::Exception(n) => write!(f, "an instruction that raises exception {n}"),
            Fault::Unsupported(what) => write!(f, "the interpreter does not support {what}"),
            Fault::Approximate(what) => write!(
                f,
                "the interpreter does not support {what}, whose results differ between processors"
            ),
            Fault::Outside(what) => write!(f, "{what}, whose result is not recorded"),
        }
    }
}
