//! Makes the index of a part: one thread replays it, another packs what each interval left.

use super::by_page::{Generating, Generations};
use super::codec::{LEVEL, LINE, PAGE, Page, bits};
use super::draft::{Draft, Interval};
use super::ends::{FinalLine, words};
use super::frame::Frame;
use super::history::History;
use super::maker::Maker;
use super::maker::STEPS;
use super::pages::PageSet;
use super::ranges::{PartRange, SPAN, span};
use super::sidecar::Stream;
use super::steps::{Gathered, Raw};
use super::touched::PageAccess;
use crate::model::error::replay;
use crate::recording::{Chunks, Recording};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_replay::{Lines, Machine, State, Stop};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Intervals from which the size of the whole is foreseen, and instructions, or an eighth of all if that is less: how a program
/// begins says little of the rest.
const FORESEE: usize = 8;
const ENOUGH: u64 = FORESEE as u64 * SPAN;
/// The size of intervals twice as long, compared with as many instructions in the shorter ones: rather too
/// much than too little (0.82 was measured, of sqlite).
const LONGER: f64 = 0.85;
/// Intervals that wait to be packed, besides the one that is packed and the one that is played. Each takes
/// little more memory than the program touched in it.
const WAITING: usize = 1;

/// Instructions of an interval at whose beginning so many bytes are laid out in memory.
const FIRST: u64 = 2 << 20;
const MUCH: u64 = 16 << 20;

/// Told how many instructions are done, answers whether to go on.
pub type Progress<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// Bytes that an index, or some parts of it, may have, and what those who make it have taken of them together. As long as nothing
/// is foreseen of a stretch, it has its share by instructions.
pub struct Budget {
    bytes: u64,
    instructions: u64,
    taken: AtomicU64,
}

impl Budget {
    /// So many bytes for so many instructions.
    pub fn new(bytes: u64, instructions: u64) -> Budget {
        Budget {
            bytes,
            instructions: instructions.max(1),
            taken: AtomicU64::new(bytes),
        }
    }

    /// No limit.
    pub fn unlimited() -> Budget {
        // Of which all that may be foreseen can be taken without an overflow.
        Budget::new(u64::MAX / 2, 1)
    }

    /// What nothing is foreseen of yet has so much of it.
    fn share(&self, instructions: u64) -> u64 {
        let share = instructions.min(self.instructions) as u128 * self.bytes as u128;
        (share / self.instructions as u128) as u64
    }

