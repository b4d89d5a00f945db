//! Makes the index of a part. One thread replays the part. Another packs what each interval left.

use super::budget::Budget;
use super::by_page::Generating;
use super::coarse::Coarse;
use super::codec::{LINE, PAGE, bits};
use super::draft::Draft;
use super::held::Held;
use super::maker::STEPS;
use super::packer::{Left, Packer};
use super::pages::PageSet;
use super::ranges::{Level, PartRange};
use super::sidecar::Stream;
use super::spans::Spans;
use super::steps::{Gathered, PORTION, Raw};
use crate::base::STRIDE;
use crate::base::sync::HAS_THREADS;
use crate::model::error::replay;
use crate::recording::{Chunks, Recording};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_replay::{Lines, Machine, State, Stop};
use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// This many intervals wait to be packed, besides the one that is being packed and the one that is being played. Each
/// takes little more memory than the program touched in it.
const WAITING: usize = 1;

/// Where the program had so many bytes of memory, a file holds what it held at the last border.
const IN_FILE: u64 = 128 << 20;

/// After so many instructions a replay asks whether to go on.
pub const LOOK: u64 = 16 * STRIDE;

/// An interval has `FIRST` instructions if the recording lays out `MUCH` bytes in memory at its beginning.
const FIRST: u64 = 2 << 20;
const MUCH: u64 = 16 << 20;

/// Gets the number of instructions just done, and answers whether to go on.
pub type Progress<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// Where the replay of a stretch begins that does not begin at the part's key frame.
pub struct Start {
    pub state: State,
    /// What the window holds.
    pub content: Lines,
}

/// Replays a part, or a stretch of it from `start` on, and makes its index within a budget.
///
/// - `borders`: where intervals begin. None: their lengths are chosen to fit the budget.
/// - `whole`: the stretch is the whole part.
/// - `stream`: takes the sections as they are made.
#[expect(
    clippy::too_many_arguments,
    reason = "each is used once, by two callers"
)]
pub fn build(
    recording: &Arc<Recording>,
    range: PartRange,
    scan: &Scan,
    budget: &Budget,
    borders: &[u64],
    start: Option<Start>,
    whole: bool,
    stream: Option<&mut Stream>,
    progress: &Progress,
) -> Result<Draft> {
    let start = match start {
        None if scan.is_based(range.from) => Some(start_of(recording, range)?),
        given => given,
    };
    let room = budget.share(range.to - range.from);
    let spans = Spans::new(range.span(recording), room);
    let mut held = Held::new(file_for(recording, range, stream.as_deref()));
    if let Some(start) = &start {
        held.put_lines(&start.content)?;
    }
    let coarse = range.is_coarse().then(|| {
        let least = super::span(recording, range.thread);
        Coarse::new(std::mem::take(&mut held), recording, least)
    });
    // What a coarse interval left may be much.
    let waiting = if coarse.is_some() { 0 } else { WAITING };
    let (send, receive) = sync_channel(waiting);
    // Buffers come back from the packer, to be used again.
    let (give, spare) = sync_channel(WAITING + 2);
    let generating = whole.then(Generating::default);
    let steps = recording.has_steps(range.thread).then(Gathered::default);
    let mut packer = Packer::new(range, budget, &spans, held);
    packer.required &= borders.is_empty();
    (packer.generating, packer.steps) = (generating, steps);
    packer.write_to(stream);
    let lengths = Lengths::of(range, (&spans, borders));
    let play = |send: &mut dyn FnMut(Left) -> bool| {
        let out = Out {
            send,
            spare,
            coarse,
        };
        play(recording, range, scan, lengths, start, out, progress)
    };
    if !HAS_THREADS {
        let mut failed = Ok(());
        let played = play(&mut |left| {
            if failed.is_ok() {
                failed = packer.take(left, &give, scan);
            }
            failed.is_ok()
        });
        played.and(failed)?;
        packer.finish()?;
        return Ok(packer.part);
    }
    std::thread::scope(|s| {
        let ending = spans.ending();
        let packed = s.spawn(move || {
            let _ending = ending;
            packer.run(&receive, &give, scan)?;
            Ok(packer.part)
        });
        let mut out = move |left| send.send(left).is_ok();
        let played = play(&mut out);
        // The packer ends when nothing more can come.
        drop(out);
        let packed = match packed.join() {
            Ok(p) => p,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // When packing fails, the replay ends without an error of its own.
        played.and(packed)
    })
}

/// Where what memory held is to be, if it is much. A part of the fine level shares it with the border where it begins. Steps
/// need it several times.
fn file_for(recording: &Recording, range: PartRange, stream: Option<&Stream>) -> Option<File> {
    let alone = matches!(range.level, Level::Only | Level::Coarse);
    let wanted = alone && !recording.has_steps(range.thread);
    let much = recording.memory().is_none_or(|had| had >= IN_FILE);
    stream.filter(|_| wanted && much)?.unnamed()
}

/// The start of a part whose key frame restates only what has changed since another one.
pub fn start_of(recording: &Arc<Recording>, range: PartRange) -> Result<Start> {
    let thread = range.thread;
    let fail = |e| replay(thread, e);
    let mut m = recording.machine(thread)?;
    let source = Chunks::new(recording, thread, range.chunk);
    m.from_keyframe(Box::new(source)).map_err(fail)?;
    Ok(Start {
        state: m.state(),
        content: m.take_content().map_err(fail)?,
    })
}

/// Where a replay leaves what intervals accessed.
struct Out<'a> {
    /// Hands something to the packer. `false`: it takes no more.
    send: &'a mut dyn FnMut(Left) -> bool,
    /// Buffers come back here.
    spare: Receiver<Raw>,
    /// Of the coarse level: gathers it.
    coarse: Option<Coarse>,
}

