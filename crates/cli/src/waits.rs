//! `hindsight waits`: what threads wait for, and whom.

use crate::at::{stack_json, stack_text};
use crate::out::println;
use crate::{args, travel};
use anyhow::Result;
use hindsight_inspect::{For, Inspector, Lock, Wait, waits};
use hindsight_text::line;
use hindsight_timeline::{Cursor, Options, Place};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Shows what the threads wait for at a place.
pub fn run(a: &args::Waits) -> Result<i32> {
    let timeline = travel::open(None, Options::default())?;
    let place = match a.words.first() {
        Some(place) => place.parse()?,
        None => Place::End,
    };
    let mut cursor = timeline.cursor()?;
    cursor.seek(timeline.find(place, None)?)?;
    let here = cursor.position()?;
    let mut inspector = Inspector::new(timeline);
    let all = waits(&mut inspector, &mut cursor)?;
    let circle = circle(&all);
    if a.json {
        let mut list = Vec::new();
        for w in &all {
            list.push(wait_json(w, &name(&cursor, w, here)?));
        }
        let all = json!({ "position": here.to_string(), "threads": list, "circle": circle });
        println(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    let mut text = String::new();
    for w in &all {
        let (t, name) = (&w.thread, name(&cursor, w, here)?);
        let call = w
            .call
            .as_ref()
            .map_or(String::new(), |c| format!(" in {c}"));
        let _ = writeln!(
            text,
            "thread {} of process {} ({}) at {}{call}: {}",
            t.tid,
            t.pid,
            line(&name),
            w.position,
            line(&w.what.to_string())
        );
        if a.stacks {
            let _ = writeln!(text, "{}\n", stack_text(&w.stack, 0).trim_end());
        }
    }
    if all.is_empty() {
        text += "no thread that is recorded lives there\n";
    }
    if let Some(list) = &circle {
        let list: Vec<String> = list
            .iter()
            .chain(list.first())
            .map(i32::to_string)
            .collect();
        let _ = writeln!(text, "they wait for each other: {}", list.join(" -> "));
    }
    println(text.trim_end());
    Ok(0)
}

fn name(cursor: &Cursor, w: &Wait, here: hindsight_timeline::Position) -> Result<String> {
    let timeline = cursor.timeline();
    let names = timeline.names(w.thread.image)?;
    Ok(names.of(timeline, &w.thread, here)?)
}

/// Threads of which each waits for the next one, and the last one for the first.
fn circle(all: &[Wait]) -> Option<Vec<i32>> {
    let next: BTreeMap<i32, i32> = (all.iter())
        .filter_map(|w| Some((w.thread.tid, w.whom()?)))
        .collect();
    next.keys().find_map(|first| {
        let mut list = vec![*first];
        while let Some(whom) = next.get(list.last()?) {
            if whom == first {
                return Some(list);
            }
            if list.contains(whom) {
                return None;
            }
            list.push(*whom);
        }
        None
    })
}

fn wait_json(w: &Wait, name: &str) -> Json {
    let address = |a: &u64| crate::hex::hex(*a);
    let what = match &w.what {
        For::Nothing => json!({"kind": "nothing"}),
        For::Lock {
            lock,
            address: a,
            holder,
        } => {
            let kind = match lock {
                Lock::Mutex => "mutex",
                Lock::ReadWrite => "read-write lock",
            };
            json!({"kind": kind, "address": address(a), "holder": holder})
        }
        For::Thread(tid) => json!({"kind": "thread", "tid": tid}),
        For::Condition(a) => json!({"kind": "condition", "address": address(a)}),
        For::Semaphore(a) => json!({"kind": "semaphore", "address": address(a)}),
        For::Barrier(a) => json!({"kind": "barrier", "address": address(a)}),
        For::Word(a) => json!({"kind": "word", "address": address(a)}),
        For::Descriptors(list, all) => json!({
            "kind": "descriptors", "all": all,
            "descriptors": list.iter().map(|(fd, what)| json!({"fd": fd, "what": what})).collect::<Vec<_>>(),
        }),
        For::Child(pid, live) => json!({"kind": "child", "pid": pid, "live": live}),
        For::Signal => json!({"kind": "signal"}),
        For::Time => json!({"kind": "time"}),
        For::Kernel => json!({"kind": "unknown"}),
    };
    json!({
        "thread": w.thread.id.0, "tid": w.thread.tid, "pid": w.thread.pid, "name": name,
        "position": w.position.to_string(), "call": w.call, "waits_for": what,
        "stack": stack_json(&w.stack),
    })
}
