//! The latest part of a recording, held until somebody wants it.
//!
//! - A thread's stream is dropped from its beginning, by whole key-frame intervals. So the rest begins at a
//!   key frame.
//! - The interval that ended first is dropped first, whichever thread it belongs to.
//! - The streams of a program image (mappings, code) stay while anybody needs them. That is: something of one
//!   of its threads is held, a thread may continue, or a forked image needs its code.
//! - Entries of these streams that nobody needs any more are removed (`compact`).
//! - Module files stay.

mod compact;
pub mod prune;
mod snapshot;

pub use compact::Told;
pub use snapshot::RingSnapshot;

use compact::{Rounds, Weight};

use crate::chunk::{ChunkHeader, FLAG_KEY_FRAME};
use crate::columns::ChunkBuilder;
use crate::meta::{Circular, Dropped};
use crate::pack::{self, Packer};
use crate::spill::{Piece, Spill};
use crate::{
    Header, ModuleHash, ModuleInfo, StreamId, StreamInfo, StreamKind, StreamSummary, Taken, Text,
    Writer, files,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Bytes of the threads' streams, as they take in the trace.
    Bytes(u64),
    /// What happened within this time.
    Time(Duration),
}

/// A thread's share of the ring has room for this many key-frame intervals.
const INTERVALS: u64 = 4;

/// A thread makes a key frame by itself when it has written its share of the ring divided by this. Events that do not
/// compress take a bit more when packed, and the thread goes on while it is about to make one.
const HALF: u64 = 2;

/// Bytes of a stream between two requests for a key frame, at least.
const LEAST_INTERVAL: u64 = 64 << 10;

/// A thread that has written nothing for this long gets no share of the ring.
const IDLE: Duration = Duration::from_secs(2);

/// A waiting thread may keep its last interval if that takes at most this part of the ring (one eighth).
const MOST_PINNED: u64 = 8;

enum Payload {
    Memory(Box<[u8]>),
    File(Piece),
}

/// A chunk that is held.
struct Held {
    header: ChunkHeader,
    payload: Payload,
    /// Its number in the order in which all chunks came.
    serial: u64,
    at: Instant,
    /// The lowest number of the chunks whose events it holds: compaction merges chunks.
    since: u64,
    /// Instructions in gaps that ended in it.
    gaps: u64,
    /// The lowest and the highest code epoch that it names.
    epochs: Option<(u64, u64)>,
    /// It begins with a key frame that restates memory.
    state: bool,
}

impl Held {
    fn is_keyframe(&self) -> bool {
        self.header.flags & FLAG_KEY_FRAME != 0
    }

    fn bytes(&self) -> u64 {
        crate::chunk::HEADER_LEN as u64 + self.header.stored_len as u64
    }

    fn write(&self, sequence: u32, w: &mut Writer<impl Write>) -> io::Result<()> {
        let header = ChunkHeader {
            sequence,
            ..self.header
        };
        w.packed(&header, &self.payload()?)
    }

    /// The payload as it is stored.
    fn payload(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.payload {
            Payload::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
            Payload::File(piece) => piece.read().map(Cow::Owned),
        }
    }
}

/// A stream of which something is held or may still come.
struct Stream {
    info: StreamInfo,
    chunks: VecDeque<Arc<Held>>,
    /// Position of the stream's first event, even if that was dropped.
    first: Option<u64>,
    dropped: Dropped,
    /// Chunks are dropped until the next key frame.
    suspended: bool,
    /// The thread was asked for a key frame.
    wished: bool,
    /// How many state points are held.
    states: usize,
    /// Bytes since the last key frame, and when that came.
    since: u64,
    keyframe: Instant,
    latest: Instant,
    ended: Option<StreamSummary>,
    /// Of an image: how much it holds, and which epoch of the parent's code it builds on.
    weight: Weight,
    inherited: Option<u64>,
}

impl Stream {
    fn is_thread(&self) -> bool {
        self.info.kind == StreamKind::Thread
    }

    /// Number of chunks before the second key frame. `None` if there is no second one.
    fn interval(&self) -> Option<usize> {
        let second = self.chunks.iter().skip(1).position(|c| c.is_keyframe());
        second.map(|i| i + 1)
    }

