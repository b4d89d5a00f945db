//! Values that are carried over what is not recorded: by what, and how scripts are told.

use crate::args;
use crate::hex::hex;
use anyhow::{Context, Result, bail};
use hindsight_inspect::{Assumption, Carried, Carrier, Declarations, Rule};
use serde_json::{Value as Json, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file of declarations, in bytes.
const MOST: u64 = 16 << 20;

/// By what the user wants to have values carried. `None`: only what is known is to be shown. It opens files.
pub fn carrier(a: &args::Carrying) -> Result<Option<Carrier>> {
    let straight = match a.assume {
        None | Some(Assumption::Declared) => false,
        Some(Assumption::Straight) => true,
        Some(Assumption::Off) => return Ok(None),
    };
    Ok(Some(Carrier::new(declarations(&a.declared)?, straight)))
}

/// Those that come with the product, and those of the user's files. What stands in the last file counts.
pub fn declarations(files: &[PathBuf]) -> Result<Declarations> {
    let mut all = Declarations::usual();
    for path in files {
        all.add(read(path)?.1);
    }
    Ok(all)
}

/// The text of a file of declarations, and these. Each file is opened once: it may be a pipe.
pub fn read(path: &Path) -> Result<(String, Declarations)> {
    let name = || path.display().to_string();
    let mut text = String::new();
    let open = std::fs::File::open(path).with_context(name)?;
    open.take(MOST + 1)
        .read_to_string(&mut text)
        .with_context(name)?;
    if text.len() as u64 > MOST {
        bail!("{} has more than {} MiB", name(), MOST >> 20);
    }
    let declarations = Declarations::read(&text).with_context(name)?;
    Ok((text, declarations))
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
