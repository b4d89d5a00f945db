//! The content of a stream chunk. Events in wire form are split into columns, which compress well. Putting
//! them together again only moves bytes.

use crate::repeat;
use hindsight_events::event::{LINE, MAX_BYTES, selected, tag};
use hindsight_events::varint::{self, get, unzigzag, zigzag};
use hindsight_events::{Decoder, Encoder, Event};
use std::ops::Range;

mod common;
mod fresh;
mod outline;
mod shape;

pub use common::PAGE;
use fresh::{Filled, read_as};
pub use outline::outline;
use shape::{measure, shape};

/// A chunk ends when its events have at least this many bytes in wire form.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Number of columns.
pub const COLUMNS: usize = 7;

/// Lines of a page.
const LINES: u64 = 4096 / LINE;

/// Bytes before the columns: they hold the length of each column.
pub const LENGTHS: usize = 4 * COLUMNS;

mod col {
    /// Tag bytes.
    pub const TAG: usize = 0;
    /// Distances between positions.
    pub const POSITION: usize = 1;
    /// Distances between the lines of patches.
    pub const LINE: usize = 2;
    /// Masks of patches.
    pub const MASK: usize = 3;
    /// Words of patches.
    pub const WORD: usize = 4;
    /// Integers of all other events.
    pub const INT: usize = 5;
    /// Register states, digests, code, text.
    pub const BULK: usize = 6;
}

/// Why [`ChunkBuilder::push`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The bytes that are left are not a whole event.
    More,
    /// The chunk is complete. Take it with [`ChunkBuilder::take`] and push the remaining bytes.
    Full,
    /// The next event is an [`Event::Common`]. Push it with [`ChunkBuilder::push_common`].
    Common,
    /// The next bytes are not an event.
    Bad,
}

/// Cuts the events of one stream into chunks.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    columns: [Vec<u8>; COLUMNS],
    /// Position of the last event.
    pos: u64,
    /// Position from which the distance of the next event is measured in what comes. It is the same, except behind
    /// [`ChunkBuilder::measure_from`].
    from: u64,
    /// Number of the line of the last patch.
    line: u64,
    /// The chunk stores distances. The next one is measured from this position and this line.
    chunk_pos: u64,
    chunk_line: u64,
    /// The last order number, and the one from which the chunk's next distance is measured.
    number: Option<u64>,
    chunk_number: u64,
    first_pos: u64,
    events: u32,
    /// Bytes of the chunk's events in wire form.
    taken: usize,
    keyframe: bool,
    /// A system call began, and neither its result nor a signal has come.
    calling: bool,
    /// Position of the last event to which replay goes. Order numbers and times do not make it go anywhere.
    reached: u64,
    /// Whether that event completes the instruction at its position.
    completes: bool,
    /// How many events say where memory is restated since the last key frame: one between its beginning and its end.
    bounds: u32,
    /// Events of key frames so far.
    framed: u64,
    /// The last patches of one page, in the order of their lines: where their words are in the column.
    run: Range<usize>,
    /// Such runs, as far as they are long enough.
    runs: Vec<Range<usize>>,
}

/// A chunk's content, and what its header says about it.
#[derive(Debug, Default)]
pub struct Content {
    /// The lengths of the columns, then the columns.
    pub raw: Vec<u8>,
    /// Position of the first event.
    pub first_pos: u64,
    /// Position of the last event.
    pub last_pos: u64,
    /// Number of events.
    pub events: u32,
    /// Whether the first event is a key frame.
    pub keyframe: bool,
    /// Where in `raw` the words of patches are that may be found again: see [`crate::repeat`].
    pub blocks: Vec<Range<usize>>,
}

impl ChunkBuilder {
    /// Takes whole events from `wire`, which continues the bytes pushed before. Returns the number of bytes
    /// taken and why it stopped.
    ///
    /// `seen` is called for rare events, with position and event. An event that it returns is stored instead.
    /// It is not called for the events that come by the million: patches, order numbers, system calls, and
    /// memory that system calls wrote.
    pub fn push(
        &mut self,
        wire: &[u8],
        mut seen: impl FnMut(u64, &Event) -> Option<Event<'static>>,
    ) -> (usize, Pushed) {
        let mut at = 0;
        loop {
            if self.taken >= CHUNK_BYTES {
                return (at, Pushed::Full);
            }
            let Some(&t) = wire.get(at) else {
                return (at, Pushed::More);
            };
            if t == tag::KEY_FRAME && self.events > 0 {
                return (at, Pushed::Full);
            }
            let n = match t {
                tag::COMMON => return (at, Pushed::Common),
                tag::PATCH => self.patch(&wire[at..]),
                tag::LINES => self.whole_lines(&wire[at..]),
                tag::SEQ => self.sequence(&wire[at..]),
                tag::SYSCALL => self.integers(t, &wire[at..], 7),
                tag::SYSCALL_RET => self.integers(t, &wire[at..], 1),
                tag::MEMORY => self.memory(&wire[at..]),
                tag::FRESH => self.fresh(&wire[at..]),
                _ => self.other(t, &wire[at..], &mut seen),
            };
            match n {
                Some(n) => (at, self.taken, self.from) = (at + n, self.taken + n, self.pos),
                None if wire.len() - at >= hindsight_events::MAX_EVENT => return (at, Pushed::Bad),
                None if shape(t).is_none() && !matches!(t, tag::PATCH | tag::LINES) => {
                    return (at, Pushed::Bad);
                }
                None => return (at, Pushed::More),
            }
        }
    }