    /// The number of chunks before the last `n` state points. `None`: there are no more than these.
    fn before_states(&self, n: usize) -> Option<usize> {
        let gone = self.states.checked_sub(n).filter(|gone| *gone > 0)?;
        let mut states = self.chunks.iter().enumerate().filter(|(_, c)| c.state);
        states.nth(gone).map(|(i, _)| i)
    }

    fn forget(&mut self, c: &Held) {
        let d = &mut self.dropped;
        d.chunks += 1;
        d.events += c.header.events as u64;
        d.bytes += c.bytes();
        let now = self
            .chunks
            .front()
            .map_or(c.header.last_pos, |c| c.header.first_pos);
        d.instructions = now - self.first.unwrap_or(now);
    }

    /// Counts of what is held.
    fn summary(&self, s: StreamSummary) -> StreamSummary {
        if self.dropped.chunks == 0 {
            return s;
        }
        let span = match (self.chunks.front(), self.chunks.back()) {
            (Some(a), Some(b)) => b.header.last_pos - a.header.first_pos,
            _ => 0,
        };
        let gaps: u64 = self.chunks.iter().map(|c| c.gaps).sum();
        StreamSummary {
            instructions: span.saturating_sub(gaps),
            gaps: crate::meta::Gaps {
                instructions: gaps.min(span),
                ..s.gaps
            },
            ..s
        }
    }
}

/// A file that the program mapped.
#[derive(Clone)]
struct Module {
    info: ModuleInfo,
    pieces: Arc<Vec<Held>>,
    /// Names of the content's pages.
    pages: Arc<Vec<ModuleHash>>,
}

/// The latest part of a recording.
pub struct Ring {
    header: Header,
    limit: Limit,
    /// The most state points of a thread that are held.
    states: usize,
    spill: Option<Arc<Spill>>,
    packer: Packer,
    streams: BTreeMap<StreamId, Stream>,
    modules: Vec<Module>,
    taken: Vec<Taken>,
    serial: u64,
    /// Bytes of the threads' streams that are held.
    bytes: u64,
    wishes: Vec<StreamId>,
    gone: Circular,
    /// Number of threads that wrote lately, and when they were counted.
    active: (u64, Option<Instant>),
    rounds: Rounds,
}

impl Ring {
    /// What was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Holds the latest part of a recording, in memory or in `file`.
    ///
    /// # Errors
    /// There is no memory for compression.
    pub fn new(header: &Header, limit: Limit, file: Option<File>) -> io::Result<Ring> {
        let limit_text = match limit {
            Limit::Bytes(n) => format!("{:.1} MiB", n as f64 / (1 << 20) as f64),
            Limit::Time(t) => format!("{} s", t.as_secs_f64()),
        };
        Ok(Ring {
            header: header.clone(),
            limit,
            states: usize::MAX,
            spill: file.map(Spill::new),
            packer: Packer::new()?,
            streams: BTreeMap::new(),
            modules: Vec::new(),
            taken: Vec::new(),
            serial: 0,
            bytes: 0,
            wishes: Vec::new(),
            gone: Circular {
                limit: limit_text,
                ..Circular::default()
            },
            active: (1, None),
            rounds: Rounds::default(),
        })
    }

    /// Holds of each thread only what follows the last `n` key frames that restate memory. At least one is held.
    pub fn keep_states(mut self, n: usize) -> Ring {
        self.states = n.max(1);
        self.gone.limit += &format!(", {} state points", self.states);
        self
    }

    /// Begins a stream.
    pub fn begin(&mut self, info: &StreamInfo) {
        let now = Instant::now();
        let stream = Stream {
            info: info.clone(),
            chunks: VecDeque::new(),
            first: None,
            dropped: Dropped::default(),
            suspended: false,
            wished: false,
            states: 0,
            since: 0,
            keyframe: now,
            latest: now,
            ended: None,
            weight: Weight::default(),
            inherited: None,
        };
        self.streams.insert(info.stream, stream);
    }

