//! Key frames of a quiet thread. They restate what its memory holds, so replay can begin there.
//!
//! - Files are named.
//! - Pages that were touched are written out. The kernel's `pagemap` tells which. If it cannot be
//!   read, there is no key frame but the first.
//! - Pages that were never touched hold zeros.
//!
//! Most key frames restate only the pages that have changed since an earlier one (see [`Pages`]).
//! A hash of each page tells which have. That works with every kernel, and does not touch the
//! program, as write protection would.

use super::budget::{Budget, Running};
use super::pages::Pages;
use crate::memory::backing;
use crate::memory::maps::{Region, regions};
use crate::sys::lock::Lock;
use crate::sys::{self, PAGE, PROT_READ, config, guard};
use crate::thread::Thread;
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::MAX_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A key frame restates at most one byte for so many instructions, on average. So the recording grows by what the program
/// changes, and in the worst case by that.
const GROWTH: u64 = 100;
/// The same per byte of a file that is named. Replay lays the file out when it begins there.
const GROWTH_OF_FILES: u64 = 40;
/// A key frame that was put off is not considered again sooner than after this part of the interval.
const SOON: u64 = 8;
/// Addresses from here on do not fit into the table of pages.
const HIGHEST: u64 = 1 << 48;

/// The key frames so far.
struct Chain {
    pages: Pages,
    /// Key of the hashes, so no program can make two pages with the same one. 0: none yet.
    key: u64,
    /// Bytes that a key frame usually restates.
    usual: u64,
    budget: Budget,
}

static CHAIN: Lock<Chain> = Lock::new(Chain {
    pages: Pages::new(),
    key: 0,
    usual: 0,
    budget: Budget::new(),
});

/// Bits of a page's word in `pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Number of words that are read at once.
const WORDS: usize = 1024;

/// Whole pages.
struct PageRun {
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
    pages: Vec<PageRun>,
    /// Bytes in `pages`.
    bytes: u64,
    /// Bytes in `files`.
    file_bytes: u64,
    /// Memory that the kernel changes at any time. Reads of it are checked, and it is not restated.
    unsteady: Vec<Range<u64>>,
}

/// Schedules the first key frame of a thread that becomes quiet.
pub fn begin(t: &mut Thread) {
    CHAIN.lock().budget.open();
    schedule(t);
}

