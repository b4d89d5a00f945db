//! What key frames restate: where the recording says what memory held. Replay can begin at these key frames, and what a
//! page held there can be read without a replay.
//!
//! A key frame may restate only what has changed since an earlier one, its base (`hindsight_replay::chain`). Pages are
//! known by their cells, as in the window: addresses modulo 2^32.

use super::Scan;
use crate::Kind;
use hindsight_events::Event;
use hindsight_replay::chain;
use std::ops::Range;

/// Where the content of some cells stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// In the memory events of this chunk of the stream.
    Chunk(usize),
    /// They hold zeros.
    Zeros,
    /// A module, by number, has it at this offset. After its end come zeros.
    File { module: u32, offset: u64 },
    /// A file whose content is not recorded.
    Unknown,
}

/// Cells, and where their content stands.
type Cells = (Range<u64>, Held);

/// A key frame that restates memory.
#[derive(Debug)]
pub struct RestatingFrame {
    /// Its position.
    pub at: u64,
    /// The chunk that it begins.
    pub chunk: usize,
    /// It is the key frame of this number in the stream, from 1 on.
    number: u64,
    /// How many key frames before it its base is. 0: it restates everything.
    back: u64,
    /// How many others it builds on, directly or not.
    depth: usize,
    /// What it says of pages, ascending.
    pages: Vec<Cells>,
    /// The files that are in memory, ascending. What any key frame of the chain says of pages lies above them.
    files: Vec<Cells>,
}

impl RestatingFrame {
    /// Bytes of memory that it restates itself, without those that hold zeros and those of files.
    pub fn bytes(&self) -> u64 {
        let restated = self.pages.iter().filter(|c| matches!(c.1, Held::Chunk(_)));
        restated.map(|c| c.0.end - c.0.start).sum()
    }

    /// Whether it restates only what has changed since another one.
    pub fn is_change(&self) -> bool {
        self.back != 0
    }
}

/// The key frames of a thread that restate memory, ascending.
#[derive(Default, Debug)]
pub struct Frames {
    list: Vec<RestatingFrame>,
    /// The one that is being read.
    open: Option<RestatingFrame>,
    /// The number of key frames so far.
    number: u64,
}

impl Frames {
    /// A key frame begins.
    pub(super) fn key_frame(&mut self) {
        self.number += 1;
        self.open = None;
    }

    /// It restates memory. `back`: how many key frames before it its base is.
    pub(super) fn begin(&mut self, at: u64, chunk: usize, back: u64) {
        self.open = Some(RestatingFrame {
            at,
            chunk,
            number: self.number,
            back,
            depth: 0,
            pages: Vec::new(),
            files: Vec::new(),
        });
    }

    /// What it says of some memory.
    pub(super) fn add(&mut self, address: u64, len: u64, held: Held) {
        let Some(frame) = &mut self.open else { return };
        let list = match held {
            Held::Chunk(_) | Held::Zeros => &mut frame.pages,
            Held::File { .. } | Held::Unknown => &mut frame.files,
        };
        let from = address as u32 as u64;
        let len = len.min(1 << 32);
        let first = len.min((1 << 32) - from);
        let mut put = |cells: Range<u64>, held: Held| {
            match list.last_mut() {
                // Neighbours in one chunk.
                Some((last, h)) if last.end == cells.start && *h == held && list_joins(held) => {
                    last.end = cells.end;
                }
                _ if cells.start < cells.end => list.push((cells, held)),
                _ => {}
            }
        };
        put(from..from + first, held);
        let behind = match held {
            Held::File { module, offset } => Held::File {
                module,
                offset: offset.saturating_add(first),
            },
            other => other,
        };
        put(0..len - first, behind);
    }

    /// The key frame has restated everything.
    pub(super) fn end(&mut self) {
        let Some(mut frame) = self.open.take() else {
            return;
        };
        frame.pages.sort_by_key(|c| c.0.start);
        frame.files.sort_by_key(|c| c.0.start);
        if frame.back != 0 {
            // Without its base it says only a part.
            let Some(base) = self.base(&frame).filter(|b| b.depth < chain::MOST) else {
                return;
            };
            frame.depth = base.depth + 1;
        }
        self.list.push(frame);
    }

    fn base(&self, frame: &RestatingFrame) -> Option<&RestatingFrame> {
        let number = frame.number.checked_sub(frame.back)?;
        let i = self.list.binary_search_by_key(&number, |f| f.number).ok()?;
        Some(&self.list[i])
    }

