//! Page sharing: memory and its cells use the same physical pages.
//!
//! A checked read takes two lines of the processor's caches, that of the memory and that of its
//! cells. The program alone would take one. Where a large block is only read, memory and cells are
//! equal and stay so. Then both are mapped to the same pages of a file in memory, privately. The
//! first write to either gives the writer its own copy, whoever writes, the kernel included. So
//! each comparison finds what it would have found. But it reads the same cache line twice.
//!
//! While memory is mapped anew, nobody else may write to it. So that is done only while the thread
//! is alone and the kernel does nothing in the background. The program must not notice:
//!
//! - Where it could notice, shared pages are separated again ([`end`]).
//! - Some calls work with anonymous memory only, or give memory a property that mapping it anew
//!   would lose (`mlock`, `userfaultfd`). After such a call this process never shares pages again
//!   ([`never()`]).
//! - `mremap` requires that memory is one mapping. It finds one ([`before`], [`whole`]).
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::line;
use crate::memory::maps::{Region, regions};
use crate::sys::lock::Lock;
use crate::sys::{self, PAGE, PROT_READ, PROT_WRITE, fail, headroom, resources};
use crate::thread::shared_pages::{self, MAX_ENDS, PageHistory, common, fresh_cells, take};
use crate::thread::{SHARED, Thread, threads};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::event::digest;
use hindsight_isa::Predictor;
use hindsight_syscalls::{PINS, has};
use linux_raw_sys::general::*;

/// Instructions between two looks, at most.
const MAX_INTERVAL: u64 = 2 << 30;
/// Pages looked at each time. They are so few that the cost of looking cannot be measured.
const PAGES: u64 = 2048;
/// A page must have held the same at this many looks. If it is written later, it costs two copies.
const LOOKS: u8 = 3;
/// The fewest pages that are shared at a time. Each block is a mapping of its own. A block that
/// fits into the caches twice gains nothing.
const LEAST: u64 = 128;
/// The most pages for which a digest is kept.
const MAX_NOTED: usize = 64 << 10;
/// The most blocks. The kernel allows a process 65530 mappings.
const MAX_BLOCKS: usize = 1000;
/// Bytes. A larger region is not looked at.
const MAX_REGION: u64 = 1 << 30;
/// Pages looked at in one piece.
const PIECE: u64 = 512;

/// Memory that is never shared, since the recorder has given it properties that it would lose.
static SPARED: Lock<Vec<Range<u64>>> = Lock::new(Vec::new());

/// Shares what has not changed for a while, if it is time to. The thread stands between two
/// instructions.
pub fn look(t: &mut Thread) {
    if t.pos < t.shared_pages.next {
        return;
    }
    if may_share(t) {
        pass(t);
    }
    let j = &mut t.shared_pages;
    if !shared_pages::is_allowed() {
        j.next = u64::MAX;
    }
    if j.next != u64::MAX {
        j.next = t.pos.saturating_add(j.interval);
        j.interval = (j.interval * 2).min(MAX_INTERVAL);
    }
}

fn may_share(t: &Thread) -> bool {
    let (most, _) = resources::get(RLIMIT_FSIZE);
    threads::is_alone()
        && shared_pages::is_allowed()
        && !t.regime.quiet
        && !t.is_plain()
        && t.window.predictor() == Predictor::WINDOW
        && most == u64::MAX
}

/// Memory that may be shared, in order of address.
fn candidates() -> Vec<Range<u64>> {
    let fits = |r: &&Region| {
        r.prot == PROT_READ | PROT_WRITE
            && r.flags == MAP_PRIVATE | MAP_ANONYMOUS
            && r.end - r.start <= MAX_REGION
    };
    let of = |r: &Region| r.start..r.end;
    let mut list: Vec<_> = regions().all().filter(fits).map(of).collect();
    for spared in SPARED.lock().iter() {
        take(&mut list, spared);
    }
    list.sort_by_key(|r| r.start);
    list
}

/// Makes sure that this memory is never shared, even after it was unmapped and mapped again.
pub fn spare(addr: u64, len: u64) {
    SPARED.lock().push(addr..addr + len);
}

/// Looks at the next [`PAGES`].
fn pass(t: &mut Thread) {
    let list = candidates();
    let from = list.partition_point(|r| r.end <= t.shared_pages.cursor);
    let mut budget = PAGES;
    // All regions once around, beginning at the cursor.
    for i in 0..list.len() {
        let region = &list[(from + i) % list.len()];
        let mut at = region.start;
        if i == 0 && region.contains(&t.shared_pages.cursor) {
            at = t.shared_pages.cursor;
        }
        while at < region.end {
            if budget == 0 {
                t.shared_pages.cursor = at;
                return;
            }
            let end = region.end.min(at + PIECE * PAGE);
            let looked = piece(t, at..end);
            // Looking at nothing costs something, too.
            budget = budget.saturating_sub(looked.max((end - at) / PAGE / 16).max(1));
            at = end;
        }
    }
    t.shared_pages.cursor = 0;
}

