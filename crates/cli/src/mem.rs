//! `hindsight mem`: what memory holds at a place.

use crate::hex::hex;
use crate::out::println;
use crate::words::Spot;
use crate::{args, confine, travel};
use anyhow::{Context, Result, bail};
use hindsight_inspect::{Carried, Declarations, Rule};
use hindsight_text::line;
use hindsight_timeline::{KnownByte, Memory};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// The largest file of declarations, in bytes.
const MOST: u64 = 16 << 20;
/// So many functions that a value was carried over are named.
const NAMED: usize = 5;
/// Bytes in a line.
const ROW: usize = 16;

/// Shows memory.
pub fn run(a: &args::Mem, file: Option<&Path>) -> Result<i32> {
    // The process that plays the recording opens no files.
    let declarations = declarations(a)?;
    confine::run(file, || show(a, &declarations))
}

/// Those that come with the product, and those of the user's files. What stands in the last file counts.
fn declarations(a: &args::Mem) -> Result<Declarations> {
    let mut all = Declarations::usual();
    for path in &a.declared {
        let name = || path.display().to_string();
        let mut text = String::new();
        let open = std::fs::File::open(path).with_context(name)?;
        open.take(MOST + 1)
            .read_to_string(&mut text)
            .with_context(name)?;
        if text.len() as u64 > MOST {
            bail!("{} has more than {} MiB", name(), MOST >> 20);
        }
        all.add(Declarations::read(&text).with_context(name)?);
    }
    Ok(all)
}

fn show(a: &args::Mem, declarations: &Declarations) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    let (address, length) = spot.bytes(&a.words[1..], a.at.frame)?;
    let m = spot.cursor.memory(address, length as usize)?;
    let straight = a.assume == Some(args::Assumption::Straight);
    let carried = spot
        .inspector
        .carried(&mut spot.cursor, &m, declarations, straight)?;
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
            let _ = writeln!(
                out,
                "{:#x}+{}: {} at {}{}",
                c.address,
                c.bytes.len(),
                c.ground,
                c.from,
                over(c)
            );
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

/// What was called in between.
fn over(c: &Carried) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut unnamed = 0;
    for p in c.over.iter() {
        match &p.declared {
            Some((_, text)) if !names.contains(&text.as_str()) => names.push(text),
            Some(_) => {}
            None => unnamed += 1,
        }
    }
    let mut said: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|n| line(n).into_owned())
        .collect();
    if names.len() > NAMED {
        said.push(format!("{} others", names.len() - NAMED));
    }
    if unnamed > 0 {
        said.push(format!("{unnamed} gaps of which nothing is known"));
    }
    let gaps = match c.over.len() {
        1 => "1 gap".into(),
        n => format!("{n} gaps"),
    };
    format!(", {gaps} away: {}", said.join(", "))
}

/// What is known of memory, and what is carried to it.
pub fn memory_json(m: &Memory, carried: &[Carried]) -> Json {
    let mut json = travel::memory_json(m);
    json["carried"] = carried.iter().map(as_json).collect();
    json
}

fn as_json(c: &Carried) -> Json {
    let mut declarations: Vec<&str> = Vec::new();
    for (_, text) in c.over.iter().filter_map(|p| p.declared.as_ref()) {
        if !declarations.contains(&text.as_str()) {
            declarations.push(text);
        }
    }
    json!({
        "address": hex(c.address), "bytes": c.bytes, "from": c.from.to_string(), "ground": c.ground.to_string(),
        "rule": match c.rule() {
            Rule::Declared => "declared",
            Rule::Straight => "straight",
        },
        "gaps": c.over.len(), "declarations": declarations,
    })
}
