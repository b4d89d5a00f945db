//! What pages held at the last border between intervals. What they hold at the next one is compared with it.
//!
//! Of a large program that is as much as its memory. So it lies in a file without a name, which the kernel may write out.

use super::codec::{PAGE, Page};
use super::stored::unreadable;
use crate::Result;
use hindsight_guard::place;
use hindsight_replay::{Lines, SharedPage};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// So many pages are read and written at a time. Neighbours take one system call.
const BATCH: usize = 64;

/// Pages by number. Those that are nowhere are zero.
#[derive(Default)]
pub struct Held {
    memory: HashMap<u32, SharedPage>,
    file: Option<InFile>,
}

/// Pages in a file.
struct InFile {
    file: File,
    /// For each page one more than its place in the file, or 0.
    places: Vec<u32>,
    /// By the place: the checksum.
    sums: Vec<u64>,
    /// The file takes no more. What changes from now on stays in memory.
    full: bool,
}

/// Looks at a page, and may change it.
pub type Work<'a> = dyn FnMut(u32, &mut HeldPage) -> Result<()> + 'a;

/// A page that is looked at.
pub struct HeldPage<'a> {
    its: Its<'a>,
    changed: bool,
}

enum Its<'a> {
    /// Others may have it, too.
    Shared(&'a mut SharedPage),
    Copied(&'a mut Page),
}

impl HeldPage<'_> {
    pub fn get(&self) -> &Page {
        match &self.its {
            Its::Shared(page) => page,
            Its::Copied(page) => page,
        }
    }

    /// The page, for a change. What does not change need not be copied.
    pub fn get_mut(&mut self) -> &mut Page {
        self.changed = true;
        match &mut self.its {
            Its::Shared(page) => Arc::make_mut(page),
            Its::Copied(page) => page,
        }
    }
}

/// Shows a page, which is `copied` unless it is in memory. Returns whether `copied` was changed.
fn show(
    memory: &mut HashMap<u32, SharedPage>,
    page: u32,
    copied: &mut Page,
    work: &mut Work,
) -> Result<bool> {
    let its = match memory.get_mut(&page) {
        Some(shared) => Its::Shared(shared),
        None => Its::Copied(copied),
    };
    let mut held = HeldPage {
        its,
        changed: false,
    };
    work(page, &mut held)?;
    Ok(held.changed && matches!(held.its, Its::Copied(_)))
}

impl InFile {
    /// The place of a page in the file.
    fn place(&self, page: u32) -> Option<u32> {
        self.places.get(page as usize)?.checked_sub(1)
    }

    /// The places of those pages that are wanted and in the file, with their numbers in the batch: runs of neighbours.
    fn runs(&self, batch: &[u32], wanted: impl Fn(usize) -> bool) -> Vec<(Range<usize>, u32)> {
        let mut runs: Vec<(Range<usize>, u32)> = Vec::new();
        for (i, page) in batch.iter().enumerate().filter(|(i, _)| wanted(*i)) {
            let Some(place) = self.place(*page) else {
                continue;
            };
            match runs.last_mut() {
                Some((run, first)) if run.end == i && *first + run.len() as u32 == place => {
                    run.end += 1;
                }
                _ => runs.push((i..i + 1, place)),
            }
        }
        runs
    }

    /// Fills the buffer with the pages of a batch. Those that are not in the file are zero.
    fn read(&self, batch: &[u32], buffer: &mut [u8]) -> Result<()> {
        for (page, its) in batch.iter().zip(buffer.as_chunks_mut::<PAGE>().0) {
            if self.place(*page).is_none() {
                its.fill(0);
            }
        }
        for (run, first) in self.runs(batch, |_| true) {
            let bytes = &mut buffer[run.start * PAGE..run.end * PAGE];
            place::read(&self.file, bytes, first as u64 * PAGE as u64).map_err(|_| unreadable())?;
            let sums = &self.sums[first as usize..];
            let mut both = bytes.as_chunks::<PAGE>().0.iter().zip(sums);
            if both.any(|(its, sum)| xxh3_64(its) != *sum) {
                return Err(unreadable());
            }
        }
        Ok(())
    }

    /// Writes pages of a batch that changed. Those that cannot be written go to `memory`.
    fn write(
        &mut self,
        batch: &[u32],
        changed: &[bool],
        buffer: &[u8],
        memory: &mut HashMap<u32, SharedPage>,
    ) {
        let pages = buffer.as_chunks::<PAGE>().0;
        for (i, page) in batch.iter().enumerate().filter(|(i, _)| changed[*i]) {
            let sum = xxh3_64(&pages[i]);
            match self.place(*page) {
                Some(place) => self.sums[place as usize] = sum,
                None => {
                    let end = *page as usize + 1;
                    self.places.resize(self.places.len().max(end), 0);
                    self.sums.push(sum);
                    self.places[*page as usize] = self.sums.len() as u32;
                }
            }
        }
        for (run, first) in self.runs(batch, |i| changed[i]) {
            let bytes = &buffer[run.start * PAGE..run.end * PAGE];
            self.full =
                self.full || place::write(&self.file, bytes, first as u64 * PAGE as u64).is_err();
            if self.full {
                for i in run {
                    self.places[batch[i] as usize] = 0;
                    memory.insert(batch[i], Arc::new(pages[i]));
                }
            }
        }
    }
}

impl Held {
    /// Pages that wait in this file, if there is one.
    pub fn new(file: Option<File>) -> Held {
        Held {
            memory: HashMap::new(),
            file: file.map(|file| InFile {
                file,
                places: Vec::new(),
                sums: Vec::new(),
                full: false,
            }),
        }
    }

    /// The pages, if there is no file.
    pub fn in_memory(&mut self) -> &mut HashMap<u32, SharedPage> {
        debug_assert!(self.file.is_none());
        &mut self.memory
    }