    /// Adds an event that did not come from the recorder. It gets the last event's position.
    pub fn add(&mut self, event: &Event) {
        // This cannot fail: every event but patches has a shape and can be measured, and nobody adds these.
        self.replace(self.pos, event);
    }

    /// The distance of the next event that is pushed counts from this position. So events can be put between two that came
    /// together.
    pub fn measure_from(&mut self, position: u64) {
        self.from = position;
    }

    /// Number of events in the current chunk.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Number of events of key frames, in all chunks so far.
    pub fn framed(&self) -> u64 {
        self.framed
    }

    /// Position of the last event.
    pub fn position(&self) -> u64 {
        self.pos
    }

    /// Whether the chunk begins with a key frame that restates memory.
    pub fn is_state_point(&self) -> bool {
        self.keyframe && self.bounds > 0
    }

    /// Whether the thread is in a system call, as far as its events say.
    pub fn is_in_call(&self) -> bool {
        self.calling
    }

    /// Bytes of memory that the builder holds.
    pub fn capacity(&self) -> usize {
        self.columns.iter().map(Vec::capacity).sum()
    }

    /// Returns unused memory of the columns to the allocator.
    pub fn shrink(&mut self) {
        self.columns.iter_mut().for_each(Vec::shrink_to_fit);
    }

    /// Number of instructions that are complete behind the last event to which replay goes.
    pub fn completed(&self) -> u64 {
        self.reached.saturating_add(self.completes as u64)
    }

    /// Ends the chunk and moves it to `out`. The buffer of `out` is reused.
    pub fn take(&mut self, out: &mut Content) {
        out.raw.clear();
        for c in &self.columns {
            out.raw.extend_from_slice(&(c.len() as u32).to_le_bytes());
        }
        self.end_run();
        let before: usize = self.columns[..col::WORD].iter().map(Vec::len).sum();
        let words = LENGTHS + before;
        out.blocks.clear();
        let placed = |r: Range<usize>| r.start + words..r.end + words;
        out.blocks.extend(self.runs.drain(..).map(placed));
        for c in self.columns.iter_mut() {
            out.raw.extend_from_slice(c);
            c.clear();
        }
        out.first_pos = self.first_pos;
        out.last_pos = self.pos;
        out.events = self.events;
        out.keyframe = self.keyframe;
        (self.chunk_pos, self.chunk_line, self.chunk_number) = (0, 0, 0);
        (self.events, self.taken, self.keyframe) = (0, 0, false);
        self.run = 0..0;
    }

    /// The position of an event with this distance. `None` if it comes before the last one.
    fn place(&self, delta: u64) -> Option<u64> {
        let pos = self.from.checked_add(delta)?;
        (pos >= self.pos).then_some(pos)
    }

    fn begin_event(&mut self, t: u8, pos: u64) {
        if self.events == 0 {
            self.first_pos = pos;
            self.keyframe = t == tag::KEY_FRAME;
        }
        self.columns[col::TAG].push(t);
        put(&mut self.columns[col::POSITION], pos - self.chunk_pos);
        (self.pos, self.chunk_pos) = (pos, pos);
        self.events += 1;
        match t {
            tag::KEY_FRAME => self.bounds = 0,
            tag::RESTATE => self.bounds += 1,
            _ => {}
        }
        if self.bounds == 1 || matches!(t, tag::KEY_FRAME | tag::RESTATE) {
            self.framed += 1;
        }
        if t != tag::TIME && t != tag::SEQ {
            (self.reached, self.completes) = (pos, false);
        }
    }

