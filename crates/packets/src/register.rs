//! `g`, `G`, `p` and `P`: registers of the chosen thread.

use crate::Malformed;
use crate::encoding::{bytes, number, split};
use crate::error::Parsed;

/// A question about registers, or a change of them. Numbers and sizes are those of the target description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Register {
    /// `g`: all, in their order.
    ReadAll,
    /// `G`
    WriteAll(Vec<u8>),
    /// `p`
    Read(usize),
    /// `P`
    Write(usize, Vec<u8>),
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Register> {
    let (Some(kind), rest) = (packet.first(), packet.get(1..).unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(Some(match kind {
        b'g' if rest.is_empty() => Register::ReadAll,
        b'G' => Register::WriteAll(bytes(rest).ok_or(Malformed("G"))?),
        b'p' => Register::Read(index(rest).ok_or(Malformed("p"))?),
        b'P' => write(rest).ok_or(Malformed("P"))?,
        _ => return Ok(None),
    }))
}

fn index(digits: &[u8]) -> Option<usize> {
    usize::try_from(number(digits)?).ok()
}

fn write(rest: &[u8]) -> Option<Register> {
    let (which, value) = split(rest, b'=')?;
    Some(Register::Write(index(which)?, bytes(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_all() {
        assert_eq!(parse(b"g"), Ok(Some(Register::ReadAll)));
        assert_eq!(parse(b"p1f"), Ok(Some(Register::Read(0x1f))));
        let write = Register::Write(0x1f, vec![0, 17]);
        assert_eq!(parse(b"P1f=0011"), Ok(Some(write)));
        assert_eq!(parse(b"G0011"), Ok(Some(Register::WriteAll(vec![0, 17]))));
        assert_eq!(parse(b"gx"), Ok(None));
        for bad in [&b"p"[..], b"px", b"P1", b"P1=0", b"G0"] {
            assert!(parse(bad).is_err());
        }
    }
}
