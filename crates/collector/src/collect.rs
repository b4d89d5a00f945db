use crate::collected::{Collected, MappedFile, Refusal, Requests};
use crate::lane::{Lane, Open, is_image};
use crate::locks::Locks;
use crate::modules::Modules;
use crate::output::{self, Output};
use crate::{Control, alive, futex};
use hindsight_events::ring::{LEAST_ROOM, RING_BYTES, RINGS, kind, state};
use hindsight_events::{EndKind, Event};
use hindsight_trace::{
    ChunkBuilder, Header, Pushed, Ring, StreamId, StreamInfo, StreamKind, Writer,
};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// What has been gathered reaches the file after this time at the latest.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Longest time between looks at the rings: rings that fill quickly wake the collector by
/// themselves.
const NAP: Duration = Duration::from_millis(50);

/// First of these times. A program that has just begun loads its libraries, and taking those
/// into the trace should not be left for its end.
const FIRST_NAP: Duration = Duration::from_millis(1);

/// Time between searches for producers that died without a word.
const REAP_EVERY: Duration = Duration::from_millis(200);

/// A ring is idle for this long before its producer is looked after.
const IDLE: Duration = Duration::from_millis(300);

/// A ring is claimed for this long before its producer is looked after: a child may have to put
/// its own process id in the place of its parent's, which is gone.
const CLAIM: Duration = Duration::from_secs(2);

/// Memory of the rings from which on what has been read is given back at once. Below, memory that has
/// been touched is quicker to write to.
const BUDGET: u64 = 256 << 20;

/// Longest time to wait, when the program has ended, for processes to appear that it made.
const NEWBORN: Duration = Duration::from_secs(2);

/// Longest time, when the program has ended, that a silent process is waited for of which is not
/// known whether it lives.
const UNKNOWN: Duration = Duration::from_secs(3);

/// Bit of `prot` in [`Event::Map`].
const PROT_EXEC: u32 = 4;

/// Moves events from the rings to a trace.
pub struct Collector<'c, W: Write> {
    control: &'c Control,
    /// The rings that have ever been taken, by number.
    lanes: Vec<Lane>,
    /// Rings with something in them at the last look.
    hot: Vec<usize>,
    /// When all rings were last looked at.
    looked: Instant,
    /// The rings take much memory.
    thrifty: bool,
    /// The ring that carries each image's mappings and code.
    images: HashMap<u32, usize>,
    next_stream: StreamId,
    /// Processes that are about to be made, and since when as many.
    unborn: (u32, Instant),
    /// Images that processes have left for programs which are not recorded, as (image, process id).
    left: HashSet<(u32, i32)>,
    /// Images that began, as (parent, process id).
    begun: HashSet<(u32, i32)>,
    /// Processes that executed a program and should appear again, and since when.
    expected: HashMap<i32, Instant>,
    /// Processes that executed another program, as (former image, process id): their former
    /// threads are no more.
    replaced: Vec<(u32, i32)>,
    reaped: Instant,
    locks: Locks,
    modules: Modules,
    requests: Requests,
    out: Collected<W>,
    tell: Box<dyn Fn(&str) + Send + 'c>,
}