    /// The last order number of the stream.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    fn sequence(&mut self, b: &[u8]) -> Option<usize> {
        let (delta, at) = get(b, 1)?;
        let (distance, at) = get(b, at)?;
        let pos = self.place(delta)?;
        self.begin_event(tag::SEQ, pos);
        let number = self.number.unwrap_or(0).wrapping_add(distance);
        put(
            &mut self.columns[col::INT],
            number.wrapping_sub(self.chunk_number),
        );
        (self.number, self.chunk_number) = (Some(number), number);
        Some(at)
    }

    /// Takes an event of `n` integers without decoding them.
    fn integers(&mut self, t: u8, b: &[u8], n: usize) -> Option<usize> {
        let (delta, from) = get(b, 1)?;
        let pos = self.place(delta)?;
        let end = varint::skip(b, from, n)?;
        self.begin_event(t, pos);
        (self.calling, self.completes) = (t == tag::SYSCALL, t == tag::SYSCALL_RET);
        append(&mut self.columns[col::INT], b, from..end);
        Some(end)
    }

    /// Takes a [`Event::Memory`]: what a system call wrote.
    fn memory(&mut self, b: &[u8]) -> Option<usize> {
        let (delta, from) = get(b, 1)?;
        let pos = self.place(delta)?;
        let at = varint::skip(b, from, 1)?;
        let (len, at) = get(b, at)?;
        let end = at.checked_add(usize::try_from(len).ok()?)?;
        if len > MAX_BYTES as u64 || end > b.len() {
            return None;
        }
        self.begin_event(tag::MEMORY, pos);
        append(&mut self.columns[col::INT], b, from..at);
        append(&mut self.columns[col::BULK], b, at..end);
        Some(end)
    }

    // Nearly all events are patches, order numbers, system calls and memory that these wrote. So these four
    // bypass the decoder.
    fn patch(&mut self, b: &[u8]) -> Option<usize> {
        let (delta, at) = get(b, 1)?;
        let (line_delta, at) = get(b, at)?;
        let mask = *b.get(at)?;
        let words = at + 1..at + 1 + 8 * mask.count_ones() as usize;
        if words.end > b.len() {
            return None;
        }
        let pos = self.place(delta)?;
        let line = (self.line as i64).wrapping_add(unzigzag(line_delta)) as u64;
        line.checked_mul(LINE)?;
        self.begin_event(tag::PATCH, pos);
        if line <= self.line || line / LINES != self.line / LINES {
            self.end_run();
        }
        self.line = line;
        let relative = self.line.wrapping_sub(self.chunk_line) as i64;
        put(&mut self.columns[col::LINE], zigzag(relative));
        self.chunk_line = self.line;
        self.columns[col::MASK].push(mask);
        append(&mut self.columns[col::WORD], b, words.clone());
        self.run.end = self.columns[col::WORD].len();
        Some(words.end)
    }

    /// Takes a [`Event::Lines`].
    fn whole_lines(&mut self, b: &[u8]) -> Option<usize> {
        let (delta, ints) = get(b, 1)?;
        let (_, _, len) = Decoder::default().decode(b)?;
        let pos = self.place(delta)?;
        let (n, masks) = get(b, varint::skip(b, ints, 1)?)?;
        let words = masks + n as usize;
        self.lines(pos, &b[ints..masks], &b[masks..words], |to| {
            to.extend_from_slice(&b[words..len]);
        });
        Some(len)
    }

    /// Adds an [`Event::Lines`] with these integers and masks. `words` appends its words, which are a run of their own.
    fn lines(&mut self, pos: u64, ints: &[u8], masks: &[u8], words: impl FnOnce(&mut Vec<u8>)) {
        self.begin_event(tag::LINES, pos);
        self.columns[col::INT].extend_from_slice(ints);
        self.columns[col::MASK].extend_from_slice(masks);
        self.end_run();
        words(&mut self.columns[col::WORD]);
        self.run.end = self.columns[col::WORD].len();
        self.end_run();
    }

    /// Begins another run of patches.
    fn end_run(&mut self) {
        if self.run.len() >= repeat::LEAST {
            self.runs.push(self.run.clone());
        }
        let end = self.columns[col::WORD].len();
        self.run = end..end;
    }

    /// Appends `other` instead of the event that came.
    #[cold]
    fn replace(&mut self, pos: u64, other: &Event) -> Option<()> {
        // The encoder starts from position 0, so the distance of position 0 takes one byte.
        let mut buf = [0; hindsight_events::MAX_EVENT];
        let n = Encoder::default().encode(0, other, &mut buf);
        let (ints, bulk) = measure(&shape(buf[0])?, &buf[..n], 2)?;
        self.put(buf[0], pos, &buf[2..2 + ints], &buf[2 + ints..][..bulk]);
        Some(())
    }

    fn other(
        &mut self,
        t: u8,
        b: &[u8],
        seen: &mut impl FnMut(u64, &Event) -> Option<Event<'static>>,
    ) -> Option<usize> {
        let s = shape(t)?;
        let (delta, ints_at) = get(b, 1)?;
        let pos = self.place(delta)?;
        let (_, event, len) = Decoder::default().decode(b)?;
        let (ints, bulk) = measure(&s, b, ints_at)?;
        let bulk_at = ints_at + ints;
        if bulk_at + bulk != len {
            return None;
        }
        match seen(pos, &event) {
            None => self.put(t, pos, &b[ints_at..bulk_at], &b[bulk_at..len]),
            Some(other) => self.replace(pos, &other)?,
        }
        match event {
            Event::Regs { ilen, .. } => self.completes = ilen != 0,
            Event::X87 { .. } => self.completes = true,
            Event::SetState { .. } => {
                self.completes = std::mem::take(&mut self.calling);
            }
            // Comes in place of the result of a call that it interrupts.
            Event::Signal { .. } => self.calling = false,
            _ => {}
        }
        Some(len)
    }

    fn put(&mut self, t: u8, pos: u64, ints: &[u8], bulk: &[u8]) {
        self.begin_event(t, pos);
        self.columns[col::INT].extend_from_slice(ints);
        self.columns[col::BULK].extend_from_slice(bulk);
    }
}

