//! Steps, runs and searches. They begin at the place that a request names, and say where they end.

use super::context::Context;
use super::{Fail, Fields, look, shapes};
use crate::travel;
use hindsight_timeline::{
    Breakpoint, Choice, Direction, Reason, Scope, Stop, Stops, WatchedValue, Watchpoint,
    did_you_mean,
};
use serde_json::Value as Json;

/// The most steps of one request.
const MOST_STEPS: u64 = 1_000_000;

impl Fields {
    fn scope(&mut self, usual: Scope) -> Result<Scope, Fail> {
        Ok(match self.text("scope")?.as_deref() {
            None => usual,
            Some("thread") => Scope::Thread,
            Some("process") => Scope::Process,
            Some("all") => Scope::All,
            Some(other) => {
                return Err(Fail::request(format!(
                    "`scope` is thread, process or all, and not {other}"
                )));
            }
        })
    }
}

impl Context<'_> {
    /// Where it stopped, and why.
    fn stopped(&mut self, stop: &Stop) -> Result<Json, Fail> {
        if stop.reason == Reason::Cancelled {
            return Err(hindsight_timeline::Error::Cancelled.into());
        }
        let mut all = shapes::reason(stop);
        all["here"] = self.here()?;
        Ok(all)
    }
}

pub fn step(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let spot = f.spot()?;
    let direction = f.direction()?;
    let scope = f.scope(Scope::Thread)?;
    let by = f.text("by")?.unwrap_or_else(|| "instruction".into());
    let times = f.number("count")?.unwrap_or(1);
    f.end()?;
    if !["instruction", "over", "out", "line", "next"].contains(&by.as_str()) {
        return Err(Fail::request(format!(
            "`by` is instruction, over, out, line or next, and not {by}"
        )));
    }
    if !(1..=MOST_STEPS).contains(&times) {
        return Err(Fail::request(format!("`count` is from 1 to {MOST_STEPS}")));
    }
    if scope != Scope::Thread && by != "instruction" {
        return Err(Fail::request("`scope` is for steps by instruction"));
    }
    c.seek(&spot)?;
    let mut stop = None;
    for _ in 0..times {
        let one = match by.as_str() {
            "over" => c.cursor.step_over(direction)?,
            "out" => c.cursor.step_out(direction)?,
            "line" => c.inspector.step_line(c.cursor, direction, true)?,
            "next" => c.inspector.step_line(c.cursor, direction, false)?,
            _ => c.cursor.step(direction, scope)?,
        };
        let last = one.reason != Reason::Step;
        stop = Some(one);
        if last {
            break;
        }
    }
    match stop {
        Some(stop) => c.stopped(&stop),
        None => Err(Fail::request("`count` is 0")),
    }
}

/// What a run stops at, as it was said.
struct Wanted {
    breakpoints: Vec<String>,
    watchpoints: Vec<(look::Bytes, hindsight_timeline::Watch, bool)>,
    registers: Vec<String>,
    signals: Option<Option<Vec<String>>>,
    syscalls: Option<Option<Vec<String>>>,
    calls: Vec<String>,
    returns: Vec<String>,
    threads: bool,
    modules: bool,
}

impl Wanted {
    fn of(f: &mut Fields) -> Result<Wanted, Fail> {
        let mut watchpoints = Vec::new();
        for mut w in f.objects("watchpoints")? {
            watchpoints.push((w.bytes()?, w.watch("write")?, w.flag("changes")?));
            w.end()?;
        }
        Ok(Wanted {
            breakpoints: f.words("breakpoints")?,
            watchpoints,
            registers: f.words("registers")?,
            signals: f.choice("signals")?,
            syscalls: f.choice("syscalls")?,
            calls: f.words("calls")?,
            returns: f.words("returns")?,
            threads: f.flag("threads")?,
            modules: f.flag("modules")?,
        })
    }

