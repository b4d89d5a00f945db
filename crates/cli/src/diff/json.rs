//! What `hindsight diff --json` tells scripts.

use crate::at::{frame_json, place_json, stack_json};
use crate::hex::hex;
use hindsight_compare::{Cause, Datum, Difference, Input, Kind, Origin, Point, Report};
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

fn point(p: &Point) -> Json {
    json!({
        "position": p.position.to_string(),
        "thread": p.thread.0,
        "image": p.image,
        "count": p.count,
        "pc": hex(p.pc),
        "place": p.location.as_ref().map(place_json),
        "frames": p.frames.iter().map(frame_json).collect::<Vec<_>>(),
        "instruction": p.instruction.as_ref().map(|i| &i.text),
    })
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

fn origin(o: &Origin) -> Json {
    match o {
        Origin::Read {
            call,
            point: at,
            file,
            offset,
            within,
        } => json!({
            "kind": "read", "call": call, "point": point(at), "file": file,
            "offset": offset, "within": within,
        }),
        Origin::Result { call, point: at } => {
            json!({ "kind": "result", "call": call, "point": point(at) })
        }
        Origin::Signal { point: at } => json!({ "kind": "signal", "point": point(at) }),
        Origin::Argument { index, text } => {
            json!({ "kind": "argument", "index": index, "text": text })
        }
        Origin::Variable { text } => json!({ "kind": "variable", "text": text }),
        Origin::Start => json!({ "kind": "start" }),
        Origin::StartRandom => json!({ "kind": "start-random" }),
        Origin::File { path, offset } => {
            json!({ "kind": "file", "path": path, "offset": offset })
        }
        Origin::Fresh => json!({ "kind": "fresh" }),
        Origin::Processor { point: at } => json!({ "kind": "processor", "point": point(at) }),
        Origin::Written { point: at } => json!({ "kind": "written", "point": point(at) }),
        Origin::Address => json!({ "kind": "address" }),
        _ => json!({ "kind": "unknown" }),
    }
}
