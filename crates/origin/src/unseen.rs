//! What may have changed memory or registers without a record of it.

use crate::Result;
use hindsight_timeline::{Cursor, Filter, Kind, KindOf, Position, ThreadId, Timeline};
use std::collections::HashMap;

/// Stretches that are not recorded.
pub(crate) struct Unseen {
    timeline: Timeline,
    /// The gaps of each program image: the thread, where the gap begins, and where it ends, if it does.
    gaps: HashMap<u32, Vec<(ThreadId, Position, Option<Position>)>>,
}

impl Unseen {
    pub fn new(timeline: &Timeline) -> Result<Unseen> {
        let mut gaps: HashMap<u32, Vec<(ThreadId, Position, Option<Position>)>> = HashMap::new();
        let events = timeline.events(&Filter {
            kinds: vec![KindOf::Gap],
            ..Filter::default()
        })?;
        for h in events {
            let image = timeline.thread(h.thread)?.image;
            let here = gaps.entry(image).or_default();
            let open = here.iter_mut().rev().find(|g| g.0 == h.thread);
            match (&h.kind, open) {
                // It may be made wider while it lasts.
                (Kind::GapBegin { .. }, Some((_, _, None))) => {}
                (Kind::GapBegin { .. }, _) => here.push((h.thread, h.position, None)),
                (_, Some(g)) => g.2 = Some(h.position),
                _ => {}
            }
        }
        Ok(Unseen {
            timeline: timeline.clone(),
            gaps,
        })
    }

    /// Where a gap lies between two instants, of this thread or else of any thread of its program image.
    pub fn between(
        &self,
        from: (ThreadId, u64),
        to: (ThreadId, u64),
        of_thread: bool,
    ) -> Result<Option<Position>> {
        let image = self.timeline.thread(to.0)?.image;
        let Some(gaps) = self.gaps.get(&image) else {
            return Ok(None);
        };
        let after = self.timeline.position(from.0, from.1)?;
        let before = self.timeline.position(to.0, to.1)?;
        let lies = |g: &&(ThreadId, Position, Option<Position>)| {
            (!of_thread || g.0 == to.0) && g.1 < before && g.2.is_none_or(|end| after < end)
        };
        Ok(gaps.iter().find(lies).map(|g| g.1))
    }

    /// Whether memory is shared at an instant, so that others may change it.
    pub fn is_shared(&self, at: (ThreadId, u64), address: u64) -> Result<bool> {
        let image = self.timeline.thread(at.0)?.image;
        let here = self.timeline.position(at.0, at.1)?;
        let all = self.timeline.mappings(image, here)?;
        let mut there = all.iter().filter(|m| m.start <= address && address < m.end);
        Ok(there.any(hindsight_timeline::Mapping::is_shared))
    }
}

/// Whether bytes that are known differ.
pub(crate) fn differ(a: &[Option<u8>], b: &[Option<u8>]) -> bool {
    let other = |(a, b): (&Option<u8>, &Option<u8>)| a.is_some() && b.is_some() && a != b;
    a.iter().zip(b).any(other)
}

/// What memory holds behind a call, as far as that is known.
pub(crate) fn behind(
    cursor: &mut Cursor,
    at: (ThreadId, u64),
    address: u64,
    len: usize,
) -> Result<Vec<Option<u8>>> {
    Ok(cursor.around_call(at, (address, len), true)?)
}
