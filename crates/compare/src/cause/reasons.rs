//! Why values differ that no instruction made.

use crate::details;
use crate::model::{Origin, Reason};
use crate::side::Side;
use crate::{Both, Result};
use hindsight_origin::{Source, tell};
use hindsight_timeline::{Happening, Kind, syscall_name};

/// Why a value with these sources differs.
pub fn reason(sides: &mut Both<Side>, sources: &Both<Source>) -> Result<Reason> {
    let [a, b] = sides;
    let reasons = [of(a, &sources[0])?, of(b, &sources[1])?];
    if let [Source::Beginning { .. }, Source::Beginning { .. }] = sources
        && reasons == [Reason::Data, Reason::Data]
    {
        let origins = [tell(a, &sources[0])?, tell(b, &sources[1])?];
        return Ok(at_beginning(&origins));
    }
    Ok(match reasons {
        [a, b] if a == b => a,
        [a, b] if a.counts() || !b.counts() => a,
        [_, b] => b,
    })
}

/// Why what two programs began with differs.
fn at_beginning(origins: &Both<Origin>) -> Reason {
    let name = |text: &str| text.split('=').next().map(str::to_owned);
    match origins {
        [Origin::Variable { text: a }, Origin::Variable { text: b }] if name(a) == name(b) => {
            Reason::Data
        }
        [
            Origin::Argument { index: a, .. },
            Origin::Argument { index: b, .. },
        ] => {
            // The name of the program may be anything.
            if (a, b) == (&0, &0) {
                Reason::Environment
            } else {
                Reason::Data
            }
        }
        [Origin::File { path: a, .. }, Origin::File { path: b, .. }] if a == b => Reason::Data,
        [Origin::File { .. }, Origin::File { .. }] => Reason::Build,
        [Origin::Argument { index: 1.., .. }, _] | [_, Origin::Argument { index: 1.., .. }] => {
            Reason::Data
        }
        _ => Reason::Environment,
    }
}

fn of(side: &mut Side, source: &Source) -> Result<Reason> {
    Ok(match source {
        Source::Written(_) | Source::Unknown => Reason::Unknown,
        Source::Address => Reason::Address,
        Source::Processor(_) => Reason::Id,
        Source::Result(at) => match side.event(at.0, at.1)? {
            Some(h) => details::reason(&call(&h)),
            None => Reason::Unknown,
        },
        Source::Kernel { at, address } => match side.event(at.0, at.1)? {
            Some(h) => of_call(side, &h, *address),
            None => Reason::Unknown,
        },
        Source::Beginning { .. } => match tell(side, source)? {
            Origin::StartRandom => Reason::Random,
            Origin::Start => Reason::Environment,
            Origin::File { path, .. } if path.starts_with("[v") => Reason::Time,
            _ => Reason::Data,
        },
    })
}

fn call(h: &Happening) -> String {
    match h.kind {
        Kind::Syscall { number, .. } => syscall_name(number),
        _ => String::new(),
    }
}

/// Why what a call wrote differs.
fn of_call(side: &Side, h: &Happening, address: u64) -> Reason {
    let Kind::Syscall { args, .. } = h.kind else {
        return Reason::Schedule;
    };
    let name = call(h);
    if let Some(m) = side.moved(h)
        && !m.file.is_empty()
    {
        let reason = details::reason_of_file(&m.file);
        return if reason == Reason::Data {
            details::reason(&name)
        } else {
            reason
        };
    }
    let buffer = match name.as_str() {
        "stat" | "fstat" | "lstat" => Some(args[1]),
        "newfstatat" => Some(args[2]),
        _ => None,
    };
    // `struct stat`: device and inode, then what matters, then times.
    match buffer.map(|b| address.wrapping_sub(b)) {
        Some(0..16) => Reason::Id,
        Some(72..) => Reason::Time,
        _ => details::reason(&name),
    }
}
