//! Bounds the streams of program images: removes code and mappings that nothing held needs.
//!
//! Events that are still to come need code and mappings too. So compaction works in *rounds*:
//!
//! 1. The collector begins a round ([`Ring::begin_round`]).
//! 2. It empties all rings of the recorded program, and checks that no process is about to be made.
//! 3. It ends the round ([`Ring::end_round`]).
//!
//! What comes after that was written after everything that the image's stream held when the round began. So
//! it cannot need code that was superseded in that part. The exception is the code of the epoch at which each
//! thread stands.

use super::prune::{self, Fate, Said, Times};
use super::{Held, Limit, Ring, Stream, hold};
use crate::columns::{self, ChunkBuilder};
use crate::{Pushed, StreamId, chunk};
use hindsight_events::{Decoder, Encoder, Event, MAX_EVENT};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// An image's stream is compacted only after it grew by at least this many bytes of events.
const LEAST_GROWTH: u64 = 1 << 20;

/// Most bytes of past code in an image's stream. A replay has room for a few times as much.
const MOST_PAST: u64 = 256 << 20;

/// What is known of a chunk's events besides its header.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Told {
    /// Instructions in gaps that ended in the chunk.
    pub gaps: u64,
    /// The lowest and the highest epoch that the chunk names. In a thread's stream: epochs whose code it
    /// executes. In an image's: epochs at which its code begins.
    pub epochs: Option<(u64, u64)>,
    /// The epoch of the parent's code on which the image builds, if the chunk says it.
    pub inherited: Option<u64>,
}

/// The state when a round began.
#[derive(Default)]
pub struct Start {
    /// Number of the last chunk.
    serial: u64,
    /// The highest epoch of each image's code.
    epochs: BTreeMap<u32, u64>,
}

/// The rounds so far.
#[derive(Default)]
pub struct Rounds {
    begun: Option<Start>,
    /// Number of the last chunk when the last finished round began.
    last: u64,
    /// Pairs of chunk numbers: what threads did before the first was written is in chunks up to the second.
    bounds: VecDeque<(u64, u64)>,
}

/// How much an image's stream holds.
#[derive(Clone, Copy, Default)]
pub struct Weight {
    /// Bytes of events after the last compaction, and bytes that came since.
    then: u64,
    since: u64,
    /// The highest epoch of its code.
    pub epoch: u64,
}

impl Weight {
    /// Counts a new chunk.
    pub fn grow(&mut self, bytes: u64, told: &Told) {
        self.since += bytes;
        self.epoch = self.epoch.max(told.epochs.map_or(0, |e| e.1));
    }
}

/// One event of an image's stream, with the number of its chunk.
struct Item {
    chunk: usize,
    wire: std::ops::Range<usize>,
    position: u64,
    said: Option<Kind>,
}

#[derive(Clone, Copy)]
enum Kind {
    Code(Said),
    Map(Said, bool),
}

impl Ring {
    /// Begins a round.
    pub fn begin_round(&mut self) {
        let images = self.streams.values().filter(|s| !s.is_thread());
        self.rounds.begun = Some(Start {
            serial: self.serial,
            epochs: images.map(|s| (s.info.image, s.weight.epoch)).collect(),
        });
    }

    /// Ends the round. Everything that was written before the round began has been seen. What was seen before
    /// the previous round ended is in chunks. `live` lists pairs of an image and a range of epochs: those at
    /// which its threads stand, and those named by events that are not in a chunk yet.
    ///
    /// # Errors
    /// A stream that was held in a file cannot be read or compressed.
    pub fn end_round(&mut self, live: &[(u32, (u64, u64))]) -> io::Result<()> {
        let Some(start) = self.rounds.begun.take() else {
            return Ok(());
        };
        self.rounds
            .bounds
            .push_back((self.rounds.last, self.serial));
        self.rounds.last = start.serial;
        let due = |s: &Stream| !s.is_thread() && s.weight.since > s.weight.then.max(LEAST_GROWTH);
        let due: Vec<_> = self.streams.iter().filter(|(_, s)| due(s)).collect();
        let due: Vec<(StreamId, u32)> = due.iter().map(|(id, s)| (**id, s.info.image)).collect();
        for (id, image) in due {
            let Some(highest) = start.epochs.get(&image) else {
                continue;
            };
            let mut epochs = self.epochs(image, live);
            epochs.add(*highest, u64::MAX);
            self.compact(id, &epochs, &self.places(image))?;
        }
        // Of the rounds before the oldest chunk of a thread, only the last one matters.
        let threads = self.streams.values().filter(|s| s.is_thread());
        let oldest = threads.filter_map(|s| Some(s.chunks.front()?.serial)).min();
        let bounds = &mut self.rounds.bounds;
        while bounds.len() > 1 && oldest.is_none_or(|o| bounds[1].1 < o) {
            bounds.pop_front();
        }
        Ok(())
    }

