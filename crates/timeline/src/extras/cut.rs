//! A smaller recording of a part, which stands alone.
//!
//! Replay begins at key frames, so the part is a bit larger than what was asked for: a quiet thread's stream begins at the last key
//! frame before it, and ends with the chunk that has its end. Processes that are not quiet are kept as a whole, if they run in the
//! part at all. A key frame of a quiet thread may restate only what has changed since an earlier one. Where that one is left out, the key frame is written anew, with all that memory held.

use crate::recording::Chunks;
use crate::{Cancel, Error, Position, Result, ThreadId, Timeline};
use hindsight_events::{Decoder, Event};
use hindsight_replay::{Source, chain};
use hindsight_trace::cut::{Kept, Rewrite, Tell, cut};
use hindsight_trace::meta::{Opener, Part};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

const PAGE: u64 = 4096;
/// Cells of the window.
const CELLS: u64 = 1 << 32;

/// A recording of a part that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CutRecording {
    /// Its size in bytes, without the bytes of its summary.
    pub bytes: u64,
    /// The number of threads of which it has something.
    pub threads: usize,
    /// The number of instructions that it has, of all threads.
    pub instructions: u64,
}

impl Timeline {
    /// Writes a recording of what happened from one position to another, with all files that it needs. It has more: quiet threads
    /// begin at a key frame, and processes that are not quiet are kept as a whole. `progress` gets the number of bytes dealt with,
    /// of those of this recording.
    ///
    /// Positions stay what they are.
    ///
    /// # Errors
    /// `until` is before `from`, no thread runs in between, this recording cannot be read, or `out` fails.
    pub fn cut(
        &self,
        (from, until): (Position, Position),
        out: impl Write,
        progress: &mut dyn FnMut(u64),
        cancel: &Cancel,
    ) -> Result<CutRecording> {
        if until < from {
            return Err(Error::Unsupported(format!(
                "a part from {from} until {until}: it ends before it begins"
            )));
        }
        let trace = self.trace();
        let mut kept = BTreeMap::new();
        let mut instructions = 0;
        for thread in self.0.threads.iter().copied() {
            let id = thread.0;
            let Some(chunks) = self.part_of(thread, (from, until))? else {
                continue;
            };
            let all = trace.chunks(id);
            let its = all[chunks.clone()].first().zip(all[chunks.clone()].last());
            instructions += its.map_or(0, |(a, b)| b.last_pos - a.first_pos);
            let rewritten = self.rewritten(thread, &chunks)?;
            let opener = self.opener(thread, &chunks)?;
            let part = Kept {
                chunks,
                opener,
                rewritten,
            };
            kept.insert(id, part);
        }
        if kept.is_empty() {
            return Err(Error::Unsupported(format!(
                "a part from {from} until {until}: no thread runs there"
            )));
        }
        let threads = kept.len();
        let part = Part {
            from: from.to_string(),
            until: until.to_string(),
            ..Part::default()
        };
        let bytes = cut(trace, kept, part, out, &mut |n| {
            progress(n);
            !cancel.is_cancelled()
        });
        match bytes {
            Err(_) if cancel.is_cancelled() => Err(Error::Cancelled),
            other => Ok(CutRecording {
                bytes: other?,
                threads,
                instructions,
            }),
        }
    }

    /// The chunks of a thread that are needed. `None`: none of its image's threads ran in between.
    ///
    /// Only of a quiet thread a part is enough: nobody else changes its memory. What other threads left in theirs is known only
    /// from their streams, from the beginning to the end.
    fn part_of(
        &self,
        thread: ThreadId,
        part: (Position, Position),
    ) -> Result<Option<Range<usize>>> {
        let all = self.trace().chunks(thread.0);
        let siblings = self.0.threads_of(self.0.image(thread));
        let mut runs = None;
        for t in &siblings {
            runs = runs.or(self.runs_in(*t, part)?);
        }
        let Some((begin, last)) = runs else {
            return Ok(None);
        };
        if siblings.len() > 1 || self.0.scan(thread)?.told_at(last).is_none() {
            return Ok(Some(0..all.len()));
        }
        let before = all[..all.partition_point(|c| c.first_pos <= begin)].iter();
        let first = before.rev().find(|c| c.keyframe).map_or(0, |c| c.index);
        let mut end = all.partition_point(|c| c.first_pos <= last);
        // A thread's way is known up to its last event. The next one may be in the next chunk, which may begin with a key frame
        // of several chunks.
        let next = all
            .get(end)
            .filter(|_| end > 0 && all[end - 1].last_pos < last);
        if let Some(next) = next {
            end = all.partition_point(|c| c.first_pos <= next.first_pos);
        }
        Ok((first < end).then_some(first..end))
    }

