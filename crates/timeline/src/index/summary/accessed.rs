//! Which bytes a step accessed.

use super::super::codec::bits;
use super::{IntervalSummary, covered};

impl IntervalSummary {
    /// Whether a step accessed these bytes, or others with the same cells. With `reads` unset, only writes count. If
    /// steps do not say what they accessed, the answer is that it may have. `None`: the data is damaged.
    pub fn touches(&self, step: usize, address: u64, len: u64, reads: bool) -> Option<bool> {
        if !self.stepped {
            return Some(true);
        }
        for (page, lines) in super::super::codec::lines(address, len) {
            let Some(changed) = self.steps[step].page(page) else {
                continue;
            };
            let kind = if reads { changed.any } else { changed.written };
            for i in bits(lines & kind) {
                let [read, wrote] = changed.accessed(i, |at| self.masks.get(at))?;
                let its = if reads { read | wrote } else { wrote };
                if its & covered(page, i, address, len) != 0 {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    /// The bytes of a line that a step only read, and those that it wrote, as masks. If steps do not say what they
    /// accessed, there are none. `None`: the data is damaged.
    pub fn accessed(&self, step: usize, page: u32, line: usize) -> Option<[u64; 2]> {
        match self.steps[step].page(page) {
            Some(changed) if self.stepped => changed.accessed(line, |at| self.masks.get(at)),
            _ => Some([0; 2]),
        }
    }
}
