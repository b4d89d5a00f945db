//! `hindsight replay`.

use crate::bar::Bar;
use crate::hex::hex;
use crate::numbers::{grouped, total};
use crate::out::println;
use crate::{args, confine, limits, say, store};
use anyhow::{Context, Result, bail};
use hindsight_replay::StreamEnd;
use hindsight_trace::Trace;
use hindsight_verify::{
    Checks, Options, OrderReport, Processors, Report, Suspect, check_order, verify,
};
use serde_json::json;
use std::path::Path;

/// Exit status when replay and recording disagree.
const DIFFERENT: i32 = 1;
/// Exit status when there was nothing to replay.
const NOTHING: i32 = 3;

/// Replays a recording and compares.
pub fn run(a: &args::Replay) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    let trace = Trace::open(&path).with_context(|| path.display().to_string())?;
    let mut options = Options::default();
    if let Some(jobs) = a.jobs {
        options.jobs = jobs;
    }
    options.count = a.count;
    options.processors = crate::processor::of_verification();
    if a.count && options.processors == Processors::Interpreter {
        bail!("--count needs the native processor: the interpreter does not count");
    }
    let copies = match options.processors {
        Processors::Both => 2,
        _ => 1,
    };
    limits::allow(&trace, options.jobs.saturating_mul(copies));
    if a.verify == Some(args::Checks::Digests) {
        options.checks = Checks::Digests;
    }
    let mut bar = Bar::new(!a.json);
    let report = verify(&trace, &options, &mut |done, total| bar.show(done, total));
    bar.clear();
    let report = report.with_context(|| path.display().to_string())?;
    let order = match a.check_order && report.verified() {
        true => Some(check_order(&trace, options.jobs)?),
        false => None,
    };
    let ordered = order.as_ref().is_none_or(|o| o.wrong == 0);
    if a.json {
        let mut json = as_json(&path, &trace, &report);
        json["processor"] = match options.processors {
            Processors::Native => "native",
            Processors::Interpreter => "interpreter",
            Processors::Both => "both",
        }
        .into();
        json["checks"] = match options.checks {
            Checks::Full => "full",
            Checks::Digests => "digests",
        }
        .into();
        if let Some(o) = &order {
            json["order"] = order_as_json(o);
        }
        println(&serde_json::to_string_pretty(&json)?);
    } else {
        report
            .warnings
            .iter()
            .for_each(|w| say(&format!("warning: {w}")));
        println(&as_text(&report, options.checks));
        if let Some(o) = &order {
            o.warnings
                .iter()
                .for_each(|w| say(&format!("warning: {w}")));
            println(&order_as_text(o));
        }
    }
    Ok(match report.verified() && ordered {
        true => 0,
        false if report.is_empty() => NOTHING,
        false => DIFFERENT,
    })
}

fn order_as_text(o: &OrderReport) -> String {
    if let Some(v) = &o.violation {
        let n = grouped(o.wrong);
        return format!("WRONG ORDER of {n} atomic operations, the first: {v}");
    }
    let mut shared = String::new();
    if o.common > 0 {
        let n = grouped(o.common);
        shared += &format!("; {n} of all are on memory that processes share");
    }
    if o.shared > 0 {
        let n = grouped(o.shared);
        shared += &format!(
            "; {n} of all are on memory that unknown processes may share: of these, only the order within \
             each process was checked"
        );
    }
    let mut why =
        String::from("the kernel, unrecorded code or another process may have written in between");
    if o.displaced > 0 {
        let n = grouped(o.displaced);
        why += &format!(
            "; the place of {n} is not exact, because a thread was stopped in the middle of one"
        );
    }
    format!(
        "order: {} atomic operations: {} read what the one before wrote, {} what a plain store wrote, {} were \
         the first on their bytes, {} are undecided ({why}){shared}",
        grouped(o.operations),
        grouped(o.proven),
        grouped(o.stored),
        grouped(o.first),
        grouped(o.undecided),
    )
}

