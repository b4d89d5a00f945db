//! `hindsight info`.

use crate::numbers::{grouped, local_time, size, total};
use crate::out::println;
use crate::tree::{self, Node};
use crate::{args, limits, store};
use anyhow::{Context, Result};
use hindsight_text::line;
use hindsight_trace::meta::{Circular, Dropped, Ending, Gaps, Part};
use hindsight_trace::{Completeness, StreamId, StreamKind, StreamSummary, Trace};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Streams that are listed one by one.
const MOST_STREAMS: usize = 40;

/// Shows what a recording holds.
pub fn run(a: &args::Info) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    let t = Trace::open(&path).with_context(|| path.display().to_string())?;
    limits::allow(&t, 0);
    let streams = t.counts();
    println(&if a.json {
        serde_json::to_string_pretty(&as_json(&path, &t, &streams))?
    } else {
        as_text(&path, &t, &streams)
    });
    Ok(0)
}

/// What a program image did, for scripts.
fn image_json(n: &Node) -> serde_json::Value {
    json!({
        "image": n.image,
        "parent": n.parent,
        "pid": n.pid,
        "by": match (n.borrowed, n.by_exec) {
            (true, _) => "vfork",
            (false, true) => "exec",
            (false, false) => "fork",
        },
        "command": n.command,
        "threads": n.threads,
        "instructions": n.instructions,
        "unpredicted_reads": n.unpredicted_reads,
        "ended": n.ended,
        "message": n.message,
    })
}

/// Per cent of instructions that were not recorded.
fn share(skipped: u64, recorded: u64) -> f64 {
    skipped as f64 * 100.0 / (skipped + recorded).max(1) as f64
}

/// The streams whose beginning was not kept, for scripts: where what was kept of a thread begins.
fn dropped_json(t: &Trace) -> Vec<serde_json::Value> {
    let one = |(stream, d): (StreamId, Dropped)| {
        json!({
            "stream": stream,
            "first_position": t.chunks(stream).first().map(|c| c.first_pos),
            "chunks": d.chunks,
            "events": d.events,
            "instructions": d.instructions,
            "bytes": d.bytes,
        })
    };
    dropped(t).map(one).collect()
}

/// What was not kept of streams.
fn dropped(t: &Trace) -> impl Iterator<Item = (StreamId, Dropped)> + '_ {
    let known = t.all_streams();
    known.filter_map(|i| Some((i.stream, i.dropped?)))
}

fn dropped_text(t: &Trace, stream: StreamId) -> String {
    match dropped(t).find(|(s, _)| *s == stream) {
        Some((_, d)) => {
            let first = t.chunks(stream).first().map(|c| c.first_pos);
            format!(
                "; from position {}, {} instructions and {} before are not kept",
                first.map_or("-".into(), grouped),
                grouped(d.instructions),
                size(d.bytes)
            )
        }
        None => String::new(),
    }
}

fn part_line(p: &Part) -> String {
    let mut line = format!(
        "from {} until {} of a recording; {} instructions and {} not kept",
        p.from,
        p.until,
        grouped(p.instructions),
        size(p.bytes)
    );
    if p.threads > 0 {
        line += &format!(", and nothing of {} threads", grouped(p.threads));
    }
    line
}

fn ring_line(r: &Circular) -> String {
    let mut line = format!(
        "the last {}; {} instructions and {} not kept",
        r.limit,
        grouped(r.instructions),
        size(r.bytes)
    );
    if r.threads > 0 {
        line += &format!(", nothing of {} threads", r.threads);
    }
    line
}

fn bits(bytes: u64, instructions: u64) -> f64 {
    bytes as f64 * 8.0 / instructions.max(1) as f64
}

/// What is known of the machine. The tables of its approximations would bury the rest.
fn machine_json(h: &hindsight_trace::Header) -> serde_json::Value {
    let mut all = json!(h.machine);
    if let Some(all) = all.as_object_mut() {
        for tables in ["approximations", "finer"] {
            let had = all.remove(tables);
            all.insert(format!("has_{tables}"), had.is_some().into());
        }
    }
    all
}

