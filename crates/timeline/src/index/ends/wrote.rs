//! Which bytes a step wrote.

use super::super::LINE;
use super::super::build::bits;
use super::{Changed, Ends, Step, covered, nonzero};

impl Ends {
    /// Whether a step may have accessed bytes from an address on, or only written to them, which is known of each byte.
    /// `None`: what is here is damaged.
    pub fn touches(&self, step: usize, address: u64, len: u64, reads: bool) -> Option<bool> {
        let step = &self.steps[step];
        if !self.stepped || !step.touches_any(address, len, reads) {
            return Some(!self.stepped);
        }
        Some(reads || self.wrote(step, address, len)?)
    }

    /// Whether a step wrote to any of these bytes, or to others with the same cells. `None`: what is here is damaged.
    fn wrote(&self, step: &Step, address: u64, len: u64) -> Option<bool> {
        for (page, lines) in super::super::lines(address, len) {
            let Some(changed) = step.page(page) else {
                continue;
            };
            for i in bits(lines) {
                if self.wrote_of(changed, i)? & covered(page, i, address, len) != 0 {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    /// The bytes of a line that a step wrote; none, if that is not said. `None`: what is here is damaged.
    pub fn written(&self, step: usize, page: u32, line: usize) -> Option<u64> {
        match self.steps[step].page(page) {
            Some(changed) if self.stepped => self.wrote_of(changed, line),
            _ => Some(0),
        }
    }

    /// The bytes of a line of a page that changed in a step which it wrote.
    fn wrote_of(&self, changed: &Changed, line: usize) -> Option<u64> {
        let Some(at) = changed.written_at(line) else {
            return Some(0);
        };
        let other = u64::from_le_bytes(self.other.get(at)?);
        let differs = match changed.at(line) {
            Some(at) => nonzero(&self.lines.get::<LINE>(at)?),
            None => 0,
        };
        Some(other ^ differs)
    }
}
