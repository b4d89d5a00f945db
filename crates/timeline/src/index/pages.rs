//! A set of pages of the window.

/// One bit for each of the 2^20 pages.
pub struct PageSet {
    bits: Vec<u64>,
    len: usize,
}

impl PageSet {
    pub fn new() -> PageSet {
        PageSet {
            bits: vec![0; 1 << 14],
            len: 0,
        }
    }

    fn slot(page: u32) -> (usize, u64) {
        ((page as usize / 64) & 0x3fff, 1 << (page % 64))
    }

    pub fn insert(&mut self, page: u32) {
        let (at, bit) = PageSet::slot(page);
        self.len += (self.bits[at] & bit == 0) as usize;
        self.bits[at] |= bit;
    }

    pub fn contains(&self, page: u32) -> bool {
        let (at, bit) = PageSet::slot(page);
        self.bits[at] & bit != 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All pages of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let all = self.bits.iter().enumerate();
        all.flat_map(|(at, word)| super::codec::bits(*word).map(move |i| (64 * at + i) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_there_once() {
        let mut s = PageSet::new();
        let all = [0, 1, 63, 64, 4095, 0xf_ffff];
        for page in all.iter().rev().chain(&all) {
            s.insert(*page);
        }
        assert_eq!((s.len(), s.iter().collect::<Vec<_>>()), (6, all.to_vec()));
        assert!(all.iter().all(|p| s.contains(*p)) && !s.contains(2) && !s.contains(0xf_fffe));
    }
}
