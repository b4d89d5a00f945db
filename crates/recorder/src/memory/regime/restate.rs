//! Key frames of a quiet thread: all that its memory holds is said anew, so that replay can begin there. What was
//! never touched holds zeros, and files are named. How much there is besides tells the kernel's `pagemap`; where
//! that cannot be read, there are no key frames but the first.

use crate::memory::backing;
use crate::memory::maps::{Region, regions};
use crate::sys::{self, PAGE, PROT_READ, config, guard};
use crate::thread::Thread;
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::MAX_BYTES;

/// Instructions between two key frames per byte of memory that is said, and per byte of a file that is named: who begins
/// there lays it out.
const COST: u64 = 200;
const COST_OF_FILES: u64 = 40;
/// Most bytes: the program stands still meanwhile.
const MOST: u64 = 256 << 20;

/// Bits of the kernel's words of pages.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Words that are read at once.
const WORDS: usize = 1024;

/// Whole pages.
struct Pages {
    range: Range<u64>,
    /// They lie in a file that is named, and so hold something else if nothing is said of them.
    of_file: bool,
}

/// What is said of memory.
#[derive(Default)]
struct Plan {
    files: Vec<(Region, backing::File)>,
    /// Ascending in each region.
    pages: Vec<Pages>,
    /// Of `pages`, and of `files`.
    bytes: u64,
    file_bytes: u64,
}

/// Says when the next key frame is due.
pub fn schedule(t: &mut Thread) {
    t.restated = t.pos;
    t.schedule_quiet(least());
}

/// Instructions between two.
fn least() -> u64 {
    let wanted = match config::get().restate_every {
        0 => config::get().keyframe_interval,
        n => n,
    };
    match wanted {
        0 => u64::MAX,
        n => n,
    }
}

/// Writes a key frame with all that memory holds, if enough has been done since the last one to pay for that. The
/// thread stands between two instructions.
pub fn restate(t: &mut Thread) {
    if t.ends_quiet.is_none() && backing::changed(true) {
        super::leave_soon(t, super::CHANGED);
    }
    if t.ends_quiet.is_some() {
        return;
    }
    let plan = plan().filter(|p| p.bytes <= MOST);
    let Some(plan) = plan else {
        return t.schedule_quiet(least());
    };
    let cost = plan.bytes * COST + plan.file_bytes * COST_OF_FILES;
    let due = t.restated.saturating_add(cost);
    if config::get().restate_every == 0 && t.pos < due {
        return t.schedule_quiet(due - t.pos);
    }
    t.emit.burst(true);
    t.keyframe();
    t.event(&Event::Restate { ends: false });
    for (r, s) in &plan.files {
        let path = regions().path(r).to_vec();
        // The collector has it since it was mapped: the program need not wait before it changes files.
        super::of_file(t, r.start, r.end - r.start, r.offset, s, &path);
    }
    for p in &plan.pages {
        if !say(t, p) {
            super::leave_soon(t, "memory that cannot be read");
        }
    }
    t.event(&Event::Restate { ends: true });
    t.emit.burst(false);
    schedule(t);
}

/// What there is to be said. `None`: not all of it can be read.
fn plan() -> Option<Plan> {
    let mut regions = regions();
    regions.refresh_stack();
    let fd = sys::open_read(c"/proc/self/pagemap").ok()?;
    let mut plan = Plan::default();
    let whole = regions.all().all(|r| {
        let path = regions.path(r);
        match path {
            b"[vdso]" => {
                plan.add(r.start..r.end, false);
                true
            }
            // The kernel's, which changes at any time: reads of it are checked.
            p if p.starts_with(b"[vvar") || p.starts_with(b"[vsyscall") => true,
            p if p.starts_with(b"/") => match backing::as_it_was(path) {
                Some(s) => {
                    plan.files.push((*r, s));
                    plan.file_bytes += r.end - r.start;
                    add_resident_pages(fd, r, true, &mut plan)
                }
                // Another file has its name by now, or none.
                None => {
                    plan.add(r.start..r.end, true);
                    r.prot & PROT_READ != 0
                }
            },
            _ => add_resident_pages(fd, r, false, &mut plan),
        }
    });
    sys::close(fd);
    whole.then_some(plan)
}

impl Plan {
    fn add(&mut self, range: Range<u64>, of_file: bool) {
        self.bytes += range.end - range.start;
        match self.pages.last_mut() {
            Some(last) if (last.range.end, last.of_file) == (range.start, of_file) => {
                last.range.end = range.end;
            }
            _ => self.pages.push(Pages { range, of_file }),
        }
    }
}

/// Adds the pages of a region that are not as they were mapped. `false`: there are some, and they cannot be read, or the
/// kernel does not tell.
fn add_resident_pages(fd: i32, r: &Region, of_file: bool, plan: &mut Plan) -> bool {
    let mut words = [0u64; WORDS];
    let mut at = r.start;
    while at < r.end {
        let n = (((r.end - at) / PAGE) as usize).min(WORDS);
        // SAFETY: the words as bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 8 * n) };
        if sys::pread(fd, bytes, at / PAGE * 8) != Ok(8 * n) {
            return false;
        }
        for w in &words[..n] {
            if w & (PRESENT | SWAPPED) != 0 && w & OF_FILE == 0 {
                if r.prot & PROT_READ == 0 {
                    return false;
                }
                plan.add(at..at + PAGE, of_file);
            }
            at += PAGE;
        }
    }
    true
}

/// Says what whole pages hold. `false`: some of them cannot be read.
fn say(t: &mut Thread, pages: &Pages) -> bool {
    const SIZE: usize = PAGE as usize;
    let mut buf = [0; MAX_BYTES];
    let (mut at, mut all) = (pages.range.start, true);
    while at < pages.range.end {
        let n = (pages.range.end - at).min(MAX_BYTES as u64) as usize;
        let whole = guard::read(at, &mut buf[..n]).is_ok();
        for (i, page) in buf[..n].chunks_mut(SIZE).enumerate() {
            let addr = at + (i * SIZE) as u64;
            let there = whole || guard::read(addr, page).is_ok();
            // Behind a file's end there is nothing. Elsewhere there are zeros if nothing is said.
            all &= there || pages.of_file;
            if there && (pages.of_file || page.iter().fold(0, |any, b| any | b) != 0) {
                t.event(&Event::Memory { addr, bytes: page });
            }
        }
        at += n as u64;
    }
    all
}