/// The same for scripts.
pub fn as_json(path: &Path, t: &Trace, streams: &[StreamSummary]) -> serde_json::Value {
    let h = t.header();
    let s = t.summary();
    let instructions: u64 = total(streams.iter().map(|s| s.instructions));
    let stream_bytes: u64 = total(streams.iter().map(|s| s.stored_bytes));
    let mut all = json!({
        "file": path.to_string_lossy(),
        "format": hindsight_trace::chunk::VERSION,
        "hindsight": h.hindsight,
        "name": h.name,
        "command": h.command(),
        "argv": h.argv,
        "exe": h.exe,
        "cwd": h.cwd,
        "environment": h.env,
        "started_ms": h.started_ms,
        "machine": machine_json(h),
        "baseline": h.baseline,
        "predictor_bits": h.predictor_bits,
        "keyframe_interval": h.keyframe_interval,
        "digest_interval": h.digest_interval,
        "part": h.part,
        "chaos": h.chaos,
        "ring": h.ring,
        "dropped": dropped_json(t),
        "complete": t.completeness() == Completeness::Complete,
        "completeness": t.completeness().to_string(),
        "ending": s.and_then(|s| s.ending.clone()),
        "wall_ms": s.map(|s| s.wall_ms),
        "program_cpu_us": s.map(|s| s.program_cpu_us),
        "collector_cpu_us": s.map(|s| s.collector_cpu_us),
        "blocks_found": s.map(|s| s.blocks_found),
        "blocks_made": s.map(|s| s.blocks_made),
        "peak_rss_kib": s.map(|s| s.peak_memory_kib),
        "instructions": instructions,
        "gap_instructions": total(streams.iter().map(|s| s.gaps.instructions)),
        "gaps": total(streams.iter().map(|s| s.gaps.small + s.gaps.big)),
        "unpredicted_reads": total(streams.iter().map(|s| s.unpredicted_reads)),
        "trace_bytes": t.len(),
        "stream_bytes": stream_bytes,
        "module_bytes": s.map(|s| s.module_bytes),
        "bits_per_instruction": bits(t.len(), instructions),
        "stream_bits_per_instruction": bits(stream_bytes, instructions),
        "threads": t.threads().len(),
        "images": tree::build(t, streams).iter().map(image_json).collect::<Vec<_>>(),
        "streams": streams,
        "modules": t.modules(),
    });
    all["data_limit"] = match h.data_limit {
        Some(u64::MAX) => json!("all"),
        limit => json!(limit),
    };
    all["clock_throttle_ns"] = json!(h.clock_throttle);
    all["fill_fresh"] = json!(h.fill_fresh);
    all["cut"] = json!(h.cut);
    all["being_recorded"] = json!(t.completeness() == Completeness::Growing);
    all["shared_bytes"] = json!(t.shared_bytes().ok());
    all
}

/// Lines with a name before each.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn add(&mut self, name: &str, value: String) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{name:<13} {}", line(&value));
    }
}

fn as_text(path: &Path, t: &Trace, streams: &[StreamSummary]) -> String {
    let mut rows = Rows::default();
    program_rows(&mut rows, path, t);
    ending_rows(&mut rows, t);
    figure_rows(&mut rows, t, streams);
    gap_rows(&mut rows, streams);
    for s in streams {
        for (name, n) in s.marks.iter().take(MOST_STREAMS) {
            rows.add(
                "mark",
                format!("{name}: {} in thread {}", grouped(*n), s.tid),
            );
        }
    }
    for n in tree::build(t, streams) {
        rows.add("process", tree::row(&n));
    }
    stream_rows(&mut rows, t, streams);
    for m in t.modules() {
        rows.add(
            "module",
            format!("{}  {}  {}", m.hash, size(m.size), m.path),
        );
    }
    rows.0.truncate(rows.0.trim_end().len());
    rows.0
}

/// What was recorded, and how.
fn program_rows(rows: &mut Rows, path: &Path, t: &Trace) {
    let h = t.header();
    rows.add("file", path.display().to_string());
    rows.add("command", h.command());
    rows.add("directory", h.cwd.to_string());
    rows.add("program", h.exe.to_string());
    rows.add("started", local_time((h.started_ms / 1000) as i64));
    rows.add(
        "machine",
        format!(
            "{}, Linux {}, {}",
            h.machine.processor, h.machine.kernel, h.machine.arch
        ),
    );
    rows.add(
        "processor",
        format!("{} as shown to the program", h.baseline),
    );
    rows.add(
        "predictor",
        match h.predictor_bits {
            32 => "window".into(),
            b => format!("cache of {}", size(1 << b)),
        },
    );
    if !h.part.is_empty() {
        rows.add("part", h.part.join(" "));
    }
}

