//! `QPassSignals`, and numbers of signals.

use crate::Malformed;
use crate::encoding::number;
use crate::error::Parsed;

/// A signal by gdb's number, which is not Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal(pub u8);

impl Signal {
    /// No signal.
    pub const NONE: Signal = Signal(0);
    /// The user's interrupt.
    pub const INT: Signal = Signal(2);
    /// A breakpoint, or a step.
    pub const TRAP: Signal = Signal(5);
    /// What cannot be done.
    pub const SYS: Signal = Signal(12);
}

/// `QPassSignals`: signals at which the program does not stop. At all others it does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassSignals(pub Vec<Signal>);

pub(crate) fn parse(packet: &[u8]) -> Parsed<PassSignals> {
    let Some(list) = packet.strip_prefix(b"QPassSignals:") else {
        return Ok(None);
    };
    let signal = |digits: &[u8]| Some(Signal(u8::try_from(number(digits)?).ok()?));
    // gdb ends its list with a semicolon.
    let parts = list.split(|b| *b == b';').filter(|p| !p.is_empty());
    let all: Option<_> = parts.map(signal).collect();
    Ok(Some(PassSignals(all.ok_or(Malformed("QPassSignals"))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_listed() {
        let all = PassSignals(vec![Signal(14), Signal(20)]);
        assert_eq!(parse(b"QPassSignals:e;14"), Ok(Some(all.clone())));
        assert_eq!(parse(b"QPassSignals:e;14;"), Ok(Some(all)));
        let none = PassSignals(Vec::new());
        assert_eq!(parse(b"QPassSignals:"), Ok(Some(none)));
        assert!(parse(b"QPassSignals:e;x").is_err());
        assert!(parse(b"QPassSignals:100").is_err());
    }
}