impl<'c, W: Write> Collector<'c, W> {
    /// Begins a trace with `header`. `tell` shows a message to the user.
    pub fn new(
        control: &'c Control,
        sink: W,
        header: &Header,
        tell: impl Fn(&str) + Send + 'c,
    ) -> io::Result<Collector<'c, W>> {
        let output = Output::trace(Writer::new(sink, header)?);
        Ok(Collector::with(control, output, tell))
    }

    /// Keeps the latest part of the recording in `ring`; see [`Collected::held`].
    pub fn circular(
        control: &'c Control,
        ring: Ring,
        tell: impl Fn(&str) + Send + 'c,
    ) -> Collector<'c, W> {
        Collector::with(control, Output::ring(ring), tell)
    }

    fn with(
        control: &'c Control,
        output: Output<W>,
        tell: impl Fn(&str) + Send + 'c,
    ) -> Collector<'c, W> {
        control.take_consumers();
        Collector {
            control,
            lanes: Vec::new(),
            hot: Vec::new(),
            looked: Instant::now(),
            thrifty: false,
            images: HashMap::new(),
            next_stream: 1,
            unborn: (0, Instant::now()),
            left: HashSet::new(),
            begun: HashSet::new(),
            expected: HashMap::new(),
            replaced: Vec::new(),
            reaped: Instant::now(),
            locks: Locks::default(),
            modules: Modules::default(),
            requests: Requests::default(),
            out: Collected::new(output),
            tell: Box::new(tell),
        }
    }

    /// A way to ask for what the ring holds.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Collects until `ended` is set (by whoever saw the program end, who then calls
    /// [`Control::wake`]) and all other recorded processes have ended too, or until `stop` is set.
    pub fn run(mut self, ended: &AtomicBool, stop: &AtomicBool) -> Collected<W> {
        let header = self.control.header();
        let mut nap = FIRST_NAP;
        let mut over = None;
        loop {
            // Before the drain: what the process wrote before it ended is then seen.
            let last = ended.load(Acquire);
            let stopped = stop.load(Acquire);
            let seen = header.wake.load(Acquire);
            header.sleeping.store(0, Relaxed);
            let now = Instant::now();
            let all = last || stopped || now - self.looked >= nap;
            let busiest = self.look(all);
            self.bury();
            self.locks.look(self.control);
            let now = Instant::now();
            if last || now - self.reaped >= REAP_EVERY {
                self.reap(now, last && over.is_none());
            }
            if stopped || last && !self.more(now, *over.get_or_insert(now)) {
                break;
            }
            if all {
                self.looked = now;
                self.economise();
                self.flush(now);
            }
            self.answer();
            // A ring this full has more by now.
            if busiest >= RING_BYTES / 4 {
                continue;
            }
            header.sleeping.store(1, SeqCst);
            futex::wait(&header.wake, seen, nap);
            nap = (nap * 9 / 8).min(NAP);
        }
        for i in 0..self.lanes.len() {
            self.close(i, true);
        }
        // Those who still ask are told by the end of the recording.
        self.requests.take();
        if let Some(Output::Trace { streams, .. }) = &mut self.out.output {
            streams.sort_by_key(|s| s.stream);
        }
        self.out.stolen_locks = header.stolen.load(Relaxed);
        self.out
    }

    /// Empties the rings that want it, or all of them; the most bytes that one had.
    fn look(&mut self, all: bool) -> usize {
        let header = self.control.header();
        let mut sets = [0u64; RINGS / 64];
        for ((set, dirty), live) in sets.iter_mut().zip(&header.dirty).zip(&header.live) {
            *set = if all { live.load(Acquire) } else { 0 };
            if dirty.load(Relaxed) != 0 {
                *set |= dirty.swap(0, AcqRel);
            }
        }
        for i in std::mem::take(&mut self.hot) {
            sets[i / 64] |= 1 << (i % 64);
        }
        let mut busiest = 0;
        for i in members(&sets) {
            // A program may have overwritten the sets.
            if i >= self.control.rings() {
                break;
            }
            let n = self.drain(i);
            if n > 0 {
                self.hot.push(i);
            }
            busiest = busiest.max(n);
        }
        busiest
    }

    /// Sees to it that the rings do not take much more memory than [`BUDGET`].
    fn economise(&mut self) {
        self.thrifty = self.control.memory() > BUDGET;
        let room = BUDGET as usize / self.taken().len().max(1);
        let room = room.clamp(LEAST_ROOM, RING_BYTES);
        self.control.header().room.store(room as u32, Relaxed);
    }

    /// The rings that are taken, as far as they have been seen.
    fn taken(&self) -> Vec<usize> {
        let header = self.control.header();
        let words: Vec<u64> = header.live.iter().map(|w| w.load(Acquire)).collect();
        members(&words)
            .take_while(|i| *i < self.lanes.len())
            .collect()
    }

    /// Writes what has been gathered long enough.
    fn flush(&mut self, now: Instant) {
        for i in 0..self.lanes.len() {
            let ripe = |o: &Open| o.builder.events() > 0 && now - o.oldest >= FLUSH_AFTER;
            if self.lanes[i].open.as_ref().is_some_and(ripe) {
                self.write(i);
            }
        }
    }

    /// Tells those who ask what the ring holds, and has threads make the key frames that it needs.
    fn answer(&mut self) {
        let waiting = self.requests.take();
        if !waiting.is_empty() {
            self.look(true);
            (0..self.lanes.len()).for_each(|i| self.write(i));
        }
        let Some(Output::Ring(ring)) = &mut self.out.output else {
            return;
        };
        ring.trim();
        let wishes = ring.take_wishes();
        let carried = |l: &Lane| l.open.as_ref().map(|o| o.info.stream);
        for lane in &self.lanes {
            if carried(lane).is_some_and(|s| wishes.contains(&s)) {
                lane.ctl().keyframe.store(1, Relaxed);
            }
        }
        if waiting.is_empty() {
            return;
        }
        let open = |l: &Lane| Some(l.open.as_ref()?.summary(l.ctl(), false));
        let live: Vec<_> = self.lanes.iter().filter_map(open).collect();
        for answer in waiting {
            // One who has gone meanwhile does not matter.
            let _ = answer.send(ring.snapshot(live.clone(), true));
        }
    }

    /// Whether a process other than the program may still have something to say.
    fn more(&mut self, now: Instant, over: Instant) -> bool {
        // Whether a process in another namespace of ids still lives is not known; it had its time.
        let free = |l: &Lane| {
            l.ctl().state.load(Acquire) == state::FREE
                || l.ctl().pid.load(Relaxed) < 0 && now - over.max(l.active) > UNKNOWN
        };
        self.expected
            .retain(|pid, since| now - over.max(*since) < NEWBORN && alive::process(*pid));
        let unborn = self.control.header().unborn.load(Acquire);
        if unborn != self.unborn.0 {
            self.unborn = (unborn, now);
        }
        // What is killed before it has a ring stays in that number.
        let newborn = unborn > 0 && now - over.max(self.unborn.1) < NEWBORN;
        newborn || !self.expected.is_empty() || !self.lanes.iter().all(free)
    }

    /// Closes the rings whose producers are gone. `all`: also those that were busy a moment ago.
    fn reap(&mut self, now: Instant, all: bool) {
        self.reaped = now;
        for i in self.taken() {
            let lane = &mut self.lanes[i];
            let ctl = lane.ctl();
            let (pid, tid) = (ctl.pid.load(Relaxed), ctl.tid.load(Relaxed));
            let idle = now.saturating_duration_since(lane.active);
            match ctl.state.load(Acquire) {
                state::FREE => lane.active = now,
                state::CLAIMED => {
                    if idle >= CLAIM && !alive::process(pid) {
                        lane.free(i, self.control.header(), self.thrifty);
                    }
                }
                _ if idle < IDLE && !all => {}
                _ => {
                    let alive = if ctl.kind.load(Relaxed) == kind::IMAGE {
                        let image = ctl.image.load(Relaxed);
                        alive::process(pid)
                            && (!self.left.contains(&(image, pid)) || alive::recorded(pid))
                    } else {
                        alive::thread(pid, tid)
                    };
                    if !alive {
                        // What came between the last drain and the end.
                        self.drain(i);
                        self.close(i, true);
                    }
                }
            }
        }
    }

    /// Closes the streams of images that processes have left by executing another program.
    fn bury(&mut self) {
        for (image, pid) in std::mem::take(&mut self.replaced) {
            for i in self.taken() {
                let ctl = self.lanes[i].ctl();
                let life = ctl.state.load(Acquire);
                if matches!(life, state::LIVE | state::ENDED)
                    && ctl.image.load(Relaxed) == image
                    && ctl.pid.load(Relaxed) == pid
                {
                    self.drain(i);
                    self.close(i, true);
                }
            }
        }
    }

    /// Empties ring `i`; the number of bytes.
    fn drain(&mut self, i: usize) -> usize {
        while self.lanes.len() <= i {
            let consumer = self.control.consumer(self.lanes.len());
            self.lanes.push(Lane::new(consumer));
        }
        let life = self.lanes[i].ctl().state.load(Acquire);
        if matches!(life, state::FREE | state::CLAIMED) {
            return 0;
        }
        if self.lanes[i].open.is_none() {
            self.begin(i);
        }
        let n = self.lanes[i].pull(self.thrifty);
        match n {
            None => self.damaged(i),
            Some(0) => {}
            Some(_) => {
                self.cut(i);
                let ctl = self.lanes[i].ctl();
                ctl.taken.store(ctl.tail.load(Relaxed), Release);
            }
        }
        if life == state::ENDED {
            self.close(i, false);
        }
        n.unwrap_or(0)
    }

    /// Begins the stream of ring `i`.
    fn begin(&mut self, i: usize) {
        let lane = &mut self.lanes[i];
        let open = Open::new(lane.consumer.ctl(), self.next_stream);
        lane.active = Instant::now();
        self.next_stream += 1;
        let StreamInfo {
            image,
            parent,
            pid,
            kind,
            ..
        } = open.info;
        self.expected.remove(&pid);
        if kind == StreamKind::Image {
            self.images.insert(image, i);
            if parent < image {
                // A trace that is cut behind this then holds the code that a forked process inherits.
                self.settle(parent);
            }
        }
        if kind == StreamKind::Image && image != parent {
            self.begun.insert((parent, pid));
            self.replaced.push((parent, pid));
        }
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.begin(&open.info)
        {
            self.fail(e);
        }
        self.lanes[i].open = Some(open);
    }

    /// Makes chunks of whole events.
    fn cut(&mut self, i: usize) {
        let mut at = 0;
        loop {
            let lane = &mut self.lanes[i];
            let Some(open) = &mut lane.open else { return };
            let mut builder = std::mem::take(&mut open.builder);
            if builder.events() == 0 {
                open.oldest = Instant::now();
            }
            let (modules, out) = (&mut self.modules, &mut self.out);
            let mut failure = None;
            let image = open.info.image;
            let (n, pushed) = builder.push(&lane.pending[at..], |pos, e| {
                open.see(pos, e);
                match *e {
                    Event::Map {
                        addr,
                        len,
                        prot,
                        offset,
                        path,
                        ..
                    } if prot & PROT_EXEC != 0 && path.starts_with(b"/") => {
                        if let Some(w) = &mut out.output {
                            failure = modules.add(w, path).err().or(failure.take());
                        }
                        out.maps.push(MappedFile {
                            image,
                            addr,
                            len,
                            offset,
                            path: path.to_vec(),
                        });
                    }
                    _ => {}
                }
                if let (Event::File { .. }, Some(w)) = (e, &mut out.output) {
                    return modules.file(w, e).unwrap_or_else(|e| {
                        failure = Some(e);
                        None
                    });
                }
                modules.stand_in(e)
            });
            open.builder = builder;
            at += n;
            if let Some(e) = failure {
                self.fail(e);
            }
            match pushed {
                Pushed::More => break,
                Pushed::Full => self.write(i),
                Pushed::Bad => {
                    self.damaged(i);
                    break;
                }
            }
        }
        self.lanes[i].pending.drain(..at);
    }

    fn damaged(&mut self, i: usize) {
        let lane = &mut self.lanes[i];
        if !lane.broken {
            lane.broken = true;
            (self.tell)(
                "the program overwrote the recorder's memory; the recording of this thread ends here",
            );
        }
        // Indices that make no sense: let the producer believe that all is read.
        let ctl = lane.ctl();
        ctl.tail.store(ctl.head.load(Acquire), Release);
    }

    /// Writes what ring `i` has gathered.
    fn write(&mut self, i: usize) {
        let Some(open) = &mut self.lanes[i].open else {
            return;
        };
        let info = open.info.clone();
        let mut builder = std::mem::take(&mut open.builder);
        let gaps = open.new_gaps();
        self.put(&info, &mut builder, gaps);
        if let Some(open) = &mut self.lanes[i].open {
            open.builder = builder;
        }
    }

    /// Hands a chunk over; `gaps`: instructions in gaps that ended in it.
    fn put(&mut self, info: &StreamInfo, builder: &mut ChunkBuilder, gaps: u64) {
        if info.kind == StreamKind::Thread && builder.events() > 0 {
            // A trace that is cut behind this chunk then holds all code that the chunk runs.
            self.settle(info.image);
        }
        match &mut self.out.output {
            Some(out) => {
                if let Err(e) = out.stream(info.stream, builder, gaps) {
                    self.fail(e);
                }
            }
            None => output::discard(builder),
        }
    }

    /// The ring that carries the mappings and code of `image`, unless that has ended.
    fn image_ring(&self, image: u32) -> Option<usize> {
        if let Some(i) = self.images.get(&image) {
            return self.lanes[*i].is_image(image).then_some(*i);
        }
        let header = self.control.header();
        let words: Vec<u64> = header.live.iter().map(|w| w.load(Acquire)).collect();
        members(&words)
            .take_while(|i| *i < self.control.rings())
            .find(|i| is_image(self.control.ctl(*i), image))
    }

    /// Writes what is there of the mappings and code of `image`.
    fn settle(&mut self, image: u32) {
        if let Some(j) = self.image_ring(image) {
            self.drain(j);
            self.write(j);
        }
    }

    fn fail(&mut self, e: io::Error) {
        self.control
            .header()
            .failed
            .store(e.raw_os_error().unwrap_or(libc::EIO) as u32, Release);
        (self.tell)(&format!(
            "the trace cannot be written any more: {e}. The program goes on, unrecorded; \
             what was written stays readable"
        ));
        // Its counts describe what is in the file; they are lost with the summary.
        if let Some(Output::Trace { streams, .. }) = self.out.output.take() {
            self.out.streams = streams;
        }
        self.out.error = Some(e);
    }

    /// Ends the stream of ring `i`. `lost`: the producer did not say so.
    fn close(&mut self, i: usize, lost: bool) {
        let lane = &mut self.lanes[i];
        let Some(mut open) = lane.open.take() else {
            return;
        };
        let summary = open.summary(lane.ctl(), lost);
        if lost {
            Locks::release(self.control, i);
        }
        // Before the trace is written: threads that come and go quickly wait for rings.
        lane.free(i, self.control.header(), self.thrifty);
        let StreamInfo {
            image, pid, tid, ..
        } = open.info;
        match open.end.take() {
            Some((EndKind::Unsupported, _, message)) => self.out.refusals.push(Refusal {
                image,
                pid,
                tid,
                message,
            }),
            Some((EndKind::Exec, _, message)) if !message.is_empty() => {
                self.left.insert((image, pid));
            }
            Some((EndKind::Exec, ..)) if !self.begun.contains(&(image, pid)) => {
                self.expected.insert(pid, Instant::now());
            }
            _ => {}
        }
        let gaps = open.new_gaps();
        self.put(&open.info, &mut open.builder, gaps);
        match &mut self.out.output {
            Some(out) => out.end(summary),
            None => self.out.streams.push(summary),
        }
    }
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
