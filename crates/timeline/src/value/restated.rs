//! What a key frame says of memory that nobody accessed since. The search for the last access then ends there: no
//! older part of the thread is looked at.
//!
//! This holds in the quiet regime only. There nothing but the thread and the kernel changes memory, and the recording
//! has all that the kernel wrote.

use super::query::Query;
use crate::engine::Engine;
use crate::model::memory::{Ground, KnownByte, Memory};
use crate::play::Player;
use crate::recording::maps;
use crate::scan::{Held, Origin, Source, Told, When};
use crate::{Mapping, Result, ThreadId};

const PRIVATE: u32 = 2;

/// The last instant at `count` or before at which the recording tells all memory. `None`: what it tells need not hold at
/// `count`.
fn told(engine: &Engine, thread: ThreadId, count: u64) -> Result<Option<Told<'_>>> {
    let scan = engine.scan(thread)?;
    Ok(scan.told_at(count).filter(|_| !engine.has_steps(thread)))
}

/// A stretch of memory in one private mapping, by offsets in what is asked for.
struct Stretch {
    from: usize,
    to: usize,
    /// The key frame tells what it held.
    told: bool,
}

/// The stretches of some memory that lie in private mappings at the instant `count`.
fn stretches(
    engine: &Engine,
    thread: ThreadId,
    there: Told,
    (address, len): (u64, usize),
    count: u64,
) -> Result<Vec<Stretch>> {
    let changes = engine.changes(engine.image(thread))?;
    let here = engine.position(thread, count)?;
    let mut out = Vec::new();
    let mut from = 0;
    while from < len {
        let at = address.wrapping_add(from as u64);
        let (held, end) = match there.frame {
            Some(f) => engine.restates(thread, f, at)?,
            // Only a window has it.
            None => (Held::Zeros, u64::MAX),
        };
        let (map, map_end) = maps::covering(&changes, here, at);
        let to = from + ((end.min(map_end) - at) as usize).clamp(1, len - from);
        // What the kernel maps by itself changes by itself.
        let known =
            |r: &&Mapping| r.prot != 0 && r.flags & PRIVATE != 0 && !r.path.starts_with("[v");
        if let Some(r) = map.filter(known) {
            let told = match held {
                Held::Unknown => false,
                // Below a stack that grows without notice there may be nothing yet.
                Held::Zeros => r.start <= at,
                _ => true,
            };
            out.push(Stretch { from, to, told });
        }
        from = to;
    }
    Ok(out)
}

/// What made each byte what it is at the instant `count`, mappings that are made there included.
fn sources(
    engine: &Engine,
    thread: ThreadId,
    (address, len): (u64, usize),
    count: u64,
) -> Result<Vec<Option<Source>>> {
    Ok(engine
        .scan(thread)?
        .sources_of(address, len, count.saturating_add(1)))
}

/// Whether a byte was not mapped anew at `at` or after it.
fn is_older(source: &Option<Source>, at: u64) -> bool {
    source.is_none_or(|s| s.at < at)
}

/// Raises `floor` to the last key frame where that tells memory: nothing before it matters.
pub fn raise(
    engine: &Engine,
    thread: ThreadId,
    m: &Memory,
    count: u64,
    floor: &mut [u64],
) -> Result<()> {
    let Some(f) = told(engine, thread, count)? else {
        return Ok(());
    };
    if floor.iter().any(|n| *n < f.at) {
        let sources = sources(engine, thread, (m.address, m.bytes.len()), count)?;
        for s in stretches(engine, thread, f, (m.address, m.bytes.len()), count)? {
            for i in (s.from..s.to).filter(|i| s.told && is_older(&sources[*i], f.at)) {
                floor[i] = f.at.max(floor[i]);
            }
        }
    }
    Ok(())
}

/// Fills in bytes that a player at `count` has not accessed since its marks begin. `floor` is what [`raise`] made of it.
///
/// - Usually: those that nobody has accessed since the key frame, nor mapped anew.
/// - If the player's machine came from the key frame with all memory, its window has them. Then it does not matter who
///   accessed them on the way.
pub fn fill(p: &Player, count: u64, floor: &[u64], q: &mut Query) -> Result<()> {
    let (engine, thread, ahead) = (p.engine(), p.thread, p.is_ahead());
    let Some(f) = told(engine, thread, count)? else {
        return Ok(());
    };
    let since = p.since();
    let sources = sources(engine, thread, (q.m.address, q.m.bytes.len()), count)?;
    let wanted = |q: &Query, i: usize| {
        let may = match (ahead, &sources[i]) {
            (false, source) => floor[i] == f.at && is_older(source, f.at),
            // The window has what a file gives here, but not yet what else happens here.
            (true, Some(s)) if matches!(s.origin, Origin::Unknown | Origin::Discarded) => false,
            (true, Some(s)) if s.at >= count && !matches!(s.origin, Origin::File { .. }) => false,
            (true, _) => f.at <= floor[i] && floor[i] < since.max(f.at.saturating_add(1)),
        };
        may && q.open(i)
    };
    if !(0..floor.len()).any(|i| wanted(q, i)) {
        return Ok(());
    }
    let (address, len) = (q.m.address, q.m.bytes.len());
    for s in stretches(engine, thread, f, (address, len), count)? {
        let wanted = |q: &Query, i: usize| wanted(q, i) && (s.told || f.at < floor[i]);
        let mut i = s.from;
        while i < s.to {
            let some = (i..s.to).take_while(|i| wanted(q, *i)).count();
            let at = address.wrapping_add(i as u64);
            let mut bytes = vec![0; some];
            match f.frame {
                _ if ahead => {
                    p.cells(at, &mut bytes);
                    p.sound()?;
                }
                Some(frame) => engine.restated(thread, frame, at, &mut bytes)?,
                None => break,
            }
            for value in bytes {
                let ground = Ground::Restated;
                q.m.bytes[i] = Some(KnownByte { value, ground });
                q.when[i] = Some(When {
                    thread,
                    from: f.at,
                    to: if ahead { since.max(f.at) } else { f.at },
                });
                i += 1;
            }
            i += (i..s.to).take_while(|i| !wanted(q, *i)).count();
        }
    }
    Ok(())
}
