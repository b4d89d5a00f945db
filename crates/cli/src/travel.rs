//! `hindsight index`, `events`, `mem` and `writes`: questions about a recording without a debugger.

use crate::bar::Bar;
use crate::hex::hex;
use crate::numbers::{grouped, size};
use crate::out::println;
use crate::parse::number;
use crate::store;
use crate::words::Spot;
use crate::{args, limits, say};
use anyhow::{Context, Result};
use hindsight_timeline::{
    Cancel, Dense, Depth, Filter, GapReason, Happening, Kind, KindOf, Memory, Moment, Options,
    Place, ThreadId, Timeline, Written, in_order, syscall_name, syscall_number,
};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Mutex;

/// Bytes that are shown in a line.
const ROW: usize = 16;

/// Opens a recording, by default the latest one. What is made of its index for questions is shown on a terminal.
pub fn open(file: Option<&Path>, options: Options) -> Result<Timeline> {
    let (path, jobs) = (store::find(file)?, options.jobs);
    open_path(&path, options, |trace| limits::allow(trace, jobs_of(jobs)))
}

/// Processors that replay.
pub fn jobs_of(said: usize) -> usize {
    match said {
        0 => limits::processors(),
        n => n,
    }
}

/// The same for one of several recordings. `allow` raises the limit of memory to what it may need.
pub fn open_path(
    path: &Path,
    options: Options,
    allow: impl FnOnce(&hindsight_trace::Trace),
) -> Result<Timeline> {
    let timeline = open_quietly(path, options, allow)?;
    let bar = Mutex::new(Bar::new(true));
    timeline.tell_progress(move |done| {
        let Ok(mut bar) = bar.lock() else { return };
        match done {
            Some(done) => bar.count(done),
            None => bar.clear(),
        }
    });
    Ok(timeline)
}

/// The same without a bar that shows how far it is.
pub fn open_quietly(
    path: &Path,
    options: Options,
    allow: impl FnOnce(&hindsight_trace::Trace),
) -> Result<Timeline> {
    let options = Options {
        processor: crate::processor::of_travel(),
        ..options
    };
    let timeline = Timeline::open(path, options).with_context(|| path.display().to_string())?;
    allow(timeline.trace());
    if timeline.is_growing() {
        say(&still_written(&timeline));
    }
    Ok(timeline)
}

/// What is said of a recording that does not end yet.
fn still_written(timeline: &Timeline) -> String {
    let end = match timeline.range() {
        Ok((_, end)) if timeline.threads().is_ok_and(|t| t.len() > 1) => {
            format!(
                "; so far it ends at {end}. What other threads did right before that may be missing"
            )
        }
        Ok((_, end)) => format!("; so far it ends at {end}"),
        // The question says what is wrong.
        Err(_) => String::new(),
    };
    format!("the recording is still being written{end}")
}

/// Instructions between key frames in a range.
const DENSE: u64 = 100_000;

/// Builds the index beside a recording.
pub fn index(a: &args::Index) -> Result<i32> {
    let options = Options {
        jobs: a.jobs.unwrap_or(0),
        interval: if a.range.is_none() { a.interval } else { 0 },
        ..Options::default()
    };
    let t = open(a.file.as_deref(), options)?;
    let before = t.index_status();
    if let Some(problem) = &before.problem {
        say(&format!(
            "{}: {problem}; it is made again",
            before.path.display()
        ));
    }
    let bar = Mutex::new(Bar::new(!a.json));
    let progress = |done, total| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.show(done, total);
        }
    };
    let built = match &a.range {
        None => {
            let depth = if a.full { Depth::Full } else { Depth::Coarse };
            let built = t.build_index(depth, &progress, &Cancel::new());
            built.map(|s| s.parts - before.present.min(s.parts))
        }
        Some((from, to)) => {
            let dense = if a.interval == 0 { DENSE } else { a.interval };
            if dense < Timeline::SHORTEST_INTERVAL {
                say(&format!(
                    "--interval {dense}: key frames are not made denser than every {} instructions",
                    Timeline::SHORTEST_INTERVAL
                ));
            }
            let range = Dense {
                from: t.find(from.clone(), None)?,
                until: t.find(to.clone(), None)?,
                interval: dense,
            };
            t.interest(range, &progress, &Cancel::new())
        }
    };
    if let Ok(mut bar) = bar.lock() {
        bar.clear();
    }
    let (built, s) = (built?, t.index_status());
    if a.range.is_none() && s.present < s.parts {
        say(&format!(
            "{} of {} parts were not saved: {}. A question that needs one makes it again",
            s.parts - s.present,
            s.parts,
            s.problem
                .as_deref()
                .unwrap_or("they are not in the file any more")
        ));
    }
    println(&match a.json {
        true => serde_json::to_string_pretty(&json!({
            "index": s.path,
            "bytes": s.bytes,
            "trace_bytes": t.trace().len(),
            "parts": s.parts,
            "present": s.present,
            "built": built,
            "fine_parts": s.fine,
            "fine_present": s.fine_present,
        }))?,
        false if s.fine > 0 => format!(
            "{}: {}, {} of {} parts of the fine level",
            s.path.display(),
            size(s.bytes),
            s.fine_present,
            s.fine
        ),
        false => format!("{}: {}", s.path.display(), size(s.bytes)),
    });
    Ok(0)
}

