//! The first lines of scripts, as the kernel reads them.

use alloc::ffi::CString;

pub use hindsight_events::script::LINE;

/// Interpreter and argument of a `#!` line (see [`hindsight_events::script`]). `None` if it has
/// another form.
pub fn parse(start: &[u8]) -> Option<(CString, Option<CString>)> {
    let (interpreter, argument) = hindsight_events::script::parse(start)?;
    let argument = match argument {
        [] => None,
        a => Some(CString::new(a).ok()?),
    };
    Some((CString::new(interpreter).ok()?, argument))
}
