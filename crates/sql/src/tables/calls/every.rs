//! All calls of all functions.

use super::row::{AT_CALL, AT_RETURN, CALLS, Filler};
use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bool, Int, Word};
use crate::column::{Column, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::sums::{Ended, How, Wanted, calls};
use crate::table::Table;
use crate::tables::instant;
use hindsight_timeline::{Call, Thread, ThreadId};
use std::sync::LazyLock;

/// Table `calls`.
pub struct EveryCall;

/// Columns of [`CALLS`] that have few different words here, and what they say.
const WORDS: [(&str, &str); 2] = [
    (
        "function",
        "name of the function that begins there; NULL: none has that",
    ),
    (
        "caller",
        "where it is to return to, as FILE!FUNCTION+OFFSET; NULL: nobody knows, or that is no code of a file",
    ),
];

/// The number of columns that [`CALLS`] has, and that of each column behind them.
const DEPTH: usize = CALLS.len();
const MODULE: usize = DEPTH + 1;
const CALL_SITE: usize = DEPTH + 2;
const TAIL: usize = DEPTH + 3;

static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let first = CALLS.iter().map(|c| {
        let word = WORDS.iter().find(|(name, _)| *name == c.name);
        word.map_or(*c, |(name, about)| column(name, Word, about))
    });
    first
        .chain([
            column(
                "depth",
                Int,
                "how many calls of the thread had not returned, with this one; NULL: not known, since not all before was recorded, or a jump led back into one of several calls of a function",
            ),
            column(
                "module",
                Word,
                "path of its file; NULL: code that the program made",
            ),
            column(
                "call_site",
                Address,
                "the instruction that called it; NULL: the kernel did, or the thread begins there",
            ),
            column(
                "tail",
                Bool,
                "a jump led there. It returns where the call returns that it goes on for",
            ),
        ])
        .collect()
});

/// So many rows are handed on together if a cursor goes to each.
const FEW: usize = 16;

/// Columns that say something of the return.
const OF_RETURN: [usize; 5] = [12, 13, 14, 15, 16];

impl Table for EveryCall {
    fn name(&self) -> &str {
        "calls"
    }

    fn columns(&self) -> &'static [Column] {
        &COLUMNS
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        let Ok(all) = r.timeline.threads() else {
            return vec![bounds.clone()];
        };
        let ids: Vec<u32> = all.iter().map(|t| t.id.0).collect();
        let each = ids.len().div_ceil(most.max(1)).max(1);
        let part = |ids: &[u32]| {
            let mut part = bounds.clone();
            if let (Some(lo), Some(hi)) = (ids.first(), ids.last()) {
                part.limit("thread", (*lo).into()..=(*hi).into());
            }
            part
        };
        match ids.is_empty() {
            true => vec![bounds.clone()],
            false => ids.chunks(each).map(part).collect(),
        }
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut filler = Filler::new(r)?;
        for t in r.timeline.threads()? {
            if !bounds.has("thread", t.id.0) || !bounds.has("process", t.image) {
                continue;
            }
            let Some((from, until)) = counts(r, bounds, t.id)? else {
                continue;
            };
            let to = match out.wants(&OF_RETURN) {
                true => t.to,
                false => until.min(t.to),
            };
            let wanted = Wanted {
                begins: t.from,
                from,
                until,
                to,
            };
            let cancel = out.cancel.clone();
            calls(r, (t.id, t.image), &wanted, &cancel, &mut |ended| {
                row(r, (bounds, &t), &mut filler, out, ended)
            })?;
        }
        Ok(())
    }
}

/// Between which instruction counts of a thread its instants lie within the bounds. `None`: none does. There may be one more at
/// either end: where a thread stands still, several instants have the same count.
fn counts(r: &Recording, bounds: &Bounds, thread: ThreadId) -> Result<Option<(u64, u64)>, Stop> {
    let clock = r.clock()?;
    let (times, counts) = (bounds.numbers("time"), bounds.numbers("count"));
    if times.is_empty() || counts.is_empty() {
        return Ok(None);
    }
    let bound = |n: i128| n.clamp(-1, i128::from(clock.end()) + 1) as i64;
    let (lo, hi) = (bound(*times.start()), bound(*times.end()));
    let own = clock.stretches().iter();
    let own = own.filter(|s| s.segment.thread == thread && s.end() >= lo && s.time <= hi);
    let (mut first, mut last) = (None, None);
    for s in own {
        let count = |time: i64| s.segment.from + (time - s.time).clamp(0, s.len()) as u64;
        first = first.or(Some(count(lo)));
        last = Some(count(hi));
    }
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(None);
    };
    let clamped = |n: i128| n.clamp(0, i128::from(u64::MAX)) as u64;
    let from = first.saturating_sub(1).max(clamped(*counts.start()));
    let until = (last.saturating_add(2)).min(clamped(*counts.end()).saturating_add(1));
    Ok((from < until).then_some((from, until)))
}

fn row(
    r: &Recording,
    (bounds, t): (&Bounds, &Thread),
    filler: &mut Filler,
    out: &mut Rows,
    ended: &Ended,
) -> Result<(), Stop> {
    let c = &ended.call;
    let position = r.timeline.position(t.id, c.count)?;
    let time = r.clock()?.time(position);
    if !bounds.has("time", time) {
        return Ok(());
    }
    instant(r, out, position, time, (t.id, c.count))?;
    let function = &ended.functions[c.number as usize];
    out.maybe(5, function.name.as_ref().filter(|_| c.begins));
    if let Some(back) = c.back {
        filler.caller(r, out, t.image, (back, position))?;
    }
    let mut call = Call::found(c.function, (t.id, c.count), position, c.how == How::Handler);
    if let Some((to, count)) = ended.returned {
        let rax = match out.wants(&AT_RETURN) {
            true => filler.rax(out, t.id, count)?,
            false => 0,
        };
        call = call.returning(r.timeline.position(t.id, count)?, count, to, rax);
    }
    filler.call(r, out, &call)?;
    out.int(DEPTH, c.depth.map(i64::from));
    out.maybe(MODULE, function.module.as_ref());
    out.uint(
        CALL_SITE,
        match c.how {
            How::Call(at) | How::Tail(at) => Some(at),
            How::Handler | How::Begins => None,
        },
    );
    out.bool(TAIL, matches!(c.how, How::Tail(_)));
    out.end()?;
    match out.wants(&AT_CALL) || out.wants(&AT_RETURN) {
        // Each such row takes milliseconds. Somebody may want few of them.
        true => out.send_from(FEW),
        false => Ok(()),
    }
}