    /// Takes over what a window held.
    ///
    /// # Errors
    /// See [`Held::each`].
    pub fn put_lines(&mut self, lines: &Lines) -> Result<()> {
        let mut some = Vec::new();
        let mut done = Ok(());
        lines.each_shared(&mut |page, its| {
            some.push((page, its));
            if some.len() == BATCH && done.is_ok() {
                done = self.put(&mut some);
            }
        });
        done?;
        self.put(&mut some)
    }

    /// Sets pages, each of which is there once.
    ///
    /// # Errors
    /// See [`Held::each`].
    pub fn put(&mut self, pages: &mut Vec<(u32, SharedPage)>) -> Result<()> {
        if self.file.is_none() {
            // Others may have them, too.
            self.memory.extend(pages.drain(..));
            return Ok(());
        }
        let mut all = pages.iter();
        self.each(pages.iter().map(|p| p.0), &mut |_, held| {
            if let Some((_, its)) = all.next().filter(|p| *p.1 != *held.get()) {
                *held.get_mut() = **its;
            }
            Ok(())
        })?;
        pages.clear();
        Ok(())
    }

    /// Shows pages, each of which comes once. `work` may change them. It is fast if they ascend.
    ///
    /// # Errors
    /// The file does not have a page any more: the disk fails. Or `work` fails.
    pub fn each(&mut self, pages: impl Iterator<Item = u32>, work: &mut Work) -> Result<()> {
        let mut pages = pages.peekable();
        let Some(file) = &mut self.file else {
            let mut copied = [0; PAGE];
            return pages.try_for_each(|page| {
                if show(&mut self.memory, page, &mut copied, work)? {
                    let its = std::mem::replace(&mut copied, [0; PAGE]);
                    self.memory.insert(page, Arc::new(its));
                }
                Ok(())
            });
        };
        let mut buffer = vec![0; BATCH * PAGE];
        while pages.peek().is_some() {
            let batch: Vec<u32> = pages.by_ref().take(BATCH).collect();
            file.read(&batch, &mut buffer)?;
            let mut changed = Vec::new();
            for (page, its) in batch.iter().zip(buffer.as_chunks_mut().0) {
                changed.push(show(&mut self.memory, *page, its, work)?);
            }
            file.write(&batch, &changed, &buffer, &mut self.memory);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_random::Rng;
    use std::os::unix::fs::FileExt;

    fn in_file() -> (Held, File) {
        let file = tempfile::tempfile().unwrap();
        (Held::new(Some(file.try_clone().unwrap())), file)
    }

    /// Changes some pages at random, and compares all that was held before.
    fn change(held: &mut Held, expected: &mut HashMap<u32, Page>, random: &mut Rng) -> Result<()> {
        let some: Vec<u32> = (0..300).filter(|_| random.below(3) > 0).collect();
        let mut seen = Vec::new();
        held.each(some.iter().copied(), &mut |page, its| {
            seen.push(page);
            let was = expected.entry(page).or_insert([0; PAGE]);
            assert!(its.get() == was, "page {page}");
            if random.below(2) == 0 {
                let (at, to) = (random.below(PAGE as u64) as usize, random.u64() as u8);
                was[at] = to;
                its.get_mut()[at] = to;
            }
            Ok(())
        })?;
        assert_eq!(seen, some);
        Ok(())
    }

    #[test]
    fn pages_are_held_in_memory_and_in_a_file() {
        for held in [Held::default(), in_file().0] {
            let (mut held, mut expected, mut random) = (held, HashMap::new(), Rng(7));
            let page = |number: u32| (number, Arc::new([number as u8; PAGE]));
            let mut given: Vec<_> = [7, 5, 299].map(page).into();
            expected.extend(given.iter().map(|(number, its)| (*number, **its)));
            held.put(&mut given).unwrap();
            for _ in 0..20 {
                change(&mut held, &mut expected, &mut random).unwrap();
            }
            assert_eq!(held.memory.is_empty(), held.file.is_some());
        }
    }

    #[test]
    fn what_others_have_is_not_changed() {
        let mut held = Held::default();
        let its = Arc::new([1; PAGE]);
        held.put(&mut vec![(3, its.clone())]).unwrap();
        held.each([3].into_iter(), &mut |_, page| {
            assert_eq!(page.get()[0], 1);
            Ok(())
        })
        .unwrap();
        assert_eq!(Arc::strong_count(&its), 2);
        held.each([3].into_iter(), &mut |_, page| {
            page.get_mut()[0] = 2;
            Ok(())
        })
        .unwrap();
        assert_eq!((its[0], held.in_memory()[&3][0]), (1, 2));
    }

    #[test]
    fn a_file_that_takes_no_more_costs_memory_and_no_answer() {
        let (mut held, mut expected, mut random) = (in_file().0, HashMap::new(), Rng(8));
        change(&mut held, &mut expected, &mut random).unwrap();
        let file = held.file.as_mut().unwrap();
        // It can be read, but not be written to.
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file.file)
        );
        file.file = File::open(path).unwrap();
        for _ in 0..20 {
            change(&mut held, &mut expected, &mut random).unwrap();
        }
        assert!(!held.memory.is_empty());
    }

    #[test]
    fn a_file_that_changes_is_an_error() {
        let (mut held, file) = in_file();
        let (mut expected, mut random) = (HashMap::new(), Rng(9));
        change(&mut held, &mut expected, &mut random).unwrap();
        file.write_all_at(&[77, 78], 4096).unwrap();
        assert!(held.each(0..300, &mut |_, _| Ok(())).is_err());
        file.set_len(4096).unwrap();
        assert!(held.each(0..300, &mut |_, _| Ok(())).is_err());
    }
}
