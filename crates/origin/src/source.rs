//! Where values come from that no instruction made.

use crate::Result;
use crate::model::Origin;
use crate::recorded::Recorded;
use crate::start::Piece;
use hindsight_timeline::{Happening, Kind, Mapping, ThreadId, Way, syscall_name};

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

/// Puts the end of a way into words.
pub fn tell(from: &mut Recorded, source: &Source) -> Result<Origin> {
    let mut point = |at: &(ThreadId, u64)| Ok::<_, crate::Error>(Box::new(from.point(at.0, at.1)?));
    Ok(match source {
        Source::Written(at) => Origin::Written { point: point(at)? },
        Source::Processor(at) => Origin::Processor { point: point(at)? },
        Source::Address => Origin::Address,
        Source::Unknown => Origin::Unknown,
        Source::Result(at) => {
            let point = point(at)?;
            match from.event(at.0, at.1)? {
                Some(h) => Origin::Result {
                    call: from.text(&h)?,
                    point,
                },
                None => Origin::Unknown,
            }
        }
        Source::Kernel { at, address } => {
            let point = point(at)?;
            let Some(h) = from.event(at.0, at.1)? else {
                return Ok(Origin::Unknown);
            };
            if matches!(h.kind, Kind::Signal { .. }) {
                return Ok(Origin::Signal { point });
            }
            if let Some(origin) = mapped(from, &h, *address)? {
                return Ok(origin);
            }
            let moved = from.moved(&h).filter(|m| m.way == Way::In).cloned();
            let within = moved.as_ref().and_then(|m| {
                let within = address.checked_sub(m.content.buffer()?)?;
                (within < m.len).then_some(within)
            });
            Origin::Read {
                call: from.text(&h)?,
                point,
                offset: within.and_then(|w| moved.as_ref()?.offset?.checked_add(w)),
                within,
                file: moved.map(|m| m.file.to_string()),
            }
        }
        Source::Beginning { thread, address } => beginning(from, *thread, *address)?,
    })
}

/// What a call mapped at an address. `None`: it maps nothing.
fn mapped(from: &Recorded, h: &Happening, address: u64) -> Result<Option<Origin>> {
    let Kind::Syscall {
        number,
        args,
        result: Some(start),
    } = h.kind
    else {
        return Ok(None);
    };
    let within = address.checked_sub(start);
    if syscall_name(number) != "mmap" || within.is_none_or(|w| w >= args[1].saturating_add(PAGE)) {
        return Ok(None);
    }
    if args[3] & ANONYMOUS != 0 {
        return Ok(Some(Origin::Fresh));
    }
    let image = from.timeline.thread(h.thread)?.image;
    let behind = from
        .timeline
        .position(h.thread, h.count.saturating_add(1))?;
    let all = from.timeline.mappings(image, behind)?;
    let here = all.iter().find(|m| m.start <= address && address < m.end);
    Ok(here.map(|m| Origin::File {
        path: m.path.clone(),
        offset: address.wrapping_sub(start).wrapping_add(args[5]),
    }))
}

/// `MAP_ANONYMOUS`.
const ANONYMOUS: u64 = 0x20;
const PAGE: u64 = 4096;

/// What a program finds at an address that nobody has written to.
fn beginning(from: &mut Recorded, thread: ThreadId, address: u64) -> Result<Origin> {
    let image = from.timeline.thread(thread)?.image;
    let at = match from.cursor.image() == image {
        true => from.cursor.position()?,
        false => from.timeline.thread(thread)?.last,
    };
    let has = |m: &&Mapping| m.start <= address && address < m.end;
    let all = from.timeline.processes()?;
    if let Some(p) = all.iter().find(|p| p.image == image) {
        let first = from.timeline.mappings(image, p.begin)?;
        if let Some(m) = first.iter().find(has)
            && from.timeline.cleared(m, address)?
        {
            return Ok(Origin::Fresh);
        }
    }
    let mappings = from.timeline.mappings(image, at)?;
    let here = mappings.iter().find(has);
    match here {
        Some(m) if m.path.starts_with('/') || m.path.starts_with("[v") => Ok(Origin::File {
            path: m.path.clone(),
            offset: (address - m.start).wrapping_add(m.offset),
        }),
        None => Ok(Origin::Unknown),
        _ => {
            let Some(start) = from.start(image)? else {
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