    /// The epochs of an image's code that are needed, besides those to come.
    fn epochs(&self, image: u32, live: &[(u32, (u64, u64))]) -> Times {
        let mut times = Times::default();
        for s in self.streams.values() {
            if s.is_thread() && s.info.image == image {
                let told = s.chunks.iter().filter_map(|c| c.epochs);
                told.for_each(|(first, last)| times.add(first, last));
            } else if !s.is_thread() && s.info.parent == image {
                s.inherited.iter().for_each(|e| times.add(*e, *e));
            }
        }
        let mine = live.iter().filter(|(i, _)| *i == image);
        mine.for_each(|(_, (first, last))| times.add(*first, *last));
        times
    }

    /// The chunk numbers at which mappings of an image are needed: where its threads may have been in what is
    /// held, and where they may be in what comes.
    fn places(&self, image: u32) -> Times {
        let mut times = Times::default();
        times.add(self.rounds.last, u64::MAX);
        let bounds = &self.rounds.bounds;
        for s in self.streams.values() {
            if s.is_thread() && s.info.image == image {
                for c in &s.chunks {
                    let i = bounds.partition_point(|(_, bound)| *bound < c.serial);
                    let from = i.checked_sub(1).map_or(0, |i| bounds[i].0);
                    times.add(from, c.serial);
                }
            }
        }
        times
    }

    /// Removes what is not needed from the image stream `id`.
    fn compact(&mut self, id: StreamId, epochs: &Times, places: &Times) -> io::Result<()> {
        let Some(s) = self.streams.get(&id) else {
            return Ok(());
        };
        let image = s.info.image;
        let chunks: Vec<Arc<Held>> = s.chunks.iter().cloned().collect();
        let mut wires = Vec::new();
        for c in &chunks {
            let raw = chunk::unpack(&c.header, 0, c.payload()?.into_owned());
            let wire = raw.ok().and_then(|raw| columns::merge(&raw));
            // An unreadable stream stays as it is.
            let Some(wire) = wire else { return Ok(()) };
            wires.push(wire);
        }
        let items = items(&chunks, &wires);
        let fates = fates(&items, epochs, places);
        let mut past = 0;
        let mut out = Rewriter::default();
        for (i, c) in chunks.iter().enumerate() {
            if out.events > 0 && places.any(out.since, c.serial) {
                self.flush(id, &mut out)?;
            }
            if out.events == 0 {
                out.since = c.since;
            }
            (out.serial, out.at) = (c.serial, Some(c.at));
            let start = items.partition_point(|e| e.chunk < i);
            for (e, fate) in items[start..].iter().zip(&fates[start..]) {
                if e.chunk != i {
                    break;
                }
                if *fate == Fate::Gone {
                    continue;
                }
                let wire = &wires[i][e.wire.clone()];
                if *fate == Fate::Past {
                    past += wire.len() as u64;
                }
                while !out.push(e.position, wire) {
                    self.flush(id, &mut out)?;
                }
            }
        }
        self.flush(id, &mut out)?;
        let Some(s) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        s.weight.then = out.total;
        s.weight.since = 0;
        s.chunks = out.done.into();
        let stored: u64 = s.chunks.iter().map(|c| c.bytes()).sum();
        let past_stored = (stored as u128 * past as u128 / out.total.max(1) as u128) as u64;
        self.relieve(image, past, past_stored);
        Ok(())
    }

