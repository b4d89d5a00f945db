//! `m`, `M` and `X`: the program's memory.

use crate::encoding::{bytes, number, numbers, split, unescape};
use crate::error::Parsed;
use crate::{MAX_DATA, Malformed};

/// A question about memory, or a change of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Memory {
    /// `m`. The answer is [`crate::Answer::hex`]; it may have fewer bytes than asked for, but not none.
    Read {
        address: u64,
        /// At most [`MAX_DATA`].
        len: usize,
    },
    /// `M` or `X`.
    Write { address: u64, bytes: Vec<u8> },
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Memory> {
    let (Some(kind), rest) = (packet.first(), packet.get(1..).unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(Some(match kind {
        b'm' => {
            let (address, len) = numbers(rest, b',').ok_or(Malformed("m"))?;
            let len = usize::try_from(len).unwrap_or(MAX_DATA).min(MAX_DATA);
            Memory::Read { address, len }
        }
        b'M' => write(rest, bytes).ok_or(Malformed("M"))?,
        b'X' => write(rest, unescape).ok_or(Malformed("X"))?,
        _ => return Ok(None),
    }))
}

/// `ADDRESS,LENGTH:DATA`.
fn write(rest: &[u8], decode: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Memory> {
    let (head, data) = split(rest, b':')?;
    let (address, len) = split(head, b',')?;
    let (address, len, bytes) = (number(address)?, number(len)?, decode(data)?);
    (bytes.len() as u64 == len).then_some(Memory::Write { address, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        let read = |address, len| Ok(Some(Memory::Read { address, len }));
        assert_eq!(parse(b"m10,8"), read(0x10, 8));
        assert_eq!(parse(b"m0,ffffffffffffffff"), read(0, MAX_DATA));
        let write = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            Ok(Some(Memory::Write { address: 16, bytes }))
        };
        assert_eq!(parse(b"M10,2:0011"), write(&[0, 17]));
        assert_eq!(parse(b"X10,3:a}\x03:"), write(b"a#:"));
        assert_eq!(parse(b"X10,0:"), write(b""));
        for bad in [&b"m"[..], b"m1", b"mx,1", b"M1,2:00", b"M1,1", b"X1,1:}"] {
            assert!(parse(bad).is_err());
        }
        assert_eq!(parse(b""), Ok(None));
    }
}
