//! `QCatchSyscalls`: system calls at which the program stops.

use crate::Malformed;
use crate::encoding::number;
use crate::error::Parsed;

/// Which system calls stop the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatchSyscalls {
    Nothing,
    All,
    /// These numbers. There is at least one.
    Only(Vec<u64>),
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<CatchSyscalls> {
    let Some(rest) = packet.strip_prefix(b"QCatchSyscalls:") else {
        return Ok(None);
    };
    Ok(Some(match rest {
        b"0" => CatchSyscalls::Nothing,
        b"1" => CatchSyscalls::All,
        [b'1', b';', list @ ..] => {
            let all: Option<_> = list.split(|b| *b == b';').map(number).collect();
            CatchSyscalls::Only(all.ok_or(Malformed("QCatchSyscalls"))?)
        }
        _ => return Err(Malformed("QCatchSyscalls")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_listed() {
        let parsed = |rest: &str| parse(format!("QCatchSyscalls:{rest}").as_bytes());
        assert_eq!(parsed("0"), Ok(Some(CatchSyscalls::Nothing)));
        assert_eq!(parsed("1"), Ok(Some(CatchSyscalls::All)));
        let two = CatchSyscalls::Only(vec![1, 0x3c]);
        assert_eq!(parsed("1;1;3c"), Ok(Some(two)));
        for bad in ["", "2", "1;", "1;x", "0;1"] {
            assert!(parsed(bad).is_err());
        }
    }
}
