//! What answers have at hand, and where they are asked.

use super::fields::At;
use super::lists::Lists;
use super::{Fail, Fields};
use crate::words;
use hindsight_inspect::{Carrier, Inspector};
use hindsight_timeline::{
    Breakpoint, Cancel, Cursor, Direction, Place, Scope, Stops, ThreadId, Timeline,
};
use serde_json::{Value as Json, json};

/// What answers a request.
pub struct Context<'a> {
    pub timeline: &'a Timeline,
    pub inspector: &'a mut Inspector,
    pub cursor: &'a mut Cursor,
    pub carrier: &'a mut Carrier,
    pub lists: &'a mut Lists,
    pub cancel: &'a Cancel,
    /// Hands a part of a long answer to the client.
    pub items: &'a dyn Fn(Vec<Json>),
}

/// Where a question is asked, in which frame.
pub struct Spot {
    at: At,
    image: Option<u32>,
    thread: Option<ThreadId>,
    pub frame: usize,
}

impl Fields {
    /// Where a question is asked.
    pub fn spot(&mut self) -> Result<Spot, Fail> {
        let frame = self.number("frame")?.unwrap_or(0);
        Ok(Spot {
            at: self.at()?,
            image: self.small("image")?,
            thread: self.small("thread")?.map(ThreadId),
            frame: usize::try_from(frame).unwrap_or(usize::MAX),
        })
    }
}

impl Context<'_> {
    /// Goes there.
    pub fn seek(&mut self, spot: &Spot) -> Result<(), Fail> {
        let position = match &spot.at {
            At::Usual => words::usual(self.timeline, spot.image)?,
            At::Place(place) => self.timeline.find(place.clone(), spot.image)?,
            At::Instant(..) if spot.image.is_some() || spot.thread.is_some() => {
                return Err(Fail::request(
                    "`image` and `thread` are for places, and `at` names an instant of a thread",
                ));
            }
            At::Instant(thread, count, entered) => {
                return self.instant(*thread, *count, *entered);
            }
        };
        Ok((self.cursor).seek_within(position, spot.image, spot.thread)?)
    }

    /// Goes to an instant that must exist. With an address, to the entry of the handler there.
    fn instant(&mut self, thread: ThreadId, count: u64, entered: Option<u64>) -> Result<(), Fail> {
        let t = self.timeline.thread(thread)?;
        if !(t.from..=t.to).contains(&count) {
            return Err(Fail::new(
                Fail::PLACE,
                format!(
                    "thread {thread} has no instant {count}: it has those from {} to {}",
                    t.from, t.to
                ),
            ));
        }
        let Some(pc) = entered else {
            return Ok(self.cursor.seek_count(thread, count)?);
        };
        if self.has_entered(thread, count, pc)? {
            return Ok(());
        }
        // A run to the handler's first instruction stops at its entry. It must come from elsewhere.
        let mut stops = Stops {
            breakpoints: vec![Breakpoint {
                thread: Some(thread),
                ..Breakpoint::at(0, pc)
            }],
            ..Stops::default()
        };
        let (from, direction) = match count < t.to {
            true => (count + 1, Direction::Backward),
            false => (count.saturating_sub(1), Direction::Forward),
        };
        self.cursor.seek_count(thread, from)?;
        self.cursor.run(direction, Scope::Thread, &mut stops)?;
        self.cancel.check()?;
        match self.has_entered(thread, count, pc)? {
            true => Ok(()),
            false => Err(Fail::new(
                Fail::PLACE,
                format!("no signal handler is entered at instant {count} of thread {thread}"),
            )),
        }
    }

    fn has_entered(&mut self, thread: ThreadId, count: u64, pc: u64) -> Result<bool, Fail> {
        let c = &mut self.cursor;
        Ok((c.thread(), c.count()) == (thread, count)
            && c.has_entered()?
            && c.registers()?.rip == pc)
    }

    /// Where the cursor is, as a later request can say it.
    pub fn here(&mut self) -> Result<Json, Fail> {
        here(self.cursor)
    }

    /// The position of a place in a program image.
    pub fn position(
        &self,
        place: Option<Place>,
        image: Option<u32>,
    ) -> Result<Option<hindsight_timeline::Position>, Fail> {
        Ok(place.map(|p| self.timeline.find(p, image)).transpose()?)
    }
}

/// Where a cursor is, as a later request can say it.
pub fn here(c: &mut Cursor) -> Result<Json, Fail> {
    let mut here = json!({
        "position": c.position()?.to_string(), "thread": c.thread().0, "count": c.count(),
        "image": c.image(),
    });
    if c.has_entered()? {
        here["entered"] = crate::hex::hex(c.registers()?.rip);
    }
    Ok(here)
}
