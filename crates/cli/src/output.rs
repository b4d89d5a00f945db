//! `hindsight output`: what the recorded program printed.

use crate::args;
use crate::choice::{Choice, Through, tell};
use crate::out::{self, JsonList};
use crate::transfers::{self, Raw};
use crate::travel;
use anyhow::Result;
use hindsight_timeline::{Flow, Options, Way};

pub fn run(a: &args::Output) -> Result<i32> {
    let mut raw = match a.raw {
        true => Some(Raw::new()?),
        false => None,
    };
    let timeline = travel::open(a.file.as_deref(), Options::default())?;
    let through = Through::new(a.fd.as_deref(), Through::Standard);
    let choice = Choice::new(&timeline, through, Some(Way::Out), &a.of)?;
    let mut list = a.json.then(JsonList::default);
    let unseen = timeline.flow(choice.paths(), choice.until, &mut |cursor, flow| {
        let Flow::Moved(t) = flow else { return Ok(()) };
        if !choice.has(t) {
            return Ok(());
        }
        if let Some(raw) = &mut raw {
            return raw.write(t, cursor);
        }
        if let Some(list) = &mut list {
            return transfers::print_json(list, t, cursor);
        }
        let begin = format!(
            "{:<16} {:>4} {:>7} {:>3}  ",
            t.position.to_string(),
            t.thread.0,
            t.pid,
            t.file.original().first
        );
        out::write(begin.as_bytes());
        transfers::print_text(t, cursor)?;
        out::write(b"\n");
        Ok(())
    })?;
    if let Some(list) = list {
        list.end();
    }
    tell(unseen);
    Ok(raw.map_or(0, Raw::end))
}
