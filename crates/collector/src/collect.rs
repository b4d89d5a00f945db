mod asked;
mod copied;
mod cut;
mod positions;
mod prune;
mod reap;
mod summons;

use crate::collected::{Collected, Requests};
use crate::commons::Commons;
use crate::images::Images;
use crate::lane::{Lane, MOST_HELD, Open};
use crate::locks::Locks;
use crate::modules::Modules;
use crate::output::Output;
use crate::{Control, futex};
use asked::Asking;
use hindsight_events::ring::{LEAST_ROOM, RING_BYTES, RINGS, unprivileged};
use hindsight_trace::files::Files;
use hindsight_trace::{Header, Ring, StreamId, StreamKind, Writer};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant, SystemTime};

/// Gathered events reach the file after this time at the latest.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Longest time between two looks at the rings. A ring that fills quickly wakes the collector
/// itself.
const NAP: Duration = Duration::from_millis(50);

/// The first of these times. A program that has just begun loads its libraries. Taking these into
/// the trace should not be left for the program's end.
const FIRST_NAP: Duration = Duration::from_millis(1);

/// Time between two searches for producers that died without saying so.
const REAP_EVERY: Duration = Duration::from_millis(200);

/// Bytes. If the rings take more memory, what was read is given back at once. Otherwise it is kept,
/// since memory that was touched is quicker to write to. The same limit applies to what the
/// collector has gathered from the rings.
const BUDGET: u64 = 256 << 20;

/// After emptying this many rings, memory is looked at again.
const SOME: usize = 64;

/// Time between two looks when the program has ended, and others may end at any moment.
const LAST_NAP: Duration = Duration::from_millis(3);

/// The most messages about memory that the program has overwritten.
const MOST_TOLD: usize = 10;

/// When state points are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatePoints {
    /// Each time this time has passed.
    Every(Duration),
    /// Each time a thread has had this many events. It may have had some more by then.
    Events(u64),
    /// Before calls that make a thread or a process, execute a program, or map or unmap much. The recorder sees to these.
    Calls,
}

/// Moves events from the rings to a trace.
pub struct Collector<'c, W: Write> {
    control: &'c Control,
    /// When the recording was started.
    origin: Instant,
    /// The rings that were ever taken, by number.
    lanes: Vec<Lane>,
    /// Rings that had something in them at the last look.
    hot: Vec<usize>,
    /// Threads are to have key frames.
    has_keyframes: bool,
    /// When threads are asked for state points.
    state_points: Option<StatePoints>,
    /// When threads were last asked for one.
    asked_for_states: Instant,
    /// When the sink was last flushed.
    flushed: Instant,
    /// When it was last looked which threads have not come to the recorder for long.
    summoned: Instant,
    /// Images, their processes, and when these began, in clock ticks. They were seen to have the
    /// control file.
    ours: HashSet<(u32, i32, u64)>,
    /// When all rings were last looked at.
    looked: Instant,
    /// A time before that look. Rings that are new since then had nothing in them.
    vacant: Instant,
    /// The rings take much memory.
    thrifty: bool,
    images: Images,
    next_stream: StreamId,
    /// Number of processes that are about to be made, and since when it is that number.
    unborn: (u32, Instant),
    /// Images that have begun by `execve`, while the former streams of their processes are not all
    /// closed: parent and process id.
    begun: HashSet<(u32, i32)>,
    /// Processes that have executed a program and should appear again, and since when.
    expected: HashMap<i32, Instant>,
    /// Processes that have executed another program, as former image and process id. Their former
    /// threads exist no more.
    replaced: Vec<(u32, i32)>,
    reaped: Instant,
    /// When a ring last removed code that nothing needs any more.
    pruned: Instant,
    locks: Locks,
    modules: Modules,
    commons: Commons,
    /// Files of which the user was told that their content could not be read.
    missed: HashSet<Vec<u8>>,
    requests: Requests,
    /// A mark that somebody outside asks for.
    asking: Option<Asking>,
    out: Collected<W>,
    tell: Box<dyn Fn(&str) + Send + 'c>,
    /// How many times the user was told that the program has overwritten memory.
    told: usize,
    /// The program's process, as its recorder said at first. 0: not yet known.
    program: i32,
}