/// The number of a system call by its name or number.
pub fn syscall(name: &str) -> Result<u64> {
    match number(name) {
        Ok(n) => Ok(n),
        Err(_) => syscall_number(name).map_err(anyhow::Error::msg),
    }
}

/// Lists what happened.
pub fn events(a: &args::Events) -> Result<i32> {
    let t = open(a.file.as_deref(), Options::default())?;
    let place = |p: Option<Place>| p.map(|p| t.find(p, a.image)).transpose();
    let syscalls = a.syscall.iter().map(|name| syscall(name));
    let syscalls = syscalls.collect::<Result<Vec<_>>>()?;
    let mut kinds = a.kind.clone();
    if kinds.is_empty() && !syscalls.is_empty() {
        kinds.push(KindOf::Syscall);
    }
    let list = t.events(&Filter {
        thread: a.thread.map(ThreadId),
        image: a.image,
        from: place(a.from.clone())?,
        until: place(a.until.clone())?,
        kinds,
        syscalls,
    })?;
    let mut times = vec![None; list.len()];
    if a.time {
        for (time, h) in times.iter_mut().zip(&list) {
            *time = t.when(h.position)?;
        }
        in_order(&mut times);
    }
    // What arguments point to is only looked up where calls were asked for: that replays the recording.
    let in_words = !a.raw && (a.kind.contains(&KindOf::Syscall) || !a.syscall.is_empty());
    // What cannot be replayed can be listed nevertheless.
    let mut cursor = in_words.then(|| t.cursor().ok()).flatten();
    let mut call = |h: &Happening| cursor.as_mut()?.system_call(h).unwrap_or_default();
    if a.json {
        let mut out = Vec::new();
        for (h, time) in list.iter().zip(times) {
            let mut j = event_json(h);
            if let Some(c) = call(h) {
                j["arguments"] = c.arguments.into();
                j["returned"] = c.result.into();
            }
            if a.time {
                j["time"] = moment_json(time);
            }
            out.push(j);
        }
        let list = out;
        println(&serde_json::to_string_pretty(&list)?);
        return Ok(0);
    }
    for (h, time) in list.iter().zip(times) {
        let position = h.position.to_string();
        let when = match time {
            Some(m) => format!("{:>12.6}s  ", m.estimate.as_secs_f64()),
            None => String::new(),
        };
        let what = match call(h) {
            Some(c) => c.to_string(),
            None => h.kind.to_string(),
        };
        println(&format!("{when}{position:<16} {:>4}  {what}", h.thread.0));
    }
    Ok(0)
}

/// When something was, in seconds since the start of the recording; null where that is not known.
pub fn moment_json(m: Option<Moment>) -> Json {
    m.map_or(Json::Null, |m| {
        json!({
            "seconds": m.estimate.as_secs_f64(),
            "since": m.since.as_secs_f64(),
            "until": m.until.as_secs_f64(),
        })
    })
}