    /// The same for the library, at the cursor. Breakpoints and watchpoints have their numbers in the request, from 0.
    fn stops(&self, c: &mut Context, scope: Scope, frame: usize) -> Result<Stops<'static>, Fail> {
        let mut stops = Stops {
            signals: chosen(&self.signals, signal)?,
            syscalls: chosen(&self.syscalls, |n| {
                travel::syscall(n).map_err(|e| Fail::new(Fail::NAME, e.to_string()))
            })?,
            threads: self.threads,
            modules: self.modules,
            ..Stops::default()
        };
        for (id, text) in self.breakpoints.iter().enumerate() {
            breakpoints(c, scope, (id as u64, text), &mut stops)?;
        }
        for name in &self.registers {
            let none = || Fail::new(Fail::NAME, format!("no register is called {name}"));
            let register = shapes::register_named(name).ok_or_else(none)?;
            stops.registers.push(register);
        }
        for (names, to) in [
            (&self.calls, &mut stops.calls),
            (&self.returns, &mut stops.returns),
        ] {
            for name in names {
                to.extend(functions(c, name)?);
            }
        }
        for (id, (bytes, watch, changes)) in self.watchpoints.iter().enumerate() {
            let (address, len) = c.bytes(bytes, frame)?;
            let id = id as u64;
            stops.watchpoints.push(Watchpoint {
                id,
                address,
                len,
                watch: *watch,
                image: Some(c.cursor.image()),
            });
            if *changes {
                let held = c.cursor.known_memory(address, len as usize)?.whole();
                let unknown = "what is there is not known at the place where the run begins, so no change can be told";
                let bytes = held.ok_or_else(|| Fail::new(Fail::UNSUPPORTED, unknown))?;
                stops.values.push(WatchedValue { id, bytes });
            }
        }
        Ok(stops)
    }
}

/// Adds breakpoints at all code that a text names, in the program images that are followed.
fn breakpoints(
    c: &mut Context,
    scope: Scope,
    (id, text): (u64, &str),
    stops: &mut Stops,
) -> Result<(), Fail> {
    let here = c.cursor.image();
    let mut similar = Vec::new();
    let before = stops.breakpoints.len();
    for p in c.timeline.processes()? {
        if scope != Scope::All && p.image != here {
            continue;
        }
        let all = c.inspector.code(p.image, text)?;
        if all.is_empty() {
            similar.extend(c.inspector.similar(p.image, text)?);
        }
        stops
            .breakpoints
            .extend(all.into_iter().map(|address| Breakpoint {
                image: Some(p.image),
                ..Breakpoint::at(id, address)
            }));
    }
    if stops.breakpoints.len() > before {
        return Ok(());
    }
    let like = did_you_mean(text, similar);
    Err(Fail::new(
        Fail::NAME,
        format!("there is no code at {text}{like}"),
    ))
}

/// The addresses of a function in the cursor's program image.
fn functions(c: &mut Context, name: &str) -> Result<Vec<u64>, Fail> {
    let image = c.cursor.image();
    let all = crate::calls::functions(c.inspector, image, name)?;
    match all.is_empty() {
        false => Ok(all.into_iter().map(|f| f.0).collect()),
        true => {
            let none = crate::calls::no_function(c.inspector, image, name)?;
            Err(Fail::new(Fail::NAME, none))
        }
    }
}

fn chosen<T>(
    said: &Option<Option<Vec<String>>>,
    one: impl Fn(&str) -> Result<T, Fail>,
) -> Result<Choice<T>, Fail> {
    Ok(match said {
        None => Choice::Nothing,
        Some(None) => Choice::All,
        Some(Some(list)) => Choice::Only(list.iter().map(|n| one(n)).collect::<Result<_, _>>()?),
    })
}

fn signal(text: &str) -> Result<u8, Fail> {
    let number = text.parse::<u8>().ok().filter(|n| (1..=64).contains(n));
    let named = || (1..=64u8).find(|n| hindsight_timeline::signal_name(u64::from(*n)) == text);
    number
        .or_else(named)
        .ok_or_else(|| Fail::new(Fail::NAME, format!("no signal is called {text}")))
}

pub fn run(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let spot = f.spot()?;
    let direction = f.direction()?;
    let scope = f.scope(Scope::Process)?;
    let wanted = Wanted::of(&mut f)?;
    f.end()?;
    c.seek(&spot)?;
    let mut stops = wanted.stops(c, scope, spot.frame)?;
    let stop = c.cursor.run(direction, scope, &mut stops)?;
    c.stopped(&stop)
}

/// The nearest access to some bytes.
pub fn access(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let spot = f.spot()?;
    let bytes = f.bytes()?;
    let direction = f.direction()?;
    let watch = f.watch(match direction {
        Direction::Forward => "any",
        Direction::Backward => "write",
    })?;
    f.end()?;
    c.seek(&spot)?;
    let (address, length) = c.bytes(&bytes, spot.frame)?;
    let found = c.cursor.find(direction, address, length, watch)?;
    Ok(found.as_ref().map_or(Json::Null, look::found_json))
}
