//! `hindsight replay`.

use crate::bar::Bar;
use crate::record::grouped;
use crate::store::println;
use crate::{args, say, store};
use anyhow::{Context, Result};
use hindsight_replay::{End, Options, Report, verify};
use hindsight_trace::Trace;
use serde_json::json;
use std::path::Path;

/// Exit status when replay and recording disagree.
const DIFFERENT: i32 = 1;

/// Replays a recording and compares.
pub fn run(a: &args::Replay) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    let trace = Trace::open(&path).with_context(|| path.display().to_string())?;
    let mut options = Options::default();
    if let Some(jobs) = a.jobs {
        options.jobs = jobs;
    }
    let mut bar = Bar::new(!a.json);
    let report = verify(&trace, &options, &mut |done, total| bar.show(done, total));
    bar.clear();
    let report = report.with_context(|| path.display().to_string())?;
    if a.json {
        println(&serde_json::to_string_pretty(&as_json(
            &path, &trace, &report,
        ))?);
    } else {
        report
            .warnings
            .iter()
            .for_each(|w| say(&format!("warning: {w}")));
        println(&as_text(&report));
    }
    Ok(if report.verified() { 0 } else { DIFFERENT })
}

fn as_text(r: &Report) -> String {
    if let Some(d) = &r.difference {
        return format!("DIFFERENT: {d}");
    }
    let compared: u64 = r.events.iter().sum();
    format!(
        "verified: {} instructions, {} reads and {} events of {} thread{}{} in {:.2} s ({:.0} million instructions per second){}",
        grouped(r.instructions),
        grouped(r.reads),
        grouped(compared),
        r.threads,
        if r.threads == 1 { "" } else { "s" },
        match r.images {
            0 | 1 => String::new(),
            n => format!(" of {n} program images"),
        },
        r.elapsed.as_secs_f64(),
        r.mips(),
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

fn as_json(path: &Path, t: &Trace, r: &Report) -> serde_json::Value {
    let end = |e: &End| json!({ "kind": format!("{:?}", e.kind).to_lowercase(), "code": e.code });
    let events: serde_json::Map<_, _> = r
        .events_by_name()
        .into_iter()
        .map(|(n, c)| (n.to_string(), c.into()))
        .collect();
    json!({
        "file": path,
        "verified": r.verified(),
        "complete": t.completeness() == hindsight_trace::Completeness::Complete,
        "instructions": r.instructions,
        "reads": r.reads,
        "events": events,
        "gaps": r.gaps,
        "skipped": r.skipped,
        "threads": r.threads,
        "images": r.images,
        "parts": r.parts,
        "ends": r.ends.iter().map(|(s, e)| json!({ "stream": s, "end": e.as_ref().map(end) })).collect::<Vec<_>>(),
        "warnings": r.warnings,
        "seconds": r.elapsed.as_secs_f64(),
        "million_instructions_per_second": r.mips(),
        "difference": r.difference.as_ref().map(|d| json!({
            "stream": d.stream,
            "thread": d.who,
            "position": d.difference.position,
            "address": d.difference.pc,
            "place": d.place.as_ref().map(|p| p.to_string()),
            "expected": d.difference.expected,
            "found": d.difference.found,
        })),
    })
}
