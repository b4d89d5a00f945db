//! The next or previous stop in one thread.

use super::breaks::{self, Answer};
use super::cold::{self, Cold};
use super::effects::Wants;
use super::events;
use super::hit::{Hit, SearchRange};
use super::writers::Writers;
use crate::Result;
use crate::index::{IndexPart, Touching};
use crate::model::stops::*;
use crate::play::{Player, Viewpoint};
use std::sync::Arc;

/// A search looks at this many instructions first, except forwards for breakpoints. Work beyond a stop is wasted, and
/// who goes from one stop to the next often has the next one near.
const NEAR: u64 = 1 << 16;

pub fn forward_in(
    view: &mut Viewpoint,
    mut s: SearchRange,
    stops: &mut Stops,
) -> Result<Option<Hit>> {
    let event = events::event(view, s, stops, Direction::Forward)?;
    if let Some(e) = &event {
        s.hi = e.count;
    }
    let wants = Wants::of(view, s.thread, stops);
    let player = view.player(s.thread)?;
    if !wants.steps() && !wants.breaks() {
        return Ok(event);
    }
    if !wants.steps() {
        let found = breaks::first(&wants, player, s, stops)?;
        return Ok(found.or(event));
    }
    let mut writers = Writers::known(player, &wants);
    let (mut lo, mut known) = (s.lo, Touching::default());
    let engine = Arc::clone(player.engine());
    let (mut piece, mut near) = (NEAR, player.span());
    let at_once = wants.compares();
    while lo < s.hi {
        // What is near needs no index.
        let ahead = player.marked_without_index(lo).filter(|_| near > 0);
        let (end, touched) = match ahead {
            Some(_) => (player.part_end(lo), true),
            None => {
                let touched =
                    &mut |part: &IndexPart, i| wants.touched(&engine, part, i, &mut known);
                let (mut looked, cold) = cold::look(&wants, player, lo, touched)?;
                let rest = SearchRange { lo, ..s };
                let mut slice = None;
                // What is near is played at once.
                if cold && piece > NEAR {
                    match cold::nearest(&wants, player, rest, Direction::Forward)? {
                        Cold::Touched(from, to) => slice = Some((from, to)),
                        Cold::Nothing(to) => {
                            lo = to;
                            continue;
                        }
                        Cold::Unclear => looked = player.look(lo, touched)?,
                    }
                }
                match slice {
                    Some((from, to)) => {
                        lo = from;
                        (to, true)
                    }
                    None => (looked.bounds().1, looked.touched),
                }
            }
        };
        let end = s.hi.min(end.max(lo + 1));
        let mut stretch = SearchRange {
            lo,
            hi: end.min(lo.saturating_add(piece)),
            ..s
        };
        near = near.saturating_sub(piece);
        piece = match ahead {
            Some(_) if near > 0 => near,
            _ => u64::MAX,
        };
        lo = stretch.hi;
        if at_once && touched {
            let hit = writers.first(&wants, player, stretch, stops)?;
            if hit.is_some() {
                writers.remember(player, &wants);
                return Ok(hit);
            }
            continue;
        }
        let found = wants.first_break(player, stretch, stops)?;
        if let Some(h) = &found {
            stretch.hi = h.count;
        }
        if touched {
            let (from, to) = (stretch.lo, stretch.hi);
            let way = Direction::Forward;
            let hit = in_interval(&wants, &mut writers, player, (from, to), way)?;
            if hit.is_some() {
                writers.remember(player, &wants);
                return Ok(hit);
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(event)
}

/// The first or last instruction among `lo..hi` whose effect stops. All of them must lie in one interval.
fn in_interval(
    wants: &Wants,
    writers: &mut Writers,
    player: &mut Player,
    (lo, hi): (u64, u64),
    direction: Direction,
) -> Result<Option<Hit>> {
    if hi <= lo {
        return Ok(None);
    }
    let engine = Arc::clone(player.engine());
    if !engine.has_steps(player.thread) {
        return writers.effects(wants, player, lo, hi, direction);
    }
    let part = player.index(lo)?;
    let summary = part.summary(&engine, part.interval(lo))?;
    let Some(mut steps) = wants.steps_touching(&engine, &summary, lo, hi)? else {
        return writers.effects(wants, player, lo, hi, direction);
    };
    if direction == Direction::Backward {
        steps.reverse();
    }
    for n in steps {
        let (from, to) = (
            summary.steps[n].from.max(lo),
            summary.end_of(n).unwrap_or(hi),
        );
        let found = writers.effects(wants, player, from, to.min(hi), direction)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub fn backward_in(
    view: &mut Viewpoint,
    mut s: SearchRange,
    stops: &mut Stops,
) -> Result<Option<Hit>> {
    let event = events::event(view, s, stops, Direction::Backward)?;
    if let Some(e) = &event {
        s.lo = e.count;
    }
    let wants = Wants::of(view, s.thread, stops);
    if !wants.breaks() && !wants.steps() {
        return Ok(event);
    }
    let player = view.player(s.thread)?;
    let mut writers = Writers::known(player, &wants);
    // No instruction is at the last instant.
    let (mut hi, mut known) = (s.hi.min(player.to), Touching::default());
    let engine = Arc::clone(player.engine());
    let (mut piece, mut pieces, mut tried) = (NEAR, 0, false);
    while hi > s.lo {
        if !tried && breaks::are_next(&wants, player, (s.lo, hi), pieces) {
            tried = true;
            let rest = SearchRange { hi, ..s };
            if let Answer::Found(hit) = breaks::last(&wants, player, rest)? {
                return Ok(hit.or(event));
            }
        }
        pieces += 1;
        // What is near needs no index.
        let (mut begin, touched) = match player.marked_without_index(hi - 1) {
            Some(since) => (since, wants.steps()),
            None => {
                let touched = &mut |part: &IndexPart, i| {
                    Ok(wants.steps() && wants.touched(&engine, part, i, &mut known)?)
                };
                let (mut looked, cold) = cold::look(&wants, player, hi - 1, touched)?;
                let rest = SearchRange { hi, ..s };
                let mut slice = None;
                // What is near is played at once.
                if cold && piece > NEAR {
                    match cold::nearest(&wants, player, rest, Direction::Backward)? {
                        Cold::Touched(from, to) => slice = Some((from, to)),
                        Cold::Nothing(from) => {
                            hi = from;
                            continue;
                        }
                        Cold::Unclear => looked = player.look(hi - 1, touched)?,
                    }
                }
                match slice {
                    Some((from, to)) => {
                        hi = to;
                        (from, true)
                    }
                    None => (looked.bounds().0, looked.touched),
                }
            }
        };
        if wants.breaks() {
            // The interval is played. A finer one, if there is one, takes less time.
            begin = begin.max(player.begin_of(hi - 1));
        }
        begin = begin.max(hi.saturating_sub(piece));
        let lo = s.lo.max(begin).min(hi - 1);
        piece = u64::MAX;
        let mut from = lo;
        let mut last = None;
        if wants.breaks() {
            wants.breaks_in(player, lo, hi, stops, &mut |h| {
                last = Some(h);
                true
            })?;
            if let Some(h) = &last {
                from = h.count;
            }
        }
        if touched {
            let way = Direction::Backward;
            let hit = in_interval(&wants, &mut writers, player, (from, hi), way)?;
            if hit.is_some() {
                writers.remember(player, &wants);
                return Ok(hit);
            }
        }
        if last.is_some() {
            return Ok(last);
        }
        hi = lo;
    }
    Ok(event)
}
