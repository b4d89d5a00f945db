//! Names of instants.

use std::fmt;
use std::str::FromStr;

/// An instant of a recording: a segment, and the instructions completed in it.
///
/// A segment is what one thread did between two neighbouring events with order numbers. Its name is the number of the
/// event that opens it. The first segment of a recording's first thread has the number 0. Positions are totally
/// ordered, by segment first. They are printed and parsed as two hexadecimal numbers: `1A2:3F`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Order number of the event that opens the segment. 0: no event does.
    pub segment: u64,
    /// The number of instructions that are completed in the segment.
    pub offset: u64,
}

impl Position {
    /// Makes a position.
    pub const fn new(segment: u64, offset: u64) -> Position {
        Position { segment, offset }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:X}:{:X}", self.segment, self.offset)
    }
}

/// The text is no position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a position is two hexadecimal numbers with a colon between them, such as 1A2:3F")]
pub struct ParsePositionError;

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(s: &str) -> Result<Position, ParsePositionError> {
        let number = |s: &str| match s.starts_with('+') {
            true => Err(ParsePositionError),
            false => u64::from_str_radix(s, 16).map_err(|_| ParsePositionError),
        };
        let (segment, offset) = s.trim().split_once(':').ok_or(ParsePositionError)?;
        Ok(Position::new(number(segment)?, number(offset)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses() {
        let p = Position::new(0x1a2, 0x3f);
        assert_eq!(p.to_string(), "1A2:3F");
        assert_eq!("1a2:3F".parse(), Ok(p));
        assert_eq!(" 0:0\n".parse(), Ok(Position::default()));
        for bad in [
            "",
            ":",
            "1",
            "1:",
            ":1",
            "g:1",
            "1:2:3",
            "-1:2",
            "+1:2",
            "1 :2",
            "10000000000000000:0",
        ] {
            assert_eq!(bad.parse::<Position>(), Err(ParsePositionError), "{bad}");
        }
        assert!(Position::new(1, 9) < Position::new(2, 0));
        assert!(Position::new(2, 1) < Position::new(2, 2));
    }
}
