//! Replays what is asked for, in the order of time.

use crate::bounds::Bounds;
use crate::clock::Stretch;
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::tables::instant;
use hindsight_timeline::{Cancel, Executed, Run, Runs, Taken, ThreadId, Walk, Walked};

/// This many threads have a virtual processor at the same time.
const PLAYED: usize = 8;
/// This many instructions of a thread are visited one by one. A walk begins sooner than the log of runs, and goes on slower.
const FEW: u64 = 20_000;

/// An instruction, when it was executed, and where.
pub struct Step<'a, 'b> {
    pub stretch: &'a Stretch,
    pub time: i64,
    pub walked: &'a Walked<'b>,
}

/// Gets a stretch, and the instruction counts between which its instants lie within the bounds.
type Visit<'a> = dyn FnMut(&Stretch, (u64, u64)) -> Result<(), Stop> + 'a;

/// Visits the stretches of threads that lie within the bounds, in the order of time, each with the instants that do.
fn stretches(r: &Recording, bounds: &Bounds, visit: &mut Visit) -> Result<(), Stop> {
    let clock = r.clock()?;
    let times = bounds.numbers("time");
    if times.is_empty() {
        return Ok(());
    }
    let bound = |n: i128| n.clamp(0, clock.end().into()) as i64;
    let (lo, hi) = (bound(*times.start()), bound(*times.end()).saturating_add(1));
    for stretch in clock.stretches().iter().skip(clock.first_at(lo)) {
        if stretch.time >= hi {
            break;
        }
        let s = &stretch.segment;
        let image = r.image(s.thread)?;
        if !bounds.has("thread", s.thread.0) || !bounds.has("process", image) {
            continue;
        }
        let count = |time: i64| s.from + (time - stretch.time).clamp(0, stretch.len()) as u64;
        let counts = bounds.numbers("count");
        let clamped = |n: i128| n.clamp(s.from.into(), s.to.into()) as u64;
        let from = count(lo).max(clamped(*counts.start()));
        let until = count(hi).min(clamped(counts.end().saturating_add(1)));
        if from < until {
            visit(stretch, (from, until))?;
        }
    }
    Ok(())
}

/// What plays threads. Those that were played lately are kept.
struct Pool<T>(Vec<(ThreadId, T)>);

impl<T> Pool<T> {
    fn get(
        &mut self,
        thread: ThreadId,
        make: impl FnOnce() -> Result<T, Stop>,
    ) -> Result<&mut T, Stop> {
        let at = match self.0.iter().position(|w| w.0 == thread) {
            Some(at) => at,
            None => {
                self.0.truncate(PLAYED - 1);
                self.0.insert(0, (thread, make()?));
                0
            }
        };
        self.0[..=at].rotate_right(1);
        Ok(&mut self.0[0].1)
    }
}

/// Lets a visitor that may fail stop what calls it, and gives its failure back.
#[derive(Default)]
struct Stopped(Option<Stop>);

impl Stopped {
    fn goes_on(&mut self, done: Result<(), Stop>) -> bool {
        self.0 = done.err();
        self.0.is_none()
    }

    fn done(self) -> Result<(), Stop> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Visits the instructions that lie within the bounds, in the order of time, with what they access.
pub fn each(
    r: &Recording,
    bounds: &Bounds,
    out: &mut Rows,
    visit: &mut dyn FnMut(&mut Rows, &Step) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut walks = Pool(Vec::new());
    stretches(r, bounds, &mut |stretch, range| {
        let thread = stretch.segment.thread;
        let walk = walks.get(thread, || {
            Ok(r.timeline.walk(thread, out.cancel.clone())?)
        })?;
        let mut stopped = Stopped::default();
        walk.run(range, true, &mut |walked| {
            let step = Step {
                stretch,
                time: stretch.at(walked.count),
                walked,
            };
            stopped.goes_on(visit(out, &step))
        })?;
        stopped.done()
    })
}

/// Code that a thread executed, and when.
pub struct Piece<'a> {
    pub stretch: &'a Stretch,
    /// The thread's program image.
    pub image: u32,
    /// The kernel let the thread go on at the first instruction: the one before did not lead there.
    pub entered: bool,
    code: Code<'a>,
}

enum Code<'a> {
    Logged(&'a Executed<'a>),
    /// That of the only instruction.
    Walked(&'a [u8]),
}

/// Bytes of the longest run.
pub const LONGEST: usize = 15 * 128;

