//! Marks of which those of reads are gone through by another thread than the one that replays.
//!
//! What was read and not written since marks were taken last holds what it did then. So the machine goes through the
//! marks of writes alone and tells what these cells hold; it goes on at once, with other marks of reads.

use crate::marks::{LineMarks, bits};
use crate::stretch::{Marks, Stretch};
use crate::sweep::Bits;
use crate::window::Window;
use crate::{Error, Machine};

const LINE: usize = 64;
/// Lines that were changed from outside and are told apart.
const MOST: usize = 32 << 10;

/// Lines of cells that changed otherwise than by instructions.
pub(crate) struct Outside {
    lines: Box<[u32]>,
    len: usize,
    /// There are more, or may be.
    more: bool,
    /// Somebody wants to know.
    wanted: bool,
}

impl Default for Outside {
    fn default() -> Self {
        Outside {
            lines: vec![0; MOST].into(),
            len: 0,
            more: true,
            wanted: false,
        }
    }
}

impl Outside {
    /// Cells from `addr` on change. Calls nothing (see `Cpu::spin`).
    #[inline(always)]
    pub fn add(&mut self, addr: u64, len: u64) {
        self.more |= len > (MOST * LINE) as u64;
        if self.more {
            return;
        }
        let first = addr as u32 as u64;
        for line in first / LINE as u64..(first + len).div_ceil(LINE as u64) {
            // Those of the last cells are followed by the first.
            let line = line as u32 & (u32::MAX / LINE as u32);
            // Often the same one again.
            if self.len > 0 && self.lines.get(self.len - 1) == Some(&line) {
                continue;
            }
            match self.lines.get_mut(self.len) {
                Some(next) => {
                    *next = line;
                    self.len += 1;
                }
                None => self.more = true,
            }
        }
    }

    /// Any may change.
    pub fn any(&mut self) {
        self.more = true;
    }

    /// None has changed from now on, as far as anybody wants to know.
    pub fn clear(&mut self) {
        (self.len, self.more) = (0, !self.wanted);
    }
}

/// What was written, and what else changed: the lines, and what they hold.
#[derive(Default)]
pub struct Written {
    /// By page, ascending: lines that were written.
    pages: Vec<(u32, u64)>,
    /// Of each: the marks, and the cells.
    bits: Vec<Bits>,
    cells: Vec<[u8; LINE]>,
    /// Lines that changed from outside, ascending by their numbers.
    outside: Vec<(u32, [u8; LINE])>,
}

impl Written {
    /// The pages that were written, ascending.
    pub fn pages(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().map(|p| p.0)
    }
}

/// What is known of the cells of a page.
pub struct Held<'a> {
    page: u32,
    mask: u64,
    cells: &'a [[u8; LINE]],
    outside: &'a [(u32, [u8; LINE])],
}

impl Held<'_> {
    /// What a line holds; `None`: what it did before.
    pub fn line(&self, i: usize) -> Option<&[u8; LINE]> {
        if self.mask & (1 << i) != 0 {
            let rank = (self.mask & ((1 << i) - 1)).count_ones() as usize;
            return self.cells.get(rank);
        }
        let line = self.page * LINE as u32 + i as u32;
        let found = self.outside.binary_search_by_key(&line, |o| o.0);
        Some(&self.outside[found.ok()?].1)
    }
}

/// Shows a page that was accessed: its number, a bit for each of its lines that was, how each was, and what it holds.
pub type ShowHeld<'a> = dyn FnMut(u32, u64, &[LineMarks; 64], &Held) + 'a;

/// Marks of reads that no machine makes.
pub struct Reads(Stretch);

impl Reads {
    /// Without any.
    pub fn new() -> Result<Reads, Error> {
        Ok(Reads(Stretch::reads()?))
    }