    /// Takes the events that `b` has gathered of `stream`. `told` is what else is known of them.
    ///
    /// # Errors
    /// The events cannot be compressed.
    pub fn stream(
        &mut self,
        stream: StreamId,
        b: &mut ChunkBuilder,
        told: &Told,
    ) -> io::Result<()> {
        if b.events() == 0 {
            return Ok(());
        }
        self.serial += 1;
        let (serial, spill) = (self.serial, &self.spill);
        let state = b.is_state_point();
        let held = self
            .packer
            .events(stream, 0, b, None, |h, bytes| hold(spill, serial, h, bytes))?;
        let held = Held {
            gaps: told.gaps,
            epochs: told.epochs,
            state,
            ..held
        };
        let Some(s) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        let is_thread = s.is_thread();
        s.first.get_or_insert(held.header.first_pos);
        s.latest = held.at;
        if held.is_keyframe() {
            (s.since, s.keyframe) = (0, held.at);
            (s.suspended, s.wished) = (false, false);
        }
        if s.suspended {
            s.forget(&held);
        } else {
            if s.chunks.is_empty() {
                let first = s.first.unwrap_or(held.header.first_pos);
                s.dropped.instructions = held.header.first_pos - first;
            }
            s.since += held.bytes();
            s.states += usize::from(state);
            if is_thread {
                self.bytes += held.bytes();
            } else {
                s.weight.grow(held.header.raw_len as u64, told);
                s.inherited = s.inherited.or(told.inherited);
            }
            s.chunks.push_back(Arc::new(held));
        }
        if is_thread {
            self.ask(stream);
        }
        self.trim();
        Ok(())
    }

    /// Asks for a key frame if the stream's interval is long enough.
    fn ask(&mut self, stream: StreamId) {
        let active = self.active();
        let Some(s) = self.streams.get_mut(&stream) else {
            return;
        };
        let long = match self.limit {
            Limit::Bytes(n) => s.since > (n / INTERVALS / active).max(LEAST_INTERVAL),
            Limit::Time(t) => s.keyframe.elapsed() > t / INTERVALS as u32,
        };
        if (long || s.suspended) && !s.wished && s.ended.is_none() {
            s.wished = true;
            self.wishes.push(stream);
        }
    }

    /// Number of threads that share the ring.
    fn active(&mut self) -> u64 {
        let now = Instant::now();
        if self.active.1.is_none_or(|t| now - t > IDLE / 2) {
            let lately = |s: &&Stream| s.is_thread() && s.ended.is_none() && now - s.latest < IDLE;
            let n = self.streams.values().filter(lately).count();
            self.active = (n.max(1) as u64, Some(now));
        }
        self.active.0
    }

    /// Bytes of events after which each thread should make a key frame by itself. What waits in queues is not counted
    /// here, so asking comes too late if a thread fills a small ring quickly. `None` if the ring has no limit in bytes.
    pub fn interval(&mut self) -> Option<u64> {
        match self.limit {
            Limit::Bytes(n) => Some((n / HALF / self.active()).max(LEAST_INTERVAL)),
            Limit::Time(_) => None,
        }
    }