impl Piece<'_> {
    /// The bytes of a run, as far as they are known, and perhaps some that follow.
    pub fn code<'b>(&'b self, run: Run, buf: &'b mut [u8; LONGEST]) -> &'b [u8] {
        let most = (15 * run.instructions() as usize).min(LONGEST);
        match self.code {
            Code::Logged(e) => {
                let n = e.code(run.pc(), &mut buf[..most]);
                &buf[..n]
            }
            Code::Walked(bytes) => bytes,
        }
    }

    /// What says whether code has changed. `None`: nothing does.
    pub fn logged(&self) -> Option<&Executed<'_>> {
        match self.code {
            Code::Logged(e) => Some(e),
            Code::Walked(_) => None,
        }
    }
}

/// What plays a thread for [`each_run`].
struct Tape {
    walk: Walk,
    walked: u64,
    runs: Runs,
}

impl Tape {
    fn new(r: &Recording, thread: ThreadId, cancel: &Cancel) -> Result<Tape, Stop> {
        Ok(Tape {
            walk: r.timeline.walk(thread, cancel.clone())?,
            walked: 0,
            runs: r.timeline.runs(thread, cancel.clone())?,
        })
    }

    fn play(
        &mut self,
        (from, until): (u64, u64),
        few: u64,
        shown: (&Stretch, u32),
        visit: &mut impl FnMut(&Piece, u64, Run) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let (stretch, image) = shown;
        let middle = until.min(from + few.saturating_sub(self.walked));
        let mut stopped = Stopped::default();
        self.walk.run((from, middle), false, &mut |walked| {
            let piece = Piece {
                stretch,
                image,
                entered: walked.entered,
                code: Code::Walked(walked.code),
            };
            let done = match Run::alone(walked.pc) {
                Some(run) => visit(&piece, walked.count, run),
                None => Err(too_far(walked.pc)),
            };
            stopped.goes_on(done)
        })?;
        self.walked += middle - from;
        stopped.done()?;
        if middle == until {
            return Ok(());
        }
        let mut stopped = Stopped::default();
        self.runs.play((middle, until), |e, taken: &mut Taken| {
            let mut piece = Piece {
                stretch,
                image,
                entered: !e.entries.is_empty(),
                code: Code::Logged(e),
            };
            let mut count = e.count;
            for run in taken {
                let done = visit(&piece, count, run);
                if done.is_err() {
                    return stopped.goes_on(done);
                }
                piece.entered = false;
                count += run.instructions();
            }
            true
        })?;
        stopped.done()
    }
}

fn too_far(pc: u64) -> Stop {
    anyhow::anyhow!("code at {pc:#x} is too far up to be listed: addresses may have 48 bits").into()
}

/// Visits the runs of instructions that lie within the bounds, in the order of time: each with the number of instructions that
/// the thread had completed before.
pub fn each_run(
    r: &Recording,
    bounds: &Bounds,
    out: &mut Rows,
    mut visit: impl FnMut(&mut Rows, &Piece, u64, Run) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut tapes = Pool(Vec::new());
    stretches(r, bounds, &mut |stretch, range| {
        let thread = stretch.segment.thread;
        let image = r.image(thread)?;
        let tape = tapes.get(thread, || Tape::new(r, thread, &out.cancel))?;
        tape.play(range, FEW, (stretch, image), &mut |piece, count, run| {
            visit(out, piece, count, run)
        })
    })
}

/// The address of the instruction that a thread executes when it has completed so many. `None`: nobody knows, or the kernel let
/// the thread go on there.
pub fn next_pc(
    r: &Recording,
    out: &Rows,
    thread: ThreadId,
    count: u64,
) -> Result<Option<u64>, Stop> {
    let mut next = None;
    let mut walk = r.timeline.walk(thread, out.cancel.clone())?;
    walk.run((count, count + 1), false, &mut |w| {
        next = (w.count == count && !w.entered).then_some(w.pc);
        false
    })?;
    Ok(next)
}

/// Splits the times that are asked for into parts of the same length.
pub fn split(r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
    let Ok(clock) = r.clock() else {
        return vec![bounds.clone()];
    };
    let times = bounds.numbers("time");
    let lo = (*times.start()).max(0);
    let hi = (*times.end()).min(clock.end().into());
    let parts = (most as i128).min((hi - lo) / LEAST).max(1);
    let border = |n: i128| lo + (hi + 1 - lo) * n / parts;
    (0..parts)
        .map(|n| {
            let mut part = bounds.clone();
            if parts > 1 {
                part.limit("time", border(n)..=border(n + 1) - 1);
            }
            part
        })
        .collect()
}

/// A part has at least this many instructions. Its beginning must be found first.
const LEAST: i128 = 10_000_000;

/// Fills the first six columns: position, time, thread, process, count, pc.
pub fn place(r: &Recording, out: &mut Rows, e: &Step) -> Result<(), Stop> {
    let (s, count) = (&e.stretch.segment, e.walked.count);
    instant(r, out, s.position(count), e.time, (s.thread, count))?;
    out.uint(5, e.walked.pc);
    Ok(())
}
