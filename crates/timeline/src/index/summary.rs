//! The summary of an interval: how each byte was accessed last, and what it holds at the end.
//!
//! Most bytes are accessed in whole words. The history says that. Masks of bytes are stored only for other lines,
//! beside the history ([`PageAccess::masks`]). Contents are stored as differences from the interval's frame. So an
//! unchanged line takes no room.

mod accessed;
mod content;

pub use content::OpenedSummary;

use super::codec::{LINE, PAGE, Page, Reader};
use super::differences::Differences;
use super::frame::{Framed, state_of, unpack_parts};
use super::pieces::Pieces;
use crate::base::sync::lock;
use hindsight_replay::State;
use std::fs::File;
use std::sync::{Arc, Mutex};

/// A line at the end of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinalLine {
    /// Masks of the bytes whose last access was a read, and of those whose last was a write. Both bits are set for a
    /// byte that was accessed and whose value is not known.
    pub masks: [u64; 2],
    pub bytes: [u8; LINE],
}

impl Default for FinalLine {
    fn default() -> FinalLine {
        FinalLine {
            masks: [0; 2],
            bytes: [0; LINE],
        }
    }
}

impl FinalLine {
    /// This line after something else changed the bytes in `wiped`.
    pub fn wiped(mut self, wiped: u64) -> FinalLine {
        let lost = (self.masks[0] | self.masks[1]) & wiped;
        self.masks = self.masks.map(|m| m | lost);
        self
    }

    /// This line at the end of two intervals. The first ended with `before`. Then something else changed the bytes in
    /// `wiped`.
    pub fn after(mut self, before: &FinalLine, wiped: u64) -> FinalLine {
        let mine = self.masks[0] | self.masks[1];
        let before = before.wiped(wiped);
        for (m, b) in self.masks.iter_mut().zip(before.masks) {
            *m |= b & !mine;
        }
        self
    }
}

/// A line as words. Words are compared without a call to `memcmp`.
pub fn words(line: &[u8; LINE]) -> [u64; LINE / 8] {
    let all = line.as_chunks().0;
    std::array::from_fn(|i| u64::from_ne_bytes(all[i]))
}

/// The content that a frame has of a line. Zeros if it has none.
pub fn framed(base: Option<(u64, &Page)>, line: usize) -> [u8; LINE] {
    let mut old = [0; LINE];
    if let Some((mask, page)) = base
        && mask & (1 << line) != 0
    {
        old.copy_from_slice(&page[line * LINE..(line + 1) * LINE]);
    }
    old
}

/// Bytes in a mask of a line.
pub const MASK: usize = 8;

/// How a step changed a page.
#[derive(Clone, Debug)]
pub struct Changed {
    pub page: u32,
    /// The lines that were accessed, and those that were written. All bits are set if only the history knows.
    pub any: u64,
    pub written: u64,
    /// The lines that differ from their content at the beginning of the step.
    pub new: u64,
    /// The number of such lines in earlier pages.
    pub before: usize,
    /// The number of access masks of earlier pages. Each accessed line has one, and one more if it was written.
    pub masks: usize,
}

impl Changed {
    /// The offset of a line's difference. `None`: the line does not differ.
    pub fn at(&self, line: usize) -> Option<usize> {
        let below = (1u64 << line) - 1;
        let rank = self.before + (self.new & below).count_ones() as usize;
        (self.new & (1 << line) != 0).then_some(rank * LINE)
    }

    /// The offset of a line's access masks. The first has the bytes that were only read. The second, if the line was
    /// written, has those that were written. `None`: the line was not accessed.
    fn masks_at(&self, line: usize) -> Option<usize> {
        let below = (1u64 << line) - 1;
        let ranks = [self.any, self.written].map(|m| (m & below).count_ones() as usize);
        (self.any & (1 << line) != 0).then_some((self.masks + ranks[0] + ranks[1]) * MASK)
    }

    /// The number of masks of this page.
    pub fn count(&self) -> usize {
        (self.any.count_ones() + self.written.count_ones()) as usize
    }

