//! The calls of all threads of a process, in the order in which they were made.

use super::Error;
use super::calls::{Calls, Next};
use super::clocks::Clocks;
use hindsight_timeline::{ThreadId, Timeline};

/// A thread.
pub struct Lane {
    /// 0: it is the first one of its process.
    pub number: u32,
    pub calls: Calls,
    pub clocks: Clocks,
    /// What comes next, once that has been looked up. The inner `None` is the end.
    next: Option<Option<Next>>,
}

/// The threads of a process.
pub struct Lanes(Vec<Lane>);

impl Lanes {
    /// Those of the process whose first thread this is. A process that runs in another one's memory has one thread.
    pub fn new(timeline: &Timeline, first: ThreadId) -> Result<Lanes, Error> {
        let t = timeline.thread(first)?;
        let mut all = vec![Lane::new(timeline, first, 0)?];
        for p in timeline.processes()? {
            if p.image != t.image || p.pid != t.pid {
                continue;
            }
            for id in p.threads.iter().filter(|id| **id != first) {
                if timeline.thread(*id)?.pid == t.pid {
                    all.push(Lane::new(timeline, *id, id.0)?);
                }
            }
        }
        Ok(Lanes(all))
    }

    /// What comes next, and whose it is.
    pub fn next(&mut self, timeline: &Timeline) -> Result<Option<(&mut Lane, Next)>, Error> {
        let mut least = None;
        for (n, lane) in self.0.iter_mut().enumerate() {
            let next = match lane.next.take() {
                Some(next) => next,
                None => lane.calls.next(timeline)?,
            };
            let order = next.as_ref().map(Next::order);
            lane.next = Some(next);
            if let Some(order) = order
                && least.is_none_or(|(o, _)| order < o)
            {
                least = Some((order, n));
            }
        }
        let Some((_, n)) = least else { return Ok(None) };
        let lane = &mut self.0[n];
        let next = lane.next.take().flatten();
        Ok(next.map(|next| (lane, next)))
    }
}

impl Lane {
    fn new(timeline: &Timeline, id: ThreadId, number: u32) -> Result<Lane, Error> {
        Ok(Lane {
            number,
            calls: Calls::new(id),
            clocks: Clocks::new(timeline, id)?,
            next: None,
        })
    }
}
