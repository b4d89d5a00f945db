//! Finds values that are read later.
//!
//! A byte that nobody knows now shows when it is read, if nothing has changed it before. So the first access to the
//! byte decides. It must be a read: what is read after a write is the written value. The order of the accesses decides
//! alone. How the index cuts the thread into intervals only tells what need not be played.

use super::past;
use super::query::{Query, shares_cells};
use crate::index;
use crate::model::memory::{Candidate, Ground, KnownByte};
use crate::play::{Player, Viewpoint};
use crate::scan::Scan;
use crate::{Mapping, Result};
use hindsight_isa::observe::MARK;
use std::sync::Arc;

/// At most this many instructions are looked at. More take long if the index does not have them yet.
const FAR: u64 = 4 * index::SPAN;
/// The first piece has this many instructions: most values are read soon. Each further piece has twice as many.
const FIRST: u64 = 64;
/// A piece in which a byte was read and written is cut into this many.
const SLICES: u64 = 16;

/// Takes the value of a later read, if nothing can have changed the byte in between: no system call, signal, gap or
/// other thread.
pub fn find(view: &mut Viewpoint, q: &mut Query) -> Result<()> {
    let (t, count, image) = (view.thread(), view.count(), view.image());
    let engine = Arc::clone(view.engine());
    let here = engine.position(t, count)?;
    let scan = engine.scan(t)?;
    let in_gap = scan.gaps.iter().any(|g| g.start <= count && count < g.end);
    if count <= scan.quiet_until || in_gap {
        // Bytes that are still unknown are not there, or nobody knows them. In a gap nobody reads.
        return Ok(());
    }
    let until = barrier(scan, count);
    // A byte that was lost may show later. One that something may have changed has candidates instead.
    let doubted = |at: u64| {
        let covers = |c: &Candidate| at.wrapping_sub(c.address) < c.bytes.len() as u64;
        q.m.candidates.iter().any(covers)
    };
    // Memory that others share may change at any time.
    let list = engine.mappings(image, here)?;
    let inside =
        |at: u64| (list.iter()).any(|r: &Mapping| r.start <= at && at < r.end && !r.is_shared());
    let mut open = Vec::new();
    for i in 0..q.m.bytes.len() {
        let at = q.m.address.wrapping_add(i as u64);
        if q.m.bytes[i].is_none() && inside(at) && !doubted(at) {
            open.push(i);
        }
    }
    if open.is_empty() || shares_cells(&engine, image, None, &q.m)? {
        return Ok(());
    }
    let address = q.m.address;
    let found = view.player(t)?.with_helper(|player| {
        let mut s = Search {
            player,
            address,
            found: Vec::new(),
        };
        s.search(count, until, open)?;
        Ok(s.found)
    })?;
    for (i, value) in found {
        q.m.bytes[i] = Some(KnownByte {
            value,
            ground: Ground::Exposed,
        });
    }
    Ok(())
}

/// The first instant from `count` on at which something else than an instruction may change memory, or the last one
/// that is looked at.
fn barrier(scan: &Scan, count: u64) -> u64 {
    // The gap that ends here is over, and so is what has a number at its end. Other threads' numbers do not matter here.
    let left = scan.gaps.iter().any(|g| g.end == count);
    let barriers = [
        scan.events.iter().map(|e| e.0).find(|n| *n >= count),
        scan.zeros.iter().map(|z| z.0).find(|n| *n >= count),
        scan.given.iter().map(|z| z.0).find(|n| *n >= count),
        scan.changed.iter().map(|z| z.0).find(|n| *n >= count),
        scan.gaps.iter().map(|g| g.end).find(|n| *n > count),
        // At the beginning of a gap, marks are lost.
        (scan.gaps.iter().map(|g| g.start).find(|n| *n > count)).map(|n| n - 1),
        (scan.numbers.iter().map(|n| n.1)).find(|n| *n > count || *n == count && !left),
    ];
    // A gap at the end of a thread ends nowhere.
    (barriers.into_iter().flatten())
        .min()
        .unwrap_or(scan.to)
        .min(scan.to)
        .min(count.saturating_add(FAR))
}

