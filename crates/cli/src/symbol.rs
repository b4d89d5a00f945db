//! `hindsight symbol`: what addresses belong to, and where names are.

use crate::at::{frame_json, frame_text, place_json};
use crate::hex::hex;
use crate::out::println;
use crate::words::Spot;
use crate::{args, parse, say};
use anyhow::{Context, Result};
use hindsight_inspect::Inspector;
use hindsight_inspect::symbols::{CodeLocation, InlineFrame, SourceLine, Symbol};
use hindsight_text::line;
use hindsight_timeline::{Cursor, did_you_mean};
use serde_json::{Value as Json, json};

/// The exit status if something was not found.
const MISSING: i32 = 1;

/// Answers each word in turn. What is not known is shown as such.
pub fn run(a: &args::Symbol, place: Option<&String>) -> Result<i32> {
    let questions = (a.words.iter()).map(|w| Ok((w.as_str(), address(w)?)));
    let questions: Vec<(&str, Option<u64>)> = questions.collect::<Result<_>>()?;
    let within = args::Within {
        image: a.image,
        thread: None,
        frame: 0,
    };
    let mut spot = Spot::open(place, &within)?;
    let mut answers = Vec::new();
    let mut missing = false;
    for (asked, address) in questions {
        let answer = Answer::of(&mut spot.inspector, &spot.cursor, asked, address)?;
        match a.json {
            true => answers.push(answer.json(asked)),
            false => println(&answer.text()),
        }
        if let Answer::Name(name, found) = &answer
            && found.is_empty()
        {
            let near = spot.inspector.similar(spot.cursor.image(), name)?;
            say(&format!(
                "there is no function or variable {name} here{}",
                did_you_mean(name, near)
            ));
        }
        missing |= !answer.is_found();
    }
    if a.json {
        let thread = spot.cursor.timeline().thread(spot.cursor.thread())?;
        println(&serde_json::to_string_pretty(&json!({
            "position": spot.cursor.position()?.to_string(),
            "image": thread.image,
            "pid": thread.pid,
            "answers": answers,
        }))?);
    }
    Ok(if missing { MISSING } else { 0 })
}

/// The address that a word is. `None`: it is a name. No name begins with a digit, except that of a module.
pub fn address(word: &str) -> Result<Option<u64>> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) || word.contains('!') {
        return Ok(None);
    }
    let number = parse::number(word).map_err(anyhow::Error::msg);
    number.map(Some).with_context(|| word.to_owned())
}

/// What is known of an address or a name.
pub enum Answer<'a> {
    /// An address, what lies there, and the functions that execute there, innermost first.
    Address(u64, Option<CodeLocation>, Vec<InlineFrame>),
    /// What a name stands for.
    Name(&'a str, Vec<Symbol>),
}

impl<'a> Answer<'a> {
    /// What there is at the cursor of an address, or else of a name.
    pub fn of(
        inspector: &mut Inspector,
        cursor: &Cursor,
        asked: &'a str,
        address: Option<u64>,
    ) -> Result<Answer<'a>> {
        Ok(match address {
            Some(address) => Answer::Address(
                address,
                inspector.location(cursor, address)?,
                inspector.frames(cursor, address)?,
            ),
            None => Answer::Name(asked, inspector.symbols(cursor, asked)?),
        })
    }

    /// Whether there is anything of it.
    pub fn is_found(&self) -> bool {
        match self {
            Answer::Address(_, location, _) => location.is_some(),
            Answer::Name(_, found) => !found.is_empty(),
        }
    }

    fn text(&self) -> String {
        match self {
            Answer::Address(address, location, frames) => address_text(*address, location, frames),
            Answer::Name(name, found) if found.is_empty() => {
                format!("? {} (? bytes) in ? at ?", line(name))
            }
            Answer::Name(_, found) => {
                let lines: Vec<String> = found.iter().map(symbol_text).collect();
                lines.join("\n")
            }
        }
    }

    /// The same for scripts.
    pub fn json(&self, asked: &str) -> Json {
        match self {
            Answer::Address(address, location, frames) => json!({
                "asked": asked, "found": self.is_found(), "address": hex(*address),
                "place": location.as_ref().map(place_json),
                "frames": frames.iter().map(frame_json).collect::<Vec<_>>(),
            }),
            Answer::Name(_, found) => json!({
                "asked": asked, "found": self.is_found(),
                "symbols": found.iter().map(symbol_json).collect::<Vec<_>>(),
            }),
        }
    }
}

/// One line, and one for each function if some are inlined.
fn address_text(address: u64, location: &Option<CodeLocation>, frames: &[InlineFrame]) -> String {
    let function = location.as_ref().and_then(|l| l.function.as_ref());
    let function = match (function, frames.last().and_then(|f| f.function.as_ref())) {
        (Some((name, 0)), _) | (None, Some(name)) => line(name).into(),
        (Some((name, past)), _) => format!("{}+{past:#x}", line(name)),
        (None, None) => "?".into(),
    };
    let module = match location {
        Some(l) => module_text(&l.module, l.addr),
        None => "?".into(),
    };
    let source = source_text(frames.first().and_then(|f| f.source.as_ref()));
    let mut out = format!("{address:#x} {function} in {module} at {source}");
    if frames.len() > 1 {
        for f in frames {
            out += &format!("\n  {}", frame_text(f));
        }
    }
    out
}

fn symbol_text(s: &Symbol) -> String {
    format!(
        "{:#x} {} ({} bytes) in {} at {}",
        s.address,
        line(&s.name),
        s.size.map_or("?".into(), |n| n.to_string()),
        module_text(&s.module, s.file_address),
        source_text(s.source.as_ref())
    )
}

/// The module with the file address, as `addr2line -e` takes both.
fn module_text(path: &str, file_address: u64) -> String {
    format!("{}+{file_address:#x}", line(path))
}

fn source_text(source: Option<&SourceLine>) -> String {
    match source {
        Some(s) if s.line > 0 => format!("{}:{}", line(&s.file), s.line),
        Some(s) => format!("{}:?", line(&s.file)),
        None => "?".into(),
    }
}

fn symbol_json(s: &Symbol) -> Json {
    json!({
        "name": s.name, "address": hex(s.address), "size": s.size,
        "module": s.module, "file_address": hex(s.file_address),
        "file": s.source.as_ref().map(|s| &s.file),
        "line": s.source.as_ref().map(|s| s.line),
        "column": s.source.as_ref().map(|s| s.column),
    })
}