impl<'c, W: Write> Collector<'c, W> {
    /// Begins a trace with `header`. `tell` shows a message to the user. Fails if the header cannot
    /// be written.
    pub fn new(
        control: &'c Control,
        sink: W,
        header: &Header,
        tell: impl Fn(&str) + Send + 'c,
    ) -> io::Result<Collector<'c, W>> {
        let output = Output::trace(Writer::new(sink, header)?);
        Ok(Collector::with(control, output, header, tell))
    }

    /// Makes the trace share the content of files with other traces in its folder.
    pub fn share(mut self, files: Files) -> Collector<'c, W> {
        if let Some(Output::Trace(writer)) = &mut self.out.output {
            writer.share(files);
        }
        self
    }

    /// Makes the trace copy the content of files from `files`, where it is packed already.
    pub fn copy_from(mut self, files: Files) -> Collector<'c, W> {
        if let Some(Output::Trace(writer)) = &mut self.out.output {
            writer.copy_from(files);
        }
        self
    }

    /// Asks quiet threads for state points.
    pub fn state_points(mut self, when: Option<StatePoints>) -> Collector<'c, W> {
        self.state_points = when;
        self.has_keyframes |= when.is_some();
        self
    }

    /// Keeps the latest part of the recording in `ring` (see [`Collected::held`]).
    pub fn circular(
        control: &'c Control,
        ring: Ring,
        tell: impl Fn(&str) + Send + 'c,
    ) -> Collector<'c, W> {
        let header = ring.header().clone();
        Collector::with(control, Output::ring(ring), &header, tell)
    }

    fn with(
        control: &'c Control,
        mut output: Output<W>,
        header: &Header,
        tell: impl Fn(&str) + Send + 'c,
    ) -> Collector<'c, W> {
        control.take_consumers();
        if let Output::Ring(ring) = &mut output {
            let interval = ring.interval().unwrap_or(0);
            control.header().interval.store(interval, Relaxed);
        }
        let origin = origin(header);
        Collector {
            control,
            origin,
            lanes: Vec::new(),
            hot: Vec::new(),
            has_keyframes: header.keyframe_interval != 0,
            state_points: None,
            asked_for_states: Instant::now(),
            flushed: Instant::now(),
            summoned: Instant::now(),
            ours: HashSet::new(),
            looked: Instant::now(),
            vacant: origin,
            thrifty: false,
            images: Images::default(),
            next_stream: 1,
            unborn: (0, Instant::now()),
            begun: HashSet::new(),
            expected: HashMap::new(),
            replaced: Vec::new(),
            reaped: Instant::now(),
            pruned: Instant::now(),
            locks: Locks::default(),
            modules: Modules::default(),
            commons: Commons::default(),
            missed: HashSet::new(),
            requests: Requests::default(),
            asking: None,
            out: Collected::new(output),
            tell: Box::new(tell),
            told: 0,
            program: 0,
        }
    }

    /// A way to ask for what the ring holds.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Collects until all recorded processes have ended, or until `stop` is set. Whoever sees the
    /// program end sets `ended` and calls [`Control::wake`].
    pub fn run(mut self, ended: &AtomicBool, stop: &AtomicBool) -> Collected<W> {
        let header = self.control.header();
        let mut nap = FIRST_NAP;
        let mut over = None;
        loop {
            // Before the rings are emptied: so what the processes wrote before they ended is seen.
            let last = ended.load(Acquire);
            let left = last && self.control.is_left();
            let stopped = stop.load(Acquire);
            let seen = header.wake.load(Acquire);
            header.sleeping.store(0, Relaxed);
            if header.unprivileged.load(Acquire) == unprivileged::SAID {
                self.out.unprivileged = true;
                header.unprivileged.store(unprivileged::NOTED, Release);
            }
            let before = Instant::now();
            let all = last || stopped || before - self.looked >= nap;
            let busiest = self.look(all, stop);
            self.bury();
            self.take_locks();
            let now = Instant::now();
            if last || now - self.reaped >= REAP_EVERY {
                self.reap(now, last && over.is_none());
            }
            if stopped || left || last && !self.more(now, *over.get_or_insert(now)) {
                break;
            }
            if all {
                (self.looked, self.vacant) = (now, before);
                self.control.inspect();
                self.economise();
                self.flush(now);
                self.prune(now, stop);
                self.ask_for_states(now);
                self.summon_still(now, stop);
            }
            self.answer(stop);
            self.serve_mark(now, stop);
            // A ring that is this full has more by now.
            if busiest >= RING_BYTES / 4 {
                continue;
            }
            header.sleeping.store(1, SeqCst);
            let soon = over.is_some_and(|o| now - o < FLUSH_AFTER) || self.asking.is_some();
            futex::wait(&header.wake, seen, if soon { LAST_NAP } else { nap });
            nap = (nap * 9 / 8).min(NAP);
        }
        for i in 0..self.lanes.len() {
            self.close(i, true);
        }
        // Whoever still asks learns by the end of the recording that there is no answer.
        self.requests.take();
        self.out
    }

    /// Empties the rings that want it, or all of them. Returns the most bytes that one ring had.
    /// Ends early if `stop` is set.
    fn look(&mut self, all: bool, stop: &AtomicBool) -> usize {
        if let Some(inbox) = self.control.files() {
            self.modules.receive(inbox);
        }
        let header = self.control.header();
        let mut sets = [0u64; RINGS / 64];
        for ((set, dirty), live) in sets.iter_mut().zip(&header.dirty).zip(&header.live) {
            *set = if all { live.load(Acquire) } else { 0 };
            if dirty.load(Relaxed) != 0 {
                *set |= dirty.swap(0, AcqRel);
            }
        }
        let open = (0..self.lanes.len()).filter(|i| all && self.lanes[*i].open.is_some());
        for i in std::mem::take(&mut self.hot).into_iter().chain(open) {
            sets[i / 64] |= 1 << (i % 64);
        }
        let mut busiest = 0;
        // The program may have overwritten the sets.
        for i in members(&sets).take_while(|i| *i < self.control.rings()) {
            if stop.load(Relaxed) {
                break;
            }
            let n = self.drain(i);
            if n > 0 {
                self.hot.push(i);
                if self.hot.len().is_multiple_of(SOME) {
                    self.economise();
                }
            }
            busiest = busiest.max(n);
        }
        busiest
    }

    /// Asks for state points, if they are due.
    fn ask_for_states(&mut self, now: Instant) {
        let Some(when) = self.state_points else {
            return;
        };
        let passed = match when {
            StatePoints::Every(time) => now - self.asked_for_states >= time,
            StatePoints::Events(_) | StatePoints::Calls => false,
        };
        if passed {
            self.asked_for_states = now;
        }
        for lane in &mut self.lanes {
            let Some(o) = &mut lane.open else { continue };
            let enough = matches!(when, StatePoints::Events(n) if o.events - o.asked >= n);
            if (passed || enough) && o.info.kind == StreamKind::Thread && o.end.is_none() {
                o.asked = o.events;
                lane.owes_state = true;
            }
        }
        // A thread whose last key frame is not yet in the stream would have to wait.
        let ready = |l: &&mut Lane| l.owes_state && l.held.is_none();
        self.lanes.iter_mut().filter(ready).for_each(|l| {
            l.owes_state = false;
            l.consumer.want_state();
        });
    }

    /// Takes locks from threads that cannot give them back.
    fn take_locks(&mut self) {
        for taken in self.locks.look(self.control) {
            if let Some(out) = &mut self.out.output
                && let Err(e) = out.taken(&taken)
            {
                self.fail(e);
            }
        }
    }

    /// Makes sure that neither the rings nor what was gathered from them take much more memory than
    /// [`BUDGET`].
    fn economise(&mut self) {
        self.thrifty = self.control.memory() > BUDGET;
        let taken = self.lanes.iter().filter(|l| l.open.is_some()).count();
        let room = BUDGET as usize / taken.max(1);
        let room = room.clamp(LEAST_ROOM, RING_BYTES);
        self.control.header().room.store(room as u32, Relaxed);
        let held = self.lanes.iter().filter(|l| l.held.is_some()).count();
        let share = (BUDGET as usize / held.max(1)).min(MOST_HELD);
        self.lanes.iter_mut().for_each(|l| l.most_held = share);
        if self.lanes.iter().map(Lane::memory).sum::<usize>() as u64 > BUDGET {
            for i in 0..self.lanes.len() {
                self.write(i);
                self.lanes[i].shrink();
            }
        }
    }

    /// Writes what was gathered for long enough. Somebody may travel in the trace while it grows.
    fn flush(&mut self, now: Instant) {
        let ripe = |o: &Open| o.builder.events() > 0 && now - o.oldest >= FLUSH_AFTER;
        let written = (self.lanes.iter()).any(|l| l.open.as_ref().is_some_and(ripe));
        if written || now - self.flushed >= FLUSH_AFTER {
            self.flush_all(written, now);
        }
    }

    /// Writes all that was gathered if there is `more`, and has it reach the file.
    fn flush_all(&mut self, more: bool, now: Instant) {
        // All at once: a thread's accesses say little without those of the others at the same time.
        for i in (0..self.lanes.len()).filter(|_| more) {
            self.write(i);
        }
        self.flushed = now;
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.flush()
        {
            self.fail(e);
        }
    }

    /// Tells those who ask what the ring holds, and asks threads for the key frames that it needs.
    fn answer(&mut self, stop: &AtomicBool) {
        let waiting = self.requests.take();
        if !waiting.is_empty() {
            self.locate(stop);
            (0..self.lanes.len()).for_each(|i| self.write(i));
        }
        let Some(Output::Ring(ring)) = &mut self.out.output else {
            return;
        };
        ring.trim();
        let interval = ring.interval().unwrap_or(0);
        self.control.header().interval.store(interval, Relaxed);
        let wishes = ring.take_wishes();
        let carried = |l: &Lane| l.open.as_ref().map(|o| o.info.stream);
        for lane in &self.lanes {
            if carried(lane).is_some_and(|s| wishes.contains(&s)) {
                lane.consumer.want_keyframe();
            }
        }
        if waiting.is_empty() {
            return;
        }
        let open = |l: &Lane| Some(l.open.as_ref()?.summary(&l.consumer.counts(), false));
        let live: Vec<_> = self.lanes.iter().filter_map(open).collect();
        for answer in waiting {
            // If the one that asked is gone, that does not matter.
            let _ = answer.send(ring.snapshot(live.clone(), true));
        }
    }
}

/// The instant at which the recording was started. The header has it as time of day.
fn origin(header: &Header) -> Instant {
    let now = Instant::now();
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(header.started_ms);
    // The clock may have been set. No recording is an hour old when its collection begins.
    let age = SystemTime::now().duration_since(started).ok();
    let age = age.filter(|a| *a < Duration::from_secs(3600));
    age.and_then(|a| now.checked_sub(a)).unwrap_or(now)
}

/// The numbers of the bits that are set.
fn members(words: &[u64]) -> impl Iterator<Item = usize> {
    let each = |(w, set): (usize, u64)| {
        (0..64)
            .filter(move |b| set >> b & 1 != 0)
            .map(move |b| w * 64 + b)
    };
    let words = words.iter().copied().enumerate();
    words.filter(|(_, set)| *set != 0).flat_map(each)
}
