//! `hindsight mem`: what memory holds at a place.

use crate::out::println;
use crate::words::Spot;
use crate::{args, carried, confine, travel};
use anyhow::Result;
use hindsight_inspect::{Carried, Carrier};
use hindsight_timeline::Memory;
use serde_json::Value as Json;
use std::path::Path;

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
        false => format!("{m}{}", Carried::text(&carried)).trim_end().into(),
    });
    Ok(0)
}

/// What is known of memory, and what is carried to it.
pub fn memory_json(m: &Memory, carried: &[Carried]) -> Json {
    let mut json = travel::memory_json(m);
    json["carried"] = carried::json(carried);
    json
}