    /// All of them.
    pub fn all(&self) -> &[RestatingFrame] {
        &self.list
    }

    /// The last one at `count` or before.
    pub fn last(&self, count: u64) -> Option<&RestatingFrame> {
        let i = self.list.partition_point(|f| f.at <= count);
        self.list.get(i.checked_sub(1)?)
    }

    /// Where the content of these cells stands, as memory was at a key frame. The answer also says up to which cell it
    /// holds.
    pub fn held(&self, frame: &RestatingFrame, cells: Range<u64>) -> (Held, u64) {
        let mut end = cells.end;
        let mut at = Some(frame);
        while let Some(f) = at {
            match among(&f.pages, cells.start, &mut end) {
                Some((_, held)) => return (held, end),
                None if f.back == 0 => break,
                None => at = self.base(f),
            }
        }
        match among(&frame.files, cells.start, &mut end) {
            Some((range, Held::File { module, offset })) => {
                let offset = offset.saturating_add(cells.start - range.start);
                (Held::File { module, offset }, end)
            }
            Some((_, held)) => (held, end),
            None => (Held::Zeros, end),
        }
    }
}

/// Whether neighbouring cells of this kind are one entry.
fn list_joins(held: Held) -> bool {
    !matches!(held, Held::File { .. })
}

/// The entry that has a cell. `end` is lowered to where that may change.
fn among(list: &[Cells], cell: u64, end: &mut u64) -> Option<Cells> {
    let i = list.partition_point(|c| c.0.start <= cell);
    if let Some(next) = list.get(i) {
        *end = (*end).min(next.0.start);
    }
    let found = list.get(i.checked_sub(1)?)?;
    let inside = found.0.contains(&cell);
    if inside {
        *end = (*end).min(found.0.end);
    }
    inside.then(|| found.clone())
}

/// An instant at which the recording tells all of a thread's memory.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    pub at: u64,
    /// `None`: it is the thread's beginning.
    pub frame: Option<&'a RestatingFrame>,
}

impl Told<'_> {
    /// Whether all files are recorded that were in memory.
    pub fn is_whole(&self) -> bool {
        let lost = |c: &Cells| c.1 == Held::Unknown;
        self.frame.is_none_or(|f| !f.files.iter().any(lost))
    }

    /// The chunk that begins there.
    pub fn chunk(&self) -> usize {
        self.frame.map_or(0, |f| f.chunk)
    }
}

