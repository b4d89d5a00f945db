//! Key frames of a quiet thread. They restate all that its memory holds, so replay can begin there.
//!
//! - Files are named.
//! - Pages that were touched are written out. The kernel's `pagemap` tells which. If it cannot be
//!   read, there is no key frame but the first.
//! - Pages that were never touched hold zeros.

use crate::memory::backing;
use crate::memory::maps::{Region, regions};
use crate::sys::{self, PAGE, PROT_READ, config, guard};
use crate::thread::Thread;
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::MAX_BYTES;

/// A key frame costs as much as this many instructions per byte of memory that is restated.
const COST: u64 = 200;
/// The same per byte of a file that is named. Replay lays the file out when it begins there.
const COST_OF_FILES: u64 = 40;
/// Bytes. No more is restated, since the program stands still meanwhile.
const MOST: u64 = 256 << 20;

/// Bits of a page's word in `pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Number of words that are read at once.
const WORDS: usize = 1024;

/// Whole pages.
struct Pages {
    range: Range<u64>,
    /// They lie in a file that is named. If nothing were said of them, they would hold what the
    /// file has.
    of_file: bool,
}

/// What a key frame restates.
#[derive(Default)]
struct Plan {
    files: Vec<(Region, backing::File)>,
    /// In ascending order within each region.
    pages: Vec<Pages>,
    /// Bytes in `pages`.
    bytes: u64,
    /// Bytes in `files`.
    file_bytes: u64,
}

/// Schedules the next key frame.
pub fn schedule(t: &mut Thread) {
    t.regime.restated = t.pos;
    t.schedule_quiet(least());
}

/// The fewest instructions between two key frames.
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

/// Writes a key frame with all that memory holds, if the instructions since the last one pay for
/// it. The thread stands between two instructions.
pub fn restate(t: &mut Thread) {
    if !t.regime.ends_soon() && backing::changed(true) {
        super::leave_soon(t, super::CHANGED);
    }
    if t.regime.ends_soon() {
        return;
    }
    let plan = plan().filter(|p| p.bytes <= MOST);
    let Some(plan) = plan else {
        return t.schedule_quiet(least());
    };
    let cost = plan.bytes * COST + plan.file_bytes * COST_OF_FILES;
    let due = t.regime.restated.saturating_add(cost);
    if config::get().restate_every == 0 && t.pos < due {
        return t.schedule_quiet(due - t.pos);
    }
    log!(
        Debug,
        "restates {} bytes of memory, and names {} of files",
        plan.bytes,
        plan.file_bytes
    );
    t.emit.burst(true);
    t.keyframe();
    t.event(&Event::Restate {
        ends: false,
        back: 0,
    });
    for (r, s) in &plan.files {
        let path = regions().path(r).to_vec();
        // The collector has had the file since it was mapped. So the program need not wait before
        // it changes files.
        super::of_file(t, r.start, r.end - r.start, r.offset, s, &path);
    }
    for p in &plan.pages {
        if !say(t, p) {
            super::leave_soon(t, "memory of the program cannot be read");
        }
    }
    t.event(&Event::Restate {
        ends: true,
        back: 0,
    });
    t.emit.burst(false);
    schedule(t);
}

/// What has to be restated. `None`: not all of it can be read.
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
            // The kernel changes these at any time. Reads of them are checked.
            p if p.starts_with(b"[vvar") || p.starts_with(b"[vsyscall") => true,
            p if p.starts_with(b"/") => match backing::as_it_was(path) {
                Some(s) => {
                    plan.files.push((*r, s));
                    plan.file_bytes += r.end - r.start;
                    add_resident_pages(fd, r, true, &mut plan)
                }
                // The file at that name is another one by now, or there is none.
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

/// Adds the pages of a region that are not as they were mapped. False if they cannot be read, or if
/// the kernel does not say which they are.
fn add_resident_pages(fd: i32, r: &Region, of_file: bool, plan: &mut Plan) -> bool {
    let mut words = [0u64; WORDS];
    let mut at = r.start;
    while at < r.end {
        let n = (((r.end - at) / PAGE) as usize).min(WORDS);
        // SAFETY: `words` holds `WORDS` words of 8 bytes, `n` is at most `WORDS`, and any bytes are
        // valid words.
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

/// Records what whole pages hold. False if some cannot be read that should be.
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
            // Behind the end of a file nothing can be read. Elsewhere a page holds zeros if nothing
            // is said.
            all &= there || pages.of_file;
            if there && (pages.of_file || page.iter().fold(0, |any, b| any | b) != 0) {
                t.event(&Event::Memory { addr, bytes: page });
            }
        }
        at += n as u64;
    }
    all
}
