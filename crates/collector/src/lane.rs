//! One ring as the collector sees it.

use crate::futex;
use hindsight_events::consumer::{Consumer, Counts, Nonsense, Who};
use hindsight_events::ring::{Header, RING_BYTES};
use hindsight_events::{EndKind, Event};
use hindsight_trace::meta::{Gaps, Regime, StreamEnd, StreamSummary};
use hindsight_trace::{ChunkBuilder, StreamInfo, StreamKind, Text, Told};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

/// Least time between two events that say when the others came.
const TIME_EVERY: Duration = Duration::from_millis(1);

/// Names of marks that are counted in one stream, and bytes of them.
const MOST_NAMES: usize = 1000;
const NAME_BYTES: usize = 64 << 10;

/// Most bytes of what comes at once that are taken before they are looked at, and longest time in which nothing of it comes.
const BURST: usize = 64 << 20;
const PAUSE: Duration = Duration::from_millis(1);
/// What is kept of their memory.
const KEPT: usize = 2 << 20;

/// The stream that a ring carries at the moment.
pub struct Open {
    pub info: StreamInfo,
    pub builder: ChunkBuilder,
    /// Position of the first event.
    pub first: Option<u64>,
    pub end: Option<(EndKind, u32, String)>,
    gaps: Gaps,
    /// The gap at hand: where it began, and whether it is a big one.
    gap: Option<(u64, bool)>,
    /// It is in a system call, as far as it says.
    pub calls: bool,
    /// Instructions in gaps as [`Open::tell`] has told.
    told: u64,
    /// Of a thread: the epoch of the code that it executes.
    pub epoch: Option<u64>,
    /// Of an image: the epoch of its parent's code that is under its own.
    pub inherited: Option<u64>,
    /// The lowest and the highest epoch that was named since [`Open::tell`] has told.
    pub epochs: Option<(u64, u64)>,
    regime: Option<Regime>,
    /// Times that a file was in memory whose content could not be had.
    pub lost_files: u64,
    /// Names, at most [`MOST_NAMES`] of [`NAME_BYTES`], and how often they were said.
    marks: BTreeMap<String, u64>,
    name_bytes: usize,
    /// When the oldest event of `builder` came.
    pub oldest: Instant,
    /// What has come since the last [`Event::Time`] came after this.
    since: Instant,
    /// Something has.
    fresh: bool,
    /// When that event was written.
    timed: Option<Instant>,
}

impl Open {
    /// Begins the stream of `who`. Nothing was in the ring before `since`.
    pub fn new(who: Who, stream: u32, since: Instant) -> Open {
        let info = StreamInfo {
            stream,
            kind: if who.is_image {
                StreamKind::Image
            } else {
                StreamKind::Thread
            },
            image: who.image,
            parent: who.parent,
            pid: who.pid,
            tid: who.tid,
            command: command(&who.command),
            executed: who.executed,
            ..StreamInfo::default()
        };
        Open {
            info,
            builder: ChunkBuilder::default(),
            first: None,
            end: None,
            gaps: Gaps::default(),
            gap: None,
            calls: false,
            told: 0,
            epoch: None,
            inherited: None,
            epochs: None,
            regime: None,
            lost_files: 0,
            marks: BTreeMap::new(),
            name_bytes: 0,
            oldest: Instant::now(),
            since,
            fresh: false,
            timed: None,
        }
    }

    /// Nothing had come when the ring was looked at, which was after `before`.
    pub fn silent(&mut self, before: Instant) {
        if !self.fresh {
            self.since = before;
        }
    }

    /// All that had come when the ring was looked at, which was after `before` and until `now`, is in `builder` or
    /// written: says when it came, in time since `origin`, but not more often than each [`TIME_EVERY`] unless
    /// the stream `ends`.
    pub fn time(&mut self, origin: Instant, before: Instant, now: Instant, ends: bool) {
        self.fresh = true;
        let due = self.timed.is_none_or(|t| now - t >= TIME_EVERY);
        // Key frames come first in a chunk: then it is said behind what comes next.
        let thread = self.info.kind == StreamKind::Thread && self.builder.events() > 0;
        if !thread || !(due || ends || self.end.is_some()) {
            return;
        }
        self.say_when(origin, now);
        (self.since, self.timed, self.fresh) = (before, Some(now), false);
    }

