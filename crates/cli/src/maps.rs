//! `hindsight maps`: what a process has mapped at a place.

use crate::args;
use crate::hex::hex;
use crate::out::println;
use crate::words::Spot;
use anyhow::{Result, bail};
use hindsight_inspect::mappings;
use hindsight_text::line;
use hindsight_timeline::Mapping;
use serde_json::{Value as Json, json};

/// The column in which the kernel writes a mapping's name.
const NAME_COLUMN: usize = 73;

/// Lists the mappings, or shows the one that has an address.
pub fn run(a: &args::Maps) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    let address = match &a.address {
        Some(words) => Some(spot.bytes(std::slice::from_ref(words), a.at.frame)?.0),
        None => None,
    };
    let mut all = mappings(&mut spot.cursor)?;
    let position = spot.cursor.position()?;
    if let Some(at) = address {
        all.retain(|m| m.start <= at && at < m.end);
        if all.is_empty() {
            bail!("no mapping is known that has {at:#x} at {position}");
        }
    }
    if a.json {
        let thread = spot.cursor.timeline().thread(spot.cursor.thread())?;
        println(&serde_json::to_string_pretty(&json!({
            "position": position.to_string(),
            "image": thread.image,
            "pid": thread.pid,
            "mappings": all.iter().map(mapping_json).collect::<Vec<_>>(),
        }))?);
        return Ok(0);
    }
    if all.is_empty() {
        println("no mapping is known there");
    }
    for m in &all {
        println(&mapping_text(m));
    }
    Ok(0)
}

/// Device and inode, if they are known. Only memory without a file has some that are: zeros.
fn file_number(m: &Mapping) -> Option<(&'static str, u64)> {
    let is_of_file = m.is_shared() || m.path.starts_with('/');
    (!is_of_file).then_some(("00:00", 0))
}

fn mapping_text(m: &Mapping) -> String {
    let (device, inode) = match file_number(m) {
        Some((device, inode)) => (device, inode.to_string()),
        None => ("?", "?".into()),
    };
    let text = format!(
        "{:08x}-{:08x} {} {:08x} {device:<5} {inode}",
        m.start,
        m.end,
        m.rights(),
        m.offset
    );
    match m.path.is_empty() {
        true => text,
        false => format!("{text:<w$}{}", line(&m.path), w = NAME_COLUMN),
    }
}

pub fn mapping_json(m: &Mapping) -> Json {
    let number = file_number(m);
    json!({
        "start": hex(m.start), "end": hex(m.end),
        "rights": m.rights(),
        "offset": hex(m.offset),
        "device": number.map(|n| n.0), "inode": number.map(|n| n.1),
        "path": m.path,
    })
}
