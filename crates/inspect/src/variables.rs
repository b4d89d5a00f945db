//! Parameters and variables with their values, and what is carried of them and of the call stack.

use crate::arguments::{bytes_at, registers};
use crate::show::show;
use crate::{Carried, Carrier, Completed, Inspector, MAX_FRAMES, Result, Value, View};
use hindsight_symbols::{CallFrame, Registers, Variable};
use hindsight_timeline::Cursor;
use std::sync::Arc;

/// The largest value that is looked at, in bytes.
const LARGEST: u64 = 1 << 16;

/// What memory says of a variable.
struct Seen {
    value: Completed,
    passed: Option<Completed>,
}

impl Inspector {
    /// The parameters and variables in scope, with their values, in a frame of the cursor's call stack.
    pub fn variables(&mut self, cursor: &mut Cursor, frame: usize) -> Result<Vec<Value>> {
        let (found, registers) = self.in_scope(cursor, frame)?;
        let seen = View::at(cursor, |view| look(view, &found, &registers))?;
        Ok(values(found, seen, None))
    }

    /// The same, with what is carried of values that are not known. Where a variable is, and its frame, must be known.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn variables_carried(
        &mut self,
        cursor: &mut Cursor,
        frame: usize,
        carrier: &mut Carrier,
    ) -> Result<Vec<Value>> {
        let (found, registers) = self.in_scope(cursor, frame)?;
        let seen = View::at(cursor, |view| look(view, &found, &registers))?;
        let more = self.completed(cursor, carrier, |view| look(view, &found, &registers))?;
        Ok(values(found, seen, more))
    }

    /// The variables in scope, where they are, and the registers of the frame.
    fn in_scope(
        &mut self,
        cursor: &mut Cursor,
        frame: usize,
    ) -> Result<(Vec<Variable>, Registers)> {
        let space = self.here(cursor)?;
        let registers = match frame {
            0 => registers(cursor)?,
            n => self.frame(cursor, n)?.0,
        };
        let Some(m) = space.mapping(registers.rip) else {
            return Ok((Vec::new(), registers));
        };
        let (module, bias) = (Arc::clone(&m.module), m.bias);
        let mut found = View::at(cursor, |view| {
            module.variables(&registers, None, bias, &mut |at| view.word(at))
        })??;
        if found.iter().any(|v| v.parameter)
            && let Some(entry) = self.at_entry(cursor, frame)?
        {
            found = View::at(cursor, |view| {
                module.variables(&registers, Some(&entry), bias, &mut |at| view.word(at))
            })??;
        }
        Ok((found, registers))
    }

    /// The frames of the call stack behind those that [`Inspector::backtrace`] finds, as far as what is carried leads to them, and
    /// the bytes that do. There are none where the call stack is known to its end.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn backtrace_carried(
        &mut self,
        cursor: &mut Cursor,
        known: &[CallFrame],
        carrier: &mut Carrier,
    ) -> Result<(Vec<CallFrame>, Vec<Carried>)> {
        let space = self.here(cursor)?;
        let r = registers(cursor)?;
        let found = self.completed(cursor, carrier, |view| {
            let stack = space.backtrace(&r, &mut |at| view.word(at), MAX_FRAMES);
            (stack, view.used())
        })?;
        let Some((mut more, from)) = found else {
            return Ok((Vec::new(), Vec::new()));
        };
        // What is carried may show a known frame in another way. Then it is not clear which frames it leads to.
        let same = (known.iter().zip(&more)).all(|(k, m)| (k.pc, k.signal) == (m.pc, m.signal));
        if !same || from.is_empty() || more.len() <= known.len() {
            return Ok((Vec::new(), Vec::new()));
        }
        Ok((more.split_off(known.len()), from))
    }
}

fn look(view: &mut View, found: &[Variable], registers: &Registers) -> Vec<Seen> {
    let one = |v: &Variable| {
        let len = v.size.unwrap_or(0).min(LARGEST);
        let mut at = |place: &_| {
            let bytes = bytes_at(&mut |at, len| view.read(at, len), place, len, registers);
            let text = show(&v.shape, &bytes, &mut |at, len| view.read(at, len));
            let from = view.used();
            Completed { bytes, text, from }
        };
        Seen {
            value: at(&v.location),
            passed: v.passed.as_ref().map(at),
        }
    };
    found.iter().map(one).collect()
}

/// `more`: the same with what is carried.
fn values(found: Vec<Variable>, seen: Vec<Seen>, more: Option<Vec<Seen>>) -> Vec<Value> {
    let more = more.into_iter().flatten().map(Some);
    let more = more.chain(std::iter::repeat_with(|| None));
    let all = found.into_iter().zip(seen).zip(more);
    all.map(|((variable, known), more)| {
        let (value, passed) = more.map_or((None, None), |m| (Some(m.value), m.passed));
        let tells = |c: &Completed, known: &Completed| {
            !c.from.is_empty() && (&c.bytes, &c.text) != (&known.bytes, &known.text)
        };
        Value {
            carried: value.filter(|v| tells(v, &known.value)),
            passed_carried: passed.filter(|p| known.passed.as_ref().is_some_and(|k| tells(p, k))),
            variable,
            bytes: known.value.bytes,
            text: known.value.text,
            passed: known.passed.map(|p| p.text),
        }
    })
    .collect()
}
