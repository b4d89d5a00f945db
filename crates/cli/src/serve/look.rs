//! Questions about the recording, and about one instant.

use super::context::Context;
use super::{Fail, Fields, shapes};
use crate::hex::hex;
use crate::symbol::{Answer, address};
use crate::{at, info as whole, maps as mapped, mem, travel, variables as named, words};
use hindsight_timeline::Cursor;
use serde_json::{Value as Json, json};

/// The most instructions that are shown at once.
const MOST_CODE: u64 = 10_000;

pub fn info(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    f.end()?;
    let trace = c.timeline.trace();
    Ok(whole::as_json(c.timeline.path(), trace, &trace.counts()))
}

pub fn processes(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    f.end()?;
    let all = c.timeline.processes()?;
    Ok(all.iter().map(shapes::process).collect())
}

pub fn threads(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    f.end()?;
    let mut all = Vec::new();
    for t in c.timeline.threads()? {
        let name = c.timeline.names(t.image)?.of(c.timeline, &t, t.last)?;
        all.push(shapes::thread(&t, &name));
    }
    Ok(all.into())
}

pub fn modules(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let image = f.small("image")?;
    f.end()?;
    let mut all = Vec::new();
    for p in c.timeline.processes()? {
        if image.is_none_or(|i| i == p.image) {
            let here = c.timeline.modules(p.image)?;
            all.extend(here.iter().map(|m| shapes::module(p.image, m)));
        }
    }
    match image {
        Some(i) if all.is_empty() && !c.timeline.processes()?.iter().any(|p| p.image == i) => {
            Err(hindsight_timeline::Error::NoImage(i).into())
        }
        _ => Ok(all.into()),
    }
}

pub fn range(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    use hindsight_timeline::Place::{Begin, End};
    let image = f.small("image")?;
    f.end()?;
    let mut ends = [Begin, End].map(|p| c.timeline.find(p, image));
    let mut here = Vec::new();
    for end in &mut ends {
        let end = std::mem::replace(end, Err(hindsight_timeline::Error::Empty))?;
        c.cursor.seek_within(end, image, None)?;
        here.push(c.here()?);
    }
    let end = here.pop();
    Ok(json!({ "begin": here.pop(), "end": end }))
}

/// Goes somewhere and says what `show` makes of it.
fn shown(
    c: &mut Context,
    mut f: Fields,
    show: impl FnOnce(&mut Context, usize) -> Result<Json, Fail>,
) -> Result<Json, Fail> {
    let spot = f.spot()?;
    f.end()?;
    c.seek(&spot)?;
    show(c, spot.frame)
}

pub fn find(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    shown(c, f, |c, _| {
        let position = c.cursor.position()?;
        let mut here = c.here()?;
        here["time"] = travel::moment_json(c.timeline.when(position)?);
        Ok(here)
    })
}

pub fn at(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let code = f.number("instructions")?.unwrap_or(5).min(MOST_CODE);
    let carried = f.flag("carried")?;
    shown(c, f, |c, frame| {
        let carrier = carried.then_some(&mut *c.carrier);
        let shown = at::Shown::of(c.inspector, c.cursor, (code as usize, frame), carrier)?;
        let mut all = shown.json();
        all["here"] = c.here()?;
        Ok(all)
    })
}

pub fn registers(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let vectors = f.flag("vectors")?;
    shown(c, f, |c, frame| {
        if frame > 0 {
            if vectors {
                let why = "vector registers are known in the innermost frame only";
                return Err(Fail::new(Fail::UNSUPPORTED, why));
            }
            let mut cpu = c.cursor.registers()?;
            let (r, pc) = c.inspector.frame(c.cursor, frame)?;
            (cpu.gpr, cpu.rip) = (r.gpr, pc);
            return Ok(at::registers_json(&cpu));
        }
        let mut all = at::registers_json(&c.cursor.registers()?);
        if vectors {
            shapes::vectors(&mut all, &c.cursor.vectors()?);
        }
        Ok(all)
    })
}

/// The bytes that a request means.
pub struct Bytes {
    address: String,
    length: Option<u64>,
}

