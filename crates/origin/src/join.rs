//! Puts pieces of a value together that went the same way.

use crate::model::{Hop, Origin, Piece, Point};
use crate::place::Place;

/// Adds a piece to the one before it, if all of both came the same way: side by side, or as copies of the same bytes.
pub(crate) fn join(a: &mut Piece, b: &Piece) -> bool {
    let len = a.bytes.len();
    let together = a.bytes.end == b.bytes.start
        && a.hops.len() == b.hops.len()
        && a.hops.iter().zip(&b.hops).all(|(a, b)| same(a, b))
        && came_from(&a.origin, &b.origin, len as u64);
    let hops: Option<Vec<Hop>> = (a.hops.iter().zip(&b.hops))
        .map(|(a, b)| {
            Some(Hop {
                from: both(&a.from, &b.from)?,
                to: both(&a.to, &b.to)?,
                ..*a
            })
        })
        .collect();
    let (true, Some(hops), Some(place)) = (together, hops, both(&a.place, &b.place)) else {
        return false;
    };
    a.bytes.end = b.bytes.end;
    a.value.extend(&b.value);
    (a.hops, a.place) = (hops, place);
    true
}

fn same(a: &Hop, b: &Hop) -> bool {
    (a.thread, a.count, a.how) == (b.thread, b.count, b.how)
}

/// Two places that lie side by side, or are the same, as one.
fn both(a: &Place, b: &Place) -> Option<Place> {
    if a == b {
        return Some(*a);
    }
    let mut out = *a;
    b.cells().all(|c| out.push(c)).then_some(out)
}

fn at(p: &Point) -> (hindsight_timeline::ThreadId, u64) {
    (p.thread, p.count)
}

/// Whether two neighbours came from the same: from neighbouring bytes of it, or from the same ones. The first has this length.
fn came_from(a: &Origin, b: &Origin, len: u64) -> bool {
    let next = |a: u64, b: u64| a == b || a.checked_add(len) == Some(b);
    match (a, b) {
        (
            Origin::Read {
                point: a,
                within: Some(x),
                ..
            },
            Origin::Read {
                point: b,
                within: Some(y),
                ..
            },
        ) => at(a) == at(b) && next(*x, *y),
        (Origin::Result { point: a, .. }, Origin::Result { point: b, .. })
        | (Origin::Signal { point: a }, Origin::Signal { point: b })
        | (Origin::Processor { point: a }, Origin::Processor { point: b })
        | (Origin::Computed { point: a, .. }, Origin::Computed { point: b, .. })
        | (Origin::Constant { point: a }, Origin::Constant { point: b }) => at(a) == at(b),
        (Origin::Argument { index: a, .. }, Origin::Argument { index: b, .. }) => a == b,
        (Origin::Variable { text: a }, Origin::Variable { text: b }) => a == b,
        (Origin::File { path: a, offset: x }, Origin::File { path: b, offset: y }) => {
            a == b && next(*x, *y)
        }
        (Origin::Start, Origin::Start)
        | (Origin::StartRandom, Origin::StartRandom)
        | (Origin::Fresh, Origin::Fresh)
        | (Origin::ThreadStart, Origin::ThreadStart) => true,
        _ => false,
    }
}
