//! The calls of a function, and all calls.

mod every;

pub use every::EveryCall;

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bool, Int, Text};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use anyhow::anyhow;
use hindsight_inspect::{Callee, Inspector};
use hindsight_isa::regs::RAX;
use hindsight_timeline::{Call, Cancel, Cursor, Filter, Position, ThreadId, did_you_mean};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// `calls(function)`.
pub struct Calls {
    /// Its name, or its address.
    pub function: String,
}

/// Its columns.
pub const CALLS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("function", Text, "name of the function"),
    column("address", Address, "where it begins"),
    column(
        "caller",
        Text,
        "where it returned to, as FILE!FUNCTION+OFFSET; NULL: it did not return, or that is no code of a file",
    ),
    column(
        "arguments",
        Text,
        "NAME=VALUE for each; without debug information the registers that pass integers",
    ),
    column("a0", Address, "first integer argument (rdi)"),
    column("a1", Address, "second integer argument (rsi)"),
    column("a2", Address, "third integer argument (rdx)"),
    column(
        "end_position",
        Text,
        "the instant of its return; NULL: it did not return",
    ),
    column("end_time", Int, "the same as a number (`time`)"),
    column(
        "instructions",
        Int,
        "instructions of the thread from its beginning to its return",
    ),
    column("result", Address, "what rax held then"),
    column(
        "returned",
        Text,
        "what it returned, by its type; NULL: nothing, or not known",
    ),
    column("handler", Bool, "the kernel called it to handle a signal"),
];

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

/// Columns for which a cursor goes to a call: arguments, and what is made of them.
const AT_CALL: [usize; 5] = [8, 9, 10, 11, 16];
/// Columns that need to know what rax held.
const AT_RETURN: [usize; 2] = [15, 16];

/// Fills columns of [`CALLS`].
struct Filler {
    cursor: Cursor,
    known: HashMap<(u32, u64), Option<Callee>>,
}

impl Filler {
    fn new(r: &Recording) -> Result<Filler, Stop> {
        Ok(Filler {
            cursor: r.timeline.cursor()?,
            known: HashMap::new(),
        })
    }

    /// Says to which code a call returns. `at`: an instant at which that is there.
    fn caller(
        &self,
        r: &Recording,
        out: &mut Rows,
        image: u32,
        (to, at): (u64, Position),
    ) -> Result<(), Stop> {
        if out.wants(&[7])
            && let Some(file) = r.file(image, to, r.clock()?.time(at))?
        {
            let at = r.location(image, file, to)?;
            out.maybe(7, at.map(|l| l.exact()));
        }
        Ok(())
    }

    /// Says all of a call but where it began, and its names.
    fn call(&mut self, r: &Recording, out: &mut Rows, c: &Call) -> Result<(), Stop> {
        out.uint(6, c.function);
        if let Some(back) = &c.returned {
            if out.wants(&[12]) {
                out.text(12, back.position.to_string());
            }
            if out.wants(&[13]) {
                out.int(13, r.clock()?.time(back.position));
            }
            out.int(14, back.count.saturating_sub(c.count) as i64);
            out.uint(15, back.value);
        }
        out.bool(17, c.handler);
        if out.wants(&AT_CALL) {
            let cancel = out.cancel.clone();
            let cursor = &mut self.cursor;
            cursor.cancellable(&cancel, |cursor| cursor.seek_call(c))?;
            let registers = Call::arguments(&cursor.registers()?);
            (0..3).for_each(|i| out.uint(9 + i, registers[i]));
        }
        if out.wants(&[8, 16]) {
            let image = r.image(c.thread)?;
            typed(r, out, &mut self.cursor, &mut self.known, (image, c))?;
        }
        Ok(())
    }

    /// What rax held when a thread had completed so many instructions.
    fn rax(&mut self, out: &Rows, thread: ThreadId, count: u64) -> Result<u64, Stop> {
        let cancel = out.cancel.clone();
        let cursor = &mut self.cursor;
        cursor.cancellable(&cancel, |cursor| cursor.seek_count(thread, count))?;
        Ok(cursor.registers()?.gpr[RAX])
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

/// Says arguments and result by their types. The cursor stands at the beginning of the call.
fn typed(
    r: &Recording,
    out: &mut Rows,
    cursor: &mut Cursor,
    known: &mut HashMap<(u32, u64), Option<Callee>>,
    (image, c): (u32, &Call),
) -> Result<(), Stop> {
    let key = (image, c.function);
    let callee = match known.entry(key) {
        Entry::Occupied(o) => o.into_mut(),
        Entry::Vacant(v) => v.insert(r.inspector().signature(cursor)?),
    };
    let callee = callee.as_ref();
    if out.wants(&[8]) {
        let arguments = r.inspector().arguments(cursor, callee, c)?;
        let one = |a: &hindsight_inspect::Argument| {
            let value = a.text.as_deref().unwrap_or("?");
            match a.name.is_empty() {
                true => value.to_owned(),
                false => format!("{}={value}", a.name),
            }
        };
        let list: Vec<String> = arguments.iter().map(one).collect();
        out.text(8, list.join(", "));
    }
    if out.wants(&[16])
        && let Some(back) = &c.returned
    {
        let (_, text) = Inspector::returned(cursor, c.thread, back, callee)?;
        out.maybe(16, text);
    }
    Ok(())
}

/// An address that is written as a number: `0x1f` or `31`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
