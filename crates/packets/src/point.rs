//! `Z` and `z`: breakpoints and watchpoints.

use crate::Malformed;
use crate::encoding::{bytes, number, numbers, split};
use crate::error::Parsed;

/// A point is set or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Points {
    /// `Z`
    Insert(Point),
    /// `z`
    Remove(Point),
}

/// A breakpoint or a watchpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    pub kind: Kind,
    pub address: u64,
    /// Bytes of what is watched. Of a breakpoint it is the kind of the instruction there.
    pub len: u64,
    /// Any of these lets a breakpoint stop; empty: it always stops.
    pub conditions: Vec<Condition>,
}

/// A condition, in the code of gdb's manual, appendix "The GDB Agent Expression Mechanism".
pub type Condition = Vec<u8>;

/// What stops the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    SoftwareBreakpoint,
    HardwareBreakpoint,
    Watchpoint(WatchKind),
}

/// The accesses at which a watchpoint stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchKind {
    Write,
    Read,
    Access,
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Points> {
    let (Some(&what @ (b'Z' | b'z')), Some(kind)) = (packet.first(), packet.get(1)) else {
        return Ok(None);
    };
    let kind = match (kind, packet.get(2)) {
        (b'0', Some(b',')) => Kind::SoftwareBreakpoint,
        (b'1', Some(b',')) => Kind::HardwareBreakpoint,
        (b'2', Some(b',')) => Kind::Watchpoint(WatchKind::Write),
        (b'3', Some(b',')) => Kind::Watchpoint(WatchKind::Read),
        (b'4', Some(b',')) => Kind::Watchpoint(WatchKind::Access),
        _ => return Ok(None),
    };
    let malformed = Malformed(if what == b'Z' { "Z" } else { "z" });
    let point = point(kind, &packet[3..]).ok_or(malformed)?;
    Ok(Some(match what {
        b'Z' => Points::Insert(point),
        _ => Points::Remove(point),
    }))
}

/// `ADDRESS,LENGTH;CONDITIONS`.
fn point(kind: Kind, rest: &[u8]) -> Option<Point> {
    let (place, list) = split(rest, b';').unwrap_or((rest, b""));
    let (address, len) = numbers(place, b',')?;
    let conditions = match kind {
        Kind::Watchpoint(_) => Vec::new(),
        _ => conditions(list)?,
    };
    Some(Point {
        kind,
        address,
        len,
        conditions,
    })
}

/// Conditions, one after the other: `XLENGTH,CODE`. Commands, which may follow, are refused.
fn conditions(list: &[u8]) -> Option<Vec<Condition>> {
    let parts = list.split(|b| matches!(b, b';' | b'X'));
    let condition = |part: &[u8]| {
        let (len, code) = split(part, b',')?;
        let (len, code) = (number(len)?, bytes(code)?);
        (code.len() as u64 == len).then_some(code)
    };
    parts.filter(|p| !p.is_empty()).map(condition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inserted(packet: &[u8]) -> Point {
        match parse(packet) {
            Ok(Some(Points::Insert(point))) => point,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        let point = |kind, len| Point {
            kind,
            address: 0x401000,
            len,
            conditions: Vec::new(),
        };
        let software = point(Kind::SoftwareBreakpoint, 1);
        assert_eq!(inserted(b"Z0,401000,1"), software);
        assert_eq!(parse(b"z0,401000,1"), Ok(Some(Points::Remove(software))));
        let hardware = point(Kind::HardwareBreakpoint, 1);
        assert_eq!(inserted(b"Z1,401000,1"), hardware);
        let read = point(Kind::Watchpoint(WatchKind::Read), 8);
        assert_eq!(inserted(b"Z3,401000,8"), read);
        for other in [&b"Z"[..], b"Z5,0,1", b"Z00,0,1", b"y0,0,1"] {
            assert_eq!(parse(other), Ok(None));
        }
        for bad in [&b"Z0,"[..], b"Z0,1", b"z2,x,1", b"Z0,1,1;cmds:1,X1,27"] {
            assert!(parse(bad).is_err());
        }
    }

    #[test]
    fn conditions_are_lists() {
        let one = vec![0x22, 1, 0x27];
        let of = |list: &[u8]| inserted(&[b"Z0,10,1", list].concat()).conditions;
        let two = of(b";X3,220127X3,220127");
        assert_eq!(two, [one.clone(), one.clone()]);
        assert_eq!(of(b";X3,220127"), [one]);
        for bad in [&b"X3,2201"[..], b"X3,22012g", b"cmds:1,X1,27", b"\xff"] {
            assert_eq!(conditions(bad), None);
        }
    }
}