/// The lengths of the integers and of the masks of a [`Event::Lines`].
struct LinesShape {
    ints: usize,
    masks: usize,
}

/// Reads it from the column of integers.
fn lines(ints: &[u8], at: usize) -> Option<LinesShape> {
    let (n, end) = get(ints, varint::skip(ints, at, 1)?)?;
    Some(LinesShape {
        ints: end - at,
        masks: usize::try_from(n).ok()?,
    })
}

/// Appends `b[range]`, whose bounds were checked. It is nearly always short. Copying a fixed number of bytes
/// and dropping the excess is then faster than a call of `memcpy`.
#[inline]
fn append(out: &mut Vec<u8>, b: &[u8], range: Range<usize>) {
    const SHORT: usize = 64;
    let (len, start) = (range.len(), out.len());
    match b[range.start..].first_chunk::<SHORT>() {
        Some(some) if len <= SHORT => {
            out.extend_from_slice(some);
            out.truncate(start + len);
        }
        _ => out.extend_from_slice(&b[range]),
    }
}

#[inline]
fn put(out: &mut Vec<u8>, v: u64) {
    if v < 0x80 {
        return out.push(v as u8);
    }
    let mut b = [0; varint::MAX];
    let n = varint::put(&mut b, 0, v);
    out.extend_from_slice(&b[..n]);
}

/// The columns of a chunk.
fn split(raw: &[u8]) -> Option<[&[u8]; COLUMNS]> {
    let (lengths, mut rest) = raw.split_at_checked(LENGTHS)?;
    let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
    for (c, len) in columns.iter_mut().zip(lengths.chunks_exact(4)) {
        let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
        (*c, rest) = rest.split_at_checked(len)?;
    }
    rest.is_empty().then_some(columns)
}

/// Turns the columns of a chunk back into wire form, with [`Event::Memory`] in place of [`Event::Fresh`]. `None` if they do not
/// fit together.
pub fn merge(raw: &[u8]) -> Option<Vec<u8>> {
    let columns = split(raw)?;
    let mut out = Vec::with_capacity(raw.len() - LENGTHS);
    let (mut at, mut filled) = ([0; COLUMNS], Filled::default());
    let copy = |c: usize, n: usize, out: &mut Vec<u8>, at: &mut [usize; COLUMNS]| {
        let part = columns[c].get(at[c]..at[c].checked_add(n)?)?;
        at[c] += n;
        out.extend_from_slice(part);
        Some(part)
    };
    let int = |c: usize, at: usize| Some(get(columns[c], at)?.1 - at);
    while at[col::TAG] < columns[col::TAG].len() {
        let t = *columns[col::TAG].get(at[col::TAG])?;
        at[col::TAG] += 1;
        out.push(read_as(t));
        copy(
            col::POSITION,
            int(col::POSITION, at[col::POSITION])?,
            &mut out,
            &mut at,
        )?;
        if t == tag::PATCH {
            copy(col::LINE, int(col::LINE, at[col::LINE])?, &mut out, &mut at)?;
            let mask = copy(col::MASK, 1, &mut out, &mut at)?[0];
            copy(col::WORD, 8 * mask.count_ones() as usize, &mut out, &mut at)?;
        } else if t == tag::LINES {
            let n = lines(columns[col::INT], at[col::INT])?;
            copy(col::INT, n.ints, &mut out, &mut at)?;
            let masks = copy(col::MASK, n.masks, &mut out, &mut at)?;
            copy(col::WORD, selected(masks), &mut out, &mut at)?;
        } else if t == tag::FRESH {
            at[col::INT] = filled.append(columns[col::INT], at[col::INT], &mut out)?;
        } else {
            let (ints, bulk) = measure(&shape(t)?, columns[col::INT], at[col::INT])?;
            copy(col::INT, ints, &mut out, &mut at)?;
            copy(col::BULK, bulk, &mut out, &mut at)?;
        }
    }
    at.iter()
        .zip(&columns)
        .all(|(a, c)| *a == c.len())
        .then_some(out)
}
