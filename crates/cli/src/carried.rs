//! Values that are carried over what is not recorded: by what, and how that is said.

use crate::args::{self, Assumption};
use crate::hex::hex;
use anyhow::{Context, Result, bail};
use hindsight_inspect::{Carried, Carrier, Declarations, Rule};
use hindsight_text::line;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

/// The largest file of declarations, in bytes.
const MOST: u64 = 16 << 20;
/// So many functions that a value was carried over are named.
const NAMED: usize = 5;

/// By what the user wants to have values carried. `None`: only what is known is to be shown. It opens files.
pub fn carrier(a: &args::Carrying) -> Result<Option<Carrier>> {
    let straight = match a.assume {
        Assumption::Declared => false,
        Assumption::Straight => true,
        Assumption::Off => return Ok(None),
    };
    Ok(Some(Carrier::new(declarations(&a.declared)?, straight)))
}

/// Those that come with the product, and those of the user's files. What stands in the last file counts.
pub fn declarations(files: &[PathBuf]) -> Result<Declarations> {
    let mut all = Declarations::usual();
    for path in files {
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

/// Of bytes that belong together: whether they are carried, or only assumed.
pub fn mark(all: &[Carried]) -> &'static str {
    match all.iter().all(|c| c.rule() == Rule::Declared) {
        true => "carried",
        false => "assumed",
    }
}

/// Over how many gaps some bytes were carried, and what was called in these.
pub fn over(all: &[Carried]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut unnamed = BTreeSet::new();
    for p in all.iter().flat_map(|c| c.over.iter()) {
        match &p.declared {
            Some((_, text)) if !names.contains(&text.as_str()) => names.push(text),
            Some(_) => {}
            None => _ = unnamed.insert(p.position),
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
    match unnamed.len() {
        0 => {}
        1 => said.push("1 gap of which nothing is known".into()),
        n => said.push(format!("{n} gaps of which nothing is known")),
    }
    let gaps = match all.iter().map(|c| c.over.len()).max().unwrap_or(0) {
        1 => "1 gap".into(),
        n => format!("{n} gaps"),
    };
    format!("{gaps} away: {}", said.join(", "))
}

/// Where some bytes are known, and how they came from there.
pub fn from(all: &[Carried]) -> String {
    match all {
        [one] => format!("{} at {}, {}", one.ground, one.from, over(all)),
        _ => over(all),
    }
}

/// For scripts.
pub fn json(all: &[Carried]) -> Json {
    all.iter().map(one).collect()
}

fn one(c: &Carried) -> Json {
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