impl Scan {
    /// The last instant at `count` or before at which the recording tells all memory. In the quiet regime it does so
    /// when a program begins, too. `None`: memory may have changed since in ways that the recording does not tell.
    pub fn told_at(&self, count: u64) -> Option<Told<'_>> {
        let told = self
            .last_told(count)
            .filter(|_| count <= self.quiet_until)?;
        // They ascend.
        let before = self.gaps.partition_point(|g| g.start < count);
        let last = before.checked_sub(1).map(|i| &self.gaps[i]);
        last.is_none_or(|g| g.end <= told.at).then_some(told)
    }

    fn last_told(&self, count: u64) -> Option<Told<'_>> {
        match self.frames.last(count) {
            Some(f) => Some(Told {
                at: f.at,
                frame: Some(f),
            }),
            None => (self.fresh && self.told).then_some(Told {
                at: self.from,
                frame: None,
            }),
        }
    }

    /// Takes an event by which a key frame restates memory. `false`: the event is another one.
    pub(super) fn restates(&mut self, pos: u64, chunk: usize, event: &Event) -> bool {
        match *event {
            Event::Restate { ends: true, .. } => {
                self.restating = false;
                self.frames.end();
            }
            Event::Restate { ends: false, back } => {
                // Only a quiet thread restates memory. Where the beginning of a stream was left out, nothing else says that it
                // is one.
                let said = |n: &(u64, Kind)| matches!(n.1, Kind::Regime { .. });
                if pos == self.from && !self.notes.iter().any(said) {
                    (self.told, self.quiet_until) = (true, u64::MAX);
                }
                (self.restating, self.based) = (true, back != 0);
                self.frames.begin(pos, chunk, back);
                if self.based {
                    self.based_frames.push(pos);
                }
            }
            _ if !self.restating => return false,
            // It held zeros before, or is in no use.
            Event::Zero { addr, len } => self.frames.add(addr, len, Held::Zeros),
            Event::Memory { addr, bytes } => {
                let len = bytes.len() as u64;
                self.frames.add(addr, len, Held::Chunk(chunk));
                self.restate(pos, addr, len);
            }
            Event::FileOf {
                addr,
                len,
                module,
                offset,
            } => {
                self.frames.add(addr, len, Held::File { module, offset });
                if !self.based {
                    self.restate(pos, addr, len);
                }
            }
            Event::File { addr, len, .. } => self.frames.add(addr, len, Held::Unknown),
            _ => return false,
        }
        true
    }

    /// Notes memory that is restated: it had that content before.
    fn restate(&mut self, pos: u64, addr: u64, len: u64) {
        match self.restated.last_mut() {
            Some(r) if (r.0, r.1.wrapping_add(r.2)) == (pos, addr) => r.2 = r.2.saturating_add(len),
            _ => self.restated.push((pos, addr, len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses, lengths, and what a key frame says of them.
    type Says<'a> = &'a [(u64, u64, Held)];

    /// Key frames at 10, 20, … that say these things, with the distances to their bases.
    fn frames(all: &[(u64, Says)]) -> Frames {
        let mut out = Frames::default();
        for (i, (back, says)) in all.iter().enumerate() {
            out.key_frame();
            out.begin(10 * (i as u64 + 1), i, *back);
            says.iter().for_each(|(a, n, h)| out.add(*a, *n, *h));
            out.end();
        }
        out
    }

    const FILE: Held = Held::File {
        module: 3,
        offset: 0x1000,
    };

    #[test]
    fn the_nearest_key_frame_of_the_chain_tells() {
        let high = 0x7f00_0000_0000;
        let all = frames(&[
            (
                0,
                &[
                    (high + 0x4000, 0x3000, FILE),
                    (high, 0x2000, Held::Chunk(0)),
                    (high + 0x5000, 0x1000, Held::Chunk(0)),
                ],
            ),
            (
                1,
                &[
                    (high + 0x4000, 0x3000, FILE),
                    (high + 0x1000, 0x1000, Held::Chunk(7)),
                ],
            ),
            (
                2,
                &[(high + 0x4000, 0x3000, FILE), (high, 0x1000, Held::Zeros)],
            ),
        ]);
        let at = |count, cell: u64| {
            let (held, end) = all.held(all.last(count).unwrap(), cell..0x1_0000);
            (held, end)
        };
        assert!(all.last(9).is_none());
        assert_eq!(at(10, 0), (Held::Chunk(0), 0x2000));
        assert_eq!(at(29, 0x800), (Held::Chunk(0), 0x1000));
        assert_eq!(at(20, 0x1fff), (Held::Chunk(7), 0x2000));
        // The third one builds on the first one.
        assert_eq!(at(30, 0), (Held::Zeros, 0x1000));
        assert_eq!(at(30, 0x1000), (Held::Chunk(0), 0x2000));
        // Pages lie above files, and where nobody says anything are zeros.
        let file = |offset| Held::File { module: 3, offset };
        assert_eq!(at(30, 0x4010), (file(0x1010), 0x5000));
        assert_eq!(at(30, 0x5010), (Held::Chunk(0), 0x6000));
        assert_eq!(at(30, 0x6010), (file(0x3010), 0x7000));
        assert_eq!(at(30, 0x2000), (Held::Zeros, 0x4000));
    }

    #[test]
    fn cells_go_on_at_zero() {
        let all = frames(&[(0, &[(0xffff_f000, 0x3000, FILE)])]);
        let held = |cell: u64| all.held(all.last(10).unwrap(), cell..1 << 32);
        assert_eq!(
            held(0xffff_f004).0,
            Held::File {
                module: 3,
                offset: 0x1004
            }
        );
        assert_eq!(
            held(4),
            (
                Held::File {
                    module: 3,
                    offset: 0x2004
                },
                0x2000
            )
        );
    }

    #[test]
    fn without_its_base_a_key_frame_tells_nothing() {
        let all = frames(&[
            (1, &[(0, 0x1000, Held::Chunk(0))]),
            (0, &[]),
            (2, &[]),
            (1, &[]),
        ]);
        let at: Vec<u64> = (0..50).filter_map(|c| all.last(c)).map(|f| f.at).collect();
        assert!(at.iter().all(|a| *a == 20), "{at:?}");
        // A key frame that never ends is none.
        let mut cut = Frames::default();
        cut.key_frame();
        cut.begin(5, 0, 0);
        cut.key_frame();
        cut.end();
        assert!(cut.last(99).is_none());
    }
}
