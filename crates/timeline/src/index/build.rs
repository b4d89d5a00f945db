//! Makes the index of a part. One thread replays the part. Another packs what each interval left.

use super::by_page::{Generating, Generations};
use super::codec::{LEVEL, LINE, PAGE, Page, bits};
use super::draft::{Draft, Interval};
use super::frame::IndexFrame;
use super::history::History;
use super::maker::Maker;
use super::maker::STEPS;
use super::page_access::PageAccess;
use super::pages::PageSet;
use super::ranges::{PartRange, SPAN, span};
use super::sidecar::Stream;
use super::steps::{Gathered, Raw};
use super::summary::{FinalLine, words};
use crate::model::error::replay;
use crate::recording::{Chunks, Recording};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_isa::Predictor;
use hindsight_replay::{Lines, Machine, State, Stop};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The size of the whole is predicted only after this many intervals.
const FORESEE: usize = 8;
/// It is also predicted only after this many instructions, or an eighth of all if that is less. The beginning of a
/// program says little about the rest.
const ENOUGH: u64 = FORESEE as u64 * SPAN;
/// The size of one interval of double length, relative to the two that it replaces. An estimate that is too large does
/// less harm than one that is too small. For sqlite 0.82 was measured.
const LONGER: f64 = 0.85;
/// This many intervals wait to be packed, besides the one that is being packed and the one that is being played. Each
/// takes little more memory than the program touched in it.
const WAITING: usize = 1;

/// An interval has `FIRST` instructions if the recording lays out `MUCH` bytes in memory at its beginning.
const FIRST: u64 = 2 << 20;
const MUCH: u64 = 16 << 20;

/// Gets the number of instructions just done, and answers whether to go on.
pub type Progress<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// A limit in bytes for an index, or for some parts of it. The threads that make it claim their needs from it. A thread
/// that cannot yet predict its size has its share by instructions.
pub struct Budget {
    bytes: u64,
    instructions: u64,
    taken: AtomicU64,
}

impl Budget {
    /// A limit of `bytes` for a recording of `instructions`.
    pub fn new(bytes: u64, instructions: u64) -> Budget {
        Budget {
            bytes,
            instructions: instructions.max(1),
            taken: AtomicU64::new(bytes),
        }
    }

    /// A budget without a limit.
    pub fn unlimited() -> Budget {
        // Half of the greatest number: adding a predicted size to it does not overflow.
        Budget::new(u64::MAX / 2, 1)
    }

    /// The bytes for a stretch whose size is not yet predicted.
    fn share(&self, instructions: u64) -> u64 {
        let share = instructions.min(self.instructions) as u128 * self.bytes as u128;
        (share / self.instructions as u128) as u64
    }

    /// Changes a claim. The caller had claimed `before` bytes, now wants `wanted`, and has used `used`. Returns the new
    /// claim, and how much the caller may use. Nobody gets more than is left: the others keep at least their shares.
    fn claim(&self, before: u64, wanted: u64, used: u64) -> (u64, u64) {
        let mut all = self.taken.load(Relaxed);
        loop {
            let others = all.saturating_sub(before);
            let left = self.bytes.saturating_sub(others);
            let now = wanted.min(left).max(used);
            let done = self
                .taken
                .compare_exchange_weak(all, others + now, Relaxed, Relaxed);
            match done {
                Ok(_) => return (now, left),
                Err(other) => all = other,
            }
        }
    }
}

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
    let span = AtomicU64::new(span(recording, range.thread));
    let mut shadow = HashMap::new();
    if let Some(s) = &start {
        let mut put = |page, bytes: &Page| {
            shadow.insert(page, Box::new(*bytes));
        };
        s.content.each(&mut put);
    }
    let (send, receive) = sync_channel(WAITING);
    // Buffers come back from the packer, to be used again.
    let (give, spare) = sync_channel(WAITING + 2);
    let mut packer = Packer {
        part: Draft {
            thread: range.thread,
            from: range.from,
            to: range.to,
            intervals: Vec::new(),
            generations: Generations::default(),
        },
        generating: whole.then(Generating::default),
        shadow,
        bodies: Vec::new(),
        differences: Vec::new(),
        size: 0,
        budget,
        taken: budget.share(range.to - range.from),
        span: &span,
        longer: (0, range.from, 0),
        steps: recording.has_steps(range.thread).then(Gathered::default),
        stream,
    };
    std::thread::scope(|s| {
        let packed = s.spawn(move || {
            packer.run(&receive, &give, scan)?;
            Ok(packer.part)
        });
        let played = play(
            recording,
            range,
            scan,
            (&span, borders),
            start,
            (send, spare),
            progress,
        );
        let packed = match packed.join() {
            Ok(p) => p,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // When packing fails, the replay ends without an error of its own.
        played.and(packed)
    })
}

