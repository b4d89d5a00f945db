//! What a row says of a call.

use crate::column::Kind::{Address, Bool, Int, Text};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use hindsight_inspect::{Callee, Inspector};
use hindsight_isa::regs::RAX;
use hindsight_timeline::{Call, Cursor, Position, ThreadId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The columns of `calls(function)`.
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

/// Columns for which a cursor goes to a call: arguments, and what is made of them.
pub const AT_CALL: [usize; 5] = [8, 9, 10, 11, 16];
/// Columns that need to know what rax held.
pub const AT_RETURN: [usize; 2] = [15, 16];

/// Fills columns of [`CALLS`].
pub struct Filler {
    cursor: Cursor,
    known: HashMap<(u32, u64), Option<Callee>>,
}

impl Filler {
    pub fn new(r: &Recording) -> Result<Filler, Stop> {
        Ok(Filler {
            cursor: r.timeline.cursor()?,
            known: HashMap::new(),
        })
    }

    /// Says to which code a call returns. `at`: an instant at which that is there.
    pub fn caller(
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
    pub fn call(&mut self, r: &Recording, out: &mut Rows, c: &Call) -> Result<(), Stop> {
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
    pub fn rax(&mut self, out: &Rows, thread: ThreadId, count: u64) -> Result<u64, Stop> {
        let cancel = out.cancel.clone();
        let cursor = &mut self.cursor;
        cursor.cancellable(&cancel, |cursor| cursor.seek_count(thread, count))?;
        Ok(cursor.registers()?.gpr[RAX])
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
