//! A recording with a cursor in it, and what is asked of them.

use super::context::Context;
use super::lists::{self, Lists};
use super::{Fail, Fields, go, look};
use hindsight_inspect::{Carrier, Inspector};
use hindsight_timeline::{Cancel, Cursor, Timeline};
use serde_json::Value as Json;

/// What is kept between requests. Answers depend on none of it but open lists.
pub struct Session {
    timeline: Timeline,
    inspector: Inspector,
    /// It stands where the last question was asked: the next one is often near.
    cursor: Option<Cursor>,
    /// Only remembers what it found out.
    carrier: Carrier,
    lists: Lists,
}

/// Answers one kind of request.
type Answer = fn(&mut Context, Fields) -> Result<Json, Fail>;

/// The requests, by what stands in their field `ask`.
const ANSWERS: [(&str, Answer); 25] = [
    ("info", look::info),
    ("processes", look::processes),
    ("threads", look::threads),
    ("modules", look::modules),
    ("range", look::range),
    ("find", look::find),
    ("at", look::at),
    ("registers", look::registers),
    ("memory", look::memory),
    ("stack", look::stack),
    ("variables", look::variables),
    ("evaluate", look::evaluate),
    ("code", look::code),
    ("maps", look::maps),
    ("symbol", look::symbol),
    ("step", go::step),
    ("run", go::run),
    ("access", go::access),
    ("events", lists::events),
    ("calls", lists::calls),
    ("writes", lists::writes),
    ("states", lists::states),
    ("output", lists::output),
    ("next", lists::next),
    ("close", lists::close),
];

impl Session {
    /// What is carried, is carried by `carrier`.
    pub fn new(timeline: Timeline, carrier: Carrier) -> hindsight_timeline::Result<Session> {
        let cursor = timeline.cursor()?;
        Ok(Session {
            inspector: Inspector::new(timeline.clone()),
            timeline,
            cursor: Some(cursor),
            carrier,
            lists: Lists::default(),
        })
    }

    pub fn is_growing(&self) -> bool {
        self.timeline.is_growing()
    }

    /// Answers a request.
    pub fn answer(
        &mut self,
        mut fields: Fields,
        cancel: &Cancel,
        items: &dyn Fn(Vec<Json>),
    ) -> Result<Json, Fail> {
        cancel.check()?;
        let ask = Fields::must("ask", fields.text("ask")?)?;
        let Some((_, answer)) = ANSWERS.iter().find(|(name, _)| *name == ask) else {
            let names = ANSWERS.map(|(name, _)| name).join(", ");
            return Err(Fail::request(format!(
                "there is no request {ask}; there are {names}"
            )));
        };
        let mut cursor = match self.cursor.take() {
            Some(c) => c,
            None => self.timeline.cursor()?,
        };
        let opened = self.lists.last();
        let done = cursor.cancellable(cancel, |cursor| {
            let mut context = Context {
                timeline: &self.timeline,
                inspector: &mut self.inspector,
                cursor,
                carrier: &mut self.carrier,
                lists: &mut self.lists,
                cancel,
                items,
            };
            Ok(answer(&mut context, fields))
        });
        self.cursor = Some(cursor);
        let result = done??;
        // What a page has was looked at when it was sent, and what is closed is closed.
        if !["next", "close"].contains(&ask.as_str())
            && let Err(e) = cancel.check()
        {
            // A cancelled look-up may have taken for unknown what is known. And nobody hears of a list.
            if self.lists.last() != opened {
                self.lists.close(self.lists.last());
            }
            return Err(e.into());
        }
        Ok(result)
    }
}
