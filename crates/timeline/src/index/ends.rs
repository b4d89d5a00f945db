//! What an interval leaves behind: how each byte was accessed last, and what it holds at the end.
//!
//! Most bytes are accessed in whole words, which the history tells; masks are kept only of lines where that
//! is not so. Contents are kept as the difference from what the interval's frame has of the line, so that
//! nothing is kept of what has not changed.

use super::frame::{Framed, parts, unpack_parts};
use super::pieces::Pieces;
use super::{LINE, PAGE, Page, Touched};
use crate::Result;

/// Bytes of a page in the list of pages: a bit for each line that has masks, and that has a difference.
const HEAD: usize = 16;
/// Bytes of the masks of a line.
const MASKS: usize = 16;

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
    /// How byte `i` was accessed last: read, written.
    pub fn byte(&self, i: usize) -> [bool; 2] {
        self.masks.map(|m| m & (1 << i) != 0)
    }

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

/// The masks of a line that was accessed in whole words.
fn whole(words: [u8; 2]) -> [u64; 2] {
    // Each bit into a byte of its own, and that byte full.
    let spread = |bits: u8| {
        let one = (bits as u64).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let top = (one + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080;
        (top >> 7) * 0xff
    };
    [spread(words[0] & !words[1]), spread(words[1])]
}

/// The ends of an interval, as they are made.
#[derive(Default)]
pub struct Maker {
    heads: Vec<u8>,
    masks: Vec<u8>,
    bytes: Vec<u8>,
}

impl Maker {
    /// The next page: the ends of the lines that were touched. `base`: what the frame has of it.
    pub fn page(
        &mut self,
        touched: &Touched,
        base: Option<(u64, &Page)>,
        end: impl Fn(usize) -> End,
    ) {
        let (mut odd, mut new) = (0u64, 0u64);
        let any = touched.reads | touched.writes;
        for i in (0..64).filter(|i| any & (1 << i) != 0) {
            let e = end(i);
            if e.masks != whole(touched.line(i)) {
                odd |= 1 << i;
                for m in e.masks {
                    self.masks.extend_from_slice(&m.to_le_bytes());
                }
            }
            let old = framed(base, i);
            if e.bytes != old {
                new |= 1 << i;
                let difference: [u8; LINE] = std::array::from_fn(|k| e.bytes[k] ^ old[k]);
                self.bytes.extend_from_slice(&difference);
            }
        }
        self.heads.extend_from_slice(&odd.to_le_bytes());
        self.heads.extend_from_slice(&new.to_le_bytes());
    }

    /// All of it, compressed.
    pub fn pack(self) -> Result<Vec<u8>> {
        let mut head = self.heads;
        head.extend_from_slice(&self.masks);
        parts(&head, &self.bytes)
    }
}

/// Which lines of a page have masks, and which a difference.
fn head(bytes: &[u8; HEAD]) -> [u64; 2] {
    let [odd, new] = *bytes.as_chunks::<8>().0 else {
        return [0; 2];
    };
    [u64::from_le_bytes(odd), u64::from_le_bytes(new)]
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
    /// List of pages, and masks.
    raw: Vec<u8>,
    /// Of each page: how many lines of the pages before it have masks, and how many a difference.
    before: Vec<[u32; 2]>,
    differences: Pieces,
    frame: Framed,
}

impl Ends {
    /// Of an interval that touched so many `pages`.
    pub(super) fn new(blob: &[u8], pages: usize, frame: Framed) -> Option<Ends> {
        let (raw, differences) = unpack_parts(blob)?;
        let heads = raw.get(..HEAD * pages)?.as_chunks::<HEAD>().0;
        let mut sum = [0; 2];
        let before = heads.iter().map(|h| {
            let before = sum;
            sum = [0, 1].map(|k| sum[k] + head(h)[k].count_ones());
            before
        });
        Some(Ends {
            before: before.collect(),
            raw,
            differences,
            frame,
        })
    }

    /// A line of a page that the interval touched. `None`: it did not, or what is here is damaged.
    pub fn line(&self, history: &[Touched], page: u32, line: usize) -> Option<End> {
        let at = history.binary_search_by_key(&page, |t| t.page).ok()?;
        let touched = &history[at];
        if (touched.reads | touched.writes) & (1 << line) == 0 {
            return None;
        }
        let before = self.before.get(at)?;
        let [odd, new] = head(self.raw[HEAD * at..].first_chunk()?);
        let below = (1u64 << line) - 1;
        let rank = |mask: u64, k: usize| (before[k] + (mask & below).count_ones()) as usize;
        let masks = match odd & (1 << line) != 0 {
            true => {
                let at = HEAD * history.len() + MASKS * rank(odd, 0);
                let m = self.raw.get(at..at + MASKS)?;
                [0, 8].map(|o| u64::from_le_bytes(std::array::from_fn(|b| m[o + b])))
            }
            false => whole(touched.line(line)),
        };
        let mut bytes = self.frame.line(page, line)?;
        if new & (1 << line) != 0 {
            let difference: [u8; LINE] = self.differences.get(LINE * rank(new, 1))?;
            for (b, d) in bytes.iter_mut().zip(difference) {
                *b ^= d;
            }
        }
        Some(End { masks, bytes })
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
    use super::*;

    #[test]
    fn lines_come_back_with_how_their_bytes_were_accessed() {
        let mut words = [[0; 2]; 64];
        words[3] = [0b11, 0b10];
        words[5] = [0, 1];
        let history = [Touched::new(7, &[[1, 0]; 64]), Touched::new(9, &words)];
        let mut old = Box::new([0; PAGE]);
        old[3 * LINE] = 4;
        let frame = Framed {
            pages: vec![(9, 1 << 3, 0)],
            lines: Pieces::new(&super::super::pieces::pack(&old[3 * LINE..4 * LINE]).unwrap())
                .unwrap(),
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
        m.page(&history[0], None, plain);
        m.page(&history[1], Some((1 << 3, &*old)), odd);
        assert_eq!(
            m.masks.len(),
            MASKS,
            "only one line was not accessed in whole words"
        );
        assert_eq!(m.bytes.len(), (63 + 1) * LINE, "only what differs is kept");
        let e = Ends::new(&m.pack().unwrap(), history.len(), frame).unwrap();
        assert_eq!(e.line(&history, 7, 63), Some(plain(63)));
        assert_eq!(e.line(&history, 9, 3), Some(odd(3)));
        assert_eq!(e.line(&history, 9, 5), Some(odd(5)));
        assert_eq!(e.line(&history, 9, 4), None);
        assert_eq!(odd(5).byte(1), [true, true]);
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
        assert_eq!(both.byte(0), [false, true]);
        assert_eq!(both.byte(1), [true, true]);
        assert_eq!(both.byte(9), [true, false]);
        assert_eq!(both.byte(17), [false, false]);
    }

    #[test]
    fn words_become_bytes_and_back() {
        for i in 0..=255 {
            let [reads, none] = whole([i, 0]);
            assert_eq!((super::super::words_of(reads), none), (i, 0));
            assert_eq!(reads.count_ones(), 8 * i.count_ones());
            // A single byte of each word is enough.
            for byte in 0..8 {
                let some = reads & (0x0101_0101_0101_0101 << byte);
                assert_eq!(super::super::words_of(some), i);
            }
        }
        assert_eq!(whole([0b11, 0b10]), [0xff, 0xff00]);
    }

    #[test]
    fn stretches_cover_cells_modulo_their_number() {
        assert_eq!(covered(0, 0, 0x1_0000_0004, 2), 0b11_0000);
        assert_eq!(covered(0, 0, 0x7_ffff_fffc, 5), 1);
        assert_eq!(covered(0xf_ffff, 63, 0x7_ffff_fffe, 5), 3 << 62);
        assert_eq!(covered(5, 1, 0, 1 << 32), u64::MAX);
    }
}
