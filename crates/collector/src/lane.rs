//! One ring as the collector sees it.

use crate::futex;
use hindsight_events::ring::{COMMAND, Consumer, Ctl, Header, RING_BYTES, kind, state};
use hindsight_events::{EndKind, Event};
use hindsight_trace::meta::{Gaps, Regime, StreamEnd, StreamSummary};
use hindsight_trace::{ChunkBuilder, StreamInfo, StreamKind, Text, Told};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Least time between two events that say when the others came.
const TIME_EVERY: Duration = Duration::from_millis(1);

/// Names of marks that are counted in one stream.
const MOST_NAMES: usize = 1000;

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
    /// Instructions in gaps as [`Open::tell`] has told.
    told: u64,
    /// Of a thread: the epoch of the code that it executes.
    pub epoch: Option<u64>,
    /// Of an image: the epoch of its parent's code that is under its own.
    pub inherited: Option<u64>,
    /// The lowest and the highest epoch that was named since [`Open::tell`] has told.
    pub epochs: Option<(u64, u64)>,
    regime: Option<Regime>,
    /// Names, at most [`MOST_NAMES`], and how often they were said.
    marks: BTreeMap<String, u64>,
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
    /// Begins a stream as the ring's control page describes it. Nothing was in the ring before `since`.
    pub fn new(ctl: &Ctl, stream: u32, since: Instant) -> Open {
        let pid = ctl.pid.load(Relaxed);
        let image = ctl.kind.load(Relaxed) == kind::IMAGE;
        let info = StreamInfo {
            stream,
            kind: if image {
                StreamKind::Image
            } else {
                StreamKind::Thread
            },
            image: ctl.image.load(Relaxed),
            parent: ctl.parent.load(Relaxed),
            pid,
            tid: ctl.tid.load(Relaxed),
            command: if image { command(ctl) } else { Vec::new() },
            executed: image && ctl.executed.load(Relaxed) != 0,
            ..StreamInfo::default()
        };
        Open {
            info,
            builder: ChunkBuilder::default(),
            first: None,
            end: None,
            gaps: Gaps::default(),
            gap: None,
            told: 0,
            epoch: None,
            inherited: None,
            epochs: None,
            regime: None,
            marks: BTreeMap::new(),
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
        let micros = |t: Instant| (t.saturating_duration_since(origin)).as_micros() as u64;
        self.builder.add(&Event::Time {
            since: micros(self.since),
            until: micros(now),
        });
        (self.since, self.timed, self.fresh) = (before, Some(now), false);
    }

    /// Takes note of an event that [`ChunkBuilder::push`] shows.
    pub fn see(&mut self, pos: u64, event: &Event) {
        self.first.get_or_insert(pos);
        match *event {
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
                if self.marks.len() < MOST_NAMES || self.marks.contains_key(&name) {
                    *self.marks.entry(name).or_default() += 1;
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

    /// What the summary says about the stream; the control page has the counts.
    pub fn summary(&self, ctl: &Ctl, lost: bool) -> StreamSummary {
        let last = ctl.position.load(Relaxed).max(self.builder.position());
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
            marks: self.marks.clone(),
            unpredicted_reads: ctl.surprises.load(Relaxed),
            translated: ctl.translated.load(Relaxed),
            cache_flushes: ctl.flushes.load(Relaxed),
            exits: ctl.exits.iter().map(|e| e.load(Relaxed)).collect(),
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

    pub fn ctl(&self) -> &Ctl {
        self.consumer.ctl()
    }

    /// As [`Lane::pull`]; where much comes at once, all of it, as far as there is memory for it and it keeps coming.
    pub fn pull_all(&mut self, thrifty: bool) -> Option<usize> {
        let mut all = self.pull(thrifty)?;
        let mut came = Instant::now();
        while all != 0 && self.ctl().burst.load(Relaxed) != 0 && self.pending.len() < BURST {
            match self.pull(thrifty)? {
                // Who sends it may have been stopped, or killed.
                0 if came.elapsed() > PAUSE => break,
                0 => std::thread::yield_now(),
                n => (all, came) = (all + n, Instant::now()),
            }
        }
        Some(all)
    }

    /// Moves what is in the ring to `pending`; the number of bytes, `None` for nonsense. `thrifty`:
    /// gives the ring's memory back.
    pub fn pull(&mut self, thrifty: bool) -> Option<usize> {
        let discard = self.broken;
        let pending = &mut self.pending;
        let push = |bytes: &[u8]| {
            if !discard {
                pending.extend_from_slice(bytes);
            }
        };
        let n = self.consumer.drain(push, |at, len| {
            if thrifty {
                give_back(at, len);
            }
        });
        let ctl = self.consumer.ctl();
        if ctl.waiting.load(SeqCst) != 0 {
            ctl.space.fetch_add(1, Release);
            futex::wake(&ctl.space);
        }
        if n != Some(0) {
            self.active = Instant::now();
        }
        n
    }

    /// The first `n` bytes of `pending` are done with.
    pub fn done(&mut self, n: usize) {
        self.pending.drain(..n);
        if self.pending.capacity() > KEPT && self.pending.len() < KEPT {
            self.pending.shrink_to(KEPT);
        }
    }

    /// Lets the next producer have ring `i`, which this is. `thrifty`: gives its memory back.
    pub fn free(&mut self, i: usize, header: &Header, thrifty: bool) {
        self.pending = Vec::new();
        self.broken = false;
        let ctl = self.consumer.ctl();
        for n in [&ctl.position, &ctl.surprises, &ctl.translated, &ctl.flushes] {
            n.store(0, Relaxed);
        }
        ctl.exits.iter().for_each(|e| e.store(0, Relaxed));
        for n in [&ctl.pid, &ctl.tid] {
            n.store(0, Relaxed);
        }
        for n in [
            &ctl.kind,
            &ctl.image,
            &ctl.parent,
            &ctl.waiting,
            &ctl.keyframe,
            &ctl.executed,
            &ctl.burst,
        ] {
            n.store(0, Relaxed);
        }
        // The next producer begins where memory has been touched already.
        for n in [&ctl.head, &ctl.tail] {
            n.store(0, Relaxed);
        }
        if thrifty {
            give_back(self.consumer.data(), RING_BYTES);
        }
        header.free(i, self.consumer.ctl());
    }
}

/// Gives memory of the control file back; it reads as zero afterwards.
fn give_back(at: *mut u8, len: usize) {
    // SAFETY: the callers have whole pages of a ring's data that no producer uses. If the call fails
    // they stay.
    unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) };
}

/// Whether a ring carries the mappings and code of `image`.
pub fn is_image(ctl: &Ctl, image: u32) -> bool {
    matches!(ctl.state.load(Acquire), state::LIVE | state::ENDED)
        && ctl.kind.load(Relaxed) == kind::IMAGE
        && ctl.image.load(Relaxed) == image
}

/// The argument vector in a control page.
fn command(ctl: &Ctl) -> Vec<Text> {
    let n = (ctl.command_len.load(Acquire) as usize).min(COMMAND);
    let text: Vec<u8> = ctl.command[..n].iter().map(|b| b.load(Relaxed)).collect();
    if text.is_empty() {
        return Vec::new();
    }
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|b| *b == 0).map(Text::from).collect()
}
