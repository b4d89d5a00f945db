//! `hindsight origin`: where a value came from.

pub mod json;
pub mod text;

use crate::args;
use crate::out::println;
use crate::words::Spot;
use anyhow::Result;
use hindsight_origin::{LONGEST, Limits, OriginPiece, Point, Recorded, origins};
use serde_json::json;

/// Of a long way, so many hops are shown at its beginning, and as many at its end.
const SHOWN: usize = 12;

/// Follows a value back from a place.
pub fn run(a: &args::Origin) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    let (address, length) = spot.bytes(&a.words[1..], a.at.frame)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > LONGEST {
        anyhow::bail!("the origin of at most {LONGEST} bytes can be asked for");
    }
    let at = (spot.cursor.thread(), spot.cursor.count());
    let mut recorded = Recorded::new(spot.cursor.timeline())?;
    let limits = Limits {
        hops: a.hops as usize,
        ..Limits::default()
    };
    let pieces = origins(&mut recorded, at, (address, length), &limits)?;
    let mut shown = Vec::new();
    for p in &pieces {
        shown.push(places(&mut recorded, p, a.all)?);
    }
    let all = || pieces.iter().zip(&shown);
    println(&match a.json {
        true => serde_json::to_string_pretty(&json!({
            "position": spot.cursor.position()?.to_string(),
            "thread": at.0.0,
            "count": at.1,
            "address": crate::hex::hex(address),
            "length": length,
            "pieces": all().map(|(p, s)| json::piece(p, s)).collect::<Vec<_>>(),
        }))?,
        false => {
            let mut out = String::new();
            for (p, s) in all() {
                text::piece(&mut out, p, length, s);
            }
            out.trim_end().to_owned()
        }
    });
    Ok(0)
}

/// The hops that are shown, and their places.
fn places(recorded: &mut Recorded, p: &OriginPiece, all: bool) -> Result<Vec<(usize, Point)>> {
    let n = p.hops.len();
    let mut out = Vec::new();
    for (i, h) in p.hops.iter().enumerate() {
        if all || n <= 2 * SHOWN || i < SHOWN || i + SHOWN >= n {
            out.push((i, recorded.point_of(h.thread, h.count, h.pc)?));
        }
    }
    Ok(out)
}