    /// A chunk is full, and more has come with what is in it: says when. Without that, whoever gets no more than this chunk
    /// would not know how long what it holds can have taken.
    pub fn full(&mut self, origin: Instant) {
        if self.info.kind == StreamKind::Thread && self.builder.events() > 0 {
            self.say_when(origin, Instant::now());
        }
    }

    fn say_when(&mut self, origin: Instant, now: Instant) {
        let micros = |t: Instant| (t.saturating_duration_since(origin)).as_micros() as u64;
        self.builder.add(&Event::Time {
            since: micros(self.since),
            until: micros(now),
        });
    }

    /// Takes note of an event that [`ChunkBuilder::push`] shows.
    pub fn see(&mut self, pos: u64, event: &Event) {
        self.first.get_or_insert(pos);
        match *event {
            Event::Syscall { .. } => self.calls = true,
            // All of these complete one, or come in its place.
            Event::SyscallRet { .. } | Event::SetState { .. } | Event::Signal { .. } => {
                self.calls = false;
            }
            Event::End {
                kind,
                code,
                message,
            } => self.end = Some((kind, code, String::from_utf8_lossy(message).into_owned())),
            Event::GapBegin { reason } => {
                let (from, big) = self.gap.unwrap_or((pos, false));
                self.gap = Some((from, big || reason.is_big()));
            }
            Event::GapEnd { .. } => self.end_gap(pos),
            Event::KeyFrame {
                code_epoch: epoch, ..
            }
            | Event::CodeEpoch { epoch } => {
                self.epoch = Some(epoch);
                self.name(epoch);
            }
            Event::Code { epoch, .. } => self.name(epoch),
            Event::CodeFrom { epoch } => self.inherited = Some(epoch),
            Event::Regime { quiet, reason } => {
                self.regime = Some(Regime {
                    quiet,
                    position: pos,
                    reason: String::from_utf8_lossy(reason).into_owned(),
                });
            }
            Event::Mark { name, bytes } => {
                let name = String::from_utf8_lossy(&bytes[..name]).into_owned();
                if let Some(n) = self.marks.get_mut(&name) {
                    *n += 1;
                } else if self.marks.len() < MOST_NAMES && self.name_bytes < NAME_BYTES {
                    self.name_bytes += name.len();
                    self.marks.insert(name, 1);
                }
            }
            _ => {}
        }
    }

    fn end_gap(&mut self, pos: u64) {
        self.gaps = self.gaps_until(pos);
        self.gap = None;
    }

    /// The gaps so far if the one at hand ended at `pos`.
    fn gaps_until(&self, pos: u64) -> Gaps {
        let mut gaps = self.gaps;
        if let Some((from, big)) = self.gap {
            let n = if big { &mut gaps.big } else { &mut gaps.small };
            *n += 1;
            gaps.instructions += pos.saturating_sub(from);
        }
        gaps
    }

    fn name(&mut self, epoch: u64) {
        let (low, high) = self.epochs.unwrap_or((epoch, epoch));
        self.epochs = Some((low.min(epoch), high.max(epoch)));
    }

    /// What is known of the events since this was last asked.
    pub fn tell(&mut self) -> Told {
        let gaps = self.gaps.instructions - self.told;
        self.told = self.gaps.instructions;
        Told {
            gaps,
            epochs: self.epochs.take(),
            inherited: self.inherited,
        }
    }

    /// What the summary says about the stream. What a thread has executed since its last event is not recorded:
    /// nobody could say which way it went.
    pub fn summary(&self, counts: &Counts, lost: bool) -> StreamSummary {
        let last = self.builder.completed();
        let gaps = self.gaps_until(last);
        let thread = self.info.kind == StreamKind::Thread;
        StreamSummary {
            stream: self.info.stream,
            pid: self.info.pid,
            tid: self.info.tid,
            instructions: last
                .saturating_sub(self.first.unwrap_or(0))
                .saturating_sub(gaps.instructions),
            gaps,
            regime: self.regime.clone(),
            lost_files: self.lost_files,
            marks: self.marks.clone(),
            unpredicted_reads: counts.mispredictions,
            translated: counts.translated,
            cache_flushes: counts.flushes,
            exits: counts.exits.to_vec(),
            end: self.end.as_ref().map(|(kind, code, message)| StreamEnd {
                kind: format!("{kind:?}").to_lowercase(),
                code: *code,
                message: message.clone(),
            }),
            last_sequence: self.builder.number(),
            lost: lost && thread,
            ..StreamSummary::default()
        }
    }
}