    /// The bytes of a line that were only read, and those that were written. `get` reads a mask of the interval.
    pub fn accessed(
        &self,
        line: usize,
        get: impl Fn(usize) -> Option<[u8; MASK]>,
    ) -> Option<[u64; 2]> {
        let Some(at) = self.masks_at(line) else {
            return Some([0; 2]);
        };
        let wrote = match self.written & (1 << line) {
            0 => [0; MASK],
            _ => get(at + MASK)?,
        };
        Some([get(at)?, wrote].map(u64::from_le_bytes))
    }
}

/// A step: a stretch of an interval.
#[derive(Clone, Debug)]
pub struct IntervalStep {
    pub from: u64,
    /// The registers at its beginning. `None`: the frame has them.
    pub state: Option<State>,
    pub pages: Vec<Changed>,
}

impl IntervalStep {
    fn page(&self, page: u32) -> Option<&Changed> {
        let i = self.pages.binary_search_by_key(&page, |p| p.page);
        Some(&self.pages[i.ok()?])
    }

    /// Whether it may have accessed some of these lines. With `reads` unset, only writes count.
    pub fn touches(&self, page: u32, lines: u64, reads: bool) -> bool {
        let kind = |p: &Changed| if reads { p.any } else { p.written };
        self.page(page).is_some_and(|p| kind(p) & lines != 0)
    }
}

/// A line, by its page and its number in the page, and its content.
type Asked = ((u32, usize), [u8; LINE]);

/// The summary of an interval together with its frame, ready for questions.
pub struct IntervalSummary {
    pub steps: Vec<IntervalStep>,
    /// Whether each step says what it accessed.
    pub stepped: bool,
    /// The differences of all steps.
    lines: Pieces,
    /// Masks of bytes. Each line that a step accessed has one for the bytes that it only read. If it wrote to the line,
    /// a second has those that it wrote.
    pub(super) masks: Pieces,
    frame: Framed,
    /// The line of the last question. Often each of its bytes is asked for separately.
    last: Mutex<Option<Asked>>,
}

impl IntervalSummary {
    /// The summary of an interval that begins at `from`. `None`: the data is damaged.
    pub fn new(blob: &Arc<[u8]>, frame: Framed, from: u64) -> Option<IntervalSummary> {
        let (raw, [lines, masks]) = unpack_parts(blob)?;
        let mut r = Reader { b: &raw, at: 0 };
        let (mut steps, mut from) = (Vec::new(), from);
        let (mut before, mut accesses) = (0, 0);
        let count = r.int()?;
        let (count, stepped) = (count >> 1, count & 1 != 0);
        for i in 0..count {
            let mut state = None;
            if i > 0 {
                from = from.checked_add(r.int()?)?;
                state = Some(state_of(&mut r, from)?);
            }
            let (mut pages, mut page) = (Vec::new(), 0u32);
            for _ in 0..r.int()? {
                let next = page.checked_add(u32::try_from(r.int()?).ok()?)?;
                if (next == page && !pages.is_empty()) || next >= 1 << 20 {
                    return None;
                }
                page = next;
                let [any, written] = match stepped {
                    false => [u64::MAX; 2],
                    true => [r.word()?, r.word()?],
                };
                if written & !any != 0 {
                    return None;
                }
                let new = r.word()?;
                let changed = Changed {
                    page,
                    any,
                    written,
                    new,
                    before,
                    masks: accesses,
                };
                before += new.count_ones() as usize;
                if stepped {
                    accesses += changed.count();
                }
                pages.push(changed);
            }
            steps.push(IntervalStep { from, state, pages });
        }
        let lens = [lines.len(), masks.len()];
        let whole = r.at == raw.len() && lens == [before * LINE, accesses * MASK];
        (whole && !steps.is_empty()).then_some(IntervalSummary {
            steps,
            stepped,
            lines,
            masks,
            frame,
            last: Mutex::default(),
        })
    }