    /// From which instruction to which one a thread runs in a part. `None`: it had ended before, or begins later.
    fn runs_in(
        &self,
        thread: ThreadId,
        (from, until): (Position, Position),
    ) -> Result<Option<(u64, u64)>> {
        let Some(last) = self.count_at(thread, until)? else {
            return Ok(None);
        };
        let begin = self.count_at(thread, from)?;
        if begin.is_some() && !self.is_alive(thread, from)? {
            return Ok(None);
        }
        Ok(Some((begin.unwrap_or(0), last)))
    }

    /// The last order number that a thread got before these chunks.
    fn opener(&self, thread: ThreadId, kept: &Range<usize>) -> Result<Opener> {
        let chunks = &self.trace().chunks(thread.0)[kept.clone()];
        let at = chunks.first().map_or(0, |c| c.first_pos);
        // Those that it has at this very position, but later in its stream.
        let mut later = Vec::new();
        for c in chunks.iter().take_while(|c| c.first_pos == at) {
            each(&self.trace().load(c)?, &mut |position, event| {
                if let Event::Seq { number } = event
                    && position == at
                {
                    later.push(*number);
                }
                Ok(())
            })?;
        }
        let scan = self.0.scan(thread)?;
        let until = scan.numbers.partition_point(|n| n.1 <= at);
        // They ascend.
        let segment = scan.nth(thread, until.saturating_sub(later.len()));
        Ok(Opener {
            number: segment.opens,
            at: segment.from - segment.left_out,
        })
    }

    /// What is written anew of these chunks: key frames that build on others which are left out.
    fn rewritten(
        &self,
        thread: ThreadId,
        kept: &Range<usize>,
    ) -> Result<BTreeMap<usize, (usize, Box<Rewrite<'_>>)>> {
        let all = self.trace().chunks(thread.0);
        let look = |i: usize| chain::look(all, i);
        let mut out = BTreeMap::new();
        for c in all[kept.clone()].iter().filter(|c| c.keyframe) {
            let back = chain::begin(&self.trace().load(c)?).unwrap_or(0);
            // One whose base is missing here too stays as it is.
            let base = chain::base(&look, c.index, back).filter(|_| back != 0);
            if base.is_none_or(|base| base >= kept.start) {
                continue;
            }
            let Some(end) = self.restated_until(thread, c.index)? else {
                continue;
            };
            let first = c.index;
            let tell = move |tell: &mut Tell| self.tell_whole(thread, first..end, back, tell);
            out.insert(first, (end, Box::new(tell) as Box<Rewrite>));
        }
        Ok(out)
    }

    /// The number of the chunk behind the one in which a key frame has restated everything. `None`: that is missing.
    fn restated_until(&self, thread: ThreadId, first: usize) -> Result<Option<usize>> {
        let all = &self.trace().chunks(thread.0)[first..];
        let its = all.iter().take_while(|c| c.index == first || !c.keyframe);
        for c in its {
            let wire = self.trace().load(c)?;
            let mut found = false;
            each(&wire, &mut |_, event| {
                found |= matches!(event, Event::Restate { ends: true, .. });
                Ok(())
            })?;
            if found {
                return Ok(Some(c.index + 1));
            }
        }
        Ok(None)
    }

    /// Tells these chunks, whose key frame then restates all memory.
    fn tell_whole(
        &self,
        thread: ThreadId,
        chunks: Range<usize>,
        back: u64,
        tell: &mut Tell,
    ) -> std::result::Result<(), hindsight_trace::Error> {
        let other = |e: hindsight_replay::Error| io::Error::other(e.to_string());
        let mut memory = Restated::default();
        let source = Chunks::new(&self.0.recording, thread, chunks.start);
        let below = source.below(back, &mut |e| {
            memory.take(e);
            Ok(())
        });
        below.map_err(other)?;
        let wires: Vec<Vec<u8>> = (self.trace().chunks(thread.0)[chunks].iter())
            .map(|c| self.trace().load(c))
            .collect::<std::result::Result<_, _>>()?;
        let mut restating = true;
        for wire in &wires {
            each(wire, &mut |_, event| {
                restating &= !matches!(event, Event::Restate { ends: true, .. });
                if restating {
                    memory.take(event);
                }
                Ok(())
            })?;
        }
        if memory.odd {
            let what = "a key frame restates parts of pages";
            return Err(io::Error::other(what).into());
        }
        let mut restating = true;
        for wire in &wires {
            each(wire, &mut |position, event| match event {
                Event::Restate { ends: false, .. } => {
                    let whole = Event::Restate {
                        ends: false,
                        back: 0,
                    };
                    tell(position, &whole)
                }
                Event::Memory { .. } | Event::Zero { .. } if restating => Ok(()),
                Event::Restate { ends: true, .. } => {
                    restating = false;
                    memory.tell(position, tell)?;
                    tell(position, event)
                }
                _ => tell(position, event),
            })?;
        }
        Ok(())
    }
}

