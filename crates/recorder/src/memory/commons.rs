//! Cells that the threads of a process have in common.
//!
//! Each thread has cells of its own, so threads that go through the same data would each have a copy of it. A *block* of cells
//! that several threads fill with the same is therefore in the control file, once for each program image. A thread maps it
//! privately in place of its own cells. The first write to a page of it, by whomever, gives that thread its own copy of the
//! page. What is in the file never changes once a block is ready.
//!
//! A thread that takes a block compares it with memory, line by line, and records what its cells hold from then on. So nothing that
//! is recorded depends on what the block has. A block that is out of date saves nothing, and takes memory until the image ends.

use crate::memory::maps::regions;
use crate::stream::{descriptor, ring};
use crate::sys::{self, PAGE, PROT_READ, PROT_WRITE, guard};
use crate::thread::shared_pages::fresh_cells;
use crate::thread::{SHARED, Thread};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};
use hindsight_events::event::LINE;
use hindsight_events::ring::commons;
pub use hindsight_events::ring::commons::BLOCK;
use hindsight_isa::Predictor;
use linux_raw_sys::general::*;

const BLOCKS: usize = (Predictor::WINDOW.size() / BLOCK) as usize;

/// What is in the file at a block's place.
mod state {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// A thread fills it, or was killed while it did.
    pub const CLAIMED: u8 = 1;
    /// Cells, which do not change any more.
    pub const READY: u8 = 2;
    /// Cells that nobody is to take.
    pub const STALE: u8 = 3;
}

static STATES: [AtomicU8; BLOCKS] = [const { AtomicU8::new(state::NONE) }; BLOCKS];

/// Called in the child of a `fork`, which is an image of its own.
pub fn forked() {
    for s in &STATES {
        if s.load(Relaxed) != state::NONE {
            s.store(state::NONE, Relaxed);
        }
    }
}

/// Somebody may be told that memory is read, and provide it (`userfaultfd`).
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Reads of this process's memory may be watched from now on.
pub fn reads_are_watched() {
    WATCHED.store(true, Relaxed);
}

/// Called before a system call, unless it is one of the commonest. Notes whether it lets somebody watch reads.
pub fn before(nr: u32, a: &[u64; 6]) {
    /// The second byte of all requests of `userfaultfd`.
    const TYPE: u64 = 0xaa;
    if nr == __NR_userfaultfd || nr == __NR_ioctl && a[1] >> 8 & 0xff == TYPE {
        reads_are_watched();
    }
}

/// Where in the control file the image's blocks are, with the file's descriptor. `None`: it has no place for them, or this
/// process has lost the file. The descriptor is held by the caller.
fn place(t: &Thread) -> Option<(i32, u64)> {
    // An unrecorded child of a `fork` goes by its parent's number. A process that runs in another one's memory has descriptors of
    // its own, and can be killed at any moment while the others go on.
    if !ring::is_recorded() || t.task.borrows {
        return None;
    }
    let at = commons::offset(ring::image())?;
    let fd = descriptor::fd().filter(|fd| ring::is_control(*fd))?;
    Some((fd, at))
}