/// Looks at the pages of a range whose cells are in memory. Returns how many those are.
fn piece(t: &mut Thread, range: Range<u64>) -> u64 {
    let len = range.end - range.start;
    let cell = t.window.predictor().cell(range.start);
    // The first cells are mapped a second time behind the window's end.
    if cell < SHARED || cell + len > t.window.predictor().size() - SHARED {
        return 0;
    }
    let Ok(resident) = sys::resident(t.window.start() + cell, len) else {
        never(t);
        return 0;
    };
    let mut looked = 0;
    let mut run = range.start..range.start;
    let ends = core::iter::once((range.end, false));
    let pages = (range.start..range.end).step_by(PAGE as usize);
    let pages = pages.zip(resident);
    for (page, is_there) in pages.chain(ends) {
        looked += is_there as u64;
        if is_there && has_settled(t, page) {
            if run.is_empty() {
                run = page..page;
            }
            run.end = page + PAGE;
            continue;
        }
        if run.end - run.start >= LEAST * PAGE && t.shared_pages.memory.len() < MAX_BLOCKS {
            share(t, &run);
        }
        run = range.end..range.end;
    }
    looked
}

/// Whether a page has held the same at the last looks, and its cells hold the same.
fn has_settled(t: &mut Thread, page: u64) -> bool {
    if t.shared_pages.is_shared(page) {
        return false;
    }
    let cells = t.cell(page) as u64;
    // SAFETY: `page` is mapped readable (`candidates`), and so is the window. Nobody writes to them
    // while the slices exist: the thread is alone (`may_share`), and is here.
    let (memory, cells) = unsafe {
        let slice = |at: u64| core::slice::from_raw_parts(at as *const u8, PAGE as usize);
        (slice(page), slice(cells))
    };
    let now = digest(memory);
    let looks = match t.shared_pages.history.get(&page) {
        Some(PageHistory::Hash(before, looks)) if *before == now => looks.saturating_add(1),
        Some(_) => 1,
        None if t.shared_pages.history.len() >= MAX_NOTED => return false,
        None => 1,
    };
    t.shared_pages
        .history
        .insert(page, PageHistory::Hash(now, looks));
    looks >= LOOKS && memory == cells
}

/// Maps memory and its cells, which hold the same, to the same pages. If that is not possible, it
/// is never tried again.
fn share(t: &mut Thread, run: &Range<u64>) {
    let len = run.end - run.start;
    let cells = t.cell(run.start) as u64;
    // SAFETY: as in `has_settled`, for each page of `run`.
    let memory = unsafe { core::slice::from_raw_parts(run.start as *const u8, len as usize) };
    let Ok(fd) = sys::memfd_create(c"memory") else {
        return never(t);
    };
    let map = |at: u64| {
        let prot = PROT_READ | PROT_WRITE;
        sys::mmap(at, len, prot, MAP_PRIVATE | MAP_FIXED, fd, 0).is_ok()
    };
    let written = sys::pwrite(fd, memory, 0);
    let done = written && map(run.start);
    if done {
        take(&mut t.shared_pages.memory, run);
        t.shared_pages.memory.push(run.clone());
        for page in run.clone().step_by(PAGE as usize) {
            t.shared_pages.history.insert(page, PageHistory::Shared);
        }
        if map(cells) {
            sys::madvise_dontdump(cells, len);
            let offset = cells - t.window.start();
            t.shared_pages.add_cells(offset..offset + len);
            sys::madvise_populate_read(run.start, len);
            sys::madvise_populate_read(cells, len);
        } else {
            fresh_cells(cells, len);
            restore(fd, cells, len);
        }
    } else if written && sys::resident(run.start, len).is_err() {
        // The kernel has failed after it removed the old mapping.
        fresh_memory(run.start, len);
        restore(fd, run.start, len);
    }
    sys::close(fd);
    log!(
        Debug,
        "memory {:#x}-{:#x} {} its pages with its cells",
        run.start,
        run.end,
        if done { "shares" } else { "could not share" }
    );
    if !done {
        never(t);
    }
}

/// Fills `addr..addr+len` from the beginning of a file. Ends the recording if that fails.
fn restore(fd: i32, addr: u64, len: u64) {
    // SAFETY: the caller has just mapped this range writable, and nothing else uses it.
    let memory = unsafe { core::slice::from_raw_parts_mut(addr as *mut u8, len as usize) };
    if sys::pread(fd, memory, 0) != Ok(len as usize) {
        fail::die(
            fail::STATUS,
            &line!("cannot read the program's memory back"),
        );
    }
}

/// Maps anonymous memory of the program, which loses what it held. Ends the recording if that
/// fails.
fn fresh_memory(addr: u64, len: u64) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    let map = || sys::mmap(addr, len, PROT_READ | PROT_WRITE, flags, -1, 0);
    if let Err(e) = headroom::needed(map) {
        let message = line!("cannot map the program's memory again (error {e})");
        fail::die(fail::STATUS, &message);
    }
}

