//! What `hindsight diff --json` tells scripts.

use crate::at::stack_json;
use crate::origin::json::{origin, point};
use hindsight_compare::{Cause, Datum, Difference, Input, Kind, Point, Report};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// All that was found.
pub fn report(r: &Report, files: &[PathBuf; 2], growing: [bool; 2]) -> Json {
    let alone = |s: usize| r.alone[s].iter().map(|t| t.0).collect::<Vec<_>>();
    let passed = r.passed_over.iter();
    json!({
        "recordings": files,
        "being_recorded": growing,
        "same": r.is_same(),
        "threads": r.threads,
        "instructions": r.compared[1],
        "differences": r.differences.iter().map(difference).collect::<Vec<_>>(),
        "more": r.more,
        "inputs": r.inputs.iter().map(input).collect::<Vec<_>>(),
        "more_inputs": r.more_inputs,
        "alone": [alone(0), alone(1)],
        "handlers": r.handlers,
        "passed_over": passed
            .map(|(reason, n)| json!({"reason": reason.to_string(), "count": n}))
            .collect::<Vec<_>>(),
    })
}

fn input(i: &Input) -> Json {
    let side = |s: usize| {
        json!({
            "position": i.positions[s].to_string(),
            "thread": i.threads[s].0,
            "call": i.calls[s],
            "file": i.files[s],
            "byte": i.byte.as_ref().map(|b| b.at),
            "offset": i.byte.as_ref().and_then(|b| b.offsets[s]),
            "bytes": i.byte.as_ref().map(|b| &b.bytes[s]),
        })
    };
    json!([side(0), side(1)])
}

fn difference(d: &Difference) -> Json {
    let (kind, more) = kind(&d.kind);
    let point = |p: Option<&Point>| p.map(point);
    json!({
        "kind": kind,
        "what": more,
        "last": d.last.as_ref().map(|l| [self::point(&l[0]), self::point(&l[1])]),
        "first": [point(d.first[0].as_ref()), point(d.first[1].as_ref())],
        "stacks": [stack_json(&d.stacks[0]), stack_json(&d.stacks[1])],
        "cause": d.cause.as_ref().map(cause),
        "again": d.again.map(|a| a.map(|p| p.to_string())),
    })
}

/// Its name, and what there is for each recording.
fn kind(k: &Kind) -> (&'static str, Json) {
    match k {
        Kind::Branch { taken } => ("branch", json!({ "taken": taken })),
        Kind::Target => ("target", Json::Null),
        Kind::Function { names } => ("function", json!({ "functions": names })),
        Kind::Call { calls } => ("call", json!({ "calls": calls })),
        Kind::Argument { index, calls } => ("argument", json!({ "index": index, "calls": calls })),
        Kind::Bytes { at, bytes, calls } => {
            ("bytes", json!({ "at": at, "bytes": bytes, "calls": calls }))
        }
        Kind::Signal { signals } => ("signal", json!({ "signals": signals })),
        Kind::End { endings } => ("end", json!({ "endings": endings })),
        _ => ("other", Json::Null),
    }
}

fn cause(c: &Cause) -> Json {
    json!({
        "reason": c.reason.to_string(),
        "values": c.hops.first().map(|h| datum(&h.datum)),
        "way": c.hops.iter().map(|h| json!({
            "points": [point(&h.points[0]), point(&h.points[1])],
            "values": datum(&h.datum),
        })).collect::<Vec<_>>(),
        "left_out": c.left_out,
        "origins": [origin(&c.origins[0]), origin(&c.origins[1])],
    })
}

fn datum(d: &Datum) -> Json {
    let side = |s: usize| json!({ "name": d.names[s], "bytes": d.bytes[s] });
    json!([side(0), side(1)])
}
