//! What an interval leaves behind: how each byte was accessed last, and what it holds at the end.
//!
//! Most bytes are accessed in whole words, which the history tells; masks are kept only of lines where that
//! is not so, beside the history ([`Touched::masks`]). Contents are kept as the difference from what the
//! interval's frame has of the line, so that nothing is kept of what has not changed.

use super::frame::{Framed, parts, unpack_parts};

use super::{LINE, PAGE, Page, Reader, Touched, put};
use crate::Result;
use std::sync::Arc;

/// A line at the end of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// A bit for each byte that was read, and for each that was written, by its last access. Both: it was
    /// accessed, and its value is not known.
    pub masks: [u64; 2],
    pub bytes: [u8; LINE],
}

impl Default for End {
    fn default() -> End {
        End {
            masks: [0; 2],
            bytes: [0; LINE],
        }
    }
}

impl End {
    /// The same when the bytes in `wiped` have been changed by something else.
    pub fn wiped(mut self, wiped: u64) -> End {
        let lost = (self.masks[0] | self.masks[1]) & wiped;
        self.masks = self.masks.map(|m| m | lost);
        self
    }

    /// This end of an interval, after one that ended with `before`, of whose bytes those in `wiped` were
    /// changed by something else since.
    pub fn after(mut self, before: &End, wiped: u64) -> End {
        let mine = self.masks[0] | self.masks[1];
        let before = before.wiped(wiped);
        for (m, b) in self.masks.iter_mut().zip(before.masks) {
            *m |= b & !mine;
        }
        self
    }
}

/// The ends of an interval, as they are made.
#[derive(Default)]
pub struct Maker {
    /// Pages of which something differs, and which lines.
    pages: Vec<(u32, u64)>,
    bytes: Vec<u8>,
}

impl Maker {
    /// The next page: the ends of the lines that were touched. `base`: what the frame has of it.
    pub fn page(
        &mut self,
        touched: &mut Touched,
        base: Option<(u64, &Page)>,
        end: impl Fn(usize) -> End,
    ) {
        let mut new = 0u64;
        let any = touched.any();
        for i in (0..64).filter(|i| any & (1 << i) != 0) {
            let e = end(i);
            touched.mark(i, e.masks);
            let old = framed(base, i);
            let (now, old) = (words(&e.bytes), words(&old));
            let difference: [u64; LINE / 8] = std::array::from_fn(|k| now[k] ^ old[k]);
            if difference != [0; LINE / 8] {
                new |= 1 << i;
                self.bytes
                    .extend_from_slice(difference.map(u64::to_ne_bytes).as_flattened());
            }
        }
        if new != 0 {
            self.pages.push((touched.page, new));
        }
    }

    /// All of it, compressed.
    pub fn pack(self) -> Result<Arc<[u8]>> {
        let mut head = Vec::with_capacity(10 * self.pages.len() + 10);
        put(&mut head, self.pages.len() as u64);
        let mut before = 0;
        for (page, new) in self.pages {
            put(&mut head, (page - before) as u64);
            before = page;
            head.extend_from_slice(&new.to_le_bytes());
        }
        Ok(parts(&head, &self.bytes)?.into())
    }
}

/// A line by its words, which are compared without a call.
pub fn words(line: &[u8; LINE]) -> [u64; LINE / 8] {
    let all = line.as_chunks().0;
    std::array::from_fn(|i| u64::from_ne_bytes(all[i]))
}

/// What a frame has of a line of a page.
fn framed(base: Option<(u64, &Page)>, line: usize) -> [u8; LINE] {
    let mut old = [0; LINE];
    if let Some((mask, page)) = base
        && mask & (1 << line) != 0
    {
        old.copy_from_slice(&page[line * LINE..(line + 1) * LINE]);
    }
    old
}

/// The ends of an interval with its frame, ready to be asked.
pub struct Ends {
    /// Lines that differ from the frame's.
    differences: Framed,
    frame: Framed,
}

impl Ends {
    pub fn new(blob: &Arc<[u8]>, frame: Framed) -> Option<Ends> {
        let (raw, lines) = unpack_parts(blob)?;
        let mut r = Reader { b: &raw, at: 0 };
        let differences = Framed::read(&mut r, lines)?;
        (r.at == raw.len()).then_some(Ends { differences, frame })
    }

    /// What a line holds that the interval touched. `None`: what is here is damaged.
    pub fn line(&self, page: u32, line: usize) -> Option<[u8; LINE]> {
        let mut bytes = self.frame.line(page, line)?;
        let difference = self.differences.line(page, line)?;
        for (b, d) in bytes.iter_mut().zip(difference) {
            *b ^= d;
        }
        Some(bytes)
    }

    /// Bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        self.frame.size() + self.differences.size()
    }
}

/// The bytes of a line of cells that lie in a stretch of memory.
pub fn covered(page: u32, line: usize, address: u64, len: u64) -> u64 {
    const CELLS: u64 = 1 << 32;
    const SIZE: u64 = LINE as u64;
    if len >= CELLS {
        return u64::MAX;
    }
    let first = page as u64 * PAGE as u64 + (line * LINE) as u64;
    // How far into the stretch the line begins, and how far behind the line the stretch begins.
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
    use super::super::pieces::Pieces;
    use super::*;

    #[test]
    fn lines_come_back_with_how_their_bytes_were_accessed() {
        let mut words = [[0; 2]; 64];
        words[3] = [0b11, 0b10];
        words[5] = [0, 1];
        let mut history = [Touched::new(7, &[[1, 0]; 64]), Touched::new(9, &words)];
        let mut old = Box::new([0; PAGE]);
        old[3 * LINE] = 4;
        let frame = super::super::pieces::pack(&old[3 * LINE..4 * LINE]).unwrap();
        let frame = Framed {
            pages: vec![(9, 1 << 3, 0)],
            lines: Pieces::new(frame.into(), 0).unwrap(),
        };
        let odd = |i: usize| End {
            masks: match i {
                3 => [0xff, 0xff00],
                _ => [0x02, 0x0e],
            },
            bytes: match i {
                3 => std::array::from_fn(|b| if b == 0 { 4 } else { 0 }),
                _ => [i as u8; LINE],
            },
        };
        let plain = |i: usize| End {
            masks: [0xff, 0],
            bytes: [i as u8; LINE],
        };
        let mut m = Maker::default();
        m.page(&mut history[0], None, plain);
        m.page(&mut history[1], Some((1 << 3, &*old)), odd);
        assert_eq!(m.bytes.len(), (63 + 1) * LINE, "only what differs is kept");
        let e = Ends::new(&m.pack().unwrap(), frame).unwrap();
        let line = |h: usize, page, i| history[h].end(i, e.line(page, i).unwrap());
        assert_eq!(line(0, 7, 63), plain(63));
        assert_eq!(line(1, 9, 3), odd(3));
        assert_eq!(line(1, 9, 5), odd(5));
    }

    #[test]
    fn later_accesses_count() {
        let e = End {
            masks: [0xffff_0000_0000_ff00, 0xff],
            bytes: [5; LINE],
        };
        // A later interval that wrote one byte, after the first eight were changed by something else.
        let later = End {
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
