//! Parses names of places, as users write them.

use crate::{ParsePositionError, Position, syscall_name, syscall_number};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a user types to name an instant.
///
/// | text | place |
/// |---|---|
/// | `1A2:3F` | a position |
/// | `begin`, `end` | the first and the last instant |
/// | `crash` | where a signal killed the program: the position of the thread that got it; of several the last |
/// | `50%` | where this part of all instructions is done, in the total order |
/// | `event:N` | the Nth event (from 1) in the order of [`crate::Timeline::events`] |
/// | `syscall:N` | the Nth system call (from 1) |
/// | `syscall:NAME`, `syscall:NAME:N` | the first, or the Nth, system call of this name |
/// | `mark:N` | the Nth mark that a program set (from 1) |
/// | `mark:NAME`, `mark:NAME:N` | the first, or the Nth, mark of this name |
/// | `state:N` | the Nth state point (from 1) in the order of [`crate::Timeline::state_points`] |
/// | `state:NAME`, `state:NAME:N` | the first, or the Nth, state point of this name |
/// | `time:1.5s` | the last instant reached at this time since the start of the recording (`s`, `ms` or `us`) |
/// | `12:34:56.789` | the same by the time of day, in this machine's time zone |
///
/// With a program image chosen, all of these count within it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Place {
    /// A position.
    Position(Position),
    /// The first instant.
    Begin,
    /// The last instant.
    End,
    /// Where a signal killed the program.
    Crash,
    /// The part of all instructions that is done, from 0 to 100.
    Percent(f64),
    /// The number of an event, from 1.
    Event(u64),
    /// The number of a system call, from 1.
    Syscall(u64),
    /// The code of a system call, and which one of those calls, from 1.
    SyscallOf(u64, u64),
    /// A mark that a program set.
    Mark(Which),
    /// A state point.
    State(Which),
    /// A time since the start of the recording; see [`crate::Timeline::at_time`].
    Time(Duration),
    /// A time since midnight.
    Clock(Duration),
}

/// One of several things that may have names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// The number among all, from 1.
    Number(u64),
    /// The name, and the number among those of this name, from 1.
    Name(String, u64),
}

impl Which {
    /// Reads `N`, `NAME` or `NAME:N`. A name that is a number, or ends in a colon and a number, needs the N.
    fn parse(text: &str) -> Option<Which> {
        let number = |n: &str| n.parse::<u64>().ok();
        let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        if is_number(text) {
            return number(text).map(Which::Number);
        }
        match text.rsplit_once(':').filter(|(_, n)| is_number(n)) {
            Some((name, n)) => Some(Which::Name(name.into(), number(n)?)),
            None => (!text.is_empty()).then(|| Which::Name(text.into(), 1)),
        }
    }

    /// The one of these that is meant. The error is how many there are with that name, or at all.
    pub(crate) fn of<'a, T>(
        &self,
        all: impl Iterator<Item = (Option<&'a str>, T)>,
    ) -> std::result::Result<T, usize> {
        let of_name = all.filter(|(name, _)| match self {
            Which::Number(_) => true,
            Which::Name(wanted, _) => *name == Some(wanted),
        });
        let before = usize::try_from(self.nth() - 1).unwrap_or(usize::MAX);
        let mut seen = 0;
        for (_, found) in of_name {
            if seen == before {
                return Ok(found);
            }
            seen += 1;
        }
        Err(seen)
    }

    fn nth(&self) -> u64 {
        match self {
            Which::Number(n) | Which::Name(_, n) => *n,
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Which::Number(n) => write!(f, "{n}"),
            // Unless that is read as something else.
            Which::Name(name, 1) if Which::parse(name).as_ref() == Some(self) => f.write_str(name),
            Which::Name(name, n) => write!(f, "{name}:{n}"),
        }
    }
}

/// The text names no place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePlaceError {
    #[error(
        "{0} is no place: expected a position such as 1A2:3F, a part of the run such as 50%, `begin`, `end`, \
         `crash`, `event:N`, `syscall:N`, `mark:NAME`, `state:N`, `time:1.5s` or a time of day such as 12:34:56"
    )]
    /// None of the forms fits this text.
    Unknown(String),
    /// The number is 0, but counting begins at 1.
    #[error("{0} is no place: events, system calls, marks and state points are counted from 1")]
    Zero(String),
    /// No system call has this name.
    #[error("{0}")]
    NoSyscall(String),
}

impl FromStr for Place {
    type Err = ParsePlaceError;

