//! `hindsight calls`: every call of a function.

use crate::hex::hex;
use crate::out::println;
use crate::{args, travel};
use anyhow::{Result, bail};
use hindsight_inspect::symbols::CodeLocation;
use hindsight_inspect::{Argument, Callee, Inspector, Passed};
use hindsight_text::line;
use hindsight_timeline::{Call, Cancel, Cursor, Filter, Options, ThreadId, Timeline, did_you_mean};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Lists the calls of a function with arguments and results.
pub fn run(a: &args::Calls) -> Result<i32> {
    let function = &a.words[0];
    let timeline = travel::open(None, Options::default())?;
    let thread = a.thread.map(ThreadId);
    let image = image_of(&timeline, a.image, thread)?;
    let mut inspector = Inspector::new(timeline.clone());
    let functions = functions(&mut inspector, image, function)?;
    let names: BTreeSet<&str> = functions.iter().map(|f| f.1.as_str()).collect();
    if functions.is_empty() {
        bail!("{}", no_function(&mut inspector, image, function)?);
    }
    let place = |p: Option<_>| p.map(|p| timeline.find(p, None)).transpose();
    let filter = Filter {
        thread,
        image: Some(image),
        from: place(a.from.clone())?,
        until: place(a.until.clone())?,
        ..Filter::default()
    };
    let mut calls = found(&timeline, &functions, &filter, &Cancel::new())?;
    let all = calls.len();
    if a.count > 0 {
        calls.truncate(a.count);
    }
    let mut cursor = timeline.cursor()?;
    let mut known: Vec<(u64, Option<Callee>)> = Vec::new();
    let mut list = Vec::new();
    for c in &calls {
        let shown = Shown::of(&mut inspector, &mut cursor, c, &mut known, !a.no_args)?;
        match a.json {
            true => list.push(shown.json()),
            false => println(&shown.text()),
        }
    }
    if a.json {
        println(&serde_json::to_string_pretty(&json!({
            "total": all, "calls": list, "being_recorded": timeline.is_growing(),
        }))?);
    } else if all == 0 {
        println(&never(&names));
    } else if all > calls.len() {
        println(&format!("{} more (--count 0 lists all)", all - calls.len()));
    }
    Ok(0)
}

/// The program image that is meant: that of the thread, or the first.
pub fn image_of(
    timeline: &Timeline,
    image: Option<u32>,
    thread: Option<ThreadId>,
) -> hindsight_timeline::Result<u32> {
    Ok(match (image, thread) {
        (Some(i), _) => i,
        (None, Some(t)) => timeline.thread(t)?.image,
        (None, None) => timeline.processes()?.first().map_or(0, |p| p.image),
    })
}

/// The functions that a word means, an address or a name, each with its name.
pub fn functions(
    inspector: &mut Inspector,
    image: u32,
    function: &str,
) -> hindsight_inspect::Result<Vec<(u64, String)>> {
    match crate::parse::number(function) {
        Ok(address) => Ok(vec![(address, function.to_owned())]),
        Err(_) => inspector.functions(image, function),
    }
}

/// The message that there is none.
pub fn no_function(
    inspector: &mut Inspector,
    image: u32,
    function: &str,
) -> hindsight_inspect::Result<String> {
    let like = did_you_mean(function, inspector.similar(image, function)?);
    Ok(format!(
        "no file of program image {image} has a function {function}{like}"
    ))
}

/// All their calls, in the order of time.
pub fn found(
    timeline: &Timeline,
    functions: &[(u64, String)],
    filter: &Filter,
    cancel: &Cancel,
) -> hindsight_timeline::Result<Vec<Call>> {
    let mut calls = Vec::new();
    for (f, _) in functions {
        calls.extend(timeline.calls(*f, filter, cancel)?);
    }
    calls.sort_by_key(|c| c.position);
    Ok(calls)
}

