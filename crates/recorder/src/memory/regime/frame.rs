//! What a key frame of the quiet regime says of memory: which files are in it, and the pages that have changed. Whoever makes
//! the key frame says where its events go.

use super::pages::Pages;
use crate::memory::backing;
use crate::memory::maps::{Region, regions};
use crate::sys::{self, PAGE, PROT_READ, guard};
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::MAX_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Addresses from here on do not fit into the table of pages.
const HIGHEST: u64 = 1 << 48;

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
pub struct Plan {
    pub files: Vec<(Region, backing::File)>,
    /// In ascending order within each region.
    pages: Vec<PageRun>,
    /// Bytes in `pages`.
    pub bytes: u64,
    /// Bytes in `files`.
    pub file_bytes: u64,
    /// Memory that the kernel changes at any time. Reads of it are checked, and it is not restated.
    pub unsteady: Vec<Range<u64>>,
}

/// Why a key frame cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// Memory cannot be read that has to be restated.
    Unreadable,
    /// It may succeed at another time.
    ForNow,
}

/// Looks at all pages that were touched. `key` is that of their hashes.
pub fn look(plan: &Plan, pages: &mut Pages, key: u64) -> Result<(), Failed> {
    let zeros = xxh3_64_with_seed(&[0; PAGE as usize], key);
    if !pages.begin_look() {
        return Err(Failed::ForNow);
    }
    for p in &plan.pages {
        let see = &mut |addr, page: &[u8]| {
            let hash = xxh3_64_with_seed(page, key);
            // Elsewhere a page holds zeros if nothing is said.
            if p.of_file || hash != zeros {
                pages.see(addr, hash);
            }
        };
        if !each(&p.range, p.of_file, see) {
            return Err(Failed::Unreadable);
        }
    }
    if !look_at_files(plan, pages, key) {
        pages.restart();
        return Err(Failed::ForNow);
    }
    pages.end_look();
    Ok(())
}

/// Looks at pages of files where older key frames say something else, which lies above the files.
/// False if one cannot be read.
fn look_at_files(plan: &Plan, pages: &mut Pages, key: u64) -> bool {
    let files = Files::of(plan);
    let mut page = [0; PAGE as usize];
    for addr in pages.unseen() {
        let Some((addr, prot)) = files.at(addr) else {
            continue;
        };
        if prot & PROT_READ == 0 {
            return false;
        }
        // Behind the end of a file nothing can be read.
        if guard::read(addr, &mut page).is_ok() {
            pages.see(addr, xxh3_64_with_seed(&page, key));
        }
    }
    true
}

/// What a key frame says of pages.
#[derive(Default)]
pub struct What {
    /// Pages that hold zeros, or are not there any more.
    zeros: Vec<Range<u64>>,
    pages: Vec<Range<u64>>,
    /// Bytes in `pages`.
    pub bytes: u64,
}

/// What the next key frame says of pages.
pub fn what(pages: &Pages) -> What {
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

/// Takes the events of a key frame.
pub type Say<'a> = dyn FnMut(&Event) + 'a;

/// Says what a key frame says behind the registers. `back` is the number of key frames to its base. False if not all memory
/// can be read.
pub fn restate(plan: &Plan, what: &What, back: u32, say: &mut Say) -> bool {
    log!(
        Debug,
        "restates {} of {} bytes of memory, and names {} of files; back {back}",
        what.bytes,
        plan.bytes,
        plan.file_bytes
    );
    say(&Event::Restate {
        ends: false,
        back: back as u64,
    });
    for (r, f) in &plan.files {
        // The collector has had the file since it was mapped. So the program need not wait before
        // it changes files.
        let path = regions().path(r).to_vec();
        say(&super::of_file(
            r.start,
            r.end - r.start,
            r.offset,
            f,
            &path,
        ));
    }
    for z in &what.zeros {
        let (addr, len) = (z.start, z.end - z.start);
        say(&Event::Zero { addr, len });
    }
    let mut all = true;
    for p in &what.pages {
        all &= each(p, false, &mut |addr, bytes| {
            say(&Event::Memory { addr, bytes });
        });
    }
    say(&Event::Restate {
        ends: true,
        back: 0,
    });
    all
}

/// Says that the cells of memory are empty which the kernel changes at any time. The key frame has emptied them in the
/// recorder. Replay that comes from before it keeps what its window holds. So it is told where reads are compared with these
/// cells.
pub fn unsteady(ranges: &[Range<u64>], say: &mut Say) {
    for u in ranges {
        let (addr, len) = (u.start, u.end - u.start);
        say(&Event::Zero { addr, len });
        say(&Event::Changed { addr, len });
    }
}

/// Memory that the kernel changes at any time.
pub fn unsteady_memory() -> Vec<Range<u64>> {
    let regions = regions();
    let unsteady = regions.all().filter(|r| is_unsteady(regions.path(r)));
    unsteady.map(|r| r.start..r.end).collect()
}

fn is_unsteady(path: &[u8]) -> bool {
    path.starts_with(b"[vvar")
}

/// What has to be restated. `None`: not all of it can be read.
pub fn plan() -> Option<Plan> {
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
            p if is_unsteady(p) => {
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