    /// The differences of all steps of a summary. `None`: the data is damaged.
    pub fn differences_of(blob: &Arc<[u8]>, from: u64) -> Option<Differences> {
        let nothing = Framed {
            pages: Vec::new(),
            lines: Pieces::none(),
        };
        let IntervalSummary { steps, lines, .. } = IntervalSummary::new(blob, nothing, from)?;
        Some(Differences::of_steps(&steps, lines))
    }

    /// The content of a line at the end; the interval must have accessed it. `None`: the data is damaged.
    pub fn line(&self, page: u32, line: usize) -> Option<[u8; LINE]> {
        let last = *lock(&self.last);
        match last.filter(|l| l.0 == (page, line)) {
            Some((_, bytes)) => Some(bytes),
            None => {
                let bytes = self.line_at(self.steps.len(), page, line)?;
                *lock(&self.last) = Some(((page, line), bytes));
                Some(bytes)
            }
        }
    }

    /// Whether the frame has lines.
    pub fn is_framed(&self) -> bool {
        self.frame.has_lines()
    }

    /// The mask of the lines that the frame has of a page.
    pub fn framed(&self, page: u32) -> u64 {
        self.frame.mask(page)
    }

    /// The content of a line at its first access. Zeros if the frame does not have it.
    pub fn first(&self, page: u32, line: usize) -> Option<[u8; LINE]> {
        self.frame.line(page, line)
    }

    /// The content of a line at the beginning of a step; the interval must have accessed the line. The step after the
    /// last one stands for the interval's end. `None`: the data is damaged.
    pub fn line_at(&self, step: usize, page: u32, line: usize) -> Option<[u8; LINE]> {
        let mut bytes = self.frame.line(page, line)?;
        let before = &self.steps[..step];
        let changed = before.iter().filter_map(|s| s.page(page)?.at(line));
        for at in changed {
            let difference = self.lines.get::<LINE>(at)?;
            for (b, d) in bytes.iter_mut().zip(difference) {
                *b ^= d;
            }
        }
        Some(bytes)
    }

    /// The number of the step that has instruction `count`.
    pub fn step(&self, count: u64) -> usize {
        let i = self.steps.partition_point(|s| s.from <= count);
        i.saturating_sub(1)
    }

    /// Where a step ends. `None`: at the interval's end.
    pub fn end_of(&self, step: usize) -> Option<u64> {
        self.steps.get(step + 1).map(|s| s.from)
    }

    /// The differences of all steps. `None`: the data is damaged.
    pub fn differences(&self) -> Option<Vec<u8>> {
        self.lines.all()
    }

    /// Reads differences and masks from a file from now on, when they are needed. `at`: the summary begins there.
    pub fn leave_in(&mut self, file: &Arc<File>, at: u64) {
        self.lines.leave_in(file, at);
        self.masks.leave_in(file, at);
    }

    /// Its approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        let pages: usize = self.steps.iter().map(|s| s.pages.len()).sum();
        let heads = pages * size_of::<Changed>() + self.steps.len() * size_of::<IntervalStep>();
        self.frame.size() + self.lines.size() + self.masks.size() + heads
    }
}