    fn from_str(s: &str) -> std::result::Result<Place, ParsePlaceError> {
        let s = s.trim();
        let bad = || ParsePlaceError::Unknown(s.into());
        let from_one = |n: &str| match n.parse::<u64>() {
            Ok(0) => Err(ParsePlaceError::Zero(s.into())),
            Ok(n) => Ok(n),
            Err(_) => Err(bad()),
        };
        match s {
            "begin" => return Ok(Place::Begin),
            "end" => return Ok(Place::End),
            "crash" => return Ok(Place::Crash),
            _ => {}
        }
        if let Some(part) = s.strip_suffix('%') {
            let percent: f64 = part.parse().map_err(|_| bad())?;
            return match (0.0..=100.0).contains(&percent) {
                true => Ok(Place::Percent(percent)),
                false => Err(bad()),
            };
        }
        if let Some(n) = s.strip_prefix("event:") {
            return from_one(n).map(Place::Event);
        }
        if let Some(n) = s.strip_prefix("syscall:") {
            if n.starts_with(|c: char| c.is_ascii_digit()) {
                return from_one(n).map(Place::Syscall);
            }
            let (name, nth) = n.split_once(':').unwrap_or((n, "1"));
            let number = syscall_number(name).map_err(ParsePlaceError::NoSyscall)?;
            return Ok(Place::SyscallOf(number, from_one(nth)?));
        }
        let which = |text: &str| match Which::parse(text) {
            Some(w) if w.nth() == 0 => Err(ParsePlaceError::Zero(s.into())),
            Some(w) => Ok(w),
            None => Err(bad()),
        };
        if let Some(text) = s.strip_prefix("mark:") {
            return which(text).map(Place::Mark);
        }
        if let Some(text) = s.strip_prefix("state:") {
            return which(text).map(Place::State);
        }
        if let Some(text) = s.strip_prefix("time:") {
            return duration(text).map(Place::Time).ok_or_else(bad);
        }
        if let Some(clock) = clock(s) {
            return Ok(Place::Clock(clock));
        }
        let position = s.parse().map_err(|_: ParsePositionError| bad())?;
        Ok(Place::Position(position))
    }
}

/// Parses a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 3] = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Parses a time of day: `hh:mm:ss`, perhaps with a fraction of a second.
fn clock(text: &str) -> Option<Duration> {
    let (h, rest) = text.split_once(':')?;
    let (m, s) = rest.split_once(':')?;
    let digits = |t: &str| t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit());
    let (whole, part) = s.split_once('.').unwrap_or((s, "0"));
    if ![h, m, whole].into_iter().all(digits) || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (h, m): (u64, u64) = (h.parse().ok()?, m.parse().ok()?);
    let s: f64 = s.parse().ok()?;
    let within = h < 24 && m < 60 && s < 60.0;
    within.then(|| Duration::from_secs((h * 60 + m) * 60) + Duration::from_secs_f64(s))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Position(p) => p.fmt(f),
            Place::Begin => f.write_str("begin"),
            Place::End => f.write_str("end"),
            Place::Crash => f.write_str("crash"),
            Place::Percent(p) => write!(f, "{p}%"),
            Place::Event(n) => write!(f, "event:{n}"),
            Place::Syscall(n) => write!(f, "syscall:{n}"),
            Place::SyscallOf(number, n) => write!(f, "syscall:{}:{n}", syscall_name(*number)),
            Place::Mark(w) => write!(f, "mark:{w}"),
            Place::State(w) => write!(f, "state:{w}"),
            Place::Time(d) => write!(f, "time:{}s", d.as_secs_f64()),
            Place::Clock(d) => {
                let (minutes, s) = (d.as_secs() / 60, d.as_secs() % 60);
                write!(f, "{:02}:{:02}:{s:02}", minutes / 60, minutes % 60)?;
                match d.subsec_millis() {
                    0 => Ok(()),
                    n => write!(f, ".{n:03}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in [
            "1A2:3F",
            "begin",
            "end",
            "crash",
            "12.5%",
            "event:3",
            "syscall:17",
            "mark:2",
            "mark:request",
            "mark:a: b:7",
            "mark:7:1",
            "mark:a:1:1",
            "mark::2",
            "mark:http:8080/x",
            "state:1",
            "state:ready:2",
            "time:1.25s",
            "12:34:56.789",
            "00:00:07",
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        assert_eq!(
            "time:20ms".parse(),
            Ok(Place::Time(Duration::from_millis(20)))
        );
        for bad in [
            "",
            "%",
            "101%",
            "-1%",
            "NaN%",
            "event:0",
            "event:",
            "mark:",
            "mark:0",
            "state:x:0",
            "state:99999999999999999999",
            "syscall:x",
            "start",
            "1",
            "1:2:3",
            "time:1",
            "time:-1s",
            "time:s",
            "24:00:00",
            "12:60:00",
            "12:00:61",
            "12:00:00.x",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
