//! `hindsight ls` and `hindsight rm`, and which recording a command means.

use crate::numbers::{grouped, local_time, size};
use crate::out::println;
use crate::{args, confine, say};
use anyhow::{Context, Result, bail};
use hindsight_store::{self as store, EXTENSION, Stored};
use hindsight_text::line;
use hindsight_trace::files;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Brief, Trace};
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The file that the user means: by default the latest recording.
pub fn find(file: Option<&Path>) -> Result<PathBuf> {
    if let Some(found) = confine::recording() {
        return Ok(found.into());
    }
    Ok(store::find(file)?)
}

/// The files that the user means by words: files, names in the store, and patterns of either; by default the latest
/// recording. What is named twice counts once.
pub fn find_all(words: &[String]) -> Result<Vec<PathBuf>> {
    if words.is_empty() {
        return Ok(vec![find(None)?]);
    }
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for word in words {
        let path = Path::new(word);
        let found = match is_pattern(word) && !path.exists() {
            true => matching(word)?,
            false => vec![find(Some(path))?],
        };
        if found.is_empty() {
            bail!("{word}: no file that ends in .{EXTENSION} has such a name");
        }
        for file in found {
            // What cannot be resolved cannot be opened either.
            if seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())) {
                all.push(file);
            }
        }
    }
    Ok(all)
}

/// Whether a word is a pattern that recordings match.
pub fn matches(word: &str) -> bool {
    is_pattern(word) && matching(word).is_ok_and(|found| !found.is_empty())
}

/// Questions have such letters, too. So what has a space is a pattern only if it ends as recordings do.
fn is_pattern(word: &str) -> bool {
    let ends = word.ends_with(&format!(".{EXTENSION}"));
    let asks = word.contains(['\n', '\t', ';']) || word.contains(' ') && !ends;
    word.contains(['*', '?', '[']) && !asks
}

/// The recordings that match a pattern, sorted by their paths: files, or else those in the store.
fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    // The library's own option for leading dots panics at names that are no UTF-8.
    let how = glob::MatchOptions {
        require_literal_separator: true,
        ..Default::default()
    };
    let is_recording = |path: &PathBuf| {
        let ends = path.extension().is_some_and(|e| e == EXTENSION);
        ends && !has_hidden(path, pattern) && path.is_file()
    };
    let found = glob::glob_with(pattern, how).with_context(|| pattern.to_owned())?;
    // As in a shell, what cannot be read is passed over.
    let here: Vec<PathBuf> = found.filter_map(Result::ok).filter(is_recording).collect();
    if !here.is_empty() || pattern.contains('/') {
        return Ok(here);
    }
    let pattern = glob::Pattern::new(pattern).with_context(|| pattern.to_owned())?;
    let mut stored: Vec<PathBuf> = (store::list()?.into_iter())
        .filter(|s| pattern.matches(&s.name) || pattern.matches(&format!("{}.{EXTENSION}", s.name)))
        .map(|s| s.path)
        .collect();
    stored.sort();
    Ok(stored)
}

/// Whether a part of a path begins with a dot, and no part of the pattern says so.
fn has_hidden(path: &Path, pattern: &str) -> bool {
    let said = |part: &str| {
        let of = |p: &str| glob::Pattern::new(p).is_ok_and(|p| p.matches(part));
        pattern.split('/').any(|p| p.starts_with('.') && of(p))
    };
    path.components().any(|part| match part {
        Component::Normal(name) => {
            let name = name.to_string_lossy();
            name.starts_with('.') && !said(&name)
        }
        _ => false,
    })
}

/// Whether a word of the command line means a recording, if it could also be something else.
pub fn is_meant(word: &str) -> bool {
    let path = Path::new(word);
    if path.is_file() || path.extension().is_some_and(|e| e == EXTENSION) {
        return true;
    }
    word.parse::<hindsight_timeline::Place>().is_err() && find(Some(path)).is_ok_and(|f| f.exists())
}