/// Schedules the next key frame.
fn schedule(t: &mut Thread) {
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

/// Forgets the key frames so far: memory is another one, or nothing follows.
pub fn forget() {
    let mut c = CHAIN.lock();
    c.pages.restart();
    c.usual = 0;
}

/// Has a quiet thread write a key frame behind the instruction at which it stands, whatever that costs.
pub fn state_point(t: &mut Thread) {
    if t.regime.quiet {
        t.regime.wants_state = true;
        t.schedule_quiet(0);
    }
}

/// Writes a key frame, if the instructions since the last one pay for it. The thread stands between
/// two instructions.
pub fn restate(t: &mut Thread) {
    if !t.regime.ends_soon() && backing::changed(true) {
        super::leave_soon(t, super::CHANGED);
    }
    if t.regime.ends_soon() {
        return;
    }
    let wanted = core::mem::take(&mut t.regime.wants_state);
    let mut clock = Budget::start(t.emit.waited());
    let Some(plan) = plan() else {
        return t.schedule_quiet(least());
    };
    let mut chain = CHAIN.lock();
    let done = try_restate(t, &plan, &mut chain, &mut clock, wanted);
    chain.budget.tried(&mut clock, t.emit.waited());
    drop(chain);
    match done {
        Ok(()) => schedule(t),
        Err(Put::Off(to)) => t.schedule_quiet(to.saturating_sub(t.pos).max(least() / SOON)),
        Err(Put::Never) => super::leave_soon(t, "memory that cannot be read"),
    }
}

/// Why there is no key frame.
enum Put {
    /// It is to be considered again at this position.
    Off(u64),
    /// Not all memory can be read.
    Never,
}

/// Writes a key frame, or says why not. One that the program wants is written whatever it costs.
fn try_restate(
    t: &mut Thread,
    plan: &Plan,
    c: &mut Chain,
    clock: &mut Running,
    wanted: bool,
) -> Result<(), Put> {
    let interval = t.emit.interval();
    // A ring that has nothing behind its last key frame but what it cannot hold would keep nothing.
    let needed = t.emit.is_long() && plan.bytes < interval / 2;
    let forced = config::get().restate_every != 0 || needed || wanted;
    if c.pages.is_worn() || config::get().whole_frames != 0 {
        c.pages.restart();
    }
    let whole = c.pages.next() == 0;
    let usual = if whole { plan.bytes } else { c.usual };
    c.budget.note(t.pos);
    if !forced {
        let growth = usual * GROWTH + plan.file_bytes * GROWTH_OF_FILES;
        let paid = c.budget.due(t.pos, c.budget.cost(plan.bytes, usual));
        let due = t.regime.restated.saturating_add(growth).max(paid);
        if t.pos < due {
            return Err(Put::Off(due));
        }
    }
    look(plan, c)?;
    c.budget.looked(plan.bytes, clock, t.emit.waited());
    let what = what(&c.pages);
    let cost = c.budget.cost(0, what.bytes);
    if !forced && !Budget::bears(c.budget.left(), cost) {
        c.usual = what.bytes;
        return Err(Put::Off(c.budget.due(t.pos, cost)));
    }
    // The cost of key frames with much is spread over the next ones.
    c.usual = match whole {
        true => what.bytes / 3,
        false => (3 * c.usual + what.bytes) / 4,
    };
    write(t, plan, &what, c.pages.back())?;
    c.budget.wrote(what.bytes, clock, t.emit.waited());
    c.pages.written();
    Ok(())
}

/// Looks at all pages that were touched.
fn look(plan: &Plan, c: &mut Chain) -> Result<(), Put> {
    if c.key == 0 {
        let mut key = [0; 8];
        sys::getrandom(&mut key);
        c.key = u64::from_le_bytes(key) | 1;
    }
    let zeros = xxh3_64_with_seed(&[0; PAGE as usize], c.key);
    c.pages.begin_look();
    for p in &plan.pages {
        let see = &mut |addr, page: &[u8]| {
            let hash = xxh3_64_with_seed(page, c.key);
            // Elsewhere a page holds zeros if nothing is said.
            if p.of_file || hash != zeros {
                c.pages.see(addr, hash);
            }
        };
        if !each(&p.range, p.of_file, see) {
            return Err(Put::Never);
        }
    }
    if !look_at_files(plan, c) {
        c.pages.restart();
        return Err(Put::Off(0));
    }
    c.pages.end_look();
    Ok(())
}

/// Looks at pages of files where older key frames say something else, which lies above the files.
/// False if one cannot be read.
fn look_at_files(plan: &Plan, c: &mut Chain) -> bool {
    let files = Files::of(plan);
    let mut page = [0; PAGE as usize];
    for addr in c.pages.unseen() {
        let Some((addr, prot)) = files.at(addr) else {
            continue;
        };
        if prot & PROT_READ == 0 {
            return false;
        }
        // Behind the end of a file nothing can be read.
        if guard::read(addr, &mut page).is_ok() {
            c.pages.see(addr, xxh3_64_with_seed(&page, c.key));
        }
    }
    true
}

/// What a key frame says of pages.
#[derive(Default)]
struct What {
    /// Pages that hold zeros, or are not there any more.
    zeros: Vec<Range<u64>>,
    pages: Vec<Range<u64>>,
    /// Bytes in `pages`.
    bytes: u64,
}

fn what(pages: &Pages) -> What {
    let mut out = What::default();
    for c in pages.changed() {
        match c.gone {
            true => push(&mut out.zeros, c.addr),
            false => push(&mut out.pages, c.addr),
        }
    }
    out.bytes = out.pages.iter().map(|p| p.end - p.start).sum();
    out
}

/// Adds a page to the last range, if it is the next one.
fn push(ranges: &mut Vec<Range<u64>>, addr: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == addr => last.end += PAGE,
        _ => ranges.push(addr..addr + PAGE),
    }
}

