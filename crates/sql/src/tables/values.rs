//! What an expression is, each time a place in the code is reached.

use crate::bounds::Bounds;
use crate::clock::check;
use crate::column::Kind::{Int, Text};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::{instant, number};
use anyhow::Context;
use hindsight_inspect::symbols::{Mapping, Space};
use hindsight_timeline::{
    Breakpoint, Cursor, Direction, Position, Reason, Scope, Stops, did_you_mean,
};
use std::collections::BTreeSet;

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
    column(
        "value",
        Text,
        "as debuggers show it; `?` stands for what is not known; NULL: see `error`",
    ),
    column(
        "number",
        Int,
        "the same as a number; NULL: it is none, has more than 8 bytes, or is not known",
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
            n => clock.position(n).context("no such time")?,
        };
        let stops = self.stops(r)?;
        let cancel = out.cancel.clone();
        let done = cursor.cancellable(&cancel, |cursor| {
            cursor.seek(first)?;
            Ok(self.each(r, cursor, bounds, stops, out))
        });
        done?
    }
}

/// Where the body of a function begins, as far as that is known: parameters are at their places only there.
fn body(space: &Space, function: u64) -> u64 {
    let of = |m: &Mapping| {
        let signature = m.module.signature(function.wrapping_sub(m.bias));
        Some(signature.ok()??.body?.wrapping_add(m.bias))
    };
    space.mapping(function).and_then(of).unwrap_or(function)
}

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
        // The instant itself counts, and a run begins behind it.
        if self.stands(cursor, &stops)? {
            self.row(r, cursor, bounds, out)?;
        }
        loop {
            check(&out.cancel)?;
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
            self.row(r, cursor, bounds, out)?;
        }
    }

    /// Breakpoints at the code in all program images.
    fn stops(&self, r: &Recording) -> Result<Stops<'static>, Stop> {
        let mut stops = Stops::default();
        let mut similar = Vec::new();
        let mut inspector = r.inspector();
        for p in r.timeline.processes()? {
            let addresses = match number(&self.code) {
                Some(address) => vec![address],
                None => match self.code.rsplit_once(':').map(|(f, l)| (f, l.parse())) {
                    Some((file, Ok(line))) => inspector
                        .space(p.image, p.end)?
                        .addresses_of_line(file, line),
                    _ => {
                        let found = inspector.functions(p.image, &self.code)?;
                        if found.is_empty() {
                            similar.extend(inspector.similar(p.image, &self.code)?);
                        }
                        let space = inspector.space(p.image, p.end)?;
                        found.into_iter().map(|f| body(&space, f.0)).collect()
                    }
                },
            };
            let addresses: BTreeSet<u64> = addresses.into_iter().collect();
            stops
                .breakpoints
                .extend(addresses.into_iter().map(|a| Breakpoint {
                    image: Some(p.image),
                    ..Breakpoint::at(0, a)
                }));
        }
        if stops.breakpoints.is_empty() {
            let like = did_you_mean(&self.code, &similar);
            return Err(anyhow::anyhow!("there is no code at {}{like}", self.code).into());
        }
        Ok(stops)
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
        out: &mut Rows,
    ) -> Result<(), Stop> {
        let position: Position = cursor.position()?;
        let (thread, count) = (cursor.thread(), cursor.count());
        if !bounds.has("thread", thread.0) || !bounds.has("process", r.image(thread)?) {
            return Ok(());
        }
        instant(r, out, position, r.clock()?.time(position), (thread, count))?;
        if out.wants(&[5, 6, 7]) {
            match r.inspector().evaluate(cursor, &self.expression, 0) {
                Ok(v) => {
                    out.text(5, v.text);
                    out.int(6, v.number);
                }
                Err(e) => out.text(7, e.to_string()),
            }
        }
        out.end()
    }
}