/// One ring's way into the trace.
pub struct Lane {
    pub consumer: Consumer,
    /// Drained and not yet a whole event.
    pub pending: Vec<u8>,
    pub open: Option<Open>,
    pub broken: bool,
    /// When something was last seen to happen.
    pub active: Instant,
}

impl Lane {
    pub fn new(consumer: Consumer) -> Lane {
        Lane {
            consumer,
            pending: Vec::new(),
            open: None,
            broken: false,
            active: Instant::now(),
        }
    }

    /// As [`Lane::pull`]; where much comes at once, all of it, as far as there is memory for it and it keeps coming.
    pub fn pull_all(&mut self, thrifty: bool) -> Result<usize, Nonsense> {
        let mut all = self.pull(thrifty)?;
        let mut came = Instant::now();
        while all != 0 && all < BURST && self.consumer.bursts() && self.pending.len() < BURST {
            match self.pull(thrifty)? {
                // Who sends it may have been stopped, or killed.
                0 if came.elapsed() > PAUSE => break,
                0 => std::thread::yield_now(),
                n => (all, came) = (all + n, Instant::now()),
            }
        }
        Ok(all)
    }

    /// Moves what is in the ring to `pending`; the number of bytes. `thrifty`: gives the ring's memory back.
    fn pull(&mut self, thrifty: bool) -> Result<usize, Nonsense> {
        let to = (!self.broken).then_some(&mut self.pending);
        let n = self.consumer.pull(to, |at, len| {
            if thrifty {
                give_back(at, len);
            }
        });
        self.wake();
        if n != Ok(0) {
            self.active = Instant::now();
        }
        n
    }

    /// Nobody reads the ring: lets a producer that waits for room go on. Whether there was one.
    pub fn discard(&mut self) -> bool {
        let waits = self.consumer.waiter().is_some();
        if waits {
            self.consumer.skip();
            self.wake();
        }
        waits
    }

    /// Wakes the producer, if it waits for room.
    fn wake(&self) {
        if let Some(space) = self.consumer.waiter() {
            space.fetch_add(1, Release);
            futex::wake(space);
        }
    }

    /// Whether it is of this process in this image.
    pub fn is_of(&self, image: u32, pid: i32) -> bool {
        match &self.open {
            Some(open) => (open.info.image, open.info.pid) == (image, pid),
            None if self.consumer.life().has_begun() => {
                let who = self.consumer.who();
                (who.image, who.pid) == (image, pid)
            }
            None => false,
        }
    }

    /// Whether it is of another process in this image.
    pub fn shares(&self, image: u32, pid: i32) -> bool {
        match &self.open {
            Some(open) => open.info.image == image && open.info.pid != pid,
            None if self.consumer.life().has_begun() => {
                let who = self.consumer.who();
                who.image == image && who.pid != pid
            }
            None => false,
        }
    }

    /// Memory that it has for what was gathered.
    pub fn memory(&self) -> usize {
        let gathered = self.open.as_ref().map_or(0, |o| o.builder.capacity());
        self.pending.capacity() + gathered
    }

    /// Gives back what of that is not in use.
    pub fn shrink(&mut self) {
        self.pending.shrink_to_fit();
        if let Some(open) = &mut self.open {
            open.builder.shrink();
        }
    }

    /// The first `n` bytes of `pending` are done with. `thrifty`: keeps no memory for more.
    pub fn done(&mut self, n: usize, thrifty: bool) {
        self.pending.drain(..n.min(self.pending.len()));
        let kept = if thrifty { 0 } else { KEPT };
        if self.pending.capacity() > kept.max(2 * self.pending.len()) {
            self.pending.shrink_to(kept);
        }
    }

    /// Lets the next producer have ring `i`, which this is. `thrifty`: gives its memory back.
    pub fn free(&mut self, i: usize, header: &Header, thrifty: bool) {
        self.pending = Vec::new();
        self.broken = false;
        if thrifty {
            give_back(self.consumer.data(), RING_BYTES);
        }
        self.consumer.free(i, header);
    }
}

/// Gives memory of the control file back; it reads as zero afterwards.
fn give_back(at: *mut u8, len: usize) {
    // SAFETY: the callers have whole pages of a ring's data that no producer uses. If the call fails
    // they stay.
    unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) };
}

/// The arguments of an argument vector.
fn command(text: &[u8]) -> Vec<Text> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    text.split(|b| *b == 0).map(Text::from).collect()
}
