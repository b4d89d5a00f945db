//! `hindsight mem`: what memory holds at a place.

use crate::out::println;
use crate::words::Spot;
use crate::{args, carried, confine, travel};
use anyhow::Result;
use hindsight_inspect::{Carried, Carrier, Rule};
use hindsight_timeline::{KnownByte, Memory};
use serde_json::Value as Json;
use std::fmt::Write;
use std::path::Path;

/// Bytes in a line.
const ROW: usize = 16;

/// Shows memory.
pub fn run(a: &args::Mem, file: Option<&Path>) -> Result<i32> {
    // The process that plays the recording opens no files.
    let mut carrier = carried::carrier(&a.carrying)?;
    confine::run(file, || show(a, carrier.as_mut()))
}

fn show(a: &args::Mem, carrier: Option<&mut Carrier>) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    let (address, length) = spot.bytes(&a.words[1..], a.at.frame)?;
    let m = spot.cursor.memory(address, length as usize)?;
    let carried = match carrier {
        Some(by) => spot.inspector.carried(&mut spot.cursor, &[&m], by)?,
        None => Vec::new(),
    };
    println(&match a.json {
        true => serde_json::to_string_pretty(&memory_json(&m, &carried))?,
        false => text(&m, &carried).trim_end().into(),
    });
    Ok(0)
}

fn text(m: &Memory, carried: &[Carried]) -> String {
    let mut out = m.to_string();
    for (rule, says) in [
        (
            Rule::Declared,
            "carried over calls that were not recorded, since their functions are declared to write something else:",
        ),
        (
            Rule::Straight,
            "assumed, as if what was not recorded had written nothing:",
        ),
    ] {
        let mut its = carried.iter().filter(|c| c.rule() == rule).peekable();
        if its.peek().is_some() {
            let _ = write!(out, "\n{says}\n");
        }
        for c in its {
            rows(&mut out, c);
            let from = carried::from(std::slice::from_ref(c));
            let _ = writeln!(out, "{:#x}+{}: {from}", c.address, c.bytes.len());
        }
    }
    out
}

/// The lines of bytes, as they are shown of memory that is known.
fn rows(out: &mut String, c: &Carried) {
    let byte = |b: &u8| {
        Some(KnownByte {
            value: *b,
            ground: c.ground,
        })
    };
    let m = Memory {
        address: c.address,
        bytes: c.bytes.iter().map(byte).collect(),
        ..Memory::default()
    };
    for row in m.to_string().lines().take(c.bytes.len().div_ceil(ROW)) {
        let _ = writeln!(out, "{row}");
    }
}

/// What is known of memory, and what is carried to it.
pub fn memory_json(m: &Memory, carried: &[Carried]) -> Json {
    let mut json = travel::memory_json(m);
    json["carried"] = carried::json(carried);
    json
}
