//! How an interval accessed a page.

use super::codec::{Reader, put};
use super::summary::FinalLine;
use hindsight_replay::LineMarks;

/// How a page was accessed. There is one bit for each line. Each accessed line has two bytes, for reads and for writes,
/// with a bit for each word of 8 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageAccess {
    pub page: u32,
    pub reads: u64,
    pub writes: u64,
    pub words: Box<[u8]>,
    /// Lines that were accessed in other units than whole words.
    odd: u64,
    /// For those lines: masks of the bytes whose last access was a read, and of those whose last was a write. Both bits
    /// are set for a byte that was accessed and whose value is not known.
    masks: Vec<[u64; 2]>,
}

impl PageAccess {
    /// Makes it from the accessed words of all 64 lines.
    pub fn new(page: u32, words: &[[u8; 2]; 64]) -> PageAccess {
        let mask = |k: usize| (0..64).fold(0u64, |m, i| m | ((words[i][k] != 0) as u64) << i);
        PageAccess {
            page,
            reads: mask(0),
            writes: mask(1),
            words: words
                .iter()
                .filter(|w| **w != [0; 2])
                .flatten()
                .copied()
                .collect(),
            odd: 0,
            masks: Vec::new(),
        }
    }

    /// Makes it from the marks of some lines.
    pub fn of(page: u32, lines: u64, marks: &[LineMarks]) -> PageAccess {
        let mut t = PageAccess {
            page,
            reads: 0,
            writes: 0,
            words: Vec::new().into(),
            odd: 0,
            masks: Vec::new(),
        };
        let mut words = Vec::with_capacity(2 * marks.len());
        let mut rest = lines;
        for m in marks {
            let line = rest & rest.wrapping_neg();
            rest ^= line;
            t.reads |= if m.read != 0 { line } else { 0 };
            t.writes |= if m.written != 0 { line } else { 0 };
            words.extend([words_of(m.read), words_of(m.written)]);
        }
        t.words = words.into();
        t
    }

    /// Sets how the bytes of the next line were accessed last. Lines must come in order.
    pub fn set_masks(&mut self, line: usize, masks: [u64; 2]) {
        if masks != whole(self.line(line)) {
            self.odd |= 1 << line;
            self.masks.push(masks);
        }
    }

    /// Mask of the lines that were accessed.
    pub fn any(&self) -> u64 {
        self.reads | self.writes
    }

    /// The words of a line that were read, and those that were written, as masks.
    pub fn line(&self, i: usize) -> [u8; 2] {
        let any = self.any();
        if any & (1 << i) == 0 {
            return [0; 2];
        }
        let rank = (any & ((1 << i) - 1)).count_ones() as usize;
        match self.words.get(2 * rank..2 * rank + 2) {
            Some(w) => [w[0], w[1]],
            None => [0xff; 2],
        }
    }

    /// How the bytes of a line were accessed last, as [`FinalLine`] has it.
    pub fn masks(&self, i: usize) -> [u64; 2] {
        let rank = (self.odd & ((1 << i) - 1)).count_ones() as usize;
        match self.masks.get(rank) {
            Some(m) if self.odd & (1 << i) != 0 => *m,
            _ => whole(self.line(i)),
        }
    }

    /// A line with this content at the end of the interval.
    pub fn end(&self, i: usize, bytes: [u8; super::codec::LINE]) -> FinalLine {
        FinalLine {
            masks: self.masks(i),
            bytes,
        }
    }

    pub fn lines(&self) -> [[u8; 2]; 64] {
        std::array::from_fn(|i| self.line(i))
    }

    /// Its approximate size in an index file, in bytes.
    pub fn size(&self) -> usize {
        4 + self.words.len() / 2 + 8 * self.masks.len()
    }

    /// Writes all of it except the page's number.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.any().to_le_bytes());
        out.extend_from_slice(&self.words);
        put(out, self.masks.len() as u64);
        if self.odd != 0 {
            out.extend_from_slice(&self.odd.to_le_bytes());
            for m in self.masks.as_flattened() {
                out.extend_from_slice(&m.to_le_bytes());
            }
        }
    }

    /// Inverse of [`PageAccess::write`]. `None`: the data is damaged.
    pub fn read(page: u32, r: &mut Reader) -> Option<PageAccess> {
        let lines = r.word()?;
        let words = r.take(2 * lines.count_ones() as usize)?;
        let mut t = PageAccess {
            page,
            reads: 0,
            writes: 0,
            words: words.into(),
            odd: 0,
            masks: Vec::new(),
        };
        let mut rest = lines;
        for w in words.chunks_exact(2) {
            let line = rest & rest.wrapping_neg();
            rest ^= line;
            t.reads |= if w[0] != 0 { line } else { 0 };
            t.writes |= if w[1] != 0 { line } else { 0 };
        }
        let n = r.int()?;
        if n > 0 {
            t.odd = r.word()?;
            if n != t.odd.count_ones() as u64 {
                return None;
            }
            for _ in 0..n {
                t.masks.push([r.word()?, r.word()?]);
            }
        }
        (t.any() == lines).then_some(t)
    }
}

/// A mask of the words of 8 bytes that contain any of these bytes.
pub fn words_of(bytes: u64) -> u8 {
    let x = bytes | bytes >> 4;
    let x = x | x >> 2;
    let x = (x | x >> 1) & 0x0101_0101_0101_0101;
    (x.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The masks of a line that was accessed in whole words.
pub fn whole(words: [u8; 2]) -> [u64; 2] {
    // Spreads each bit to a byte of its own, then fills that byte.
    let spread = |bits: u8| {
        let one = (bits as u64).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let top = (one + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080;
        (top >> 7) * 0xff
    };
    [spread(words[0] & !words[1]), spread(words[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bytes_and_back() {
        for i in 0..=255 {
            let [reads, none] = whole([i, 0]);
            assert_eq!((words_of(reads), none), (i, 0));
            assert_eq!(reads.count_ones(), 8 * i.count_ones());
            // One byte of a word is enough.
            for byte in 0..8 {
                let some = reads & (0x0101_0101_0101_0101 << byte);
                assert_eq!(words_of(some), i);
            }
        }
        assert_eq!(whole([0b11, 0b10]), [0xff, 0xff00]);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut words = [[0; 2]; 64];
        (words[3], words[60]) = ([0b11, 0b10], [0, 1]);
        let mut t = PageAccess::new(9, &words);
        t.set_masks(3, [0xff, 0xff00]);
        t.set_masks(60, [2, 14]);
        assert_eq!(t.masks.len(), 1, "one line was accessed in whole words");
        let mut out = Vec::new();
        t.write(&mut out);
        let read = |b: &[u8]| PageAccess::read(9, &mut Reader { b, at: 0 });
        assert_eq!(read(&out), Some(t.clone()));
        assert_eq!([t.masks(3), t.masks(60)], [[0xff, 0xff00], [2, 14]]);
        assert_eq!((t.masks(4), t.line(60)), ([0; 2], [0, 1]));
        for n in 0..out.len() {
            assert_eq!(read(&out[..n]), None);
        }
    }
}