/// A mask of the bytes of a line that lie in a stretch of memory. The line is one of cells: addresses count modulo
/// 2^32.
pub fn covered(page: u32, line: usize, address: u64, len: u64) -> u64 {
    const CELLS: u64 = 1 << 32;
    const SIZE: u64 = LINE as u64;
    if len >= CELLS {
        return u64::MAX;
    }
    let first = page as u64 * PAGE as u64 + (line * LINE) as u64;
    // `into`: how far into the stretch the line begins. `behind`: how far after the line the stretch begins.
    let into = first.wrapping_sub(address) % CELLS;
    let behind = CELLS - into;
    let low = |n: u64| match n {
        SIZE.. => u64::MAX,
        n => (1 << n) - 1,
    };
    let mut mask = low(len.saturating_sub(into));
    if behind < SIZE {
        mask |= low(behind.saturating_add(len)) & !low(behind);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::super::maker::{Accesses, Maker};
    use super::super::page_access::PageAccess;
    use super::*;
    use hindsight_isa::{CpuState, VecState};
    use hindsight_replay::Gap;

    /// More steps than an interval has.
    const MANY: u64 = 65;

    #[test]
    fn lines_come_back_with_how_their_bytes_were_accessed() {
        let mut words = [[0; 2]; 64];
        words[3] = [0b11, 0b10];
        words[5] = [0, 1];
        let mut history = [
            PageAccess::new(7, &[[1, 0]; 64]),
            PageAccess::new(9, &words),
        ];
        let mut old = Box::new([0; PAGE]);
        old[3 * LINE] = 4;
        let mut frame = Vec::new();
        super::super::pieces::pack(&old[3 * LINE..4 * LINE], 1, &mut frame).unwrap();
        let frame = Framed {
            pages: vec![(9, 1 << 3, 0)],
            lines: Pieces::new(&frame.into(), 0).unwrap(),
        };
        let odd = |i: usize| FinalLine {
            masks: match i {
                3 => [0xff, 0xff00],
                _ => [0x02, 0x0e],
            },
            bytes: match i {
                3 => std::array::from_fn(|b| if b == 0 { 4 } else { 0 }),
                _ => [i as u8; LINE],
            },
        };
        let plain = |i: usize| FinalLine {
            masks: [0xff, 0],
            bytes: [i as u8; LINE],
        };
        let mut m = Maker::default();
        m.page(&mut history[0], None, plain);
        m.page(&mut history[1], Some((1 << 3, &*old)), odd);
        assert_eq!(m.bytes.len(), (63 + 1) * LINE, "only what differs is kept");
        let e = IntervalSummary::new(&m.pack(1).unwrap().bytes().unwrap(), frame, 0).unwrap();
        let line = |h: usize, page, i| history[h].end(i, e.line(page, i).unwrap());
        assert_eq!(line(0, 7, 63), plain(63));
        assert_eq!(line(1, 9, 3), odd(3));
        assert_eq!(line(1, 9, 5), odd(5));
    }

    #[test]
    fn content_at_each_step_comes_back_also_when_steps_are_joined() {
        // One line is in the frame, the other was zero.
        let (first, mut held) = ([7; LINE], [[7; LINE], [0; LINE]]);
        let (mut m, mut written) = (Maker::default(), Vec::new());
        m.stepped = true;
        let mut content = Vec::new();
        for n in 0..MANY {
            let state = State {
                position: n,
                gap: Gap::Outside,
                epoch: n,
                cpu: CpuState::default(),
                vec: VecState::default(),
            };
            content.push(held);
            m.step(n, (n > 0).then_some(state));
            let i = (n % 2) as usize;
            let mut difference = [0; LINE];
            difference[n as usize % LINE] = n as u8 + 1;
            let changed = held[i].iter_mut().zip(difference);
            changed.for_each(|(h, d)| *h ^= d);
            // One byte changes. Two bytes are written: that one, and one that keeps its value. Every third time, only
            // the second is written.
            let wrote = match n % 3 {
                0 => 1 << ((n + 5) % 64),
                _ => 1 << (n % 64) | 1 << ((n + 5) % 64),
            };
            written.push((i, wrote));
            // One byte of the other line is read.
            let (any, bytes) = (1 << i | 1 << 60, &[[0, wrote], [1 << (n % 64), 0]]);
            m.differ(9, Accesses { any, bytes }, 1 << i, &difference);
        }
        let framed = |blob: Arc<[u8]>| {
            let mut frame = Vec::new();
            super::super::pieces::pack(&first, 1, &mut frame).unwrap();
            let frame = Framed {
                pages: vec![(9, 1, 0), (12, 0, 1)],
                lines: Pieces::new(&frame.into(), 0).unwrap(),
            };
            IntervalSummary::new(&blob, frame, 0).unwrap()
        };
        let check = |e: &IntervalSummary, every: usize| {
            assert_eq!(e.steps.len(), (MANY as usize).div_ceil(every));
            let mut opened = OpenedSummary::default();
            for (k, s) in e.steps.iter().enumerate() {
                let n = k * every;
                assert_eq!((s.from, e.step(n as u64)), (n as u64, k));
                assert_eq!(
                    s.state.as_ref().map(|s| s.epoch),
                    (n > 0).then_some(n as u64)
                );
                let bit = 1 << (n % 2);
                assert!(s.touches(9, bit, false) && s.touches(9, 1 << 60, true));
                assert!(!s.touches(9, 1 << 60, false) && !s.touches(12, bit, true));
                let some = &written[n..written.len().min(n + every)];
                for (line, byte) in (0..2).flat_map(|l| (0..64).map(move |b| (l, b))) {
                    let wrote = some.iter().any(|(i, w)| *i == line && w & (1 << byte) != 0);
                    let address = (9 * PAGE + line * LINE + byte) as u64;
                    let found = e.touches(k, address, 1, false);
                    assert_eq!(found, Some(wrote), "{k} {line} {byte}");
                }
                // The content of the lines that the step accesses. For a replay from the first step on, it has both
                // lines.
                let held = |lines: u64| -> Vec<u8> {
                    let one = |i: usize| match lines & (1 << i) {
                        0 => [0; LINE],
                        _ => content[n][i],
                    };
                    [one(0), one(1)].concat()
                };
                let its = s.pages[0].any;
                let shown = |opened: &mut OpenedSummary, since| {
                    let mut seen = Vec::new();
                    let all = e.content(k, since, opened).unwrap();
                    all.each(&mut |page, bytes| seen.push((page, bytes[..2 * LINE].to_vec())));
                    seen
                };
                let something = held(its).iter().any(|b| *b != 0);
                let expected = something.then(|| (9, held(its)));
                assert_eq!(shown(&mut opened, None), Vec::from_iter(expected), "{k}");
                for since in 0..=k {
                    let before = e.steps[since..k].iter().fold(0, |m, s| m | s.pages[0].any);
                    let more = its & !before;
                    let expected = (more != 0).then(|| (9, held(more)));
                    let seen = shown(&mut opened, Some(since));
                    assert_eq!(seen, Vec::from_iter(expected), "{since} {k}");
                }
            }
            let end = [0, 1].map(|i| e.line(9, i).unwrap());
            assert_eq!(end, held);
        };
        let mut joined = Maker::default();
        let whole = framed(m.pack(1).unwrap().bytes().unwrap());
        check(&whole, 1);
        joined.stepped = true;
        joined.append(&whole, None).unwrap();
        joined.thin();
        check(&framed(joined.pack(1).unwrap().bytes().unwrap()), 2);
    }

    #[test]
    fn later_accesses_count() {
        let e = FinalLine {
            masks: [0xffff_0000_0000_ff00, 0xff],
            bytes: [5; LINE],
        };
        // Something else changed the first eight bytes. Then a later interval wrote one byte.
        let later = FinalLine {
            masks: [0, 1],
            bytes: [6; LINE],
        };
        let both = later.after(&e, 0xff);
        let byte = |i: u32| both.masks.map(|m| m & (1 << i) != 0);
        assert_eq!(byte(0), [false, true]);
        assert_eq!(byte(1), [true, true]);
        assert_eq!(byte(9), [true, false]);
        assert_eq!(byte(17), [false, false]);
    }

    #[test]
    fn stretches_cover_cells_modulo_their_number() {
        assert_eq!(covered(0, 0, 0x1_0000_0004, 2), 0b11_0000);
        assert_eq!(covered(0, 0, 0x7_ffff_fffc, 5), 1);
        assert_eq!(covered(0xf_ffff, 63, 0x7_ffff_fffe, 5), 3 << 62);
        assert_eq!(covered(5, 1, 0, 1 << 32), u64::MAX);
    }
}