/// The files in memory, by cells.
struct Files(Vec<(Range<u64>, u64, u32)>);

impl Files {
    fn of(plan: &Plan) -> Files {
        let mut list = Vec::new();
        for (r, _) in &plan.files {
            let cell = r.start as u32 as u64;
            let end = cell + (r.end - r.start);
            list.push((cell..end, r.start, r.prot));
            if end > 1 << 32 {
                let behind = (1 << 32) - cell;
                list.push((0..end - (1 << 32), r.start + behind, r.prot));
            }
        }
        list.sort_unstable_by_key(|f| f.0.start);
        Files(list)
    }

    /// The page of a file that has the same cell as `addr`, and the protection of its memory.
    fn at(&self, addr: u64) -> Option<(u64, u32)> {
        let cell = addr as u32 as u64;
        let i = self.0.partition_point(|f| f.0.start <= cell);
        let (cells, start, prot) = self.0.get(i.checked_sub(1)?)?;
        cells
            .contains(&cell)
            .then(|| (start + (cell - cells.start), *prot))
    }
}

/// Writes a key frame.
fn write(t: &mut Thread, plan: &Plan, what: &What, back: u32) -> Result<(), Put> {
    log!(
        Debug,
        "restates {} of {} bytes of memory, and names {} of files; back {back}",
        what.bytes,
        plan.bytes,
        plan.file_bytes
    );
    t.emit.burst(true);
    t.keyframe();
    t.event(&Event::Restate {
        ends: false,
        back: back as u64,
    });
    for (r, s) in &plan.files {
        let path = regions().path(r).to_vec();
        // The collector has had the file since it was mapped. So the program need not wait before
        // it changes files.
        super::of_file(t, r.start, r.end - r.start, r.offset, s, &path);
    }
    for z in &what.zeros {
        let (addr, len) = (z.start, z.end - z.start);
        t.event(&Event::Zero { addr, len });
    }
    let mut all = true;
    for p in &what.pages {
        all &= each(p, false, &mut |addr, bytes| {
            t.event(&Event::Memory { addr, bytes });
        });
    }
    let ends = Event::Restate {
        ends: true,
        back: 0,
    };
    t.event(&ends);
    if back != 0 {
        // The key frame has emptied the cells here. Replay that comes from before it keeps what its
        // window holds. So it is told where reads are compared with these cells.
        for u in &plan.unsteady {
            let (addr, len) = (u.start, u.end - u.start);
            t.event(&Event::Zero { addr, len });
            t.event(&Event::Changed { addr, len });
        }
    }
    t.emit.burst(false);
    if all { Ok(()) } else { Err(Put::Never) }
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
            p if p.starts_with(b"[vvar") => {
                plan.unsteady.push(r.start..r.end);
                true
            }
            // Nobody can read it.
            p if p.starts_with(b"[vsyscall") => true,
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
    let whole = whole && plan.pages.iter().all(|p| p.range.end <= HIGHEST);
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
            _ => self.pages.push(PageRun { range, of_file }),
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

/// Shows what whole pages hold. False if some cannot be read that should be: all, or all but those
/// of files.
fn each(pages: &Range<u64>, of_file: bool, show: &mut dyn FnMut(u64, &[u8])) -> bool {
    const SIZE: usize = PAGE as usize;
    let mut buf = [0; MAX_BYTES];
    let (mut at, mut all) = (pages.start, true);
    while at < pages.end {
        let n = (pages.end - at).min(MAX_BYTES as u64) as usize;
        let whole = guard::read(at, &mut buf[..n]).is_ok();
        for (i, page) in buf[..n].chunks_mut(SIZE).enumerate() {
            let addr = at + (i * SIZE) as u64;
            let there = whole || guard::read(addr, page).is_ok();
            // Behind the end of a file nothing can be read.
            all &= there || of_file;
            if there {
                show(addr, page);
            }
        }
        at += n as u64;
    }
    all
}
