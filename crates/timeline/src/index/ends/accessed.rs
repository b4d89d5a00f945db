//! Which bytes a step accessed.

use super::super::codec::bits;
use super::{IntervalSummary, covered};

impl IntervalSummary {
    /// Whether a step accessed bytes from an address on, or others with the same cells, or only wrote to them; it may have, if
    /// steps are not told apart. `None`: what is here is damaged.
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

    /// The bytes of a line that a step read and did not write, and those that it wrote; none, if steps are not told apart.
    /// `None`: what is here is damaged.
    pub fn accessed(&self, step: usize, page: u32, line: usize) -> Option<[u64; 2]> {
        match self.steps[step].page(page) {
            Some(changed) if self.stepped => changed.accessed(line, |at| self.masks.get(at)),
            _ => Some([0; 2]),
        }
    }
}