/// Makes all blocks anonymous again that have a part in `addr..addr+len`.
fn separate(t: &mut Thread, addr: u64, len: u64) {
    let range = addr..addr.saturating_add(len);
    let memory = core::mem::take(&mut t.shared_pages.memory);
    let (meant, others) = memory
        .into_iter()
        .partition(|r| common(r, &range).is_some());
    t.shared_pages.memory = others;
    let meant: Vec<Range<u64>> = meant;
    for r in meant {
        log!(
            Debug,
            "memory {:#x}-{:#x} shares no pages any more",
            r.start,
            r.end
        );
        let now: Vec<Region> = regions()
            .overlapping(r.start, r.end - r.start)
            .filter(|m| m.flags == MAP_PRIVATE | MAP_ANONYMOUS)
            .copied()
            .collect();
        for m in now {
            if let Some(part) = common(&r, &(m.start..m.end)) {
                make_anonymous(&part, m.prot);
                t.shared_pages.seams.push(part);
            }
        }
    }
}

/// Makes whole pages anonymous again. Those that hold only zeros are then as if never accessed.
fn make_anonymous(range: &Range<u64>, prot: u32) {
    let len = range.end - range.start;
    let pages = copy(range, prot);
    fresh_memory(range.start, len);
    for (at, bytes) in pages {
        // SAFETY: `fresh_memory` has just mapped these pages writable, and `bytes` is one page
        // long. No other thread runs.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }
    if prot != PROT_READ | PROT_WRITE {
        let _ = sys::mprotect(range.start, len, prot);
    }
}

/// The pages of memory with this protection that do not hold only zeros, with their addresses.
fn copy(range: &Range<u64>, prot: u32) -> Vec<(u64, Box<[u8; PAGE as usize]>)> {
    let len = range.end - range.start;
    if prot & PROT_READ == 0 {
        let _ = sys::mprotect(range.start, len, PROT_READ);
    }
    let mut pages = Vec::new();
    // All of them were in memory when they were shared. Some may have been swapped out since.
    for at in range.clone().step_by(PAGE as usize) {
        let mut bytes = Box::new([0; PAGE as usize]);
        if crate::sys::guard::read(at, &mut bytes[..]).is_err() {
            unreadable();
        }
        if bytes.iter().any(|b| *b != 0) {
            pages.push((at, bytes));
        }
    }
    pages
}

fn unreadable() -> ! {
    fail::die(fail::STATUS, &line!("cannot copy the program's memory"))
}

/// Makes all of the program's memory anonymous again, since others will use it or somebody may
/// look.
pub fn end(t: &mut Thread) {
    if t.shared_pages.memory.is_empty() {
        return;
    }
    separate(t, 0, u64::MAX);
    t.shared_pages.ends += 1;
    if t.shared_pages.ends > MAX_ENDS {
        t.shared_pages.next = u64::MAX;
    }
}

/// As [`end`], for good, and for all threads that this process may still get.
pub fn never(t: &mut Thread) {
    end(t);
    shared_pages::forbid();
    t.shared_pages.next = u64::MAX;
}

/// Called before a system call, unless it is one of the commonest. Prepares for calls that need
/// anonymous memory, or that give memory a property which would be lost.
pub fn before(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    const PR_SET_VMA: u64 = 0x5356_4d41;
    let takes_pages = matches!(nr, __NR_madvise | __NR_mremap | __NR_mprotect);
    if takes_pages && !a[0].is_multiple_of(PAGE) {
        // The kernel refuses the call.
        return;
    }
    match nr {
        _ if has(nr, PINS) => never(t),
        __NR_prctl if a[0] == PR_SET_VMA => never(t),
        __NR_mprotect if a[2] as u32 & PROT_EXEC != 0 => separate(t, a[0], a[1]),
        // These properties last, and would be lost.
        __NR_madvise
            if !matches!(
                a[2] as u32,
                MADV_NORMAL
                    | MADV_RANDOM
                    | MADV_SEQUENTIAL
                    | MADV_WILLNEED
                    | MADV_DONTNEED
                    | MADV_FREE
                    | MADV_COLD
                    | MADV_PAGEOUT
                    | MADV_POPULATE_READ
                    | MADV_POPULATE_WRITE
            ) =>
        {
            never(t);
        }
        __NR_madvise => separate(t, a[0], a[1]),
        __NR_mremap => separate(t, a[0], a[1].max(1)),
        __NR_mmap if a[3] as u32 & (MAP_HUGETLB | MAP_LOCKED) != 0 => never(t),
        _ => {}
    }
}

/// Called when a call may have failed because the kernel finds several mappings where the program
/// has made one. Makes them one mapping, if page sharing has split it. Returns whether it has done
/// so.
pub fn whole(t: &mut Thread, addr: u64, len: u64) -> bool {
    let len = len.next_multiple_of(PAGE);
    let prot = match regions().find(addr) {
        Some(r) if r.end >= addr.saturating_add(len) => r.prot,
        _ => return false,
    };
    // What other threads may write cannot be copied.
    if len == 0 || !t.shared_pages.touches(addr, len) || !threads::is_alone() {
        return false;
    }
    make_anonymous(&(addr..addr + len), prot);
    take(&mut t.shared_pages.seams, &(addr..addr + len));
    true
}
