//! Makes a trace of a part of a recording, which stands alone.

use crate::columns::ChunkBuilder;
use crate::meta::{Dropped, Gaps, Opener, Part};
use crate::pack::{self, Packer};
use crate::{
    ChunkMeta, Error, Header, Pushed, StreamId, StreamInfo, StreamKind, StreamSummary, Summary,
    Trace, Writer,
};
use hindsight_events::{Encoder, Event, MAX_EVENT};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

/// Which part of a stream stays.
pub struct Kept<'a> {
    /// The numbers of its chunks.
    pub chunks: Range<usize>,
    /// The last order number that the thread got before them.
    pub opener: Opener,
    /// Some of these have other events, in place of a key frame that needs chunks from before: by the number of the first
    /// chunk, the number behind the last one, and what tells the events.
    pub rewritten: BTreeMap<usize, (usize, Box<Rewrite<'a>>)>,
}

/// Tells events with their positions, to a chunk's end.
pub type Rewrite<'a> = dyn FnOnce(&mut Tell) -> Result<(), Error> + 'a;

/// Takes an event at a position.
pub type Tell<'a> = dyn FnMut(u64, &Event) -> Result<(), Error> + 'a;

/// Writes the trace that has these parts of streams, and all module files. A stream that is not named has none of its chunks
/// left; one of a program image is kept as a whole if any thread of it is, or of an image that came from it. `part` says
/// which part it is; its numbers are filled in. `progress` is told how many bytes of the trace were dealt
/// with, and answers whether to go on.
///
/// Returns the number of bytes written.
///
/// # Errors
/// The trace or a module cannot be read, `out` fails, or `progress` says that it is enough ([`Error::Io`], interrupted).
pub fn cut(
    trace: &Trace,
    mut kept: BTreeMap<StreamId, Kept>,
    mut part: Part,
    out: impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, Error> {
    let (begins, ends) = frame(trace, &kept, &mut part);
    // What was left out had ended before, or its end would be needed too.
    let whole = kept
        .iter()
        .all(|(id, k)| k.chunks.end == trace.chunks(*id).len());
    let mut w = Writer::new(
        out,
        &Header {
            cut: Some(part),
            ..trace.header().clone()
        },
    )?;
    let mut done = 0;
    let mut go_on = |n: u64| {
        done += n;
        match progress(done) {
            true => Ok(()),
            false => Err(Error::from(io::Error::from(io::ErrorKind::Interrupted))),
        }
    };
    for info in &begins {
        w.begin(info)?;
        if info.kind == StreamKind::Image {
            for c in trace.chunks(info.stream) {
                trace.copy(c, &mut w)?;
                go_on(c.stored_len)?;
            }
        }
    }
    for m in trace.modules() {
        let content = trace.module_bytes(m.hash)?;
        let pieces = |packer: &mut Packer, add: &mut dyn FnMut(&_, &[u8]) -> io::Result<()>| {
            pack::pieces(&content)
                .try_for_each(|(h, piece)| packer.chunk(h, piece, |h, b| add(&h, b)))
        };
        w.take(m, || crate::files::pages(&content), pieces)?;
        go_on(0)?;
    }
    trace.taken().iter().try_for_each(|t| w.taken(t))?;
    let mut chunks: Vec<&ChunkMeta> = Vec::new();
    for (id, k) in &kept {
        chunks.extend(trace.chunks(*id).get(k.chunks.clone()).unwrap_or_default());
    }
    // In the order in which they came. So a trace that is cut has the same time of all threads.
    chunks.sort_by_key(|c| c.offset);
    // Up to which chunk each stream has been told otherwise.
    let mut told: BTreeMap<StreamId, usize> = BTreeMap::new();
    for c in chunks {
        if told.get(&c.stream).is_none_or(|end| *end <= c.index) {
            let its = kept.get_mut(&c.stream).map(|k| &mut k.rewritten);
            match its.and_then(|r| r.remove(&c.index)) {
                Some((end, tell)) => {
                    rewrite(c.stream, tell, &mut w)?;
                    told.insert(c.stream, end);
                }
                None => trace.copy(c, &mut w)?,
            }
        }
        go_on(c.stored_len)?;
    }
    for e in ends.into_iter().filter(|e| trace.has_ended(e.stream)) {
        w.end(e)?;
    }
    let Some(summary) = trace.summary().cloned() else {
        // The recording was not ended in order, so its part was not.
        w.flush()?;
        return Ok(w.written());
    };
    let ending = summary.ending.clone().filter(|_| whole);
    let (_, summary) = w.finish(Summary { ending, ..summary })?;
    Ok(summary.trace_bytes)
}

/// Descriptions and ends of the streams that stay. `part` gets the numbers of what does not.
fn frame(
    trace: &Trace,
    kept: &BTreeMap<StreamId, Kept>,
    part: &mut Part,
) -> (Vec<StreamInfo>, Vec<StreamSummary>) {
    let images = images(trace, kept);
    let stays = |id: StreamId| {
        let info = trace.stream_info(id);
        info.is_some_and(|i| match i.kind {
            StreamKind::Thread => kept.contains_key(&id),
            StreamKind::Image => images.contains(&i.image),
        })
    };
    let streams: Vec<StreamId> = (trace.all_streams().map(|i| i.stream))
        .filter(|id| stays(*id))
        .collect();
    let counts: BTreeMap<StreamId, StreamSummary> =
        trace.counts().into_iter().map(|c| (c.stream, c)).collect();
    let mut ends = Vec::new();
    let mut begins = Vec::new();
    for info in trace.all_streams() {
        let all = trace.chunks(info.stream);
        let count = counts.get(&info.stream).cloned().unwrap_or_default();
        if !streams.contains(&info.stream) {
            part.threads += u64::from(info.kind == StreamKind::Thread);
            part.instructions = part.instructions.saturating_add(count.instructions);
            part.bytes = part.bytes.saturating_add(count.stored_bytes);
            continue;
        }
        let range = kept
            .get(&info.stream)
            .map_or(0..all.len(), |k| k.chunks.clone());
        let mut info = info.clone();
        if info.kind == StreamKind::Thread {
            let gone = dropped(all, &range, info.dropped);
            let without = gone.instructions.saturating_add(behind(all, &range));
            part.instructions = part.instructions.saturating_add(without);
            part.bytes = part.bytes.saturating_add(gone.bytes);
            let opener = kept.get(&info.stream).map(|k| k.opener);
            info.dropped = match range.start {
                0 => info.dropped,
                _ => Some(Dropped { opener, ..gone }),
            };
        }
        ends.push(end(count, all, &range));
        begins.push(info);
    }
    (begins, ends)
}

/// The images of which something stays: those of the threads, and those from which they came.
fn images(trace: &Trace, kept: &BTreeMap<StreamId, Kept>) -> Vec<u32> {
    let mut out: Vec<u32> = Vec::new();
    for id in kept.keys() {
        let mut image = trace.stream_info(*id).map_or(0, |i| i.image);
        // A damaged trace may have a circle of parents.
        while image != 0 && !out.contains(&image) {
            out.push(image);
            image = trace.image(image).map_or(0, |i| i.parent);
        }
    }
    out
}

/// What is missing from the beginning of a stream. `before` was missing already.
fn dropped(all: &[ChunkMeta], kept: &Range<usize>, before: Option<Dropped>) -> Dropped {
    let mut out = before.unwrap_or_default();
    for c in all.get(..kept.start).unwrap_or_default() {
        out.chunks = out.chunks.saturating_add(1);
        out.events = out.events.saturating_add(c.events as u64);
        out.bytes = out.bytes.saturating_add(c.stored_len);
    }
    if let (Some(first), Some(now)) = (all.first(), all.get(kept.start)) {
        let gone = now.first_pos - first.first_pos;
        out.instructions = out.instructions.saturating_add(gone);
    }
    out
}

/// The number of instructions behind what stays of a stream.
fn behind(all: &[ChunkMeta], kept: &Range<usize>) -> u64 {
    let last = kept.end.checked_sub(1).and_then(|i| all.get(i));
    let end = all.last().map_or(0, |c| c.last_pos);
    end - last.map_or(end, |c| c.last_pos)
}

/// The end of a stream of which these chunks stay.
fn end(counts: StreamSummary, all: &[ChunkMeta], kept: &Range<usize>) -> StreamSummary {
    let its = all.get(kept.clone()).unwrap_or_default();
    let span = its.first().zip(its.last());
    let span = span.map_or(0, |(a, b)| b.last_pos - a.first_pos);
    if kept.len() == all.len() {
        return counts;
    }
    let its_end = kept.end == all.len();
    StreamSummary {
        instructions: span.min(counts.instructions),
        gaps: Gaps::default(),
        end: counts.end.clone().filter(|_| its_end),
        last_sequence: counts.last_sequence.filter(|_| its_end),
        lost: counts.lost && its_end,
        ..counts
    }
}

/// Writes events as chunks of a stream.
fn rewrite(id: StreamId, tell: Box<Rewrite>, w: &mut Writer<impl Write>) -> Result<(), Error> {
    let (mut builder, mut encoder) = (ChunkBuilder::default(), Encoder::default());
    let mut buf = vec![0; MAX_EVENT];
    tell(&mut |position, event| {
        loop {
            let mut next = encoder.clone();
            let n = next.encode(position, event, &mut buf);
            let (taken, pushed) = builder.push(&buf[..n], |_, _| None);
            if taken == 0 && pushed == Pushed::Full && builder.events() > 0 {
                w.stream(id, &mut builder)?;
                continue;
            }
            encoder = next;
            return Ok(());
        }
    })?;
    w.stream(id, &mut builder)?;
    Ok(())
}