/// The start of a part whose key frame restates only what has changed since another one.
fn start_of(recording: &Arc<Recording>, range: PartRange) -> Result<Start> {
    let thread = range.thread;
    let fail = |e| replay(thread, e);
    let code = recording.code(recording.image(thread), thread)?;
    let mut m = Machine::new(code, Predictor::WINDOW).map_err(fail)?;
    let source = Chunks::new(recording, thread, range.chunk);
    m.from_keyframe(Box::new(source)).map_err(fail)?;
    Ok(Start {
        state: m.state(),
        content: m.content().map_err(fail)?,
    })
}

/// Replays a part, and sends what each interval left. It stops when nobody receives any more.
fn play(
    recording: &Arc<Recording>,
    range: PartRange,
    scan: &Scan,
    (span, borders): (&AtomicU64, &[u64]),
    start: Option<Start>,
    (send, spare): (SyncSender<Raw>, Receiver<Raw>),
    progress: &Progress,
) -> Result<()> {
    let thread = range.thread;
    let fail = |e| replay(thread, e);
    let code = recording.code(recording.image(thread), thread)?;
    let mut m = Machine::observing_much(code).map_err(fail)?;
    let source = Chunks::new(recording, thread, range.chunk);
    // Pages whose content the packer knows.
    let mut known = PageSet::new();
    match &start {
        None => m.from_keyframe(Box::new(source)).map_err(fail)?,
        Some(s) => {
            m.set_content(&s.content).map_err(fail)?;
            m.resume(Box::new(source), &s.state).map_err(fail)?;
            s.content.each(&mut |page, _| {
                known.insert(page);
            });
        }
    }
    drop(start);
    let stepped = recording.has_steps(thread);
    // Where the present interval ends, and whether it is a short one.
    let (mut end, mut short) = (0, false);
    loop {
        let state = m.state();
        let from = state.position;
        let mut next = match borders.get(borders.partition_point(|b| *b <= from)) {
            Some(b) => *b,
            None if !borders.is_empty() => range.to,
            None if from < end => end,
            None => {
                // After a short interval comes one of the usual length. Otherwise a program that reads many files would
                // have short ones only.
                let usual = span.load(Relaxed);
                let its = match short {
                    true => usual,
                    false => first_or([&scan.given, &scan.restated], from, usual),
                };
                short = its < usual;
                from.saturating_add(its)
            }
        };
        end = next.min(range.to);
        if stepped {
            let step = (span.load(Relaxed) / STEPS).max(1);
            next = next.min(from.saturating_add(step));
        }
        let stop = m.run_to(next.min(range.to));
        let done = m.position();
        let more = match stop {
            Ok(Stop::Position | Stop::Break) => done < range.to,
            Ok(_) => false,
            // The code is missing because the trace is cut.
            Err(hindsight_replay::Error::MissingCode { .. })
                if recording.trace.completeness() != hindsight_trace::Completeness::Complete =>
            {
                false
            }
            Err(e) => return Err(fail(e)),
        };
        let mut raw = spare.try_recv().unwrap_or_default();
        harvest(&mut m, state, &mut known, &mut raw).map_err(fail)?;
        raw.last = !more || done >= end;
        let between = |all: &[(u64, u64, u64)]| {
            let first = |n| all.partition_point(|z| z.0 < n);
            first(from)..first(done)
        };
        // Each page is sent once, however often it changed: only its content at the end matters.
        let mut told = HashSet::new();
        for (_, addr, len) in &scan.zeros[between(&scan.zeros)] {
            renew(&m, &known, (*addr, *len), &mut told, &mut raw.changed);
        }
        let restated = &scan.restated[between(&scan.restated)];
        for (_, addr, len) in scan.given[between(&scan.given)].iter().chain(restated) {
            take(&m, &mut known, (*addr, *len), &mut told, &mut raw.changed);
        }
        if send.send(raw).is_err() {
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

/// Takes the access marks, with the contents of the marked lines.
fn harvest(
    m: &mut Machine,
    state: State,
    known: &mut PageSet,
    raw: &mut Raw,
) -> std::result::Result<(), hindsight_replay::Error> {
    raw.to = m.position();
    raw.state = Some(state);
    raw.pages.clear();
    raw.marks.clear();
    raw.cells.clear();
    raw.changed.clear();
    m.take_marks(&mut |page, lines, marks, cells| {
        raw.pages.push((page, lines));
        known.insert(page);
        let cells = cells.as_chunks::<LINE>().0;
        for i in bits(lines) {
            raw.marks.push(marks[i]);
            raw.cells.push(cells[i]);
        }
    })
}

/// Adds what known pages of a range hold now.
fn renew(
    m: &Machine,
    known: &PageSet,
    (addr, len): (u64, u64),
    told: &mut HashSet<u32>,
    changed: &mut Vec<(u32, Box<Page>)>,
) {
    let first = addr / PAGE as u64;
    let last = addr.saturating_add(len).div_ceil(PAGE as u64);
    let mut one = |page: u32| {
        if !told.insert(page) {
            return;
        }
        let mut now = Box::new([0; PAGE]);
        m.read_window(page as u64 * PAGE as u64, &mut now[..]);
        changed.push((page, now));
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

/// Adds what a range holds now. Its pages are known from then on. Zero pages that were not known are left out.
fn take(
    m: &Machine,
    known: &mut PageSet,
    (addr, len): (u64, u64),
    told: &mut HashSet<u32>,
    changed: &mut Vec<(u32, Box<Page>)>,
) {
    let mut now = [0; PAGE];
    for number in addr / PAGE as u64..addr.saturating_add(len).div_ceil(PAGE as u64) {
        let page = number as u32 & 0xf_ffff;
        if !told.insert(page) {
            continue;
        }
        m.read_window(number * PAGE as u64, &mut now);
        if now != [0; PAGE] || known.contains(page) {
            known.insert(page);
            changed.push((page, Box::new(now)));
        }
    }
}

/// Makes intervals from what the replay sends.
struct Packer<'a> {
    part: Draft,
    /// What pages held when they were last accessed or changed.
    shadow: HashMap<u32, Box<Page>>,
    /// The lines of a frame while it is made. Then the differences.
    bodies: Vec<u8>,
    differences: Vec<u8>,
    size: u64,
    budget: &'a Budget,
    /// The claim on the budget.
    taken: u64,
    /// Instructions in the intervals to come.
    span: &'a AtomicU64,
    /// The state when intervals became longer: their number, the instructions done, and the size.
    longer: (usize, u64, u64),
    /// The steps of the present interval, if it is made in steps.
    steps: Option<Gathered>,
    /// Takes the sections of intervals.
    stream: Option<&'a mut Stream>,
    /// Sorts accesses by page meanwhile. Only for a part that is made in one stretch.
    generating: Option<Generating>,
}

impl Packer<'_> {
    fn run(&mut self, raws: &Receiver<Raw>, used: &SyncSender<Raw>, scan: &Scan) -> Result<()> {
        while let Ok(mut raw) = raws.recv() {
            let Some(state) = raw.state.take() else {
                continue;
            };
            let interval = match &mut self.steps {
                None => self.pack(state, &mut raw)?,
                Some(steps) => {
                    steps.add(state, &mut raw, scan, &mut self.shadow);
                    match raw.last {
                        true => steps.finish(raw.to, &mut self.shadow)?,
                        false => {
                            let _ = used.try_send(raw);
                            continue;
                        }
                    }
                }
            };
            let _ = used.try_send(raw);
            if let Some(stream) = &mut self.stream {
                interval.sections().for_each(|s| stream.put(s));
            }
            self.size += interval.size() as u64;
            let done = interval.to;
            self.part.intervals.push(interval);
            let n = self.part.intervals.len();
            let foreseen = self.foreseen(done);
            let wanted = match foreseen[0] {
                0.0 if done < self.part.to => self.taken,
                all => self.size.max(all as u64),
            };
            let (taken, mine) = self.budget.claim(self.taken, wanted, self.size);
            self.taken = taken;
            let over = |size: f64| n > 1 && size > mine as f64;
            if !over(self.size as f64) && !over(foreseen[0]) {
                self.say_by_page(done)?;
                continue;
            }
            // If longer intervals from here on suffice, those that are made need not be joined.
            if over(self.size as f64) || over(foreseen[1]) {
                self.part.thin(scan, self.steps.is_some())?;
                // The sections were about the old intervals.
                self.generating = self.generating.as_ref().map(|_| Generating::default());
                self.size = self.part.size() as u64;
                if let Some(stream) = &mut self.stream {
                    stream.again();
                    let sections = self.part.intervals.iter().flat_map(Interval::sections);
                    sections.for_each(|s| stream.put(s));
                }
            }
            let span = self.span.load(Relaxed);
            self.span.store(span.saturating_mul(2), Relaxed);
            self.longer = (self.part.intervals.len(), done, self.size);
        }
        if let Some(generating) = &mut self.generating {
            self.part.generations = generating.finish()?;
        }
        Ok(())
    }

    /// Lets another thread sort by page what the intervals made so far accessed.
    fn say_by_page(&mut self, done: u64) -> Result<()> {
        let Some(generating) = &mut self.generating else {
            return Ok(());
        };
        let part = &self.part;
        let share = (done - part.from) as f64 / (part.to - part.from).max(1) as f64;
        let mut histories = part.intervals.iter().map(|i| Arc::clone(&i.history));
        generating.add(&mut histories, part.intervals.len(), share)
    }

    /// The predicted size of the whole index: first with intervals as they are, then with longer ones from here on. 0:
    /// it is too early to say. With a prediction, few intervals are made that must be joined later.
    fn foreseen(&self, done: u64) -> [f64; 2] {
        let (intervals, from, size) = self.longer;
        let enough = ENOUGH.min((self.part.to - self.part.from) / 8);
        if self.part.intervals.len() < intervals + FORESEE || done - from < enough {
            return [0.0; 2];
        }
        let rate = (self.size - size) as f64 / (done - from).max(1) as f64;
        let rest = (self.part.to - done) as f64 * rate;
        [1.0, LONGER].map(|share| self.size as f64 + rest * share)
    }

    /// Packs an interval: the frame with the lines that were read, as they were at the start; the history; the summary.
    fn pack(&mut self, state: State, raw: &mut Raw) -> Result<Interval> {
        let mut summary = Maker::default();
        summary.bytes = std::mem::take(&mut self.differences);
        summary.bytes.clear();
        let mut history = History::of(raw.pages.len());
        let mut framed = Vec::new();
        let bodies = &mut self.bodies;
        bodies.clear();
        let mut at = 0;
        for (page, lines) in raw.pages.iter().copied() {
            let n = lines.count_ones() as usize;
            let (marks, cells) = (&raw.marks[at..at + n], &raw.cells[at..at + n]);
            at += n;
            let mut touched = PageAccess::of(page, lines, marks);
            let old = self.shadow.entry(page);
            let old = old.or_insert_with(|| Box::new([0; PAGE]));
            let mut wanted = 0u64;
            for i in bits(touched.reads) {
                let line = &old.as_chunks::<LINE>().0[i];
                if words(line).iter().fold(0, |all, w| all | w) != 0 {
                    wanted |= 1 << i;
                    bodies.extend_from_slice(line);
                }
            }
            framed.push((page, wanted));
            let rank = |i: usize| (lines & ((1 << i) - 1)).count_ones() as usize;
            summary.page(&mut touched, Some((wanted, &**old)), |i| FinalLine {
                masks: marks[rank(i)].last,
                bytes: cells[rank(i)],
            });
            for (i, now) in bits(lines).zip(cells) {
                old[i * LINE..(i + 1) * LINE].copy_from_slice(now);
            }
            history.push(&touched);
        }
        self.shadow.extend(raw.changed.drain(..));
        let interval = Interval {
            from: state.position,
            to: raw.to,
            frame: IndexFrame::made(&state, &framed, bodies, LEVEL)?,
            history: Arc::new(history),
            summary: summary.pack(LEVEL)?,
        };
        self.differences = summary.bytes;
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_from_the_shares_of_others() {
        let budget = Budget::new(1000, 100);
        let [a, b] = [60, 40].map(|n| budget.share(n));
        // A claim that is too large gets what is left. The other thread still has its share.
        let (a, mine) = budget.claim(a, 5000, 10);
        assert_eq!((a, mine), (600, 600));
        let (b, mine) = budget.claim(b, 300, 10);
        assert_eq!((b, mine), (300, 400));
        // What one thread gives back is free for another. What is used stays used.
        let (a, mine) = budget.claim(a, 5000, 10);
        assert_eq!((a, mine), (700, 700));
        assert_eq!(budget.claim(b, 5000, 20), (300, 300));
        assert_eq!(budget.claim(a, 5000, 800), (800, 700));
        assert_eq!(budget.claim(b, 5000, 20).1, 200);
    }

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