/// Lets the thread's cells of the block of memory at `addr` be the common ones. The first read of them maps all of the block, where
/// the kernel maps the pages around a fault that it has in memory. That block is mapped whole, and readable. Returns
/// what the cells held. The caller makes them agree with memory, and says how they differ from that. `None`: nothing has changed.
pub fn take(t: &mut Thread, addr: u64) -> Option<Old> {
    let cell = t.window.predictor().cell(addr);
    let size = t.window.predictor().size();
    if t.window.predictor() != Predictor::WINDOW
        // The first cells are mapped a second time behind the window's end.
        || cell < SHARED
        || cell + BLOCK > size
        || !t.shared_pages.has_room()
        || !ring::has_commons()
    {
        return None;
    }
    let slot = &STATES[number(cell)];
    let known = slot.load(Acquire);
    if !matches!(known, state::NONE | state::READY) {
        return None;
    }
    let old = Old::of(t, cell)?;
    // Until all is mapped, the descriptor leads to the control file.
    let _held = descriptor::hold();
    let (fd, at) = place(t)?;
    let cells = t.window.start() + cell;
    let map = |flags: u32| {
        let flags = flags | MAP_FIXED | MAP_NORESERVE;
        let mapped = sys::mmap(cells, BLOCK, PROT_READ | PROT_WRITE, flags, fd, at + cell).is_ok();
        if !mapped {
            // The kernel may have removed what was there.
            fresh_cells(cells, BLOCK);
            old.restore(cells);
        }
        mapped
    };
    if known == state::NONE {
        if slot
            .compare_exchange(state::NONE, state::CLAIMED, AcqRel, Relaxed)
            .is_err()
        {
            return None;
        }
        if !map(MAP_SHARED) {
            slot.store(state::NONE, Release);
            return None;
        }
        // A large page would take 2 MiB for it.
        sys::madvise_no_huge_page(cells, BLOCK);
        sys::madvise_populate(cells, BLOCK);
        if let Some(h) = ring::header() {
            h.commons.fetch_add(BLOCK, AcqRel);
        }
        // SAFETY: the block of cells was just mapped writable. Only this thread uses its window, and nobody else the block, which
        // this thread has claimed.
        let filled = unsafe { core::slice::from_raw_parts_mut(cells as *mut u8, BLOCK as usize) };
        let is_read = guard::read(addr, filled).is_ok();
        slot.store(state::STALE, Release);
        if !map(MAP_PRIVATE) {
            return None;
        }
        if !is_read {
            fresh_cells(cells, BLOCK);
            old.restore(cells);
            return None;
        }
        slot.store(state::READY, Release);
    } else if !map(MAP_PRIVATE) {
        return None;
    }
    sys::madvise_dontdump(cells, BLOCK);
    t.shared_pages.add_cells(cell..cell + BLOCK);
    Some(old)
}

/// The block of the cells at `addr` is given to nobody any more.
pub fn let_go(addr: u64) {
    STATES[number(Predictor::WINDOW.cell(addr))].store(state::STALE, Release);
}

fn number(cell: u64) -> usize {
    (cell / BLOCK) as usize
}

/// What the cells of a block held.
pub struct Old {
    /// The pages that were not zero, by their number.
    pages: [Option<alloc::boxed::Box<[u64; PAGE as usize / 8]>>; (BLOCK / PAGE) as usize],
}

impl Old {
    /// Copies the cells at offset `cell` of the window. `None`: all of them are in memory, so nothing would be saved, or the kernel
    /// does not say which are.
    fn of(t: &Thread, cell: u64) -> Option<Old> {
        let start = t.window.start() + cell;
        if sys::resident(start, BLOCK).ok()?.iter().all(|r| *r) {
            return None;
        }
        // A page that is not in memory may have been swapped out, so all are read. One call is cheaper than a fault for each.
        sys::madvise_populate_read(start, BLOCK);
        let mut pages = [const { None }; (BLOCK / PAGE) as usize];
        for (i, old) in pages.iter_mut().enumerate() {
            // SAFETY: the window is readable, aligned to pages, and only this thread writes to it.
            let page = unsafe { &*((start + i as u64 * PAGE) as *const [u64; PAGE as usize / 8]) };
            if page.iter().any(|w| *w != 0) {
                *old = Some(alloc::boxed::Box::new(*page));
            }
        }
        Some(Old { pages })
    }

    /// The line at this offset of the block.
    pub fn line(&self, offset: u64) -> [u64; 8] {
        let page = self.pages[(offset / PAGE) as usize].as_ref();
        page.map_or([0; 8], |p| p.as_chunks().0[(offset % PAGE / LINE) as usize])
    }

    /// Writes the pages back to cells that are zero.
    fn restore(&self, cells: u64) {
        for (i, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                // SAFETY: the caller has just mapped the block of cells at `cells` writable; it has as many pages.
                unsafe { *((cells + i as u64 * PAGE) as *mut [u64; PAGE as usize / 8]) = **page };
            }
        }
    }
}

/// Whether memory of this range may be read although the program has not asked for it: reading has no effects, and nobody is
/// told. Returns the part from `addr` on of which that is so.
pub fn readable(addr: u64, len: u64) -> u64 {
    if WATCHED.load(Relaxed) {
        return 0;
    }
    let regions = regions();
    let plain =
        |r: &&crate::memory::maps::Region| r.flags & MAP_PRIVATE != 0 && r.prot & PROT_READ != 0;
    match regions.find(addr).filter(plain) {
        Some(r) => len.min(r.end - addr),
        None => 0,
    }
}