/// A search for the first accesses to some bytes.
struct Search<'a> {
    player: &'a mut Player,
    address: u64,
    /// Bytes that are read first, as offsets from the address, with what is read.
    found: Vec<(usize, u8)>,
}

impl Search<'_> {
    /// Looks at instructions `lo..until` for the first accesses to some bytes. Intervals that access none of them are
    /// left out. So nearly each interval that is played decides about a byte.
    fn search(&mut self, mut lo: u64, until: u64, mut open: Vec<usize>) -> Result<()> {
        let engine = Arc::clone(self.player.engine());
        while lo < until
            && let (Some(first), Some(last)) = (open.first(), open.last())
        {
            self.player.cancel.check()?;
            let part = self.player.index(lo)?;
            let start = self.address.wrapping_add(*first as u64);
            let set = part.touching(&engine, start, (last - first + 1) as u64, true, true)?;
            for i in part.interval(lo)..part.borders.len() {
                let (from, to) = part.bounds(i);
                let (from, to) = (lo.max(from), until.min(to));
                if to <= from || open.is_empty() {
                    break;
                }
                if !set.has(i) {
                    continue;
                }
                let here = past::accessed(&engine, &part, i, self.address, &open)?;
                if here.is_empty() {
                    continue;
                }
                open.retain(|b| here.binary_search(b).is_err());
                open.extend(self.look(from, to, here, (FIRST, 2))?);
                open.sort_unstable();
            }
            // After the last interval there may be another part. There is none where the stream was cut.
            if part.to <= lo {
                break;
            }
            lo = part.to;
        }
        Ok(())
    }

    /// Plays instructions `lo..hi`, piece by piece, until each of these bytes was accessed. The first piece has `size`
    /// instructions, and each further one `growth` times as many. Returns the bytes that were not accessed.
    fn look(
        &mut self,
        lo: u64,
        hi: u64,
        mut open: Vec<usize>,
        (mut size, growth): (u64, u64),
    ) -> Result<Vec<usize>> {
        self.player.seek_straight(lo)?;
        self.player.set_breaks(Vec::new());
        self.player.checkpoint_memory_if_far()?;
        self.clear(&open);
        let mut mixed = Vec::new();
        let mut a = lo;
        while a < hi && !open.is_empty() {
            self.player.cancel.check()?;
            let b = hi.min(a.saturating_add(size));
            self.player.run(b)?;
            let both = self.take(&mut open);
            // What one instruction reads and writes is left unknown. Where it repeats itself, as `rep movsb` does, it
            // may read what it wrote.
            if !both.is_empty() && b - a > 1 {
                mixed.push((a, b, both));
            }
            if self.player.count() < b {
                // The thread ends here.
                break;
            }
            (a, size) = (b, size.saturating_mul(growth));
        }
        for (a, b, both) in mixed {
            self.look(a, b, both, ((b - a).div_ceil(SLICES), 1))?;
        }
        Ok(open)
    }

    /// The memory from the first to the last of some bytes, as an address and a length.
    fn around(&self, bytes: &[usize]) -> (u64, usize) {
        let (first, last) = (bytes[0], bytes[bytes.len() - 1]);
        (self.address.wrapping_add(first as u64), last - first + 1)
    }

    fn clear(&mut self, bytes: &[usize]) {
        let (address, len) = self.around(bytes);
        self.player.take_marks(address, len as u64);
    }

    /// Takes the bytes that were accessed since their marks were cleared out of `open`. Returns those that were read
    /// and written, in whatever order.
    fn take(&mut self, open: &mut Vec<usize>) -> Vec<usize> {
        let (first, (address, len)) = (open[0], self.around(open));
        let [reads, writes, cells] = self.player.known(address, len);
        let mut both = Vec::new();
        let before = open.len();
        let found = &mut self.found;
        open.retain(|i| {
            match (reads[i - first], writes[i - first]) {
                (0, 0) => return true,
                (MARK, 0) => found.push((*i, cells[i - first])),
                // Only written.
                (0, _) => {}
                _ => both.push(*i),
            }
            false
        });
        if open.len() < before {
            self.player.take_marks(address, len as u64);
        }
        both
    }
}
