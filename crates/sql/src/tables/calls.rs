//! The calls of a function, and all calls.

mod every;
mod row;

pub use every::EveryCall;
pub use row::CALLS;

use crate::bounds::Bounds;
use crate::column::Column;
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use anyhow::anyhow;
use hindsight_timeline::{Call, Cancel, Filter, Position, did_you_mean};
use row::Filler;

/// `calls(function)`.
pub struct Calls {
    /// Its name, or its address.
    pub function: String,
}

impl Table for Calls {
    fn name(&self) -> &str {
        "calls"
    }

    fn columns(&self) -> &'static [Column] {
        CALLS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let clock = r.clock()?;
        let list = self.list(r, bounds, &out.cancel)?;
        let mut filler = Filler::new(r)?;
        for (name, c) in list {
            out.cancel.check()?;
            let time = clock.time(c.position);
            if !bounds.has("time", time) || !bounds.has("thread", c.thread.0) {
                continue;
            }
            instant(r, out, c.position, time, (c.thread, c.count))?;
            out.text(5, name);
            if let Some(back) = &c.returned {
                filler.caller(r, out, r.image(c.thread)?, (back.to, back.position))?;
            }
            filler.call(r, out, &c)?;
            out.end()?;
        }
        Ok(())
    }
}

impl Calls {
    /// All calls in the order of time, with the function's name.
    fn list(
        &self,
        r: &Recording,
        bounds: &Bounds,
        cancel: &Cancel,
    ) -> Result<Vec<(String, Call)>, Stop> {
        let clock = r.clock()?;
        let times = bounds.numbers("time");
        if times.is_empty() {
            return Ok(Vec::new());
        }
        let place = |n: i128| -> Option<Position> { clock.position(i64::try_from(n).ok()?) };
        let (mut list, mut any) = (Vec::new(), false);
        let processes = r.timeline.processes()?;
        for p in &processes {
            let functions = match number(&self.function) {
                Some(address) => vec![(address, self.function.clone())],
                None => r.inspector().functions(p.image, &self.function)?,
            };
            any |= !functions.is_empty();
            if !bounds.has("process", p.image) {
                continue;
            }
            let filter = Filter {
                image: Some(p.image),
                from: place(*times.start()),
                until: times.end().checked_add(1).and_then(place),
                ..Filter::default()
            };
            for (address, name) in functions {
                let calls = r.timeline.calls(address, &filter, cancel)?;
                list.extend(calls.into_iter().map(|c| (name.clone(), c)));
            }
        }
        if !any {
            let image = processes.first().map_or(0, |p| p.image);
            let similar = r.inspector().similar(image, &self.function)?;
            return Err(Stop::Absent(anyhow!(
                "no file of the recording has a function {}{}",
                self.function,
                did_you_mean(&self.function, similar)
            )));
        }
        list.sort_by_key(|(_, c)| c.position);
        Ok(list)
    }
}

/// An address that is written as a number: `0x1f` or `31`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
