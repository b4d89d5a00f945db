//! Frames: `$`, the content, `#`, and a checksum of two digits.

use crate::encoding::{number, push_hex};

/// Bytes of the longest packet that is taken.
pub const MAX_PACKET: usize = 1 << 16;
/// A request to stop what runs, outside of packets.
const INTERRUPT: u8 = 3;

/// What came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// The content of a packet.
    Packet(Vec<u8>),
    /// A packet with a wrong checksum.
    Damaged,
    /// The client stops what runs.
    Interrupt,
    /// The client has got a packet (`+`).
    Received,
    /// The client has got a damaged packet, and wants it again (`-`).
    Again,
    /// A packet of more than [`MAX_PACKET`] bytes.
    TooLong,
    /// A byte that belongs to nothing.
    Stray(u8),
}

/// Cuts the incoming bytes into packets.
#[derive(Default)]
pub struct Framer {
    state: State,
    content: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Outside,
    Inside,
    /// The first digit of the checksum comes next.
    First,
    /// The second one; this is the first.
    Second(u8),
}

impl Framer {
    /// Takes the next byte.
    pub fn push(&mut self, byte: u8) -> Option<Incoming> {
        match self.state {
            State::Outside => match byte {
                b'$' => self.begin(),
                b'+' => Some(Incoming::Received),
                b'-' => Some(Incoming::Again),
                INTERRUPT => Some(Incoming::Interrupt),
                other => Some(Incoming::Stray(other)),
            },
            State::Inside => match byte {
                // The rest of the last one is lost.
                b'$' => self.begin(),
                b'#' => {
                    self.state = State::First;
                    None
                }
                _ if self.content.len() == MAX_PACKET => {
                    self.state = State::Outside;
                    self.content = Vec::new();
                    Some(Incoming::TooLong)
                }
                _ => {
                    self.content.push(byte);
                    None
                }
            },
            State::First => {
                self.state = State::Second(byte);
                None
            }
            State::Second(first) => {
                self.state = State::Outside;
                let content = std::mem::take(&mut self.content);
                let said = number(&[first, byte]);
                Some(match said == Some(checksum(&content) as u64) {
                    true => Incoming::Packet(content),
                    false => Incoming::Damaged,
                })
            }
        }
    }

    fn begin(&mut self) -> Option<Incoming> {
        self.state = State::Inside;
        self.content.clear();
        None
    }
}

fn checksum(content: &[u8]) -> u8 {
    content.iter().fold(0, |sum, b| sum.wrapping_add(*b))
}

/// A packet with this content.
pub fn frame(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    out.push(b'$');
    out.extend(content);
    out.push(b'#');
    push_hex(&mut out, &[checksum(content)]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(bytes: &[u8]) -> Vec<Incoming> {
        let mut framer = Framer::default();
        bytes.iter().filter_map(|b| framer.push(*b)).collect()
    }

    #[test]
    fn packets_are_told_apart() {
        let bytes = [b"+\x03-".to_vec(), frame(b"g"), b"x$m1$c#63".to_vec()].concat();
        let expected = [
            Incoming::Received,
            Incoming::Interrupt,
            Incoming::Again,
            Incoming::Packet(b"g".to_vec()),
            Incoming::Stray(b'x'),
            Incoming::Packet(b"c".to_vec()),
        ];
        assert_eq!(push(&bytes), expected);
        assert_eq!(push(b"$j#6A"), [Incoming::Packet(b"j".to_vec())]);
        assert_eq!(push(b"$#00"), [Incoming::Packet(Vec::new())]);
        for damaged in [&b"$g#68"[..], b"$g#6", b"$g#zz", b"$g##7"] {
            let wanted = if damaged.len() > 4 {
                vec![Incoming::Damaged]
            } else {
                vec![]
            };
            assert_eq!(push(damaged), wanted);
        }
    }

    #[test]
    fn long_packets_are_refused() {
        let longest = frame(&vec![b'a'; MAX_PACKET]);
        assert!(matches!(&push(&longest)[..], [Incoming::Packet(p)] if p.len() == MAX_PACKET));
        let longer = frame(&vec![b'a'; MAX_PACKET + 1]);
        assert_eq!(push(&longer)[0], Incoming::TooLong);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(prop_oneof![Just(b'$'), Just(b'#'), any::<u8>()], 0..300)) {
            let found = push(&bytes);
            prop_assert!(found.len() <= bytes.len());
        }

        #[test]
        fn frames_come_back(content in "[ -\"%-~]{0,60}") {
            let content = content.into_bytes();
            prop_assert_eq!(push(&frame(&content)), [Incoming::Packet(content)]);
        }
    }
}
