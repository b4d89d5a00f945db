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
        How::Moved => "moved",
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
    let mut j = json!({ "kind": o.kind() });
    if let Some(p) = o.point() {
        j["point"] = point(p);
    }
    match o {
        Origin::Read {
            call,
            file,
            offset,
            within,
            ..
        } => {
            j["call"] = json!(call);
            j["file"] = json!(file);
            j["offset"] = json!(offset);
            j["within"] = json!(within);
        }
        Origin::Result { call, .. } => j["call"] = json!(call),
        Origin::Argument { index, text } => {
            j["index"] = json!(index);
            j["text"] = json!(text);
        }
        Origin::Variable { text } => j["text"] = json!(text),
        Origin::File { path, offset } => {
            j["path"] = json!(path);
            j["offset"] = json!(offset);
        }
        Origin::Computed { from, .. } => {
            let from = from.iter();
            let all = from.map(|o| json!({ "name": o.name, "bytes": o.bytes }));
            j["from"] = all.collect();
        }
        Origin::Untold { why, .. } => j["why"] = json!(why),
        _ => {}
    }
    j
}