/// Replays a part, and sends what each interval left. It stops when nobody receives any more.
fn play(
    recording: &Arc<Recording>,
    range: PartRange,
    scan: &Scan,
    mut lengths: Lengths,
    start: Option<Start>,
    Out {
        send,
        spare,
        mut coarse,
    }: Out,
    progress: &Progress,
) -> Result<()> {
    let thread = range.thread;
    let fail = |e| replay(thread, e);
    let mut m = recording.observing_much(thread)?;
    // Pages whose content is known.
    let mut known = PageSet::new();
    begin(&mut m, recording, range, start, &mut known).map_err(fail)?;
    let stepped = recording.has_steps(thread);
    let mut buffers = Buffers::of(spare);
    let every = coarse.as_ref().map_or(LOOK, |c| c.every);
    // The pages that were given back hold nothing but zeros.
    let zero = Arc::new([0; PAGE]);
    loop {
        let state = m.state();
        let from = state.position;
        let mut next = lengths.next(from, scan);
        if let Some(c) = &mut coarse {
            c.begin(from, lengths.least, lengths.lines, known.len());
        }
        if stepped {
            let step = (lengths.usual / STEPS).max(1);
            next = next.min(from.saturating_add(step));
        }
        let mut pause = |m: &mut Machine| match &mut coarse {
            Some(c) => c.pause(m, scan, &mut known).map_err(fail),
            None => Ok(false),
        };
        let stop = run_to(&mut m, next.min(range.to), progress, (every, &mut pause))?;
        let done = m.position();
        if coarse.is_some() && matches!(stop, Ok(Stop::Position)) {
            // It may have ended early.
            lengths.end = done;
        }
        let more = goes_on(recording, stop).map_err(fail)? && done < range.to;
        let mut raw = Raw::default();
        match &mut coarse {
            Some(c) => c.take(&mut m, scan, &mut known).map_err(fail)?,
            None => {
                raw = buffers.take();
                let mut full = |raw: &mut Raw| {
                    // If nobody receives any more, that shows below.
                    _ = send(Left::Marks(Box::new(std::mem::take(raw))));
                    buffers.away += 1;
                    // Only behind that, since it may wait for this one to come back.
                    *raw = buffers.take();
                };
                let most = if stepped { usize::MAX } else { PORTION };
                harvest(&mut m, &mut known, &mut raw, (most, &mut full)).map_err(fail)?;
                buffers.large = raw.is_large();
                raw.last = !more || done >= lengths.end;
            }
        }
        let mut changed = Vec::new();
        changed_outside(&m, scan, &mut known, (from, done), &mut changed);
        let left = match &mut coarse {
            Some(c) => {
                // If nobody receives any more, that shows below.
                let mut some = |d| _ = send(Left::Differences(d));
                Left::Change(Box::new(c.finish(&m, state, changed, &mut some)?))
            }
            None => {
                let whole = changed.iter().map(|p| match m.window_page(*p) {
                    its if *its == *zero => (*p, zero.clone()),
                    its => (*p, Arc::new(*its)),
                });
                raw.changed.extend(whole);
                raw.state = Some(state);
                buffers.away += 1;
                Left::Marks(Box::new(raw))
            }
        };
        m.check().map_err(fail)?;
        if !send(left) {
            return Ok(());
        }
        if !progress(done - from) {
            return Err(Error::Cancelled);
        }
        if !more {
            return Ok(());
        }
    }
}

