//! What an expression is, each time a place in the code is reached.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Int, Text};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use anyhow::Context;
use hindsight_inspect::symbols::Module;
use hindsight_timeline::{
    Breakpoint, Cursor, Direction, Position, Reason, Scope, Stops, did_you_mean,
};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// `values_of(place in the code, expression)`.
pub struct ValuesOf {
    /// `FILE:LINE`, a function (its body counts), or an address.
    pub code: String,
    /// What is evaluated in the innermost frame there.
    pub expression: String,
}

/// Its columns.
pub const VALUES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("pc", Address, "address of the instruction that comes next"),
    column(
        "line",
        Text,
        "its source line, as FILE:LINE; NULL: not known",
    ),
    column(
        "value",
        Text,
        "as debuggers show it; `?` stands for what is not known; NULL: see `error`",
    ),
    column(
        "number",
        Int,
        "the same as a number; NULL: it is none, does not fit, or is not known",
    ),
    column(
        "error",
        Text,
        "why the expression has no value there; NULL: it has one",
    ),
];

impl Table for ValuesOf {
    fn name(&self) -> &str {
        "values_of"
    }

    fn columns(&self) -> &'static [Column] {
        VALUES
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let clock = r.clock()?;
        let times = bounds.numbers("time");
        if times.is_empty() || *times.end() < 0 || *times.start() > clock.end().into() {
            return Ok(());
        }
        let mut cursor = r.timeline.cursor()?;
        let begin = (*times.start()).clamp(0, clock.end().into()) as i64;
        let first = match begin {
            0 => r.timeline.range()?.0,
            // Of several instants with this time the last one: what ends there has no instruction left.
            n => clock.last_position(n).context("no such time")?,
        };
        let stops = self.stops(r, bounds)?;
        let cancel = out.cancel.clone();
        let done = cursor.cancellable(&cancel, |cursor| {
            cursor.seek(first)?;
            Ok(self.each(r, cursor, bounds, stops, out))
        });
        done?
    }
}

/// Where code for the line is, by program image and file.
type Files = HashMap<(u32, usize), BTreeSet<u64>>;

impl ValuesOf {
    /// Goes on from one stop to the next.
    fn each(
        &self,
        r: &Recording,
        cursor: &mut Cursor,
        bounds: &Bounds,
        mut stops: Stops,
        out: &mut Rows,
    ) -> Result<(), Stop> {
        let mut known = Files::new();
        // The instant itself counts, and a run begins behind it.
        if self.stands(cursor, &stops)? {
            self.row(r, cursor, bounds, &mut known, out)?;
        }
        loop {
            out.cancel.check()?;
            let stop = cursor.run(Direction::Forward, Scope::All, &mut stops)?;
            match stop.reason {
                Reason::Breakpoint { .. } => {}
                Reason::Cancelled => return Err(Stop::Enough),
                _ => return Ok(()),
            }
            let time = r.clock()?.time(cursor.position()?);
            if i128::from(time) > *bounds.numbers("time").end() {
                return Ok(());
            }
            self.row(r, cursor, bounds, &mut known, out)?;
        }
    }

    /// Breakpoints at the code in all program images that count.
    fn stops(&self, r: &Recording, bounds: &Bounds) -> Result<Stops<'static>, Stop> {
        let mut stops = Stops::default();
        let mut similar = Vec::new();
        let mut found = false;
        for p in r.timeline.processes()? {
            let addresses = r.inspector().code(p.image, &self.code)?;
            if addresses.is_empty() {
                similar.extend(r.inspector().similar(p.image, &self.code)?);
            }
            found |= !addresses.is_empty();
            if !bounds.has("process", p.image) {
                continue;
            }
            stops
                .breakpoints
                .extend(addresses.into_iter().map(|a| Breakpoint {
                    image: Some(p.image),
                    ..Breakpoint::at(0, a)
                }));
        }
        if !found {
            let like = did_you_mean(&self.code, &similar);
            let none = anyhow::anyhow!("there is no code at {}{like}", self.code);
            return Err(Stop::Absent(none));
        }
        Ok(stops)
    }

    /// Whether the code is there at a time: another file may have been there at another one.
    fn is_there(
        &self,
        r: &Recording,
        known: &mut Files,
        (image, at, time): (u32, u64, i64),
    ) -> Result<bool, Stop> {
        let line = self.code.rsplit_once(':');
        let Some((path, Ok(line))) = line.map(|(f, l)| (f, l.parse())) else {
            return Ok(true);
        };
        let Some(file) = r.file(image, at, time)? else {
            return Ok(false);
        };
        let places = match known.entry((image, file)) {
            Entry::Occupied(o) => o.into_mut(),
            Entry::Vacant(v) => {
                let module = r.module(image, file)?;
                let of = |(m, bias): (Arc<Module>, u64)| {
                    let all = m.addresses_of_line(path, line).into_iter();
                    all.map(|a| a.wrapping_add(bias)).collect()
                };
                v.insert(module.map(of).unwrap_or_default())
            }
        };
        Ok(places.contains(&at))
    }

    /// Whether the cursor stands before one of the breakpoints.
    fn stands(&self, cursor: &mut Cursor, stops: &Stops) -> Result<bool, Stop> {
        let (rip, image) = (cursor.registers()?.rip, cursor.image());
        let here = |b: &Breakpoint| b.address == rip && b.image.is_none_or(|i| i == image);
        Ok(stops.breakpoints.iter().any(here))
    }

    fn row(
        &self,
        r: &Recording,
        cursor: &mut Cursor,
        bounds: &Bounds,
        known: &mut Files,
        out: &mut Rows,
    ) -> Result<(), Stop> {
        let position: Position = cursor.position()?;
        let (thread, count) = (cursor.thread(), cursor.count());
        if !bounds.has("thread", thread.0) || !bounds.has("process", r.image(thread)?) {
            return Ok(());
        }
        let (time, at) = (r.clock()?.time(position), cursor.registers()?.rip);
        let image = r.image(thread)?;
        if !self.is_there(r, known, (image, at, time))? {
            return Ok(());
        }
        instant(r, out, position, time, (thread, count))?;
        out.uint(5, at);
        if out.wants(&[6]) {
            let file = r.file(image, at, time)?;
            let line = file.map(|f| r.line(image, f, at)).transpose()?.flatten();
            out.maybe(6, line);
        }
        if out.wants(&[7, 8, 9]) {
            match r.inspector().evaluate(cursor, &self.expression, 0) {
                Ok(v) => {
                    out.text(7, v.text);
                    out.int(8, v.number);
                }
                Err(hindsight_inspect::Error::Expression(why)) => out.text(9, why),
                Err(e) => return Err(e.into()),
            }
        }
        out.end()
    }
}
