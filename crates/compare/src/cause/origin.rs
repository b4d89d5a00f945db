//! Where values come from that no instruction made.

use crate::details;
use crate::model::{Origin, Reason};
use crate::side::Side;
use crate::start::Piece;
use crate::{Both, Result};
use hindsight_timeline::{Happening, Kind, ThreadId, Way, syscall_name};

/// An end of the way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// This instruction wrote it.
    Written((ThreadId, u64)),
    /// This system call returned it.
    Result((ThreadId, u64)),
    /// The kernel wrote it at this system call or signal, to this address.
    Kernel {
        /// When.
        at: (ThreadId, u64),
        /// Where.
        address: u64,
    },
    /// It was there when the thread's program began, or was mapped.
    Beginning {
        /// A thread of the program.
        thread: ThreadId,
        /// Where.
        address: u64,
    },
    /// This instruction asked the processor.
    Processor((ThreadId, u64)),
    /// It is an address.
    Address,
    /// It was not found.
    Unknown,
}

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

/// Puts the end of a way into words.
pub fn tell(side: &mut Side, source: &Source) -> Result<Origin> {
    let mut point = |at: &(ThreadId, u64)| Ok::<_, crate::Error>(Box::new(side.point(at.0, at.1)?));
    Ok(match source {
        Source::Written(at) => Origin::Written { point: point(at)? },
        Source::Processor(at) => Origin::Processor { point: point(at)? },
        Source::Address => Origin::Address,
        Source::Unknown => Origin::Unknown,
        Source::Result(at) => {
            let point = point(at)?;
            match side.event(at.0, at.1)? {
                Some(h) => Origin::Result {
                    call: side.text(&h)?,
                    point,
                },
                None => Origin::Unknown,
            }
        }
        Source::Kernel { at, address } => {
            let point = point(at)?;
            let Some(h) = side.event(at.0, at.1)? else {
                return Ok(Origin::Unknown);
            };
            if matches!(h.kind, Kind::Signal { .. }) {
                return Ok(Origin::Signal { point });
            }
            let moved = side.moved(&h).filter(|m| m.way == Way::In).cloned();
            let within = moved.as_ref().and_then(|m| {
                let within = address.checked_sub(m.content.buffer()?)?;
                (within < m.len).then_some(within)
            });
            Origin::Read {
                call: side.text(&h)?,
                point,
                offset: within.and_then(|w| moved.as_ref()?.offset?.checked_add(w)),
                within,
                file: moved.map(|m| m.file.to_string()),
            }
        }
        Source::Beginning { thread, address } => beginning(side, *thread, *address)?,
    })
}

/// What a program finds at an address that nobody has written to.
fn beginning(side: &mut Side, thread: ThreadId, address: u64) -> Result<Origin> {
    let image = side.timeline.thread(thread)?.image;
    let at = match side.cursor.image() == image {
        true => side.cursor.position()?,
        false => side.timeline.thread(thread)?.last,
    };
    let mappings = side.timeline.mappings(image, at)?;
    let here = mappings
        .iter()
        .find(|m| m.start <= address && address < m.end);
    match here {
        Some(m) if m.path.starts_with('/') || m.path.starts_with("[v") => Ok(Origin::File {
            path: m.path.clone(),
            offset: (address - m.start).wrapping_add(m.offset),
        }),
        _ => {
            let Some(start) = side.start(image)? else {
                return Ok(Origin::Unknown);
            };
            Ok(match start.piece(address) {
                Some(Piece::Argument(index, text)) => Origin::Argument { index, text },
                Some(Piece::Variable(text)) => Origin::Variable { text },
                Some(Piece::Random) => Origin::StartRandom,
                Some(Piece::Other) => Origin::Start,
                None => Origin::Fresh,
            })
        }
    }
}