/// How a recording ended, in a word or two.
fn ending(path: &Path, t: &Result<Brief, hindsight_trace::Error>) -> String {
    match t {
        _ if store::is_busy(path) => "being recorded".into(),
        Err(e) => e.to_string(),
        Ok(t) => match t.summary.as_ref().and_then(|s| s.ending.as_ref()) {
            Some(Ending::Unsupported(_)) => "not recorded further".into(),
            Some(e) => e.to_string(),
            None => t.completeness.to_string(),
        },
    }
}

/// `hindsight ls`.
pub fn list(a: &args::List) -> Result<i32> {
    let mut rows = Vec::new();
    let mut json = Vec::new();
    let mut own = 0;
    for e in store::list()? {
        let t = Trace::brief(&e.path);
        let (command, started, instructions) = match &t {
            Ok(t) => {
                let n = t.summary.as_ref().map(|s| s.totals.instructions);
                (t.header.command(), t.header.started_ms, n)
            }
            Err(_) => (e.program.clone(), modified_ms(&e), None),
        };
        let ended = ending(&e.path, &t);
        let used = t.map_or(Ok(0), |t| t.shared);
        let ended = match &used {
            Err(e) => format!("{ended}, but {e}"),
            Ok(_) => ended,
        };
        if a.json {
            json.push(serde_json::json!({
                "name": e.name, "file": e.path, "program": e.program, "command": command,
                "started_ms": started, "ended": ended, "bytes": e.bytes,
                "shared_bytes": used.ok(), "instructions": instructions,
            }));
            continue;
        }
        let when = local_time((started / 1000) as i64);
        let command: String = line(&command).chars().take(60).collect();
        let n = instructions.map_or("-".into(), grouped);
        let used = used.map_or("?".into(), size);
        own += e.bytes;
        rows.push([e.name, when, ended, n, size(e.bytes), used, command]);
    }
    if a.json {
        println(&serde_json::to_string_pretty(&json)?);
    } else if rows.is_empty() {
        say("the store is empty");
    } else {
        let head = [
            "NAME",
            "STARTED",
            "ENDED",
            "INSTRUCTIONS",
            "SIZE",
            "SHARED",
            "COMMAND",
        ]
        .map(String::from);
        rows.insert(0, head);
        println(&table(&rows));
        let (number, bytes) = files::total(&store::dir()?);
        if number > 0 {
            say(&format!(
                "recordings {}, and {number} files that they share, {}",
                size(own),
                size(bytes)
            ));
        }
    }
    Ok(0)
}

fn modified_ms(e: &Stored) -> u64 {
    e.modified
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |i: usize| {
        rows.iter()
            .map(|r| line(&r[i]).chars().count())
            .max()
            .unwrap_or(0)
    };
    let row = |r: &[String; N]| {
        let cells: Vec<_> = r
            .iter()
            .enumerate()
            .map(|(i, c)| format!("{:<1$}", line(c), width(i)))
            .collect();
        cells.join("  ").trim_end().to_string()
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// `hindsight rm`.
pub fn remove(a: &args::Remove) -> Result<i32> {
    let paths: Vec<PathBuf> = if a.all {
        store::list()?.into_iter().map(|e| e.path).collect()
    } else {
        let named = a.names.iter().map(|n| store::named(n));
        named.collect::<hindsight_store::Result<_>>()?
    };
    let mut status = 0;
    let mut json = Vec::new();
    for p in paths {
        let kept = store::remove(&p).err().map(|e| e.to_string());
        if let Some(why) = &kept {
            say(&format!("{}: {why}", p.display()));
            status = 1;
        }
        json.push(serde_json::json!({"path": p, "removed": kept.is_none(), "error": kept}));
    }
    if a.json {
        println(&serde_json::to_string_pretty(&json)?);
    }
    match store::sweep() {
        Ok(true) => {}
        Ok(false) => status = 1,
        Err(e) => {
            say(&e.to_string());
            status = 1;
        }
    }
    Ok(status)
}