    /// If the past needs much code, shortens the past.
    fn relieve(&mut self, image: u32, past: u64, stored: u64) {
        let most = match self.limit {
            Limit::Bytes(n) => n,
            Limit::Time(_) => u64::MAX,
        };
        if past > MOST_PAST / 4 || stored > most / 4 {
            // New key frames end intervals, and whole intervals can be dropped.
            for (id, s) in &mut self.streams {
                if s.is_thread() && s.info.image == image && s.ended.is_none() && !s.wished {
                    s.wished = true;
                    self.wishes.push(*id);
                }
            }
        }
        if past > MOST_PAST || stored > most {
            let target = self.bytes / 4 * 3;
            while self.bytes > target {
                let Some(victim) = self.victim(true) else {
                    break;
                };
                self.drop_from(victim);
            }
        }
    }

    fn flush(&mut self, id: StreamId, out: &mut Rewriter) -> io::Result<()> {
        if out.events == 0 {
            return Ok(());
        }
        let (serial, since) = (out.serial, out.since);
        let at = out.at.unwrap_or_else(Instant::now);
        let spill = &self.spill;
        let held = self
            .packer
            .events(id, 0, &mut out.builder, None, |h, bytes| {
                hold(spill, serial, h, bytes)
            })?;
        out.done.push(Arc::new(Held { at, since, ..held }));
        out.events = 0;
        Ok(())
    }
}

/// Makes chunks of events.
#[derive(Default)]
struct Rewriter {
    builder: ChunkBuilder,
    encoder: Encoder,
    events: u64,
    since: u64,
    serial: u64,
    at: Option<Instant>,
    done: Vec<Arc<Held>>,
    /// Bytes of all events.
    total: u64,
}

impl Rewriter {
    /// Takes an event. `false` if the events gathered so far must become a chunk first.
    fn push(&mut self, position: u64, wire: &[u8]) -> bool {
        let Some((_, event, _)) = Decoder::default().decode(wire) else {
            return true;
        };
        let mut buf = [0; MAX_EVENT];
        let mut encoder = self.encoder.clone();
        let n = encoder.encode(position, &event, &mut buf);
        let (taken, pushed) = self.builder.push(&buf[..n], |_, _| None);
        if taken == 0 && pushed == Pushed::Full && self.events > 0 {
            return false;
        }
        self.encoder = encoder;
        self.events += 1;
        self.total += n as u64;
        true
    }
}

fn items(chunks: &[Arc<Held>], wires: &[Vec<u8>]) -> Vec<Item> {
    let mut items = Vec::new();
    for (i, wire) in wires.iter().enumerate() {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        let place = (chunks[i].since, chunks[i].serial);
        while let Some((position, event, n)) = decoder.decode(&wire[at..]) {
            let said = |addr, len, from| Said { addr, len, from };
            let said = match event {
                Event::Code { epoch, addr, bytes } => {
                    Some(Kind::Code(said(addr, bytes.len() as u64, (epoch, epoch))))
                }
                Event::CodeOf {
                    epoch, addr, len, ..
                } => Some(Kind::Code(said(addr, len as u64, (epoch, epoch)))),
                Event::Map { addr, len, .. } => Some(Kind::Map(said(addr, len, place), true)),
                Event::Unmap { addr, len } => Some(Kind::Map(said(addr, len, place), false)),
                _ => None,
            };
            items.push(Item {
                chunk: i,
                wire: at..at + n,
                position,
                said,
            });
            at += n;
        }
    }
    items
}

/// The fate of each item. Items that are neither code nor mappings stay.
fn fates(items: &[Item], epochs: &Times, places: &Times) -> Vec<Fate> {
    let (mut code, mut maps) = (Vec::new(), Vec::new());
    for item in items {
        match item.said {
            Some(Kind::Code(s)) => code.push(s),
            Some(Kind::Map(s, mapped)) => maps.push((s, mapped)),
            None => {}
        }
    }
    let mut code = prune::code(&code, epochs).into_iter();
    let mut maps = prune::mappings(&maps, places).into_iter();
    let fate = |item: &Item| match item.said {
        Some(Kind::Code(_)) => code.next(),
        Some(Kind::Map(..)) => maps.next(),
        None => None,
    };
    let all = items.iter().map(fate);
    all.map(|f| f.unwrap_or(Fate::Now)).collect()
}