/// The message that none of these functions was called. It names them all: `f` may mean several functions, and not the one
/// that the user meant. Calls may also lie in a part that was not recorded or not kept.
fn never(names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 5;
    let mut list: Vec<&str> = names.iter().copied().take(SHOWN).collect();
    let more = format!("{} more", names.len().saturating_sub(SHOWN));
    if names.len() > SHOWN {
        list.push(&more);
    }
    format!("no call is recorded: {}", line(&list.join(", ")))
}

/// A call with what is known of it.
pub struct Shown<'a> {
    call: &'a Call,
    name: String,
    caller: Option<CodeLocation>,
    /// `None`: not asked for.
    arguments: Option<Vec<Argument>>,
    /// As a number, and as text.
    result: (Option<u64>, Option<String>),
}

impl<'a> Shown<'a> {
    /// `known` are the functions that were met. Whether arguments are looked up, `arguments` says.
    pub fn of(
        inspector: &mut Inspector,
        cursor: &mut Cursor,
        call: &'a Call,
        known: &mut Vec<(u64, Option<Callee>)>,
        arguments: bool,
    ) -> Result<Shown<'a>> {
        let known_at = known.iter().position(|k| k.0 == call.function);
        if arguments || known_at.is_none() {
            cursor.seek_call(call)?;
        }
        let i = match known_at {
            Some(i) => i,
            None => {
                known.push((call.function, inspector.signature(cursor)?));
                known.len() - 1
            }
        };
        let signature = known[i].1.as_ref();
        let name = |p: CodeLocation| p.function.map(|f| f.0);
        let at = inspector.location(cursor, call.function)?;
        let arguments = match arguments {
            true => Some(inspector.arguments(cursor, signature, call)?),
            false => None,
        };
        Ok(Shown {
            call,
            name: (at.and_then(name)).unwrap_or_else(|| format!("{:#x}", call.function)),
            caller: match call.returned {
                Some(r) => inspector.location(cursor, r.to)?,
                None => None,
            },
            arguments,
            result: match &call.returned {
                Some(r) => Inspector::returned(cursor, call.thread, r, signature)?,
                None => (None, None),
            },
        })
    }

    fn text(&self) -> String {
        let c = self.call;
        let position = c.position.to_string();
        let mut out = format!("{position:<16} {:>4}  {}", c.thread.0, line(&self.name));
        if let Some(list) = &self.arguments {
            let one = |a: &Argument| {
                let value = a.text.as_deref().unwrap_or("?");
                match a.name.is_empty() {
                    true => line(value).into(),
                    false => format!("{}={}", line(&a.name), line(value)),
                }
            };
            let list: Vec<String> = list.iter().map(one).collect();
            out += &format!("({})", list.join(", "));
        }
        match (c.returned, &self.result.1) {
            (None, _) => out += "  does not return",
            (Some(_), Some(value)) => out += &format!(" = {}", line(value)),
            (Some(_), None) => {}
        }
        if let Some(r) = c.returned {
            let from =
                (self.caller.as_ref()).map_or(format!("{:#x}", r.to), CodeLocation::to_string);
            out += &format!("  until {} to {from}", r.position);
        }
        out
    }

    /// The same for scripts.
    pub fn json(&self) -> Json {
        let c = self.call;
        let mut j = json!({
            "function": self.name, "address": hex(c.function), "thread": c.thread.0,
            "position": c.position.to_string(), "count": c.count, "handler": c.handler,
            "returned": c.returned.map(|r| json!({
                "position": r.position.to_string(), "count": r.count, "to": hex(r.to),
                "caller": self.caller.as_ref().map(CodeLocation::exact),
                "value": self.result.0, "text": self.result.1, "rax": hex(r.value),
            })),
        });
        if let Some(list) = &self.arguments {
            let one = |a: &Argument| {
                json!({
                    "name": a.name, "type": a.type_name, "value": a.value.map(value_json), "text": a.text,
                })
            };
            j["arguments"] = list.iter().map(one).collect();
        }
        j
    }
}

fn value_json(v: Passed) -> Json {
    match v {
        Passed::Integer(v) => v.into(),
        Passed::Double(bits) => f64::from_bits(bits).into(),
        Passed::Float(bits) => f32::from_bits(bits).into(),
    }
}
