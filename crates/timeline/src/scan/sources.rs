//! Finds by address what made memory what it is.

use super::{Origin, Source};
use std::collections::HashMap;

/// The list is divided by pages of `PAGE` bytes. What covers `LARGE` pages or more is in no page's list.
const PAGE: u64 = 4096;
const LARGE: u64 = 16;

/// Sources in the order of their positions.
#[derive(Default, Debug)]
pub struct Sources {
    list: Vec<Source>,
    /// Indices into the list, by page.
    pages: HashMap<u64, Vec<u32>>,
    large: Vec<u32>,
}

impl Sources {
    /// Adds a source. Its position must not be before that of any other.
    pub fn push(&mut self, s: Source) {
        let i = self.list.len() as u32;
        let (first, last) = (s.address / PAGE, s.address.saturating_add(s.len - 1) / PAGE);
        match last - first {
            0..LARGE => {
                for page in first..=last {
                    self.pages.entry(page).or_default().push(i);
                }
            }
            _ => self.large.push(i),
        }
        self.list.push(s);
    }

    /// What memory became at `at` was not known at first, and now it is told, beginning with its first bytes.
    pub fn told(&mut self, at: u64, address: u64, len: u64) {
        if let Some(s) = self.list.last_mut()
            && (s.at, s.address) == (at, address)
            && matches!(s.origin, Origin::Unknown | Origin::Discarded)
        {
            let len = len.min(s.len);
            s.address += len;
            s.len -= len;
        }
    }

    /// For each byte, the last source before `count` instructions were completed.
    pub fn of(&self, address: u64, len: usize, count: u64) -> Vec<Option<Source>> {
        let mut out: Vec<Option<Source>> = vec![None; len];
        let before = self.list.partition_point(|s| s.at < count) as u32;
        let end = address.saturating_add(len as u64);
        let mut at = address;
        while at < end {
            let next = end.min((at | (PAGE - 1)).saturating_add(1));
            let near = self.pages.get(&(at / PAGE)).map_or(&[][..], |p| p);
            self.fill(&mut out, address, at..next, near, &self.large, before);
            at = next;
        }
        out
    }

    /// Looks at both lists, the last sources first.
    fn fill(
        &self,
        out: &mut [Option<Source>],
        address: u64,
        range: std::ops::Range<u64>,
        near: &[u32],
        large: &[u32],
        before: u32,
    ) {
        let mut near = near[..near.partition_point(|i| *i < before)]
            .iter()
            .rev()
            .peekable();
        let mut large = large[..large.partition_point(|i| *i < before)]
            .iter()
            .rev()
            .peekable();
        let mut left = (range.end - range.start) as usize;
        while left > 0 {
            let from_near = match (near.peek(), large.peek()) {
                (Some(a), Some(b)) => a > b,
                (a, _) => a.is_some(),
            };
            let next = match from_near {
                true => near.next(),
                false => large.next(),
            };
            let Some(s) = next.map(|i| &self.list[*i as usize]) else {
                return;
            };
            let first = s.address.max(range.start);
            let end = s.address.saturating_add(s.len).min(range.end);
            for o in (first..end).map(|a| (a - address) as usize) {
                if out[o].is_none() {
                    out[o] = Some(*s);
                    left -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_known() {
        let mut list = Sources::default();
        list.push(Source {
            at: 5,
            address: 0x1000,
            len: 0x3000,
            origin: Origin::Unknown,
        });
        list.told(4, 0x1000, 8);
        list.told(5, 0x1008, 8);
        assert!(list.of(0x1000, 4, 6).iter().all(Option::is_some));
        list.told(5, 0x1000, 0x1800);
        list.told(5, 0x2800, 0x10);
        let known = |at| list.of(at, 1, 6)[0].is_none();
        let all = [0x1000, 0x27ff, 0x280f, 0x2810, 0x3fff].map(known);
        assert_eq!(all, [true, true, true, false, false]);
        list.told(5, 0x2810, u64::MAX);
        assert!(list.of(0x1000, 0x3000, 6).iter().all(Option::is_none));
    }

    #[test]
    fn finds_the_last_source_of_each_byte() {
        let mut list = Sources::default();
        let all = [
            (5, 0x1000, 0x100000),
            (6, 0x1ff8, 16),
            (7, 0x0, u64::MAX),
            (9, 0x2000, 4),
            (9, 0x2002, 1),
        ];
        for (at, address, len) in all {
            list.push(Source {
                at,
                address,
                len,
                origin: Origin::Zero,
            });
        }
        let when = |address: u64, count: u64| {
            let found = list.of(address, 16, count);
            found
                .iter()
                .map(|s| s.map_or(0, |s| s.at))
                .collect::<Vec<_>>()
        };
        assert_eq!(when(0x1ff8, 7), [6; 16]);
        assert_eq!(when(0x1ff8, 6), [5; 16]);
        assert_eq!(when(0xff8, 6)[..9], [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(when(0x1ffe, 10)[..8], [7, 7, 9, 9, 9, 9, 7, 7]);
        assert_eq!(list.of(0x2002, 1, 10)[0].unwrap().len, 1);
        // Nothing comes after the last page.
        assert_eq!(when(u64::MAX - 16, 10), [7; 16]);
        assert_eq!(when(u64::MAX - 4095, 7), [0; 16]);
    }
}
