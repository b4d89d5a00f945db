//! Brings the list of mappings up to date with the kernel. That is needed if somebody was killed
//! between a system call and its entry in the list.

use super::{Line, Region, Regions, parse, read_maps};
use crate::sys::arena;
use alloc::vec::Vec;
use core::ops::Range;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_PRIVATE, MAP_SHARED};

/// The parts of `whole` that lie in none of `parts`, which are in order.
fn gaps(whole: Range<u64>, parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut at = whole.start;
    let mut gaps = Vec::new();
    for part in parts {
        if at < part.start {
            gaps.push(at..part.start.min(whole.end));
        }
        at = at.max(part.end);
    }
    if at < whole.end {
        gaps.push(at..whole.end);
    }
    gaps
}

impl Line<'_> {
    /// Whether it belongs to the program, and not to the recorder or the kernel.
    pub(super) fn is_guest(&self) -> bool {
        !arena::overlaps(self.start, self.end - self.start) && self.end < 1 << 63
    }

    /// The flags with which the mapping was made, as far as they can be seen.
    pub(super) fn flags(&self) -> u32 {
        let kind = match self.name {
            b"[stack]" => MAP_ANONYMOUS | MAP_GROWSDOWN,
            [b'/', ..] => 0,
            _ => MAP_ANONYMOUS,
        };
        kind | if self.shared { MAP_SHARED } else { MAP_PRIVATE }
    }
}

impl Regions {
    /// Notes all mappings, removals and protections that the kernel has and the list has not.
    pub fn reconcile(&mut self) {
        let text = read_maps();
        let lines = text.split(|b| *b == b'\n').filter_map(parse);
        let lines: Vec<Line> = lines.filter(Line::is_guest).collect();
        if lines.is_empty() {
            // There is no `/proc`, so nobody can say.
            return;
        }
        log!(Warn, "compares the list of mappings with the kernel's");
        let known: Vec<Region> = self.all().copied().collect();
        for r in known {
            let kernels = lines.iter().map(|m| m.start..m.end);
            let within = kernels.filter(|k| k.start < r.end && r.start < k.end);
            for gone in gaps(r.start..r.end, within) {
                self.remove(gone.start, gone.end - gone.start);
            }
        }
        for m in &lines {
            let known: Vec<Region> = self
                .overlapping(m.start, m.end - m.start)
                .copied()
                .collect();
            for new in gaps(m.start..m.end, known.iter().map(|r| r.start..r.end)) {
                let (len, offset) = (new.end - new.start, m.offset + (new.start - m.start));
                self.add(new.start, len, m.prot, m.flags(), offset, m.name);
            }
            for r in known.iter().filter(|r| r.prot != m.prot) {
                let (start, end) = (r.start.max(m.start), r.end.min(m.end));
                self.protect(start, end - start, m.prot);
            }
        }
    }
}