    /// Shows all pages that were read, or written as `written` says, ascending, and takes the marks back.
    pub fn take(&mut self, written: &Written, show: &mut ShowHeld) -> Result<(), Error> {
        let (mut pages, mut done) = (&written.pages[..], 0);
        let mut lines = [LineMarks::default(); 64];
        let mut one = |page: u32, reads: u64, bits_of: &[Bits; 64], mask: u64, at: usize| {
            let mut writes = written.bits[at..].iter();
            for i in bits(reads | mask) {
                let read = match reads & (1 << i) {
                    0 => [0; 2],
                    _ => bits_of[i],
                };
                let write = match mask & (1 << i) {
                    0 => [0; 2],
                    _ => writes.next().copied().unwrap_or_default(),
                };
                lines[i] = LineMarks::of(read, write);
            }
            let held = Held {
                page,
                mask,
                cells: &written.cells[at..],
                outside: &written.outside,
            };
            show(page, reads | mask, &lines, &held);
        };
        let mut until = |end: u32, one: &mut dyn FnMut(u32, u64, usize)| {
            while let Some(((page, mask), rest)) = pages.split_first()
                && *page < end
            {
                one(*page, *mask, done);
                (pages, done) = (rest, done + mask.count_ones() as usize);
            }
        };
        self.0.take(&mut |page, reads, bits_of| {
            until(page, &mut |p, mask, at| one(p, 0, bits_of, mask, at));
            let mut mine = (0, 0);
            until(page + 1, &mut |_, mask, at| mine = (mask, at));
            one(page, reads, bits_of, mine.0, mine.1);
        })?;
        until(u32::MAX, &mut |p, mask, at| {
            one(p, 0, &[[0; 2]; 64], mask, at)
        });
        Ok(())
    }
}

impl Window {
    /// Takes all marks, those of reads by exchanging them. `false`: that cannot be done, since too much has changed from outside.
    fn hand_over(&mut self, reads: &mut Reads, out: &mut Written) -> Result<bool, Error> {
        self.outside.wanted = true;
        if self.outside.more {
            return Ok(false);
        }
        let (pages, bits_of) = (&mut out.pages, &mut out.bits);
        pages.clear();
        bits_of.clear();
        self.stretch_mut(Marks::Writes)
            .take(&mut |page, mask, all| {
                pages.push((page, mask));
                bits_of.extend(bits(mask).map(|i| all[i]));
            })?;
        out.cells.clear();
        for (page, mask) in &out.pages {
            let cells = self.page(*page).as_chunks::<LINE>().0;
            out.cells.extend(bits(*mask).map(|i| cells[i]));
        }
        let changed = &mut self.outside.lines[..self.outside.len];
        changed.sort_unstable();
        out.outside.clear();
        let mut last = None;
        for line in self.outside.lines[..self.outside.len].iter().copied() {
            if last.replace(line) != Some(line) {
                let cells = self.page(line / 64).as_chunks::<LINE>().0;
                out.outside.push((line, cells[line as usize % 64]));
            }
        }
        self.outside.clear();
        std::mem::swap(self.stretch_mut(Marks::Reads), &mut reads.0);
        Ok(true)
    }
}

