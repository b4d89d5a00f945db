//! Takes access marks from the window, page by page.

use crate::Error;
use crate::sweep::{Bits, sweep};
use crate::window::shared::WindowOf;
use crate::window::store::{AccessKind, Marks};

const PAGE: usize = 4096;

/// How the bytes of a line of 64 cells were accessed, with a bit for each byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineMarks {
    pub read: u64,
    pub written: u64,
    /// The last access of each byte: it was read, or it was written, and the cell holds the value. If both
    /// bits are set, the value is unknown.
    pub last: [u64; 2],
}

impl LineMarks {
    fn of(reads: Bits, writes: Bits) -> LineMarks {
        let ([read, r], [written, w]) = (reads, writes);
        let unknown = (read | written) & !(r | w);
        LineMarks {
            read,
            written,
            last: [(r & !w) | unknown, w | unknown],
        }
    }
}

/// Shows a page that was accessed. The arguments are: its number, a bit for each accessed line, the accesses
/// of each line, and the cells. Entries of lines that were not accessed are meaningless.
pub type ShowPage<'a> = dyn FnMut(u32, u64, &[LineMarks; 64], &[u8; PAGE]) + 'a;

impl<C: Marks> WindowOf<C> {
    /// Shows all pages that have marks, ascending, and removes the marks. Pages of marks that were set are
    /// zeroed in place, which is cheaper than allocating them again. Other pages are released.
    pub fn take_marks(&mut self, show: &mut ShowPage) -> Result<(), Error> {
        let kinds = [AccessKind::Reads, AccessKind::Writes];
        let mut parts = [Vec::new(), Vec::new()];
        for (kind, parts) in kinds.into_iter().zip(&mut parts) {
            self.fold_slack(kind)?;
            *parts = self.parts(kind)?;
        }
        let mut rest = [&parts[0][..], &parts[1][..]];
        let mut used = [Vec::new(), Vec::new()];
        let mut bits = [[[0; 2]; 64]; 2];
        let mut lines = [LineMarks::default(); 64];
        while let Some(page) = rest.iter().filter_map(|r| Some(r.first()?.page)).min() {
            let mut any = [0u64; 2];
            for k in 0..2 {
                while let Some((part, behind)) = rest[k].split_first()
                    && part.page == page
                {
                    rest[k] = behind;
                    let first = part.lines.start;
                    let bits = &mut bits[k][part.lines.clone()];
                    let some = sweep(self.part_mut(kinds[k], part), bits);
                    any[k] |= some << first;
                    if some != 0 && used[k].last() != Some(&part.host) {
                        used[k].push(part.host);
                    }
                }
            }
            let touched = any[0] | any[1];
            let mut left = touched;
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                left &= left - 1;
                let of = |k: usize| match any[k] & (1 << i) {
                    0 => [0; 2],
                    _ => bits[k][i],
                };
                lines[i] = LineMarks::of(of(0), of(1));
            }
            if touched != 0 {
                show(page, touched, &lines, self.page(page));
            }
        }
        for k in 0..2 {
            let mut used = used[k].iter().peekable();
            let mut idle: Vec<u32> = Vec::new();
            for host in parts[k].iter().map(|p| p.host) {
                while used.next_if(|u| **u < host).is_some() {}
                if used.peek() != Some(&&host) && idle.last() != Some(&host) {
                    idle.push(host);
                }
            }
            self.give_back(kinds[k], &idle)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::LINE;
    use crate::window::{Window, in_each_window};
    use hindsight_isa::observe::{self, MARK, UNKNOWN};

    #[test]
    fn tells_the_last_access_of_each_byte() {
        let (mut r, mut w) = ([0; LINE], [0; LINE]);
        (r[0], r[1], w[1], w[2]) = (MARK, MARK, MARK, MARK);
        (r[3], w[4], r[63], w[63]) = (MARK & UNKNOWN, UNKNOWN, MARK, UNKNOWN);
        let of = |line: &[u8; LINE]| {
            let mut bits = [[0; 2]];
            assert_eq!(sweep(&mut [*line], &mut bits), 1);
            bits[0]
        };
        let m = LineMarks::of(of(&r), of(&w));
        assert_eq!(m.read, 1 << 63 | 0b1011);
        assert_eq!(m.written, 1 << 63 | 0b1_0110);
        assert_eq!(m.last, [1 << 63 | 0b1_1001, 0b1_1110]);
    }

    #[test]
    fn marks_are_shown_once() {
        in_each_window!(shown_once_in);
        let near = Window::observed_near().unwrap();
        assert!(near.is_near() && !Window::observed_near().unwrap().is_near());
        shown_once(near);
    }

    fn shown_once_in<C: Marks>() {
        shown_once(WindowOf::<C>::observed().unwrap());
    }

    fn shown_once<C: Marks>(mut w: WindowOf<C>) {
        let seen = |w: &mut WindowOf<C>| {
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
            w.set_marks(AccessKind::Reads, 5 * 4096, 2, MARK);
            w.set_marks(AccessKind::Writes, 9 * 4096 + 65, 1, MARK);
            let want = [(5, 1, 3, 0, 7 + round), (9, 2, 0, 2, 0)];
            assert_eq!(seen(&mut w), want);
            assert_eq!(seen(&mut w), []);
        }
        // An access that begins in the last cells ends in the first ones.
        w.set_marks(AccessKind::Reads, 0, 1, MARK);
        w.set_slack(AccessKind::Reads, (1 << 32) + 1);
        assert_eq!(seen(&mut w), [(0, 1, 3, 0, 0)]);
        assert_eq!(seen(&mut w), []);
        // The same holds for the first cells, which are marked through the FS base.
        w.set_slack(AccessKind::Reads, 1 << 32);
        w.set_slack(
            AccessKind::Reads,
            (1 << 32) - 1 + observe::APART.unsigned_abs() as u64,
        );
        let mut marks = [0; 46];
        w.marks(AccessKind::Reads, (1 << 32) - 1, &mut marks);
        assert_eq!((marks[0], marks[1], marks[44]), (0, MARK, MARK));
        assert_eq!(marks.iter().filter(|m| **m != 0).count(), 2);
        let first = (0, 1, 1 << 43 | 1, 0, 0);
        assert_eq!(seen(&mut w), [first]);
        w.set_slack(AccessKind::Reads, 1 << 32);
        w.write_marks(AccessKind::Reads, 0, &[0; 2]);
        w.marks(AccessKind::Reads, 0, &mut marks);
        assert_eq!(marks[0], 0);
        w.set_slack(AccessKind::Reads, 1 << 32);
        w.forget(0, 1).unwrap();
        w.marks(AccessKind::Reads, 0, &mut marks);
        assert_eq!(marks[0], MARK & UNKNOWN);
        w.set_slack(AccessKind::Writes, (1 << 32) + 2);
        w.set_marks(AccessKind::Writes, (1 << 32) - 1, 2, MARK);
        assert_eq!(seen(&mut w)[0], (0, 1, 1, 0b101, 0));
        assert_eq!(seen(&mut w), []);
        w.set_marks(AccessKind::Writes, 3, 1, MARK);
        w.clear_marks().unwrap();
        assert_eq!(seen(&mut w), []);
    }
}