impl Fields {
    /// An address and perhaps a length.
    pub fn bytes(&mut self) -> Result<Bytes, Fail> {
        let address = Fields::must("address", self.word("address")?)?;
        let length = self.number("length")?;
        match length {
            Some(0) => Err(Fail::request("`length` is at least one byte")),
            Some(n) if n > words::MOST => Err(Fail::request(format!(
                "`length` is at most {} bytes",
                words::MOST
            ))),
            _ => Ok(Bytes { address, length }),
        }
    }
}

impl Context<'_> {
    /// The address and the length of bytes, at the cursor.
    pub fn bytes(&mut self, bytes: &Bytes, frame: usize) -> Result<(u64, u64), Fail> {
        let named = (bytes.address.as_str(), bytes.length);
        Ok(words::bytes(self.inspector, self.cursor, named, frame)?)
    }
}

pub fn memory(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let bytes = f.bytes()?;
    let candidates = f.flag("candidates")?;
    let carried = f.flag("carried")?;
    shown(c, f, |c, frame| {
        let (address, length) = c.bytes(&bytes, frame)?;
        let look = match candidates {
            true => Cursor::memory,
            false => Cursor::known_memory,
        };
        let m = look(c.cursor, address, length as usize)?;
        if !carried {
            return Ok(travel::memory_json(&m));
        }
        let found = c.inspector.carried(c.cursor, &[&m], c.carrier)?;
        Ok(mem::memory_json(&m, &found))
    })
}

pub fn stack(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    shown(c, f, |c, _| {
        Ok(at::stack_json(&c.inspector.backtrace(c.cursor)?))
    })
}

pub fn variables(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let carried = f.flag("carried")?;
    shown(c, f, |c, frame| {
        let all = match carried {
            true => c.inspector.variables_carried(c.cursor, frame, c.carrier)?,
            false => c.inspector.variables(c.cursor, frame)?,
        };
        Ok(all.iter().map(named::variable_json).collect())
    })
}

pub fn evaluate(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let text = Fields::must("expression", f.word("expression")?)?;
    shown(c, f, |c, frame| {
        let v = c.inspector.evaluate(c.cursor, &text, frame)?;
        Ok(json!({ "text": v.text, "number": v.number }))
    })
}

pub fn code(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let address = f.word("address")?;
    let count = f.number("instructions")?.unwrap_or(5).min(MOST_CODE);
    shown(c, f, |c, frame| {
        let from = match &address {
            None if frame > 0 => c.inspector.frame(c.cursor, frame)?.1,
            None => c.cursor.registers()?.rip,
            Some(word) => words::bytes(c.inspector, c.cursor, (word, None), frame)?.0,
        };
        let code = c.inspector.disassemble(c.cursor, from, count as usize)?;
        Ok(at::code_json(&code))
    })
}

pub fn maps(c: &mut Context, f: Fields) -> Result<Json, Fail> {
    shown(c, f, |c, _| {
        let all = hindsight_inspect::mappings(c.cursor)?;
        Ok(all.iter().map(mapped::mapping_json).collect())
    })
}

pub fn symbol(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let names = f.words("names")?;
    let mut asked = Vec::new();
    for name in &names {
        asked.push((name.as_str(), address(name)?));
    }
    shown(c, f, |c, _| {
        let mut all = Vec::new();
        for (name, address) in asked {
            let answer = Answer::of(c.inspector, c.cursor, name, address)?;
            let mut one = answer.json(name);
            if address.is_none() && !answer.is_found() {
                let near = c.inspector.similar(c.cursor.image(), name)?;
                one["similar"] = near.into();
            }
            all.push(one);
        }
        Ok(all.into())
    })
}

/// An access that a search found.
pub fn found_json(a: &hindsight_timeline::Found) -> Json {
    json!({
        "position": a.position.to_string(), "thread": a.thread.0, "count": a.count, "pc": hex(a.pc),
        "address": hex(a.address), "length": a.len, "kernel": a.kernel, "read": a.read, "write": a.write,
    })
}
