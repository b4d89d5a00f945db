//! The forms of answers. They are those of `docs/serve.md`: addresses are hexadecimal text, bytes that are not known are null.

use hindsight_timeline::{CpuState, Memory, Thread, Timeline, Written};
use serde_json::{Map, Value as Json, json};

fn hex(v: u64) -> Json {
    format!("{v:#x}").into()
}

/// What a recording is of.
pub fn info(timeline: &Timeline, threads: &[Thread]) -> Json {
    let trace = timeline.trace();
    let header = trace.header();
    json!({
        "command": header.command(), "exe": header.exe, "hindsight": header.hindsight,
        "started_ms": header.started_ms, "bytes": trace.len(),
        "completeness": trace.completeness().to_string(),
        "instructions": threads.iter().fold(0, |all: u64, t| all.saturating_add(t.to - t.from)),
        "threads": threads.iter().map(thread).collect::<Vec<_>>(),
    })
}

fn thread(t: &Thread) -> Json {
    json!({
        "thread": t.id.0, "tid": t.tid, "pid": t.pid, "image": t.image,
        "begin": t.first.to_string(), "end": t.last.to_string(),
        "begin_count": t.from, "end_count": t.to, "ending": t.ending.to_string(),
    })
}

pub fn registers(cpu: &CpuState) -> Json {
    let all = cpu.named().map(|(n, v)| (n.into(), hex(v)));
    Json::Object(all.collect::<Map<_, _>>())
}

pub fn memory(m: &Memory) -> Json {
    let grounds = m.grounds();
    let grounds = grounds.iter().map(|s| {
        json!({"address": hex(s.address), "length": s.len, "ground": s.ground.map(|g| g.to_string())})
    });
    json!({
        "address": hex(m.address),
        "bytes": m.bytes.iter().map(|b| b.map(|k| k.value)).collect::<Vec<_>>(),
        "grounds": grounds.collect::<Vec<_>>(),
    })
}

pub fn written(w: &Written) -> Json {
    let a = w.access;
    json!({
        "position": a.position.to_string(), "thread": a.thread.0, "count": a.count, "pc": hex(a.pc),
        "address": hex(a.address), "length": a.len, "kernel": a.kernel, "value": w.bytes,
    })
}
