//! Which pages of a window may be nonzero.

use super::PAGE;

/// Ranges changed from outside that are remembered one by one.
const RANGES: usize = 1024;
/// Most pages changed from outside that are looked at without asking the kernel whether they are in memory.
const FEW: usize = 1024;

/// Pages of an observing window whose cells or marks may be nonzero.
pub(crate) enum Dirty {
    /// Any pages that are in memory.
    Any,
    /// These pages, ascending, and ranges that were changed from outside since.
    These(Vec<u32>, Vec<(u32, u32)>),
}

impl Dirty {
    /// Notes that `len` bytes from `addr` are changed from outside.
    pub fn add(&mut self, addr: u64, len: u64) {
        let Dirty::These(_, ranges) = self else {
            return;
        };
        if len >= 1 << 32 || ranges.len() >= RANGES {
            *self = Dirty::Any;
            return;
        }
        let first = (addr & 0xffff_ffff) / PAGE as u64;
        let last = ((addr & 0xffff_ffff) + len) / PAGE as u64;
        let top = (1 << 20) - 1;
        let mut add = |a: u64, b: u64| match ranges.last_mut() {
            Some(r) if (r.0, r.1) == (a as u32, b as u32) => {}
            _ => ranges.push((a as u32, b as u32)),
        };
        add(first, last.min(top));
        if last > top {
            add(0, last - top - 1);
        }
    }

    /// All these pages, ascending, if they are known and few. Looking at a few pages is faster than asking
    /// the kernel which are in memory.
    pub(super) fn known(&self) -> Option<Vec<u32>> {
        let Dirty::These(pages, ranges) = self else {
            return None;
        };
        let count: usize = ranges.iter().map(|r| (r.1 - r.0) as usize + 1).sum();
        if count > FEW {
            return None;
        }
        let outside = ranges.iter().flat_map(|r| r.0..=r.1);
        let mut all: Vec<u32> = pages.iter().copied().chain(outside).collect();
        if count > 0 {
            all.sort_unstable();
            all.dedup();
        }
        Some(all)
    }

    /// Which of these pages (ascending) may be nonzero.
    pub(super) fn among<T>(&self, mut present: Vec<T>, page: impl Fn(&T) -> u32) -> Vec<T> {
        if let Dirty::These(pages, ranges) = self {
            let mut rest = &pages[..];
            present.retain(|p| {
                let p = &page(p);
                let n = rest.iter().take_while(|q| *q < p).count();
                rest = &rest[n..];
                rest.first() == Some(p) || ranges.iter().any(|r| (r.0..=r.1).contains(p))
            });
        }
        present
    }
}
