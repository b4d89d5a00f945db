//! What `hindsight origin --json` tells scripts.

use crate::at::{frame_json, place_json};
use crate::hex::hex;
use hindsight_origin::{Hop, How, Origin, OriginPiece, Place, Point};
use serde_json::{Value as Json, json};

/// A piece of a value, and its way.
pub fn piece(p: &OriginPiece, shown: &[(usize, Point)]) -> Json {
    let hop = |(n, point): &(usize, Point)| hop(*n, &p.hops[*n], point);
    json!({
        "first": p.bytes.start,
        "length": p.bytes.len(),
        "bytes": p.value,
        "hops": p.hops.len(),
        "way": shown.iter().map(hop).collect::<Vec<_>>(),
        "origin": origin(&p.origin),
    })
}

fn hop(n: usize, h: &Hop, at: &Point) -> Json {
    let how = match h.how {
        How::Instruction => "instruction",
        How::Channel { .. } => "channel",
        How::Signal => "signal",
        _ => "other",
    };
    json!({
        "number": n + 1, "how": how, "point": point(at), "from": place(&h.from), "to": place(&h.to),
    })
}

fn place(p: &Place) -> Json {
    match p {
        Place::Memory { at, len } => json!({ "address": hex(*at), "length": len }),
        Place::Register { first, len, .. } => {
            json!({ "register": p.to_string(), "first": first, "length": len })
        }
    }
}

/// A place in the recording.
pub fn point(p: &Point) -> Json {
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

/// Where a value came from.
pub fn origin(o: &Origin) -> Json {
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
        Origin::Computed { point: at, from } => {
            let from = from
                .iter()
                .map(|o| json!({ "name": o.name, "bytes": o.bytes }));
            json!({ "kind": "computed", "point": point(at), "from": from.collect::<Vec<_>>() })
        }
        Origin::Constant { point: at } => json!({ "kind": "constant", "point": point(at) }),
        Origin::ThreadStart => json!({ "kind": "thread-start" }),
        Origin::Further { point: at } => json!({ "kind": "further", "point": point(at) }),
        Origin::Untold { point: at, why } => {
            json!({ "kind": "untold", "point": point(at), "why": why })
        }
        _ => json!({ "kind": "unknown" }),
    }
}
