//! Pages of cells that get their content when somebody touches them.
//!
//! Until then they are inaccessible. Translated code that touches one gets a signal, whose handler makes the page and lets the
//! code go on. All else asks before it touches cells ([`Region::need`]): only the thread of translated code has a signal stack
//! that is large enough to make pages.

use super::super::store::PAGE;
use crate::lines::Lines;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Pages become accessible in groups of at least this many: the kernel limits how many mappings a process has, and a signal
/// takes as long as to make a page or two.
const LEAST: u32 = 4;
/// The pages that wait make up at most about so many groups.
const GROUPS: usize = 8192;

/// All regions of the process.
static REGIONS: RwLock<Vec<Arc<Region>>> = RwLock::new(Vec::new());

/// Pages of a window that are made when they are touched.
pub(crate) struct Region {
    /// Host address of the first cell.
    cells: u64,
    /// The pages that were inaccessible at first, ascending and apart. Those that are not among the lines are zero.
    runs: Vec<Range<u32>>,
    /// A bit for each page of the window that is still to be made.
    left: Box<[AtomicU64]>,
    group: u32,
    lines: Lines,
}

/// A region that the signal handler knows.
pub(super) struct Known(Arc<Region>);

impl Known {
    /// Lets the handler know a region of pages that have just become inaccessible. Whoever prepares a thread for translated code
    /// installs the handler.
    pub fn new(region: Region) -> Known {
        let region = Arc::new(region);
        let mut all = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&region));
        Known(region)
    }
}

impl std::ops::Deref for Known {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut all = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|r| !Arc::ptr_eq(r, &self.0));
    }
}

/// Makes the page of a window with this host address, if it is one that waits for that. For the signal handler.
pub(crate) fn touched(address: u64) -> bool {
    let all = REGIONS.read().unwrap_or_else(PoisonError::into_inner);
    let its = all.iter().find_map(|r| Some((r, r.page_of(address)?)));
    let Some((region, page)) = its else {
        return false;
    };
    // The lock is not held while pages are made, which takes long.
    let region = Arc::clone(region);
    drop(all);
    region.make(page)
}

impl Region {
    /// A region whose first cell has this host address. `runs` has all pages of `lines`, except the window's first one.
    pub fn new(cells: u64, runs: Vec<Range<u32>>, lines: Lines) -> Region {
        let left: Box<[AtomicU64]> = (0..(1 << 20) / 64).map(|_| AtomicU64::new(0)).collect();
        for page in runs.iter().cloned().flatten() {
            left[page as usize / 64].fetch_or(1 << (page % 64), Relaxed);
        }
        let count: usize = runs.iter().map(Range::len).sum();
        let group = (count / GROUPS).next_power_of_two() as u32;
        Region {
            cells,
            runs,
            left,
            group: group.max(LEAST),
            lines,
        }
    }

    fn page_of(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.cells)?;
        (offset < 1 << 32).then_some((offset / PAGE) as u32)
    }

    fn is_left(&self, page: u32) -> bool {
        self.left[page as usize / 64].load(Relaxed) & 1 << (page % 64) != 0
    }

    /// Makes the pages with `len` cells from the cell `first` on, if they wait.
    pub fn need(&self, first: u64, len: u64) {
        let end = (first + len).min(1 << 32);
        for page in (first / PAGE) as u32..end.div_ceil(PAGE) as u32 {
            if self.is_left(page) {
                let done = self.make(page);
                assert!(done, "the system refuses to make memory accessible");
            }
        }
    }

    /// Notes that pages no longer wait: zeros have taken their place.
    pub fn taken_off(&self, pages: Range<u32>) {
        for page in pages {
            self.left[page as usize / 64].fetch_and(!(1 << (page % 64)), Relaxed);
        }
    }

    /// Makes a page, and those around it. False if it does not wait, or the system refuses.
    fn make(&self, page: u32) -> bool {
        let i = self.runs.partition_point(|r| r.end <= page);
        let Some(run) = self.runs.get(i).filter(|_| self.is_left(page)) else {
            return false;
        };
        let begin = page / self.group * self.group;
        let around = begin.max(run.start)..(begin + self.group).min(run.end);
        // When the process can have no more mappings, a whole run takes fewer of them.
        [around, run.clone()]
            .into_iter()
            .any(|pages| self.make_all(pages))
    }

    /// Makes those of the pages that wait. All of them lie in one run.
    fn make_all(&self, pages: Range<u32>) -> bool {
        let at = |page: u32| (self.cells + page as u64 * PAGE) as *mut u8;
        let len = pages.len() * PAGE as usize;
        // SAFETY: the window's owner laid out these pages for this, and those that do not wait are accessible already.
        let done = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mprotect(at(pages.start).cast(), len, prot)
        };
        if done != 0 {
            return false;
        }
        for page in pages.filter(|p| self.is_left(*p)) {
            // Writing zeros would take memory.
            let its = self.lines.later_page(page);
            if let Some(its) = its.filter(|its| **its != [0; PAGE as usize]) {
                // SAFETY: the page has just become accessible. It waited, so nobody refers to it. Only the thread that has
                // the window comes here.
                unsafe { std::ptr::copy_nonoverlapping(its.as_ptr(), at(page), PAGE as usize) };
            }
            self.taken_off(page..page + 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::SharedPage;
    use crate::window::Window;
    use hindsight_isa::Predictor;

    fn page(number: u32) -> SharedPage {
        Arc::new(std::array::from_fn(|i| {
            (number as usize * 7 + i / 64) as u8
        }))
    }

    /// Lines of these pages, one of which cannot be made.
    fn lines(pages: &[u32], bad: u32) -> Lines {
        let source = move |number| (number != bad).then(|| page(number));
        Lines::later(pages.to_vec(), Box::new(source)).unwrap()
    }

    #[test]
    fn pages_are_made_when_they_are_needed() {
        let pages: Vec<u32> = (0..3).chain(1000..1100).chain([5000, 5002]).collect();
        let lines = lines(&pages, 5002);
        let mut w = Window::new(Predictor::WINDOW).unwrap();
        w.hold(&lines).unwrap();
        assert_eq!(lines.made(), 1, "the first page is copied");
        let mut buf = [0; 130];
        w.read(1001 * 4096 - 65, &mut buf);
        assert_eq!(buf[..65], page(1000)[4096 - 65..]);
        assert_eq!(buf[65..], page(1001)[..65]);
        assert!(lines.made() <= 1 + 2 * LEAST as usize);
        // A page that is zeroed is never made, also when a neighbour is.
        w.zero(1050 * 4096, 2 * 4096).unwrap();
        w.write(1048 * 4096 + 5, &[1]);
        let mut one = [0; 4096];
        w.read(1051 * 4096, &mut one);
        assert_eq!(one, [0; 4096]);
        assert_eq!(w.page(1049), &*page(1049));
        assert_eq!(w.page(1048)[5], 1);
        // Between the pages there is nothing.
        assert_eq!(w.page(5001), &[0; 4096]);
        assert!(lines.made() < 30 && !lines.is_bad());
        assert_eq!(w.page(5002), &[0; 4096]);
        assert!(lines.is_bad() && w.is_bad());
        // Also when its content is gone.
        w.clear().unwrap();
        assert!(w.is_bad());
        // Nothing of it is left, and nothing waits.
        w.hold(&Lines::default()).unwrap();
        assert!(!w.is_bad());
        assert_eq!(w.page(1060), &[0; 4096]);
        assert!(!touched(w.base() + 1060 * 4096));
    }
}