/// Calls back for each event of a chunk.
fn each(
    wire: &[u8],
    show: &mut dyn FnMut(u64, &Event) -> std::result::Result<(), hindsight_trace::Error>,
) -> std::result::Result<(), hindsight_trace::Error> {
    let (mut decoder, mut at) = (Decoder::default(), 0);
    while let Some((position, event, n)) = decoder.decode(&wire[at..]) {
        show(position, &event)?;
        at += n;
    }
    match at == wire.len() {
        true => Ok(()),
        false => Err(io::Error::other("an event does not decode").into()),
    }
}

/// What key frames restate, together. Later events replace what earlier ones said.
#[derive(Default)]
struct Restated {
    /// By page of cells: the address, and the content.
    pages: BTreeMap<u64, (u64, Box<[u8]>)>,
    /// Cells that hold zeros, or are in no use.
    zeros: Vec<Range<u64>>,
    /// Something was restated that is not made of pages.
    odd: bool,
}

impl Restated {
    fn take(&mut self, event: &Event) {
        match *event {
            Event::Memory { addr, bytes } => {
                self.odd |= addr % PAGE != 0 || !bytes.len().is_multiple_of(PAGE as usize);
                let parts = bytes.chunks(PAGE as usize).enumerate();
                for (i, part) in parts {
                    let address = addr.wrapping_add(i as u64 * PAGE);
                    let page = address % CELLS / PAGE;
                    self.pages.insert(page, (address, part.into()));
                }
            }
            Event::Zero { addr, len } => {
                self.odd |= addr % PAGE != 0 || len % PAGE != 0;
                let (from, len) = (addr % CELLS, len.min(CELLS));
                let end = (from + len).min(CELLS);
                for cells in [from..end, 0..(from + len).saturating_sub(CELLS)] {
                    if !cells.is_empty() {
                        let pages = cells.start / PAGE..cells.end / PAGE;
                        let gone: Vec<u64> = self.pages.range(pages).map(|p| *p.0).collect();
                        gone.iter().for_each(|p| drop(self.pages.remove(p)));
                        self.zeros.push(cells);
                    }
                }
            }
            _ => {}
        }
    }

    /// Tells all of it. No two events are about the same cells.
    fn tell(
        &mut self,
        position: u64,
        tell: &mut Tell,
    ) -> std::result::Result<(), hindsight_trace::Error> {
        self.zeros.sort_by_key(|z| z.start);
        let mut from = 0;
        for z in &self.zeros {
            let mut at = z.start.max(from);
            from = from.max(z.end);
            while at < z.end {
                let next = self.pages.range(at / PAGE..z.end / PAGE).next();
                let end = next.map_or(z.end, |p| p.0 * PAGE);
                if at < end {
                    let zero = Event::Zero {
                        addr: at,
                        len: end - at,
                    };
                    tell(position, &zero)?;
                }
                at = end + PAGE;
            }
        }
        for (address, bytes) in std::mem::take(&mut self.pages).into_values() {
            let memory = Event::Memory {
                addr: address,
                bytes: &bytes,
            };
            tell(position, &memory)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_told_once() {
        let mut r = Restated::default();
        let high = 7 << 32;
        let page = |byte: u8| vec![byte; 4096];
        let mut put = |addr: u64, bytes: &[u8]| r.take(&Event::Memory { addr, bytes });
        put(high, &[page(1), page(2)].concat());
        put(high + 0x5000, &page(5));
        put(high + 0x1000, &page(3));
        for (addr, len) in [(high + 0x4000, 0x4000), (CELLS - 0x1000, 0x2000)] {
            r.take(&Event::Zero { addr, len });
        }
        let (addr, bytes) = (high + 0x6000, &page(6)[..]);
        r.take(&Event::Memory { addr, bytes });
        assert!(!r.odd);
        let mut told = Vec::new();
        r.tell(9, &mut |at, event| {
            assert_eq!(at, 9);
            told.push(match *event {
                Event::Zero { addr, len } => (addr, len, 0),
                Event::Memory { addr, bytes } => (addr, bytes.len() as u64, bytes[0]),
                _ => panic!("{event:?}"),
            });
            Ok(())
        })
        .unwrap();
        let wanted = [
            (0, 0x1000, 0),
            (0x4000, 0x2000, 0),
            (0x7000, 0x1000, 0),
            (CELLS - 0x1000, 0x1000, 0),
            (high + 0x1000, 0x1000, 3),
            (high + 0x6000, 0x1000, 6),
        ];
        assert_eq!(told, wanted);
        r.take(&Event::Zero { addr: 5, len: 8 });
        assert!(r.odd);
    }
}