fn order_as_json(o: &OrderReport) -> serde_json::Value {
    json!({
        "operations": o.operations,
        "proven": o.proven,
        "stored": o.stored,
        "first": o.first,
        "undecided": o.undecided,
        "displaced": o.displaced,
        "common": o.common,
        "shared": o.shared,
        "wrong": o.wrong,
        "warnings": o.warnings,
        "violation": o.violation.as_ref().map(|v| json!({
            "thread": v.who,
            "stream": v.stream,
            "position": v.count,
            "address": hex(v.pc),
            "place": v.location,
            "number": v.number,
            "bytes": { "address": hex(v.address), "length": v.len },
            "found": v.found,
            "expected": v.expected,
            "before": { "number": v.before.0, "stream": v.before.1, "position": v.before.2 },
        })),
    })
}

fn as_text(r: &Report, checks: Checks) -> String {
    if let Some(d) = &r.difference {
        return format!("DIFFERENT: {d}");
    }
    if r.is_empty() {
        return format!(
            "NOT VERIFIED: the recording has no instruction that could be replayed{}",
            match r.gaps {
                0 => String::new(),
                _ => format!("; {} were not recorded", grouped(r.skipped)),
            }
        );
    }
    let compared: u64 = total(r.events.0.iter().copied());
    format!(
        "verified{}: {} instructions,{} {} events of {} thread{}{} in {:.2} s ({:.0} million instructions per second); \
         processor time: replay {:.2} s, verification {:.3} s{}",
        match checks {
            Checks::Full => "",
            Checks::Digests => " by digests",
        },
        grouped(r.instructions),
        match r.executed {
            Some(n) => format!(
                " {} reads and {} writes of memory, {} segments, {} indirect branches,",
                grouped(n.reads),
                grouped(n.writes),
                grouped(n.segments),
                grouped(n.indirect),
            ),
            None => String::new(),
        },
        grouped(compared),
        r.threads,
        if r.threads == 1 { "" } else { "s" },
        match r.images {
            0 | 1 => String::new(),
            n => format!(" of {n} program images"),
        },
        r.elapsed.as_secs_f64(),
        r.mips(),
        r.replaying.as_secs_f64(),
        r.verifying.as_secs_f64(),
        match r.gaps {
            0 => String::new(),
            n => format!(
                "; {} gap{} with {} instructions that were not recorded",
                grouped(n),
                if n == 1 { "" } else { "s" },
                grouped(r.skipped)
            ),
        },
    )
}

fn suspect_as_json(s: &Suspect) -> serde_json::Value {
    json!({
        "number": s.nr,
        "name": s.name(),
        "position": s.position,
        "argument": s.pointer.map(|(i, _)| i + 1),
        "address": s.pointer.map(|(_, addr)| hex(addr)),
        "indirect": s.indirect,
    })
}

fn as_json(path: &Path, t: &Trace, r: &Report) -> serde_json::Value {
    let end =
        |e: &StreamEnd| json!({ "kind": format!("{:?}", e.kind).to_lowercase(), "code": e.code });
    let events: serde_json::Map<_, _> = r
        .events_by_name()
        .into_iter()
        .map(|(n, c)| (n.to_string(), c.into()))
        .collect();
    json!({
        "file": path,
        "sandbox": confine::as_json(),
        "verified": r.verified(),
        "nothing": r.is_empty(),
        "complete": t.completeness() == hindsight_trace::Completeness::Complete,
        "instructions": r.instructions,
        "executed": r.executed.map(|n| json!({
            "reads": n.reads,
            "writes": n.writes,
            "segments": n.segments,
            "indirect_branches": n.indirect,
        })),
        "events": events,
        "gaps": r.gaps,
        "skipped": r.skipped,
        "threads": r.threads,
        "images": r.images,
        "parts": r.parts,
        "ends": r.ends.iter().map(|(s, e)| json!({ "stream": s, "end": e.as_ref().map(end) })).collect::<Vec<_>>(),
        "warnings": r.warnings,
        "seconds": r.elapsed.as_secs_f64(),
        "processor_seconds": {
            "replay": r.replaying.as_secs_f64(),
            "verification": r.verifying.as_secs_f64(),
        },
        "million_instructions_per_second": r.mips(),
        "difference": r.difference.as_ref().map(|d| json!({
            "stream": d.stream,
            "thread": d.who,
            "position": d.difference.position,
            "address": hex(d.difference.pc),
            "place": d.location.as_ref().map(|p| p.exact()),
            "expected": d.difference.expected,
            "found": d.difference.found,
            "suspects": d.suspects.iter().map(suspect_as_json).collect::<Vec<_>>(),
        })),
    })
}
