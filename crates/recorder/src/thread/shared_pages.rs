//! What page sharing knows of a thread (see [`crate::memory::page_sharing`]), and which of its cells are mapped to a file: those,
//! and [common ones](crate::memory::commons).

use crate::line;
use crate::sys::{self, config, fail};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// Instructions until memory is looked at for the first time. Each interval after that is twice as
/// long as the one before.
pub const INTERVAL: u64 = 32 << 20;

/// How many times all shared memory may be made anonymous again. After that, nothing is shared any
/// more.
pub const MAX_ENDS: u32 = 3;

/// Pieces of cells of all threads that are mapped to a file, at most. Neighbours that have private pages may be mappings of their own.
/// The kernel allows a process 65530 mappings.
const MOST_PIECES: usize = 4000;
static PIECES: AtomicUsize = AtomicUsize::new(0);

/// This process shares nothing any more. Its children inherit that.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Whether this process may share pages.
pub fn is_allowed() -> bool {
    !NEVER.load(Relaxed)
}

/// This process shares no pages any more.
pub fn forbid() {
    NEVER.store(true, Relaxed);
}

/// What is known of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageHistory {
    /// A digest of what it held at the last look, and at how many looks it was the same.
    Hash(u32, u8),
    /// It shares its memory with its cells. If it was written since then, sharing it again is not
    /// worth it.
    Shared,
}

/// The memory that a thread shares with its cells.
#[derive(Debug)]
pub struct SharedPages {
    /// The program's memory that is mapped to a file. Parts of it may have been unmapped or
    /// replaced since.
    pub memory: Vec<Range<u64>>,
    /// Cells that are mapped to a file, as offsets in the window.
    cells: Vec<Range<u64>>,
    /// Where such memory was. Mappings may meet there that the kernel does not merge.
    pub seams: Vec<Range<u64>>,
    /// What is known of each page, by its address.
    pub history: BTreeMap<u64, PageHistory>,
    /// Position from which on memory is looked at. The maximum: never.
    pub next: u64,
    /// Instructions until the look after the next one.
    pub interval: u64,
    /// Address at which the next look begins.
    pub cursor: u64,
    /// How many times all shared memory was made anonymous again.
    pub ends: u32,
}

impl SharedPages {
    /// Nothing is shared. Memory is not looked at before [`SharedPages::begin`].
    pub const fn new() -> SharedPages {
        SharedPages {
            memory: Vec::new(),
            cells: Vec::new(),
            seams: Vec::new(),
            history: BTreeMap::new(),
            next: u64::MAX,
            interval: INTERVAL,
            cursor: 0,
            ends: 0,
        }
    }

    /// Position from which on [`look`](crate::memory::page_sharing::look) has something to do.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Stops looking until [`SharedPages::begin`]: reads are not compared with the window.
    pub fn pause(&mut self) {
        self.next = u64::MAX;
    }

    /// Begins to look. The window is empty at position `pos`, and reads are compared with it from
    /// there on.
    pub fn begin(&mut self, pos: u64) {
        self.history.clear();
        self.interval = INTERVAL;
        let never = config::get().page_sharing == 0 || !is_allowed();
        self.next = match self.ends > MAX_ENDS || never {
            true => u64::MAX,
            false => pos.saturating_add(INTERVAL),
        };
    }

    /// Forgets memory that is not the program's any more, or that was replaced.
    pub fn forget(&mut self, addr: u64, len: u64) {
        let range = addr..addr.saturating_add(len);
        take(&mut self.memory, &range);
        take(&mut self.seams, &range);
        let pages: Vec<u64> = self.history.range(range).map(|p| *p.0).collect();
        for p in pages {
            self.history.remove(&p);
        }
    }

    /// Called in the child of a `fork`, which has no other thread.
    pub fn forked(&self) {
        PIECES.store(self.cells.len(), Relaxed);
    }

    /// Whether more cells may be mapped to a file: each piece is a mapping, and the kernel allows only so many.
    pub fn has_room(&self) -> bool {
        PIECES.load(Relaxed) < MOST_PIECES
    }

    /// Notes that the cells at offsets `range` are mapped to a file.
    pub fn add_cells(&mut self, range: Range<u64>) {
        let mut range = range;
        self.count(|cells| {
            take(cells, &range);
            // Neighbours are one mapping.
            cells.retain(|r| {
                let meets = r.end == range.start || r.start == range.end;
                if meets {
                    range = range.start.min(r.start)..range.end.max(r.end);
                }
                !meets
            });
            cells.push(range);
        });
    }

    /// Changes the list of cells. [`PIECES`] counts along.
    fn count<T>(&mut self, change: impl FnOnce(&mut Vec<Range<u64>>) -> T) -> T {
        let before = self.cells.len();
        let result = change(&mut self.cells);
        PIECES.fetch_add(self.cells.len().wrapping_sub(before), Relaxed);
        result
    }

    /// Prepares the cells at offsets `range` of `window` for becoming zero. Cells that are mapped
    /// to a file are mapped anew, since they cannot just be given back to the kernel.
    pub fn drop_cells(&mut self, window: u64, range: Range<u64>) {
        if self.cells.is_empty() {
            return;
        }
        for r in self.count(|cells| take(cells, &range)) {
            fresh_cells(window + r.start, r.end - r.start);
        }
    }

    /// Whether a page shares its memory with its cells.
    pub fn is_shared(&self, page: u64) -> bool {
        self.history.get(&page) == Some(&PageHistory::Shared)
    }

    /// Whether any of this memory is, or was, mapped to a file.
    pub fn touches(&self, addr: u64, len: u64) -> bool {
        let meets = |r: &Range<u64>| r.start < addr.saturating_add(len) && addr < r.end;
        self.memory.iter().chain(&self.seams).any(meets)
    }
}

/// The part of `a` that lies in `b`.
pub fn common(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let r = a.start.max(b.start)..a.end.min(b.end);
    (r.start < r.end).then_some(r)
}

/// Takes `range` out of a list. Returns those parts of it that were there.
pub fn take(list: &mut Vec<Range<u64>>, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut taken = Vec::new();
    for r in core::mem::take(list) {
        let Some(c) = common(&r, range) else {
            list.push(r);
            continue;
        };
        for rest in [r.start..c.start, c.end..r.end] {
            if rest.start < rest.end {
                list.push(rest);
            }
        }
        taken.push(c);
    }
    taken
}

/// Maps new zeroed cells, with the properties that all of the window has. Ends the recording if
/// that fails.
pub fn fresh_cells(addr: u64, len: u64) {
    if let Err(e) = sys::mmap_anon_noreserve(addr, len, PROT_READ | PROT_WRITE) {
        let message = line!("cannot map a part of the shadow memory again (error {e})");
        fail::die(fail::STATUS, &message);
    }
    sys::madvise_dontdump(addr, len);
    sys::madvise_wipe_on_fork(addr, len);
}