/// How long intervals are.
struct Lengths<'a> {
    range: PartRange,
    spans: &'a Spans,
    borders: &'a [u64],
    /// How many intervals got their length from `spans`, and how long they usually are.
    interval: usize,
    usual: u64,
    /// Where the present interval ends, and whether it is a short one. After that comes one of the usual length. Otherwise a
    /// program that reads many files would have short ones only.
    end: u64,
    short: bool,
    /// The present one may end early, behind so many instructions, and its frame may have so many lines. Given intervals are as
    /// long as they are, and their frames need no lines.
    least: Option<u64>,
    lines: usize,
}

impl Lengths<'_> {
    fn of<'a>(range: PartRange, (spans, borders): (&'a Spans, &'a [u64])) -> Lengths<'a> {
        Lengths {
            range,
            spans,
            borders,
            interval: 0,
            usual: spans.of(0).usual,
            end: 0,
            short: false,
            least: None,
            lines: 0,
        }
    }

    /// Where the interval ends that has instruction `from`.
    fn next(&mut self, from: u64, scan: &Scan) -> u64 {
        let (borders, to) = (self.borders, self.range.to);
        let next = match borders.get(borders.partition_point(|b| *b <= from)) {
            Some(b) => *b,
            None if !borders.is_empty() => to,
            None if from < self.end => self.end,
            None => self.choose(from, scan),
        };
        self.end = next.min(to);
        next
    }

    fn choose(&mut self, from: u64, scan: &Scan) -> u64 {
        let span = self.spans.of(self.interval);
        self.usual = span.usual;
        self.interval += 1;
        // Without room for short intervals there is none for lines.
        (self.least, self.lines) = match span.least <= span.usual {
            true => (Some(span.least), span.lines),
            false => (None, 0),
        };
        // The fine level has short intervals where the coarse one needs none.
        let its = match self.short || self.range.level == Level::Coarse {
            true => span.usual,
            false => first_or([&scan.given, &scan.restated], from, span.usual),
        };
        self.short = its < span.usual;
        from.saturating_add(its)
    }
}