/// How it ended, and what it took.
fn ending_rows(rows: &mut Rows, t: &Trace) {
    let (h, s) = (t.header(), t.summary());
    rows.add(
        "ended",
        match s.and_then(|s| s.ending.as_ref()) {
            Some(Ending::Signal(n)) => format!("killed by signal {n}"),
            Some(e) => e.to_string(),
            None if h.ring.as_ref().is_some_and(|r| r.running) => {
                "still running when this was taken from it".into()
            }
            None if t.completeness() == Completeness::Growing => "not yet".into(),
            None => "not known".into(),
        },
    );
    if let Some(r) = &h.ring {
        rows.add("ring", ring_line(r));
    }
    if let Some(p) = &h.cut {
        rows.add("part", part_line(p));
    }
    if let Some(seed) = h.chaos {
        rows.add("chaos", format!("seed {seed}"));
    }
    if let Some(nanos) = h.clock_throttle {
        let text = format!(
            "answers about the time were repeated for {} ms",
            nanos as f64 / 1e6
        );
        rows.add("clocks", text);
    }
    if let Some(seed) = h.fill_fresh {
        rows.add("fresh memory", format!("filled, seed {seed}"));
    }
    rows.add("trace", t.completeness().to_string());
    if let Some(s) = s {
        let sec = |us: u64| us as f64 / 1e6;
        rows.add(
            "time",
            format!(
                "{:.2} s; processor {:.2} s in the program, {:.2} s in the collector",
                s.wall_ms as f64 / 1e3,
                sec(s.program_cpu_us),
                sec(s.collector_cpu_us),
            ),
        );
        rows.add("peak memory", size(s.peak_memory_kib << 10));
        rows.add(
            "translations",
            format!(
                "{} found from earlier recordings, {} made",
                grouped(s.blocks_found),
                grouped(s.blocks_made)
            ),
        );
    }
}

/// How much was recorded, and how.
fn figure_rows(rows: &mut Rows, t: &Trace, streams: &[StreamSummary]) {
    let instructions: u64 = total(streams.iter().map(|s| s.instructions));
    let stored: u64 = total(streams.iter().map(|s| s.stored_bytes));
    rows.add("instructions", grouped(instructions));
    if t.summary().is_some() {
        let reads = total(streams.iter().map(|s| s.unpredicted_reads));
        rows.add("unpredicted", format!("{} reads", grouped(reads)));
    }
    rows.add(
        "size",
        format!(
            "{}, {:.4} bit per instruction ({:.4} without modules)",
            size(t.len()),
            bits(t.len(), instructions),
            bits(stored, instructions),
        ),
    );
    match t.shared_bytes() {
        Ok(0) => {}
        Ok(n) => rows.add("files", format!("{} beside the recording", size(n))),
        Err(e) => rows.add("files", e.to_string()),
    }
    for s in streams.iter().take(MOST_STREAMS) {
        let Some(r) = &s.regime else { continue };
        let who = format!("thread {} (stream {})", s.tid, s.stream);
        let text = match r.quiet {
            true => format!("{who}: quiet, reads are not checked"),
            false => format!(
                "{who}: checked from position {} on: {}",
                r.position, r.reason
            ),
        };
        rows.add("regime", text);
    }
    let lost: u64 = total(streams.iter().map(|s| s.lost_files));
    if lost > 0 {
        rows.add(
            "lost",
            format!("the collector could not read the files of {lost} mappings"),
        );
    }
}

/// What was not recorded because nobody wanted it.
fn gap_rows(rows: &mut Rows, streams: &[StreamSummary]) {
    let instructions: u64 = total(streams.iter().map(|s| s.instructions));
    let gaps: Vec<_> = streams
        .iter()
        .filter(|s| s.gaps != Gaps::default())
        .collect();
    if !gaps.is_empty() {
        let all: u64 = total(gaps.iter().map(|s| s.gaps.instructions));
        rows.add(
            "not recorded",
            format!(
                "{} instructions ({:.2} %) in {} gaps",
                grouped(all),
                share(all, instructions),
                grouped(total(gaps.iter().map(|s| s.gaps.small + s.gaps.big))),
            ),
        );
    }
    for s in gaps.iter().take(MOST_STREAMS) {
        rows.add(
            "gaps",
            format!(
                "thread {} (stream {}): {} into modules that are not recorded, {} for an unknown time; {} instructions ({:.2} %)",
                s.tid,
                s.stream,
                grouped(s.gaps.small),
                grouped(s.gaps.big),
                grouped(s.gaps.instructions),
                share(s.gaps.instructions, s.instructions),
            ),
        );
    }
}

/// The streams, if they are few.
fn stream_rows(rows: &mut Rows, t: &Trace, streams: &[StreamSummary]) {
    // Beyond that nobody wants to see each.
    let shown = if streams.len() <= MOST_STREAMS {
        streams
    } else {
        &[]
    };
    for s in shown {
        let name = match t.stream_info(s.stream) {
            Some(i) if i.kind == StreamKind::Image => format!("{} image {}", s.stream, i.image),
            Some(i) => format!("{} thread {} of image {}", s.stream, i.tid, i.image),
            None => s.stream.to_string(),
        };
        rows.add(
            "stream",
            format!(
                "{name}: {} instructions, {} events in {} chunks, {} (raw {}){}",
                grouped(s.instructions),
                grouped(s.events),
                s.chunks,
                size(s.stored_bytes),
                size(s.raw_bytes),
                dropped_text(t, s.stream),
            ),
        );
    }
    if streams.len() > shown.len() {
        rows.add(
            "streams",
            format!("{} (all of them with --json)", streams.len()),
        );
    }
}