    /// One who had `before` of it wants so much, and has used `used`: what he has now, and how much he may use. Nobody takes more
    /// than is left, or the others would have to do with less than their share.
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

/// Where replay of a stretch of a part begins, unless that is the part's key frame.
pub struct Start {
    pub state: State,
    /// What the window holds.
    pub content: Lines,
}

/// Replays a part, or a stretch of one from `start` on, and makes its index, within a budget.
/// `borders`: where intervals begin; none: where they fit the budget. `whole`: there is nothing else of the part. `stream`: takes their sections as they are made.
#[expect(
    clippy::too_many_arguments,
    reason = "each is used once, by two callers"
)]
pub fn build(
    recording: &Arc<Recording>,
    place: PartRange,
    scan: &Scan,
    budget: &Budget,
    borders: &[u64],
    start: Option<Start>,
    whole: bool,
    stream: Option<&mut Stream>,
    progress: &Progress,
) -> Result<Draft> {
    let span = AtomicU64::new(span(recording, place.thread));
    let mut shadow = HashMap::new();
    if let Some(s) = &start {
        let mut put = |page, bytes: &Page| {
            shadow.insert(page, Box::new(*bytes));
        };
        s.content.each(&mut put);
    }
    let (send, receive) = sync_channel(WAITING);
    // What has been packed comes back, so that its memory is used again.
    let (give, spare) = sync_channel(WAITING + 2);
    let mut packer = Packer {
        part: Draft {
            thread: place.thread,
            from: place.from,
            to: place.to,
            intervals: Vec::new(),
            generations: Generations::default(),
        },
        generating: whole.then(Generating::default),
        shadow,
        bodies: Vec::new(),
        differences: Vec::new(),
        size: 0,
        budget,
        taken: budget.share(place.to - place.from),
        span: &span,
        longer: (0, place.from, 0),
        steps: recording.has_steps(place.thread).then(Gathered::default),
        stream,
    };
    std::thread::scope(|s| {
        let packed = s.spawn(move || {
            packer.run(&receive, &give, scan)?;
            Ok(packer.part)
        });
        let played = play(
            recording,
            place,
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
        // Where packing fails, playing ends without a failure of its own.
        played.and(packed)
    })
}

/// Replays a part, and sends what each interval leaves as long as somebody wants it.
fn play(
    recording: &Arc<Recording>,
    place: PartRange,
    scan: &Scan,
    (span, borders): (&AtomicU64, &[u64]),
    start: Option<Start>,
    (send, spare): (SyncSender<Raw>, Receiver<Raw>),
    progress: &Progress,
) -> Result<()> {
    let thread = place.thread;
    let fail = |e| replay(thread, e);
    let code = recording.code(recording.image(thread), thread)?;
    let mut m = Machine::observing_much(code).map_err(fail)?;
    let source = Chunks::new(recording, thread, place.chunk);
    // Pages of which the packer knows what they hold.
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
    // Where the interval at hand ends.
    let (mut end, mut short) = (0, false);
    loop {
        let state = m.state();
        let from = state.position;
        let mut next = match borders.get(borders.partition_point(|b| *b <= from)) {
            Some(b) => *b,
            None if !borders.is_empty() => place.to,
            None if from < end => end,
            None => {
                // One that is short is followed by one that is not, lest a program that goes through files has none else.
                let usual = span.load(Relaxed);
                let its = match short {
                    true => usual,
                    false => first_or([&scan.given, &scan.restated], from, usual),
                };
                short = its < usual;
                from.saturating_add(its)
            }
        };
        end = next.min(place.to);
        if stepped {
            let step = (span.load(Relaxed) / STEPS).max(1);
            next = next.min(from.saturating_add(step));
        }
        let stop = m.run_to(next.min(place.to));
        let done = m.position();
        let more = match stop {
            Ok(Stop::Position | Stop::Break) => done < place.to,
            Ok(_) => false,
            // What is missing at the end of a cut trace.
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
        // Told once, however often they changed: only what they hold in the end matters.
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

/// Instructions of an interval that would have `span`, with what the recording gives of memory: few where much is laid out in memory at its beginning, as a program's
/// file is. Who plays from there does that again each time, and then goes back through all of it.
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

/// Takes the marks, and what they are of.
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

/// Tells what the known pages of a range hold now.
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

/// Tells what a range holds now.
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

/// Makes intervals of what is told.
struct Packer<'a> {
    part: Draft,
    /// What pages held when they were last touched or changed.
    shadow: HashMap<u32, Box<Page>>,
    /// The lines of a frame, while it is made, and the differences.
    bodies: Vec<u8>,
    differences: Vec<u8>,
    size: u64,
    budget: &'a Budget,
    /// What of it this has.
    taken: u64,
    /// Instructions of the intervals to come.
    span: &'a AtomicU64,
    /// Since these became longer: how many intervals there were, what was done, and the size.
    longer: (usize, u64, u64),
    /// What the interval at hand left, if it is made in steps.
    steps: Option<Gathered>,
    /// Takes the sections of intervals.
    stream: Option<&'a mut Stream>,
    /// What intervals touched is sorted by page meanwhile, if they are all that there are of the part.
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
            // Where longer intervals from here on do, there is no need to join those that are made.
            if over(self.size as f64) || over(foreseen[1]) {
                self.part.thin(scan, self.steps.is_some())?;
                // They were about other intervals.
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

    /// Says of some intervals by page what they touched, while others are made.
    fn say_by_page(&mut self, done: u64) -> Result<()> {
        let Some(generating) = &mut self.generating else {
            return Ok(());
        };
        let part = &self.part;
        let share = (done - part.from) as f64 / (part.to - part.from).max(1) as f64;
        let mut histories = part.intervals.iter().map(|i| Arc::clone(&i.history));
        generating.add(&mut histories, part.intervals.len(), share)
    }

    /// The size that the whole will have, and with longer intervals from here on; 0 as long as nothing can be
    /// said. Foreseen, so that little is made in vain.
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

    /// Makes the frame of the lines that were read, as they were at the start, the history, and the ends.
    fn pack(&mut self, state: State, raw: &mut Raw) -> Result<Interval> {
        let mut ends = Maker::default();
        ends.bytes = std::mem::take(&mut self.differences);
        ends.bytes.clear();
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
            ends.page(&mut touched, Some((wanted, &**old)), |i| FinalLine {
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
            frame: Frame::made(&state, &framed, bodies, LEVEL)?,
            history: Arc::new(history),
            ends: ends.pack(LEVEL)?,
        };
        self.differences = ends.bytes;
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
        // One who foresees too much has what is left, and the other still his share.
        let (a, mine) = budget.claim(a, 5000, 10);
        assert_eq!((a, mine), (600, 600));
        let (b, mine) = budget.claim(b, 300, 10);
        assert_eq!((b, mine), (300, 400));
        // What one does without is for who needs it; what is used is used.
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
