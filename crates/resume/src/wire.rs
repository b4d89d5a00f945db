//! What the half that reads the recording says to the other one: frames, each with a kind, two numbers and some bytes.

use hindsight_inspect::state::Why;
use std::io::{self, Read, Write};

/// The longest description of a process, in bytes.
const MOST_STATE: usize = 16 << 20;
/// The most bytes of a frame of any other kind.
pub const MOST: usize = 1 << 18;

/// A frame. Offsets, addresses and lengths are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// What the process was, as JSON.
    State(Vec<u8>),
    /// Memory from an address on.
    Memory(u64, Vec<u8>),
    /// Memory that is not known: its address and length, and who could miss it.
    Unknown(u64, u64, Why),
    /// A file's length, if it is known.
    File(u32, Option<u64>),
    /// A file's content from an offset on.
    Content(u32, u64, Vec<u8>),
    /// All has been said.
    End,
}

/// Sends a frame.
///
/// # Errors
/// It is too long, or nobody is there.
pub fn send(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let none: &[u8] = &[];
    let (kind, a, b, bytes): (u8, u64, u64, &[u8]) = match frame {
        Frame::State(json) => (0, 0, 0, json),
        Frame::Memory(at, bytes) => (1, *at, 0, bytes),
        Frame::Unknown(at, len, Why::Needed) => (2, *at, *len, none),
        Frame::Unknown(at, len, Why::Reserved) => (3, *at, *len, none),
        Frame::Unknown(at, len, Why::Left) => (8, *at, *len, none),
        Frame::File(n, None) => (4, (*n).into(), 0, none),
        Frame::File(n, Some(size)) => (5, (*n).into(), *size, none),
        Frame::Content(n, at, bytes) => (6, (*n).into(), *at, bytes),
        Frame::End => (7, 0, 0, none),
    };
    if bytes.len() > most(kind) {
        return Err(io::Error::other("there is too much to say at once"));
    }
    let mut head = vec![kind];
    head.extend(a.to_le_bytes());
    head.extend(b.to_le_bytes());
    head.extend((bytes.len() as u32).to_le_bytes());
    to.write_all(&head)?;
    to.write_all(bytes)
}

fn most(kind: u8) -> usize {
    match kind {
        0 => MOST_STATE,
        1 | 6 => MOST,
        _ => 0,
    }
}

/// Receives a frame.
///
/// # Errors
/// It is none, or the other half has gone.
pub fn receive(from: &mut impl Read) -> io::Result<Frame> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a message does not decode");
    let mut head = [0; 21];
    from.read_exact(&mut head)?;
    let number = |i: usize| {
        let mut n = [0; 8];
        n.copy_from_slice(&head[i..i + 8]);
        u64::from_le_bytes(n)
    };
    let (kind, a, b) = (head[0], number(1), number(9));
    let len = u32::from_le_bytes([head[17], head[18], head[19], head[20]]) as usize;
    if len > most(kind) {
        return Err(wrong());
    }
    let mut bytes = Vec::new();
    from.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let file = u32::try_from(a).map_err(|_| wrong());
    Ok(match kind {
        0 => Frame::State(bytes),
        1 => Frame::Memory(a, bytes),
        2 => Frame::Unknown(a, b, Why::Needed),
        3 => Frame::Unknown(a, b, Why::Reserved),
        8 => Frame::Unknown(a, b, Why::Left),
        4 => Frame::File(file?, None),
        5 => Frame::File(file?, Some(b)),
        6 => Frame::Content(file?, b, bytes),
        7 => Frame::End,
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_come_as_they_were_sent() {
        let all = [
            Frame::State(b"{}".to_vec()),
            Frame::Memory(u64::MAX, vec![1, 2, 3]),
            Frame::Unknown(4096, 7, Why::Reserved),
            Frame::Unknown(4096, 7, Why::Needed),
            Frame::Unknown(4096, 7, Why::Left),
            Frame::File(3, None),
            Frame::File(3, Some(0)),
            Frame::Content(u32::MAX, 9, vec![0; MOST]),
            Frame::End,
        ];
        let mut wire = Vec::new();
        all.iter().for_each(|f| send(&mut wire, f).unwrap());
        let mut from = wire.as_slice();
        for f in &all {
            assert_eq!(receive(&mut from).unwrap(), *f);
        }
        assert!(receive(&mut from).is_err());
        // The other half ends amid a frame.
        let cut = receive(&mut &wire[..22]).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let long = Frame::Memory(0, vec![0; MOST + 1]);
        assert!(send(&mut Vec::new(), &long).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            let _ = receive(&mut bytes.as_slice());
        }
    }
}
