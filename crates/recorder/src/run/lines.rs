//! How lines of a page change, put together for one event.

use crate::sys::guard::{self, Fault};
use hindsight_events::Event;
use hindsight_events::event::{LINE, LINES};

/// A line as words.
pub type Words = [u64; 8];

/// What memory holds in the line that begins at `line`.
pub fn load(line: u64) -> Result<Words, Fault> {
    let mut real = [0u8; LINE as usize];
    guard::load_line(line, &mut real)?;
    Ok(as_words(&real))
}

/// The words of a line.
pub fn as_words(line: &[u8; LINE as usize]) -> Words {
    let mut words = [0; 8];
    for (w, b) in words.iter_mut().zip(line.as_chunks().0) {
        *w = u64::from_le_bytes(*b);
    }
    words
}

/// A page as lines.
pub type Page = [Words; LINES];

/// Copies what memory holds in the page at `page`.
pub fn load_page(page: u64, to: &mut Page) -> Result<(), Fault> {
    let bytes = to.as_flattened_mut();
    // SAFETY: the words of a page are as many bytes, and any bytes are words.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), size_of::<Page>())
    };
    guard::read(page, bytes)
}

/// Bit `i`: word `i` differs.
pub fn difference(a: &Words, b: &Words) -> u8 {
    let differs = |(i, (a, b)): (usize, (&u64, &u64))| ((a != b) as u8) << i;
    a.iter().zip(b).enumerate().map(differs).sum()
}

/// Changes of lines that follow each other, all of one page.
pub struct Changes {
    /// The first line.
    line: u64,
    masks: [u8; LINES],
    /// Lines so far.
    count: usize,
    // One more, for a word behind the last that does not change.
    words: [[u8; 8]; 8 * LINES + 1],
    /// Words so far.
    len: usize,
}

impl Changes {
    /// None yet. They begin with this line.
    pub fn from(line: u64) -> Changes {
        Changes {
            line,
            masks: [0; LINES],
            count: 0,
            words: [[0; 8]; 8 * LINES + 1],
            len: 0,
        }
    }

    /// Adds how the next line changes from `old` to `new`. There is room for a page.
    pub fn push(&mut self, old: &Words, new: &Words) {
        let mask = difference(old, new);
        self.masks[self.count] = mask;
        self.count += 1;
        for (i, w) in new.iter().enumerate() {
            // A word that does not change is overwritten by the next one.
            self.words[self.len] = w.to_le_bytes();
            self.len += (mask >> i & 1) as usize;
        }
    }

    /// The event that says so. `None`: nothing changes.
    pub fn event(&self) -> Option<Event<'_>> {
        (self.len != 0).then_some(Event::Lines {
            line: self.line,
            masks: &self.masks[..self.count],
            words: self.words[..self.len].as_flattened(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use hindsight_events::event::words_of;

    #[test]
    fn only_words_that_change_are_said() {
        let mut changes = Changes::from(0x1000);
        changes.push(&[1; 8], &[1; 8]);
        assert_eq!(changes.event(), None);
        changes.push(&[1; 8], &[1, 2, 1, 1, 1, 1, 1, 3]);
        changes.push(&[0; 8], &[0; 8]);
        changes.push(&[0; 8], &[4; 8]);
        let Some(Event::Lines { line, masks, words }) = changes.event() else {
            panic!("no event");
        };
        assert_eq!((line, masks), (0x1000, &[0, 0x82, 0, 0xff][..]));
        let said: Vec<_> = words_of(line, masks, words).collect();
        let mut expected = alloc::vec![(0x1048, 2), (0x1078, 3)];
        expected.extend((0..8).map(|i| (0x10c0 + 8 * i, 4)));
        assert_eq!(said, expected);
    }

    #[test]
    fn a_whole_page_fits() {
        let mut changes = Changes::from(0x1000);
        for i in 0..LINES as u64 {
            changes.push(&[i; 8], &[i + 1; 8]);
        }
        let Some(Event::Lines { masks, words, .. }) = changes.event() else {
            panic!("no event");
        };
        assert_eq!((masks.len(), words.len()), (LINES, 4096));
    }
}
