//! The events of a stream, prepared for quick consumption by the inner loop.

use crate::cost::Ticks;
use crate::{Error, Sequence, chain};
use hindsight_events::event::tag;
use hindsight_events::{Decoder, Event};
use std::sync::Arc;

/// Where a stream's events come from.
pub trait Source: Send {
    /// The next chunk: whole events that a fresh decoder reads. `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<Arc<Vec<u8>>>, Error>;

    /// Whether the last chunk belongs to the next part. Its events are not counted then.
    fn is_borrowed(&self) -> bool {
        false
    }

    /// Shows what the key frames restate on which the source's first key frame builds. `back` says which is its base.
    /// See [`chain::below`].
    fn below(&self, back: u64, _lay: &mut chain::Lay) -> Result<(), Error> {
        Err(Error::MissingBase { position: 0, back })
    }

    /// Reads `len` bytes from `offset` of a module of the trace, with zeros behind the module's end.
    fn module(&self, _module: u32, _offset: u64, _len: usize) -> Result<Vec<u8>, Error> {
        Err(Error::Corrupt {
            position: 0,
            what: "memory refers to a module that is not in the trace",
        })
    }
}

impl<I: Iterator<Item = Vec<u8>> + Send> Source for I {
    fn next_chunk(&mut self) -> Result<Option<Arc<Vec<u8>>>, Error> {
        Ok(self.next().map(Arc::new))
    }
}

/// Most wire events that are prepared at a time.
const BATCH: usize = 512;
/// Positions are below this. A thread would take a century to reach it.
const MAX_POSITION: u64 = 1 << 62;

/// What an entry of the queue asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The cells of the word at this address take this value.
    Word(u64, u64),
    /// This many cells at this address take the low bytes of the value.
    Bytes(u64, u8, u64),
    /// An invalid order number: it does not grow, or has occurred before.
    BadNumber(u64),
    /// The event at this offset of the chunk.
    Other(usize),
}

/// An operation and the position at which it is due.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub pos: u64,
    pub op: Op,
    /// Code changes at this position. A block that leads here must not continue with the old code.
    pub changes_code: bool,
}

/// Numbers of events, by tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts(pub [u64; tag::COUNT]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; tag::COUNT])
    }
}

/// The part of a stream that is not consumed yet.
pub struct Queue<'a> {
    source: Box<dyn Source + 'a>,
    /// Number of chunks that came from the source.
    taken: usize,
    wire: Arc<Vec<u8>>,
    at: usize,
    decoder: Decoder,
    /// The prepared entries. Bookmarks share them.
    entries: Arc<Vec<Entry>>,
    next: usize,
    ended: bool,
    /// Position of the last event that was prepared.
    last: u64,
    counts: Counts,
    order: Option<Arc<Sequence>>,
    numbers: Option<Numbers>,
    /// Time spent checking order numbers.
    pub compared: Ticks,
    /// Order numbers are not checked.
    pub any_number: bool,
}

/// A place in a stream at which reading can continue without reading its chunk again.
#[derive(Clone)]
pub(crate) struct Bookmark {
    /// Number of chunks that had come from the source. Reading continues with the next one.
    pub taken: usize,
    wire: Arc<Vec<u8>>,
    at: usize,
    decoder: Decoder,
    entries: Arc<Vec<Entry>>,
    next: usize,
    last: u64,
}

impl Bookmark {
    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        // Too much if several bookmarks share the entries.
        self.entries.len() * size_of::<Entry>()
    }
}

/// The order numbers of a part of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    pub first: u64,
    /// Position of the first number.
    pub pos: u64,
    pub last: u64,
}

