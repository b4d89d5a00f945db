//! One ring, as the collector sees it.

use crate::futex;
use crate::still::Still;
use hindsight_events::consumer::{Consumer, Counts, Nonsense, Who};
use hindsight_events::ring::{Header, RING_BYTES};
use hindsight_events::{EndKind, Event};
use hindsight_trace::meta::{Gaps, Regime, StreamEnd, StreamSummary};
use hindsight_trace::{ChunkBuilder, StreamInfo, StreamKind, Text, Told};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

/// The least time between two events that say when the others came.
const TIME_EVERY: Duration = Duration::from_millis(1);

/// The most bytes that are held back for a key frame, if few are awaited.
pub const MOST_HELD: usize = 64 << 20;

/// The most names of marks that are counted in one stream.
const MOST_NAMES: usize = 1000;
/// The most bytes of these names.
const NAME_BYTES: usize = 64 << 10;

/// The most bytes of a burst that are taken before they are looked at.
const BURST: usize = 64 << 20;
/// A burst is over when nothing comes for this long.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of memory that are kept for the next burst.
const KEPT: usize = 2 << 20;

/// The stream that a ring carries at the moment.
pub struct Open {
    /// Whose stream it is.
    pub info: StreamInfo,
    /// The chunk that is being gathered.
    pub builder: ChunkBuilder,
    /// Position of the first event.
    pub first: Option<u64>,
    /// Events so far without those of key frames, and how many there were when it was last asked for a state point.
    pub events: u64,
    pub asked: u64,
    /// How it has ended, if it has.
    pub end: Option<(EndKind, u32, String)>,
    gaps: Gaps,
    /// The gap in which the thread is: where it began, and whether it is a big one.
    gap: Option<(u64, bool)>,
    /// Instructions in gaps that [`Open::tell`] has reported.
    told: u64,
    /// For a thread: the epoch of the code that it executes.
    pub epoch: Option<u64>,
    /// For an image: the epoch of its parent's code that it has inherited.
    pub inherited: Option<u64>,
    /// The lowest and the highest epoch that was named since the last [`Open::tell`].
    pub epochs: Option<(u64, u64)>,
    regime: Option<Regime>,
    /// Position of the last key frame.
    pub framed: Option<u64>,
    /// How many times a file was in memory whose content could not be read.
    pub lost_files: u64,
    /// Names of marks, and how often each was set. At most [`MOST_NAMES`] names with
    /// [`NAME_BYTES`].
    marks: BTreeMap<String, u64>,
    name_bytes: usize,
    /// When the oldest event in `builder` came.
    pub oldest: Instant,
    /// What has come since the last [`Event::Time`] came after this.
    since: Instant,
    /// Something has come since then.
    fresh: bool,
    /// When the last [`Event::Time`] was written.
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
            events: 0,
            asked: 0,
            end: None,
            gaps: Gaps::default(),
            gap: None,
            told: 0,
            epoch: None,
            inherited: None,
            epochs: None,
            regime: None,
            framed: None,
            lost_files: 0,
            marks: BTreeMap::new(),
            name_bytes: 0,
            oldest: Instant::now(),
            since,
            fresh: false,
            timed: None,
        }
    }

    /// Notes that the ring was empty at a look that began after `before`.
    pub fn silent(&mut self, before: Instant) {
        if !self.fresh {
            self.since = before;
        }
    }

    /// Notes that all that had come is in `builder` or written. The look at the ring began after
    /// `before` and ended at `now`.
    ///
    /// Writes an [`Event::Time`] that says when it came, as time since `origin`. Does so at most
    /// once in [`TIME_EVERY`], except when the stream `ends`.
    pub fn time(&mut self, origin: Instant, before: Instant, now: Instant, ends: bool) {
        self.fresh = true;
        let due = self.timed.is_none_or(|t| now - t >= TIME_EVERY);
        // Key frames come first in a chunk. So nothing is written into an empty chunk: the time
        // follows what comes next.
        let thread = self.info.kind == StreamKind::Thread && self.builder.events() > 0;
        if !thread || !(due || ends || self.end.is_some()) {
            return;
        }
        self.say_when(origin, now);
        (self.since, self.timed, self.fresh) = (before, Some(now), false);
    }

    /// Called when a chunk is full, and more has come together with it: says when it came.
    /// Otherwise nobody who gets only this chunk could know how long its content may have taken.
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

    /// Notes an event that [`ChunkBuilder::push`] shows.
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
                if let Event::KeyFrame { .. } = event {
                    self.framed = Some(pos);
                }
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

    /// Whether the thread is in a system call, as far as its events say.
    pub fn is_in_call(&self) -> bool {
        self.builder.is_in_call()
    }

    /// Why no state point of the thread can be made. `None`: one can be.
    pub fn rules_states_out(&self) -> Option<String> {
        let why = match &self.regime {
            _ if self.is_in_gap() => "its code here is not recorded".into(),
            Some(regime) if regime.quiet => return None,
            Some(regime) => format!("it left the quiet regime: {}", regime.reason),
            None => {
                "it never was in the quiet regime (threads, children of fork, attached processes)"
                    .into()
            }
        };
        Some(why)
    }

    /// Puts a mark behind what has come so far.
    pub fn mark(&mut self, name: &[u8]) {
        let event = Event::Mark {
            name: name.len(),
            bytes: name,
        };
        if self.builder.events() == 0 {
            self.oldest = Instant::now();
        }
        self.see(self.builder.position(), &event);
        self.builder.add(&event);
    }

    /// Whether the thread goes on unrecorded.
    pub fn is_in_gap(&self) -> bool {
        self.gap.is_some()
    }

    fn end_gap(&mut self, pos: u64) {
        self.gaps = self.gaps_until(pos);
        self.gap = None;
    }

    /// The gaps so far, if the present one ended at `pos`.
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

    /// What is known of the events since the last call.
    pub fn tell(&mut self) -> Told {
        let gaps = self.gaps.instructions - self.told;
        self.told = self.gaps.instructions;
        Told {
            gaps,
            epochs: self.epochs.take(),
            inherited: self.inherited,
        }
    }

    /// What the summary says about the stream. What a thread has executed since its last event is
    /// not recorded: nobody could say which way it went.
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
            ring_bytes: counts.carried,
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

