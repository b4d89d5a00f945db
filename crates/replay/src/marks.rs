//! Marks of what was accessed, taken from the window page by page.

use crate::Error;
use crate::window::{Marks, Window};
use core::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_setzero_si128,
};

const PAGE: usize = 4096;
const LINE: usize = 64;
/// The marks of a page that has none.
static NONE: [u8; PAGE] = [0; PAGE];

/// How the bytes of a line of 64 cells were accessed: a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineMarks {
    pub read: u64,
    pub written: u64,
    /// By their last access they were read, or written, and that is what the cells hold. Both: it is not
    /// known what they hold.
    pub last: [u64; 2],
}

impl LineMarks {
    fn of(reads: &[u8; LINE], writes: &[u8; LINE]) -> LineMarks {
        let ((read, r), (written, w)) = (bits(reads), bits(writes));
        let unknown = (read | written) & !(r | w);
        LineMarks {
            read,
            written,
            last: [(r & !w) | unknown, w | unknown],
        }
    }
}

/// Which bytes of a line of marks are not zero, and which say that the value is known.
fn bits(line: &[u8; LINE]) -> (u64, u64) {
    let (mut zero, mut known) = (0u64, 0u64);
    for (i, part) in line.chunks_exact(16).enumerate() {
        // SAFETY: SSE2 is there on all processors of this kind; the part has 16 bytes.
        let (z, k) = unsafe {
            let v = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
            let z = _mm_cmpeq_epi8(v, _mm_setzero_si128());
            (_mm_movemask_epi8(z), _mm_movemask_epi8(v))
        };
        zero |= (z as u64) << (16 * i);
        known |= (k as u64) << (16 * i);
    }
    (!zero, known)
}

// Of the marks only that of a known value has the highest bit.
const _: () =
    assert!(hindsight_isa::observe::MARK == 0xff && hindsight_isa::observe::UNKNOWN < 0x80);

/// Shows a page that was accessed: its number, a bit for each of its lines that was, how each was, and
/// what the cells hold.
pub type ShowPage<'a> = dyn FnMut(u32, u64, &[LineMarks; 64], &[u8; PAGE]) + 'a;

impl Window {
    /// Shows all pages that have marks, ascending, and takes the marks back. Pages of marks that were in
    /// use are zeroed where they are, lest they have to be made again; those that were not are given back.
    pub fn take_marks(&mut self, show: &mut ShowPage) -> Result<(), Error> {
        let kinds = [Marks::Reads, Marks::Writes];
        let present = [self.marked(kinds[0])?, self.marked(kinds[1])?];
        let mut rest = [&present[0][..], &present[1][..]];
        let mut idle = [Vec::new(), Vec::new()];
        let mut first = [[0; PAGE]; 2];
        let mut cells = [0; PAGE];
        let mut lines = [LineMarks::default(); 64];
        while let Some(page) = rest.iter().filter_map(|r| r.first().copied()).min() {
            let there = [0, 1].map(|k| rest[k].first() == Some(&page));
            let mut raw = [&NONE; 2];
            for k in (0..2).filter(|k| there[*k]) {
                rest[k] = &rest[k][1..];
                if page == 0 {
                    self.marks(kinds[k], 0, &mut first[k]);
                }
            }
            for k in (0..2).filter(|k| there[*k]) {
                raw[k] = match page {
                    0 => &first[k],
                    _ => self.page_marks(kinds[k], page),
                };
            }
            let mut any = [0u64; 2];
            let both = (raw[0].as_chunks::<LINE>().0.iter()).zip(raw[1].as_chunks::<LINE>().0);
            for (i, (r, w)) in both.enumerate() {
                lines[i] = LineMarks::of(r, w);
                any[0] |= ((lines[i].read != 0) as u64) << i;
                any[1] |= ((lines[i].written != 0) as u64) << i;
            }
            for k in (0..2).filter(|k| there[*k]) {
                match any[k] {
                    0 => idle[k].push(page),
                    _ => self.zero_marks(kinds[k], page),
                }
            }
            let touched = any[0] | any[1];
            if touched != 0 {
                self.read(page as u64 * PAGE as u64, &mut cells);
                show(page, touched, &lines, &cells);
            }
        }
        for (marks, pages) in kinds.into_iter().zip(&idle) {
            self.give_back(marks, pages)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::observe::{MARK, UNKNOWN};

    #[test]
    fn tells_the_last_access_of_each_byte() {
        let (mut r, mut w) = ([0; LINE], [0; LINE]);
        (r[0], r[1], w[1], w[2]) = (MARK, MARK, MARK, MARK);
        (r[3], w[4], r[63], w[63]) = (MARK & UNKNOWN, UNKNOWN, MARK, UNKNOWN);
        let m = LineMarks::of(&r, &w);
        assert_eq!(m.read, 1 << 63 | 0b1011);
        assert_eq!(m.written, 1 << 63 | 0b1_0110);
        assert_eq!(m.last, [1 << 63 | 0b1_1001, 0b1_1110]);
    }

    #[test]
    fn marks_are_shown_once() {
        let mut w = Window::observed().unwrap();
        let seen = |w: &mut Window| {
            let mut out = Vec::new();
            w.take_marks(&mut |page, lines, marks, cells| {
                let i = lines.trailing_zeros() as usize;
                out.push((page, lines, marks[i].read, marks[i].written, cells[64 * i]));
            })
            .unwrap();
            out
        };
        assert_eq!(seen(&mut w), []);
        for round in 0..3 {
            w.write(5 * 4096, &[7 + round]);
            w.set_marks(Marks::Reads, 5 * 4096, 2, MARK);
            w.set_marks(Marks::Writes, 9 * 4096 + 65, 1, MARK);
            let want = [(5, 1, 3, 0, 7 + round), (9, 2, 0, 2, 0)];
            assert_eq!(seen(&mut w), want);
            assert_eq!(seen(&mut w), []);
        }
        // What begins in the last cells ends in the first ones.
        w.set_marks(Marks::Reads, 0, 1, MARK);
        let slack = 1u64 << 32;
        w.set_slack(Marks::Reads, slack + 1);
        assert_eq!(seen(&mut w), [(0, 1, 3, 0, 0)]);
        assert_eq!(seen(&mut w), []);
    }
}