/// Whether the stream goes on where a machine stopped.
fn goes_on(
    recording: &Recording,
    stop: std::result::Result<Stop, hindsight_replay::Error>,
) -> std::result::Result<bool, hindsight_replay::Error> {
    match stop {
        Ok(stop) => Ok(matches!(stop, Stop::Position | Stop::Break)),
        // The code is missing because the trace is cut.
        Err(hindsight_replay::Error::MissingCode { .. })
            if recording.trace.completeness() != hindsight_trace::Completeness::Complete =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// What is done on the way. It answers whether to stop.
type Pause<'a> = dyn FnMut(&mut Machine) -> Result<bool> + 'a;

/// Runs to a position. On the way it asks every so many instructions whether to go on. `pause` is called then, too.
fn run_to(
    m: &mut Machine,
    to: u64,
    progress: &Progress,
    (every, pause): (u64, &mut Pause),
) -> Result<std::result::Result<Stop, hindsight_replay::Error>> {
    loop {
        let next = to.min(m.position().saturating_add(every));
        let stop = m.run_to(next);
        if next == to || !matches!(stop, Ok(Stop::Position)) {
            return Ok(stop);
        }
        if !progress(0) {
            return Err(Error::Cancelled);
        }
        if pause(m)? {
            return Ok(stop);
        }
    }
}

/// Brings a machine to the beginning of a range. `known` gets the pages whose content is known there.
fn begin(
    m: &mut Machine,
    recording: &Arc<Recording>,
    range: PartRange,
    start: Option<Start>,
    known: &mut PageSet,
) -> std::result::Result<(), hindsight_replay::Error> {
    let source = Box::new(Chunks::new(recording, range.thread, range.chunk));
    let Some(s) = start else {
        return m.from_keyframe(source);
    };
    m.set_content(&s.content)?;
    m.resume(source, &s.state)?;
    s.content.numbers().for_each(|page| known.insert(page));
    Ok(())
}

/// The buffers of a replay and its packer.
struct Buffers {
    /// They come back here.
    back: Receiver<Raw>,
    /// The packer has this many.
    away: usize,
    /// The last one was large.
    large: bool,
}

impl Buffers {
    fn of(back: Receiver<Raw>) -> Buffers {
        Buffers {
            back,
            away: 0,
            large: false,
        }
    }

    /// One that is free, or a new one. There is only one that is large: it comes back while the next interval is
    /// played.
    fn take(&mut self) -> Raw {
        let mut raw = None;
        while self.away > 0 && (self.large || raw.is_none()) {
            let next = match self.large {
                true => self.back.recv().ok(),
                false => self.back.try_recv().ok(),
            };
            let Some(next) = next else { break };
            self.away -= 1;
            raw = Some(next);
        }
        let mut raw = raw.unwrap_or_default();
        raw.clear();
        raw
    }
}

/// The length of an interval that begins at `from`. It is usually `span`. It is short where the recording lays out much
/// in memory at the beginning, as when a program's file is mapped. Each replay from there repeats that work, and each
/// search goes through it again.
fn first_or(given: [&[(u64, u64, u64)]; 2], from: u64, span: u64) -> u64 {
    let end = from.saturating_add(FIRST);
    let its = given.into_iter().flat_map(|list| {
        let begin = list.partition_point(|g| g.0 < from);
        list[begin..].iter().take_while(move |g| g.0 < end)
    });
    match its.fold(0u64, |all, g| all.saturating_add(g.2)) {
        MUCH.. => span.min(FIRST),
        _ => span,
    }
}

/// Takes the access marks, with the contents of the marked lines. `full` gets what there is whenever it is so many lines, and
/// leaves an empty buffer.
fn harvest(
    m: &mut Machine,
    known: &mut PageSet,
    raw: &mut Raw,
    (most, full): (usize, &mut dyn FnMut(&mut Raw)),
) -> std::result::Result<(), hindsight_replay::Error> {
    m.take_marks(&mut |page, lines, marks, cells| {
        if raw.cells.len() >= most {
            full(raw);
        }
        raw.pages.push((page, lines));
        known.insert(page);
        let cells = cells.as_chunks::<LINE>().0;
        for i in bits(lines) {
            raw.marks.push(marks[i]);
            raw.cells.push(cells[i]);
        }
    })?;
    raw.to = m.position();
    Ok(())
}

/// Adds known pages that something else than the thread changed between two positions. Each page is told once, however often
/// it changed: only its content at the end matters.
fn changed_outside(
    m: &Machine,
    scan: &Scan,
    known: &mut PageSet,
    (from, to): (u64, u64),
    changed: &mut Vec<u32>,
) {
    let between = |all: &[(u64, u64, u64)]| {
        let first = |n| all.partition_point(|z| z.0 < n);
        first(from)..first(to)
    };
    let mut told = HashSet::new();
    for (_, addr, len) in &scan.zeros[between(&scan.zeros)] {
        renew(known, (*addr, *len), &mut told, changed);
    }
    let restated = &scan.restated[between(&scan.restated)];
    for (_, addr, len) in scan.given[between(&scan.given)].iter().chain(restated) {
        take(m, known, (*addr, *len), &mut told, changed);
    }
}

/// Adds the known pages of a range.
fn renew(
    known: &PageSet,
    (addr, len): (u64, u64),
    told: &mut HashSet<u32>,
    changed: &mut Vec<u32>,
) {
    let first = addr / PAGE as u64;
    let last = addr.saturating_add(len).div_ceil(PAGE as u64);
    let mut one = |page: u32| {
        if told.insert(page) {
            changed.push(page);
        }
    };
    if last - first > known.len() as u64 {
        let inside = |p: &u32| (*p as u64).wrapping_sub(first) & 0xf_ffff < last - first;
        known.iter().filter(inside).for_each(&mut one);
        return;
    }
    for page in first..last {
        let page = page as u32 & 0xf_ffff;
        if known.contains(page) {
            one(page);
        }
    }
}

/// Adds the pages of a range, which are known from then on. Zero pages that were not known are left out.
fn take(
    m: &Machine,
    known: &mut PageSet,
    (addr, len): (u64, u64),
    told: &mut HashSet<u32>,
    changed: &mut Vec<u32>,
) {
    for number in addr / PAGE as u64..addr.saturating_add(len).div_ceil(PAGE as u64) {
        let page = number as u32 & 0xf_ffff;
        if !told.insert(page) {
            continue;
        }
        if *m.window_page(page) != [0; PAGE] || known.contains(page) {
            known.insert(page);
            changed.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_much_memory_is_short() {
        let first = |at, len, from, span| {
            let given = [(0, 0x1000, 8), (at, 0x40_0000, len / 2)];
            first_or([&given, &given[1..]], from, span)
        };
        let span = 32 << 20;
        assert_eq!(first(100, MUCH, 0, span), FIRST);
        assert_eq!(first(100, MUCH, 0, 1000), 1000);
        assert_eq!(first(100, MUCH / 2, 0, span), span);
        assert_eq!(first(100, MUCH, 200, span), span);
        assert_eq!(first(FIRST, MUCH, 0, span), span);
    }
}