/// The events of a key frame, which are taken in pieces.
pub struct Handed {
    pub file: File,
    /// How many bytes were taken.
    pub taken: u64,
    pub order: Order,
}

/// What may come next in a key frame that a copy makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Registers,
    Begin,
    Memory,
    Nothing,
}

impl Order {
    /// Behind this event. `None`: it has no place there, or says nothing.
    pub fn behind(self, event: &Event) -> Option<Order> {
        match (self, event) {
            (Order::Registers, Event::KeyFrame { .. }) => Some(Order::Begin),
            (Order::Begin, Event::Restate { ends: false, .. }) => Some(Order::Memory),
            (Order::Memory, Event::Restate { ends: true, .. }) => Some(Order::Nothing),
            (Order::Memory, Event::File { len, .. } | Event::Zero { len, .. }) if *len > 0 => {
                Some(Order::Memory)
            }
            (Order::Memory, Event::Memory { bytes, .. }) if !bytes.is_empty() => {
                Some(Order::Memory)
            }
            _ => None,
        }
    }
}

/// How far a key frame is that a copy makes.
pub enum Frame {
    Awaited,
    /// It has come.
    Handed(Handed),
    /// It is in the stream, or will not be. Then it is false.
    Over(bool),
}

/// One ring's way into the trace.
pub struct Lane {
    /// Reads the ring.
    pub consumer: Consumer,
    /// Bytes taken from the ring that are not cut into events yet.
    pub pending: Vec<u8>,
    /// The stream that the ring carries at the moment.
    pub open: Option<Open>,
    /// The program has overwritten it, so nothing is read any more.
    pub broken: bool,
    /// When something was last seen to happen.
    pub active: Instant,
    /// Whether its thread has come to the recorder.
    pub still: Still,
    /// What comes behind a key frame that a copy of the process makes.
    pub held: Option<Held>,
    /// The most bytes that are held back.
    pub most_held: usize,
    /// Its thread is to be asked for a state point.
    pub owes_state: bool,
}

/// What a thread has written behind a place where a key frame belongs that a copy of its process makes (see
/// [`hindsight_events::copied`]).
pub struct Held {
    /// What follows the key frame.
    pub bytes: Vec<u8>,
    /// How many of these bytes were taken.
    pub taken: usize,
    /// Position of the last event before the key frame.
    pub position: u64,
    pub frame: Frame,
    /// When it was last looked whether the copy lives.
    pub looked: Instant,
}

impl Lane {
    /// A ring that carries no stream yet.
    pub fn new(consumer: Consumer) -> Lane {
        Lane {
            consumer,
            pending: Vec::new(),
            open: None,
            broken: false,
            active: Instant::now(),
            still: Still::new(),
            held: None,
            most_held: MOST_HELD,
            owes_state: false,
        }
    }

    /// As [`Lane::pull`]. Takes all of a burst, as far as there is memory for it and it keeps
    /// coming.
    pub fn pull_all(&mut self, thrifty: bool) -> Result<usize, Nonsense> {
        let mut all = self.pull(thrifty)?;
        let mut came = Instant::now();
        while all != 0 && all < BURST && self.consumer.bursts() && self.pending.len() < BURST {
            match self.pull(thrifty)? {
                // The sender may have been stopped or killed.
                0 if came.elapsed() > PAUSE => break,
                0 => std::thread::yield_now(),
                n => (all, came) = (all + n, Instant::now()),
            }
        }
        Ok(all)
    }