    /// Streams whose threads are to make a key frame as soon as possible.
    pub fn take_wishes(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.wishes)
    }

    /// Says that the stream is complete.
    pub fn end(&mut self, summary: StreamSummary) {
        let Some(s) = self.streams.get_mut(&summary.stream) else {
            return;
        };
        let image = s.info.image;
        s.ended = Some(summary);
        self.remove_empty(image);
    }

    /// Notes that a lock for atomic operations was taken from its thread.
    pub fn taken(&mut self, taken: &Taken) {
        self.taken.push(*taken);
    }

    /// Takes a file that the program mapped.
    ///
    /// # Errors
    /// The content cannot be compressed.
    pub fn module(&mut self, path: Text, content: &[u8]) -> io::Result<ModuleHash> {
        let hash = ModuleHash::of(content);
        let same = self.modules.iter().find(|m| m.info.hash == hash);
        let (pieces, pages) = match same {
            Some(m) => (Arc::clone(&m.pieces), Arc::clone(&m.pages)),
            None => {
                let mut list = Vec::new();
                for (h, piece) in pack::pieces(content) {
                    let spill = &self.spill;
                    list.push(
                        self.packer
                            .chunk(h, piece, |h, bytes| hold(spill, 0, h, bytes))?,
                    );
                }
                (Arc::new(list), Arc::new(files::pages(content)))
            }
        };
        self.modules.push(Module {
            info: ModuleInfo {
                path,
                hash,
                size: content.len() as u64,
                shared: false,
            },
            pieces,
            pages,
        });
        Ok(hash)
    }

    /// Bytes of the threads' streams that are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops what exceeds the limit. To be called now and then.
    pub fn trim(&mut self) {
        while let Some(victim) = self.outdated().or_else(|| self.victim(false)) {
            self.drop_from(victim);
        }
    }

    /// A thread of which too many state points are held, and how many of its chunks come before those that stay.
    fn outdated(&self) -> Option<(StreamId, usize)> {
        let mut streams = self.streams.iter();
        streams.find_map(|(id, s)| Some((*id, s.before_states(self.states)?)))
    }

    /// Drops the first chunks of a stream.
    fn drop_from(&mut self, (id, n): (StreamId, usize)) {
        let Some(s) = self.streams.get_mut(&id) else {
            return;
        };
        for _ in 0..n {
            if let Some(c) = s.chunks.pop_front() {
                self.bytes -= c.bytes();
                s.states -= usize::from(c.state);
                s.forget(&c);
            }
        }
        let (image, live) = (s.info.image, s.ended.is_none());
        if s.chunks.is_empty() && live {
            s.suspended = true;
            if !s.wished {
                s.wished = true;
                self.wishes.push(id);
            }
        } else if s.chunks.is_empty() {
            self.remove_empty(image);
        }
    }

    /// The stream from which to drop, and how many of its chunks. With `force`, even if the limit has room.
    fn victim(&self, force: bool) -> Option<(StreamId, usize)> {
        let (over, most) = match self.limit {
            Limit::Bytes(n) => (self.bytes > n, n / MOST_PINNED),
            Limit::Time(_) => (true, u64::MAX),
        };
        if !over && !force {
            return None;
        }
        let now = Instant::now();
        // Intervals are compared by the time of their end. The one that ended first goes.
        let mut best: Option<(bool, u64, StreamId, usize, Instant)> = None;
        for (id, s) in self.streams.iter().filter(|(_, s)| s.is_thread()) {
            let Some(last) = s.chunks.back() else {
                continue;
            };
            let (n, end, pinned) = match s.interval() {
                Some(n) => (n, &s.chunks[n - 1], false),
                None => {
                    let bytes: u64 = s.chunks.iter().map(|c| c.bytes()).sum();
                    (s.chunks.len(), last, s.ended.is_none() && bytes <= most)
                }
            };
            // The state of a living thread is worth more than the past of another one.
            let candidate = (pinned, end.serial, *id, n, end.at);
            if best.is_none_or(|b| candidate < b) {
                best = Some(candidate);
            }
        }
        let (pinned, _, id, n, at) = best?;
        match self.limit {
            Limit::Time(t) if !force && (pinned || now - at <= t) => None,
            _ => Some((id, n)),
        }
    }

    /// Forgets the threads of `image` that ended and have nothing held. Then forgets the image if nobody
    /// needs it, and its ancestors likewise.
    fn remove_empty(&mut self, mut image: u32) {
        let gone = &mut self.gone;
        self.streams.retain(|_, s| {
            let empty =
                s.info.image == image && s.is_thread() && s.ended.is_some() && s.chunks.is_empty();
            if empty {
                gone.threads += 1;
                gone.instructions += s.dropped.instructions;
                gone.bytes += s.dropped.bytes;
            }
            !empty
        });
        loop {
            let of = |s: &Stream| s.info.image == image;
            let heir = |s: &Stream| s.info.parent == image && !s.info.executed && !s.is_thread();
            let needed = |s: &Stream| of(s) && (s.is_thread() || s.ended.is_none()) || heir(s);
            if self.streams.values().any(needed) {
                return;
            }
            let parent = self.streams.values().find(|s| of(s)).map(|s| s.info.parent);
            self.streams.retain(|_, s| !of(s));
            match parent {
                Some(p) if p < image => image = p,
                _ => return,
            }
        }
    }
}

fn hold(
    spill: &Option<Arc<Spill>>,
    serial: u64,
    header: ChunkHeader,
    bytes: &[u8],
) -> io::Result<Held> {
    // If the disk is full, memory holds the payload.
    let filed = spill.as_ref().and_then(|s| s.put(bytes).ok());
    Ok(Held {
        header,
        payload: filed.map_or_else(|| Payload::Memory(bytes.into()), Payload::File),
        serial,
        at: Instant::now(),
        since: serial,
        gaps: 0,
        epochs: None,
        state: false,
    })
}
