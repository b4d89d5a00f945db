//! Key frames of a quiet thread: all that its memory holds is said anew, so that replay can begin there. What was
//! never touched holds zeros, and files are named. How much there is besides tells the kernel's `pagemap`; where
//! that cannot be read, there are no key frames but the first.

use crate::backing;
use crate::maps::{Region, regions};
use crate::sys::{self, PAGE, PROT_READ};
use crate::thread::Thread;
use crate::{config, guard};
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::MAX_BYTES;
use linux_raw_sys::general::*;

/// Instructions between two key frames per byte of memory that is said.
const COST: u64 = 160;
/// Most bytes: the program stands still meanwhile.
const MOST: u64 = 256 << 20;

/// Bits of the kernel's words of pages.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Words that are read at once.
const WORDS: usize = 1024;

/// What is said of memory.
#[derive(Default)]
struct Plan {
    files: Vec<(Region, stat)>,
    /// Whole pages, ascending in each region.
    pages: Vec<Range<u64>>,
    bytes: u64,
}

/// Says when the next key frame is due.
pub fn schedule(t: &mut Thread) {
    let least = match config().restate_every {
        0 => config().keyframe_interval,
        n => n,
    };
    t.restated = t.pos;
    t.schedule_quiet(if least == 0 { u64::MAX } else { least });
}

/// Writes a key frame with all that memory holds, if enough has been done since the last one to pay for that. The
/// thread stands between two instructions.
pub fn restate(t: &mut Thread) {
    let plan = plan().filter(|p| p.bytes <= MOST);
    let Some(plan) = plan else {
        return t.schedule_quiet(config().keyframe_interval.max(1));
    };
    let due = t.restated.saturating_add(plan.bytes * COST);
    if config().restate_every == 0 && t.pos < due {
        return t.schedule_quiet(due - t.pos);
    }
    t.emit.burst(true);
    t.keyframe();
    t.event(&Event::Restate { ends: false });
    for (r, s) in &plan.files {
        let path = regions().path(r).to_vec();
        super::of_file(t, r.start, r.end - r.start, r.offset, s, &path);
    }
    for p in &plan.pages {
        pages(t, p.clone());
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
            b"[stack]" | b"[heap]" | b"" => touched(fd, r, &mut plan),
            b"[vdso]" => {
                plan.add(r.start..r.end);
                true
            }
            // The kernel's, which changes at any time: reads of it are checked.
            p if p.starts_with(b"[vvar") || p.starts_with(b"[vsyscall") => true,
            p if p.starts_with(b"/") => match backing::as_it_was(path) {
                Some(s) => {
                    plan.files.push((*r, s));
                    touched(fd, r, &mut plan)
                }
                // Another file has its name by now, or none.
                None => {
                    plan.add(r.start..r.end);
                    r.prot & PROT_READ != 0
                }
            },
            _ => touched(fd, r, &mut plan),
        }
    });
    sys::close(fd);
    whole.then_some(plan)
}

impl Plan {
    fn add(&mut self, range: Range<u64>) {
        self.bytes += range.end - range.start;
        match self.pages.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.pages.push(range),
        }
    }
}

/// Adds the pages of a region that are not as they were mapped. `false`: there are some, and they cannot be read, or the
/// kernel does not tell.
fn touched(fd: i32, r: &Region, plan: &mut Plan) -> bool {
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
                plan.add(at..at + PAGE);
            }
            at += PAGE;
        }
    }
    true
}

/// Says what whole pages hold, but for those of zeros.
fn pages(t: &mut Thread, range: Range<u64>) {
    const SIZE: usize = PAGE as usize;
    let mut buf = [0; MAX_BYTES];
    let mut at = range.start;
    while at < range.end {
        let n = (range.end - at).min(MAX_BYTES as u64) as usize;
        let whole = guard::read(at, &mut buf[..n]).is_ok();
        for (i, page) in buf[..n].chunks_mut(SIZE).enumerate() {
            let addr = at + (i * SIZE) as u64;
            // Behind a file's end there is nothing.
            let there = whole || guard::read(addr, page).is_ok();
            if there && page.iter().fold(0, |any, b| any | b) != 0 {
                t.event(&Event::Memory { addr, bytes: page });
            }
        }
        at += n as u64;
    }
}