pub fn event_json(h: &Happening) -> Json {
    let mut j = match &h.kind {
        Kind::Syscall {
            number,
            args,
            result,
        } => json!({
            "kind": "syscall", "number": number, "name": syscall_name(*number),
            "args": args.map(hex), "result": result.map(|r| r as i64),
        }),
        Kind::Signal {
            number,
            code,
            address,
        } => json!({
            "kind": "signal", "number": number, "code": code, "address": hex(*address),
            "exception": h.kind.is_exception(),
        }),
        Kind::ThreadBegin => json!({"kind": "thread-begin"}),
        Kind::ThreadEnd(e) => json!({"kind": "thread-end", "how": e.to_string()}),
        Kind::ProcessBegin { image } => json!({"kind": "process-begin", "image": image}),
        Kind::ProcessEnd { image } => json!({"kind": "process-end", "image": image}),
        Kind::ModuleLoad { path, start, end } => {
            json!({"kind": "module-load", "path": path, "start": hex(*start), "end": hex(*end)})
        }
        Kind::ModuleUnload { path, start, end } => {
            json!({"kind": "module-unload", "path": path, "start": hex(*start), "end": hex(*end)})
        }
        Kind::GapBegin { reason } => json!({"kind": "gap-begin", "reason": match reason {
            GapReason::Module => "module",
            GapReason::Window => "window",
            GapReason::Stopped => "stopped",
        }}),
        Kind::GapEnd => json!({"kind": "gap-end"}),
        Kind::Mark { name, payload } => json!({"kind": "mark", "name": name, "payload": payload}),
        Kind::Regime { quiet, reason } => {
            json!({"kind": "regime", "quiet": quiet, "reason": reason})
        }
        other => json!({"kind": "other", "text": other.to_string()}),
    };
    j["position"] = h.position.to_string().into();
    j["thread"] = h.thread.0.into();
    j["count"] = h.count.into();
    j
}

pub fn memory_json(m: &Memory) -> Json {
    json!({
        "address": hex(m.address),
        "bytes": m.bytes.iter().map(|b| b.map(|k| k.value)).collect::<Vec<_>>(),
        "grounds": m.grounds().iter().map(|s| {
            json!({"address": hex(s.address), "length": s.len, "ground": s.ground.map(|g| g.to_string())})
        }).collect::<Vec<_>>(),
        "candidates": m.candidates.iter().map(|c| json!({
            "address": hex(c.address), "bytes": c.bytes, "thread": c.thread.0,
            "position": c.position.to_string(), "why": c.why.to_string(),
        })).collect::<Vec<_>>(),
        "unnamed": m.unnamed.iter().map(|u| {
            json!({"address": hex(u.address), "length": u.len, "thread": u.thread.0})
        }).collect::<Vec<_>>(),
    })
}

pub fn written_json(w: &Written) -> Json {
    let (a, value) = (w.access, &w.bytes);
    json!({
        "position": a.position.to_string(), "thread": a.thread.0, "count": a.count, "pc": hex(a.pc),
        "address": hex(a.address), "length": a.len, "kernel": a.kernel, "value": value,
    })
}

/// Lists the writes to some bytes, the last one first.
pub fn writes(a: &args::Writes) -> Result<i32> {
    let before = a.before.clone().unwrap_or("end".into());
    let at = args::Within {
        image: a.image,
        thread: a.thread,
        frame: a.frame,
    };
    let mut spot = Spot::open(Some(&before), &at)?;
    let (address, length) = spot.bytes(&a.words, a.frame)?;
    let c = spot.cursor;
    let cancel = Cancel::new();
    let (mut list, mut told) = (Vec::new(), 0);
    let mut writes = c.writes(address, length, length.min(ROW as u64) as usize)?;
    while a.count == 0 || told < a.count {
        let Some(next) = writes.next(&cancel)? else {
            break;
        };
        told += 1;
        let (w, value) = (next.access, &next.bytes);
        if a.json {
            list.push(written_json(&next));
        } else {
            let bytes: Vec<String> = value
                .iter()
                .map(|b| b.map_or("??".into(), |b| format!("{b:02x}")))
                .collect();
            let position = w.position.to_string();
            println(&format!(
                "{position:<16} {:>4}  {:#014x}  {} {} bytes at {:#x}; then {}",
                w.thread.0,
                w.pc,
                if w.kernel {
                    "the kernel writes"
                } else {
                    "writes"
                },
                grouped(w.len),
                w.address,
                bytes.join(" ")
            ));
        }
    }
    if a.json {
        println(&serde_json::to_string_pretty(&list)?);
    } else if told == 0 {
        println("nothing that is recorded wrote there");
    }
    Ok(0)
}