    /// Moves what is in the ring to `pending`. Returns the number of bytes. `thrifty`: gives the
    /// ring's memory back.
    fn pull(&mut self, thrifty: bool) -> Result<usize, Nonsense> {
        let to = match &mut self.held {
            Some(held) if held.bytes.len() - held.taken >= self.most_held => return Ok(0),
            Some(held) => &mut held.bytes,
            None => &mut self.pending,
        };
        let to = (!self.broken).then_some(to);
        let n = self.consumer.pull(to, |at, len| {
            if thrifty {
                give_back(at, len);
            }
        });
        self.wake();
        if n != Ok(0) {
            self.active = Instant::now();
        }
        self.hold(n.unwrap_or(0));
        n
    }

    /// Holds back what belongs behind a key frame that a copy makes. `n` bytes have just come.
    fn hold(&mut self, n: usize) {
        if self.held.is_some() || self.open.is_none() {
            return;
        }
        let behind = self.consumer.behind_copy(n);
        if self.broken && behind.is_some() {
            return self.consumer.answer_copy(false);
        }
        if let Some(from) = behind.and_then(|b| self.pending.len().checked_sub(b)) {
            self.held = Some(Held {
                bytes: self.pending.split_off(from),
                taken: 0,
                position: 0,
                frame: Frame::Awaited,
                looked: Instant::now(),
            });
        }
    }

    /// Nobody reads this ring: lets a producer that waits for room go on. Returns whether there was
    /// one.
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

    /// Whether it belongs to this process in this image.
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

    /// Whether it belongs to another process in this image.
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

    /// Bytes of memory for what was gathered.
    pub fn memory(&self) -> usize {
        let gathered = self.open.as_ref().map_or(0, |o| o.builder.capacity());
        let held = self.held.as_ref().map_or(0, |h| h.bytes.capacity());
        self.pending.capacity() + gathered + held
    }

    /// Gives back what is not in use of that memory.
    pub fn shrink(&mut self) {
        self.pending.shrink_to_fit();
        if let Some(open) = &mut self.open {
            open.builder.shrink();
        }
    }

    /// Removes the first `n` bytes of `pending`. `thrifty`: keeps no memory for more.
    pub fn done(&mut self, n: usize, thrifty: bool) {
        self.pending.drain(..n.min(self.pending.len()));
        let kept = if thrifty { 0 } else { KEPT };
        if self.pending.capacity() > kept.max(2 * self.pending.len()) {
            self.pending.shrink_to(kept);
        }
    }

    /// Gives this ring, whose number is `i`, to the next producer. `thrifty`: gives its memory
    /// back.
    pub fn free(&mut self, i: usize, header: &Header, thrifty: bool) {
        (self.pending, self.held) = (Vec::new(), None);
        (self.broken, self.owes_state) = (false, false);
        if thrifty {
            give_back(self.consumer.data(), RING_BYTES);
        }
        self.consumer.free(i, header);
    }
}

/// Gives memory of the control file back. It holds zeros after that.
fn give_back(at: *mut u8, len: usize) {
    // SAFETY: callers pass whole pages of a ring's data that no producer uses. If the call fails,
    // the pages stay as they are.
    unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) };
}

/// Splits a command line into its arguments, which end with zeros.
fn command(text: &[u8]) -> Vec<Text> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    text.split(|b| *b == 0).map(Text::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_frame_has_an_order() {
        let key = Event::KeyFrame {
            code_epoch: 0,
            cpu: &[0; _],
            vec: &[0; _],
        };
        let bound = |ends| Event::Restate { ends, back: 0 };
        let memory = |bytes: &'static [u8]| Event::Memory { addr: 0, bytes };
        let zero = |len| Event::Zero { addr: 0, len };
        let end = |events: &[&Event]| {
            let step = |o: Order, e: &&Event| o.behind(e);
            events.iter().try_fold(Order::default(), step)
        };
        let (begin, over, one) = (bound(false), bound(true), memory(&[1]));
        let whole = [&key, &begin, &zero(1), &one, &over];
        assert_eq!(end(&whole), Some(Order::Nothing));
        assert_ne!(end(&whole[..4]), Some(Order::Nothing));
        for wrong in [
            &[&one][..],
            &[&key, &one],
            &[&key, &key],
            &[&key, &begin, &memory(&[])],
            &[&key, &begin, &zero(0)],
            &[&key, &begin, &begin],
            &[&key, &begin, &over, &one],
        ] {
            assert_eq!(end(wrong), None, "{wrong:?}");
        }
    }
}