impl Machine<'_> {
    /// As [`Machine::take_marks`] with [`Reads::take`] of what is handed over here, which another thread may do while this
    /// machine goes on. `reads` are without any, and then those that there are. `false`: nothing is done, since too much has changed
    /// otherwise than by instructions, or it is the first time.
    pub fn hand_over(&mut self, reads: &mut Reads, written: &mut Written) -> Result<bool, Error> {
        self.cpu.window.hand_over(reads, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::observe::MARK;

    /// Page, lines, how the first and the last of them were accessed, and what they hold.
    type Shown = (u32, u64, [LineMarks; 2], [[u8; LINE]; 2]);

    fn ends(
        page: u32,
        lines: u64,
        marks: &[LineMarks; 64],
        cells: impl Fn(usize) -> [u8; LINE],
    ) -> Shown {
        let both = [lines.trailing_zeros(), 63 - lines.leading_zeros()].map(|i| i as usize);
        (page, lines, both.map(|i| marks[i]), both.map(cells))
    }

    #[test]
    fn handed_over_is_the_same_as_taken() {
        let [mut w, mut other] = [(); 2].map(|()| Window::observed().unwrap());
        let (mut reads, mut written) = (Reads::new().unwrap(), Written::default());
        assert!(!other.hand_over(&mut reads, &mut written).unwrap());
        other.take_marks(&mut |_, _, _, _| panic!()).unwrap();
        // What was in the cells when marks were taken last.
        let mut before = vec![0; 16 * 4096];
        for round in 1..4u8 {
            for w in [&mut w, &mut other] {
                // Read only, read and written, written only; at both ends of the cells.
                w.set_marks(Marks::Reads, 4096 + 70, 8, MARK);
                w.set_marks(Marks::Reads, 4096 + 640, 8, MARK);
                w.set_marks(Marks::Writes, 4096 + 700, 8, MARK);
                w.write(4096 + 700, &[round; 8]);
                w.set_marks(Marks::Writes, 3 * 4096 * round as u64, 4, MARK);
                w.write(3 * 4096 * round as u64, &[round; 4]);
                w.set_marks(Marks::Reads, (1 << 32) - 4, 8, MARK);
                // By what was recorded, and by the kernel, where it was read before.
                w.set_word(5 * 4096 + 60, round as u64 * 0x0101_0101_0101_0101);
                w.mark_word(5 * 4096 + 60, 8);
                w.set_marks(Marks::Reads, 7 * 4096, 16, MARK);
                w.write_from_outside(7 * 4096 + 8, &[round; 100]);
                w.given(7 * 4096 + 64, 4).unwrap();
            }
            let mut taken = Vec::new();
            w.take_marks(&mut |page, lines, marks, cells| {
                let cells = cells.as_chunks::<LINE>().0;
                taken.push(ends(page, lines, marks, |i| cells[i]));
            })
            .unwrap();
            assert!(other.hand_over(&mut reads, &mut written).unwrap());
            // The machine goes on.
            let mut now = vec![0; 16 * 4096];
            other.read(0, &mut now);
            other.write(4096 + 700, &[99; 8]);
            other.set_word(5 * 4096 + 60, 99);
            let mut held = Vec::new();
            let mut show = |page, lines, marks: &[LineMarks; 64], line: &Held| {
                let at = |i: usize| page as usize * 4096 + i * LINE;
                let old = |i| {
                    before
                        .get(at(i)..at(i) + LINE)
                        .map_or([0; LINE], |b| b.try_into().unwrap())
                };
                held.push(ends(page, lines, marks, |i| {
                    line.line(i).copied().unwrap_or_else(|| old(i))
                }));
            };
            reads.take(&written, &mut show).unwrap();
            assert_eq!(held, taken);
            assert!(written.pages().eq([1, 3 * round as u32]));
            other.write(0, &now);
            before = now;
        }
        for w in [&mut w, &mut other] {
            w.zero(1 << 30, 1 << 30).unwrap();
        }
        assert!(!other.hand_over(&mut reads, &mut written).unwrap());
        other.take_marks(&mut |_, _, _, _| {}).unwrap();
        assert!(other.hand_over(&mut reads, &mut written).unwrap());
        reads.take(&written, &mut |_, _, _, _| panic!()).unwrap();
    }

    #[test]
    fn changed_lines_are_told_apart_up_to_a_number() {
        let lines = |o: &Outside| (o.lines[..o.len].to_vec(), o.more);
        let mut o = Outside {
            wanted: true,
            ..Outside::default()
        };
        o.clear();
        o.add(0, 0);
        o.add(63, 1);
        o.add(0x7_0000_003f, 2);
        o.add((1 << 32) - 1, 2);
        assert_eq!(lines(&o), (vec![0, 1, (1 << 26) - 1, 0], false));
        o.add(5, (MOST * LINE) as u64 + 1);
        assert!(o.more);
        o.clear();
        o.add(0, (MOST * LINE) as u64);
        assert!(!o.more && o.len == MOST);
        o.add(1 << 31, 1);
        assert!(o.more);
    }
}