impl<'a> Queue<'a> {
    pub fn new(source: Box<dyn Source + 'a>) -> Queue<'a> {
        Queue {
            source,
            taken: 0,
            wire: Arc::default(),
            at: 0,
            decoder: Decoder::default(),
            entries: Arc::default(),
            next: 0,
            ended: false,
            last: 0,
            counts: Counts::default(),
            order: None,
            numbers: None,
            compared: Ticks::default(),
            any_number: false,
        }
    }

    /// Checks with `order` that all order numbers are unique.
    pub fn check_order(&mut self, order: Arc<Sequence>) {
        self.order = Some(order);
    }

    /// The order numbers so far.
    pub fn numbers(&self) -> Option<Numbers> {
        self.numbers
    }

    /// The next entry, if it is prepared already.
    #[inline(always)]
    pub fn peek(&self) -> Option<Entry> {
        self.entries.get(self.next).copied()
    }

    /// Consumes the entry that `peek` returns.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// The next entry, which is prepared if needed. `None` at the end of the stream.
    pub fn prepare(&mut self) -> Result<Option<Entry>, Error> {
        while self.next >= self.entries.len() {
            if !self.refill()? {
                return Ok(None);
            }
        }
        Ok(self.peek())
    }

    /// The current place in the stream.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark {
            taken: self.taken,
            wire: Arc::clone(&self.wire),
            at: self.at,
            decoder: self.decoder.clone(),
            entries: Arc::clone(&self.entries),
            next: self.next,
            last: self.last,
        }
    }

    /// Continues at a bookmark. The source has the chunks behind those that were taken at the bookmark.
    pub fn go_to(&mut self, b: &Bookmark) {
        self.taken = b.taken;
        self.wire = Arc::clone(&b.wire);
        (self.at, self.last) = (b.at, b.last);
        self.decoder = b.decoder.clone();
        self.entries = Arc::clone(&b.entries);
        self.next = b.next;
        self.ended = false;
    }

    /// Skips all entries before `position`.
    pub fn skip_to(&mut self, position: u64) -> Result<(), Error> {
        // Most of them are skipped without preparing them.
        while self.next >= self.entries.len() && (self.at < self.wire.len() || self.next_chunk()?) {
            while let Some(rest) = self.wire.get(self.at..).filter(|r| !r.is_empty()) {
                let before = self.decoder.clone();
                let Some((pos, _, n)) = self.decoder.decode(rest) else {
                    return Err(self.corrupt("an event does not decode"));
                };
                if pos >= position {
                    self.decoder = before;
                    return Ok(());
                }
                self.at += n;
            }
        }
        while self.prepare()?.is_some_and(|e| e.pos < position) {
            self.advance();
        }
        Ok(())
    }

    /// Skips the end of a gap at `position`, and what comes before it there.
    pub fn skip_gap_end(&mut self, position: u64) -> Result<(), Error> {
        while let Some(next) = self.prepare()?.filter(|e| e.pos == position) {
            let ends = match next.op {
                Op::Other(at) => matches!(self.event(at)?, Event::GapEnd { .. }),
                _ => false,
            };
            self.advance();
            if ends {
                return Ok(());
            }
        }
        Err(self.corrupt("a gap does not end where it ended before"))
    }

    /// The event of an [`Op::Other`] entry. Only valid until the next refill.
    pub fn event(&self, offset: usize) -> Result<Event<'_>, Error> {
        let decoded = self
            .wire
            .get(offset..)
            .and_then(|b| Decoder::default().decode(b));
        decoded
            .map(|d| d.1)
            .ok_or(self.corrupt("an event does not decode"))
    }

    /// The epoch of the code that the instruction at a position belongs to, if an event that is due there and not consumed yet says
    /// it. Looks no farther than to the end of the chunk.
    pub fn epoch_due(&self, position: u64) -> Option<u64> {
        let of = |event: Event| match event {
            Event::CodeEpoch { epoch } => Some(epoch),
            _ => None,
        };
        let mut due = None;
        for entry in self.entries.get(self.next..).unwrap_or_default() {
            if entry.pos > position {
                return due;
            }
            if let Op::Other(at) = entry.op {
                due = self.event(at).ok().and_then(of).or(due);
            }
        }
        // The rest of them is not prepared.
        let (mut at, mut decoder) = (self.at, self.decoder.clone());
        while let Some((pos, event, n)) = self.wire.get(at..).and_then(|b| decoder.decode(b)) {
            if pos > position {
                break;
            }
            due = of(event).or(due);
            at += n;
        }
        due
    }

    /// Reads a part of a module of the trace.
    pub fn module(&self, module: u32, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.source.module(module, offset, len)
    }

    /// Shows what the first key frame builds on (see [`Source::below`]).
    pub fn below(&self, back: u64, lay: &mut chain::Lay) -> Result<(), Error> {
        self.source.below(back, lay)
    }

    /// Numbers of the events that were consumed or prepared so far, by tag.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt {
            position: self.last,
            what,
        }
    }

    fn refill(&mut self) -> Result<bool, Error> {
        self.next = 0;
        let mut entries = std::mem::take(&mut self.entries);
        // The entries stay if a bookmark has them.
        match Arc::get_mut(&mut entries) {
            Some(mine) => mine.clear(),
            None => entries = Arc::default(),
        }
        if self.at >= self.wire.len() && !self.next_chunk()? {
            return Ok(false);
        }
        let prepared = Arc::make_mut(&mut entries);
        let done = self.decode(prepared);
        self.entries = entries;
        done.map(|()| true)
    }

    /// Goes to the next chunk. `false` if there is none.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        let Some(wire) = self.source.next_chunk()? else {
            self.ended = true;
            return Ok(false);
        };
        self.taken += 1;
        self.wire = wire;
        self.at = 0;
        self.decoder = Decoder::default();
        Ok(true)
    }

    /// Prepares some events of the chunk.
    fn decode(&mut self, entries: &mut Vec<Entry>) -> Result<(), Error> {
        let borrowed = self.source.is_borrowed();
        for _ in 0..BATCH {
            let rest = &self.wire[self.at..];
            let Some(&t) = rest.first() else { break };
            let Some((pos, event, n)) = self.decoder.decode(rest) else {
                return Err(self.corrupt("an event does not decode"));
            };
            if pos < self.last || pos > MAX_POSITION {
                return Err(self.corrupt("positions do not ascend"));
            }
            self.last = pos;
            if let Some(n) = self.counts.0.get_mut(t as usize).filter(|_| !borrowed) {
                *n += 1;
            }
            let mut push = |op| {
                entries.push(Entry {
                    pos,
                    op,
                    changes_code: false,
                })
            };
            match event {
                Event::Patch { line, mask, words } => {
                    for (i, w) in words.iter().enumerate() {
                        if mask & (1 << i) != 0 {
                            push(Op::Word(line.wrapping_add(8 * i as u64), *w));
                        }
                    }
                }
                Event::PatchBytes { addr, len, value } => push(Op::Bytes(addr, len, value)),
                Event::Time { .. } => {}
                // Order numbers do nothing to the processor. An invalid one becomes an entry, which is
                // reported when it is due.
                Event::Seq { number } => {
                    let grows = self.numbers.is_none_or(|n| n.last < number);
                    let order = self.order.as_ref();
                    let unique = order.is_none_or(|o| self.compared.count(|| o.take(number)));
                    let first = self.numbers.map_or((number, pos), |n| (n.first, n.pos));
                    self.numbers = Some(Numbers {
                        first: first.0,
                        pos: first.1,
                        last: number,
                    });
                    if !(grows && unique || self.any_number) {
                        push(Op::BadNumber(number));
                    }
                }
                Event::CodeEpoch { .. } => {
                    push(Op::Other(self.at));
                    let here = entries.iter_mut().rev();
                    here.take_while(|e| e.pos == pos)
                        .for_each(|e| e.changes_code = true);
                }
                _ => push(Op::Other(self.at)),
            }
            self.at += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_events::{Encoder, MAX_EVENT};

    fn encode(events: &[(u64, Event)]) -> Vec<u8> {
        let mut e = Encoder::default();
        let mut buf = vec![0; MAX_EVENT];
        let mut out = Vec::new();
        for (pos, ev) in events {
            let n = e.encode(*pos, ev, &mut buf);
            out.extend_from_slice(&buf[..n]);
        }
        out
    }

    #[test]
    fn tells_the_epoch_that_is_due() {
        let bytes = Event::PatchBytes {
            addr: 9,
            len: 2,
            value: 5,
        };
        let epoch = |epoch| Event::CodeEpoch { epoch };
        let mut list = vec![(3, epoch(1)), (5, bytes), (5, epoch(2))];
        // More of them than are prepared at a time.
        list.extend((0..BATCH).map(|_| (7, bytes)));
        list.extend([(7, epoch(3)), (8, epoch(4))]);
        let mut q = Queue::new(Box::new(vec![encode(&list)].into_iter()));
        q.prepare().unwrap();
        let due = |q: &Queue| [2, 3, 4, 5, 7, 8].map(|at| q.epoch_due(at));
        let all = [None, Some(1), Some(1), Some(2), Some(3), Some(4)];
        assert_eq!(due(&q), all);
        q.skip_to(4).unwrap();
        assert_eq!(due(&q), [None, None, None, Some(2), Some(3), Some(4)]);
        q.skip_to(7).unwrap();
        assert_eq!(due(&q)[3..], [None, Some(3), Some(4)]);
    }

    #[test]
    fn splits_patches_and_crosses_chunks() {
        let mut words = [0; 8];
        (words[1], words[7]) = (11, 77);
        let a = encode(&[(
            3,
            Event::Patch {
                line: 0x1000,
                mask: 0x82,
                words,
            },
        )]);
        let b = encode(&[
            (
                4,
                Event::PatchBytes {
                    addr: 9,
                    len: 2,
                    value: 5,
                },
            ),
            (4, Event::RepChunk { iterations: 8 }),
        ]);
        let mut q = Queue::new(Box::new(vec![a, Vec::new(), b].into_iter()));
        let mut take = || {
            let e = q.prepare().unwrap()?;
            if let Op::Other(at) = e.op {
                assert_eq!(q.event(at).unwrap(), Event::RepChunk { iterations: 8 });
            }
            q.advance();
            Some((e.pos, e.op))
        };
        assert_eq!(take(), Some((3, Op::Word(0x1008, 11))));
        assert_eq!(take(), Some((3, Op::Word(0x1038, 77))));
        assert_eq!(take(), Some((4, Op::Bytes(9, 2, 5))));
        assert!(matches!(take(), Some((4, Op::Other(_)))));
        assert_eq!(take(), None);
        assert_eq!(take(), None);
        assert_eq!(q.counts().0[tag::PATCH as usize], 1);
    }

    #[test]
    fn refuses_garbage() {
        let backwards = [
            encode(&[(5, Event::RepChunk { iterations: 1 })]),
            encode(&[(4, Event::RepChunk { iterations: 1 })]),
        ];
        let far = [encode(&[(u64::MAX, Event::RepChunk { iterations: 1 })])];
        let cut = [encode(&[(4, Event::RepChunk { iterations: 1 })])[..2].to_vec()];
        for chunks in [&backwards[..], &far, &cut, &[vec![99; 9]]] {
            let mut q = Queue::new(Box::new(chunks.iter().cloned()));
            let err = loop {
                match q.prepare() {
                    Ok(Some(_)) => q.advance(),
                    Ok(None) => panic!("accepted"),
                    Err(e) => break e,
                }
            };
            assert!(matches!(err, Error::Corrupt { .. }));
        }
    }
}
