//! Sorts accesses by page. The result is sections. Each says of some neighbouring pages how several intervals accessed
//! them.

use super::codec::{LEVEL, pack, put};
use super::told::{Told, pages_of};
use crate::base::sync::{joined, spawn};
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

/// A section is closed when it has this many bytes.
pub const SECTION: usize = 64 << 10;
/// One of `SAMPLE` entries is looked at to divide the work. A share has at least `LEAST` of those.
const SAMPLE: usize = 32;
const LEAST: usize = 256;
/// Shares of the work per thread.
const SHARES: usize = 8;
/// A generation has at least `SOME` intervals. There are at most `MOST` generations besides the last.
const SOME: usize = 16;
const MOST: usize = 4;

/// A section about pages: its first page, and its bytes.
pub type PageSection = (u32, Vec<u8>);

/// Intervals that were sorted by page while others were still made. The first generation has the first half of all
/// instructions, the second half of the rest, and so on. So little is left to sort at the end, and a question about a
/// page reads few generations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Generations {
    pub all: Vec<Vec<PageSection>>,
    /// How many intervals they have together.
    pub intervals: usize,
}

/// Makes generations in a thread of its own, while others make intervals.
#[derive(Default)]
pub struct Generating {
    done: Generations,
    made: Option<JoinHandle<Result<Vec<PageSection>>>>,
}

impl Generating {
    /// Takes note that `all` intervals exist, which are `share` of all instructions. Begins a generation when it is
    /// due.
    pub fn add(
        &mut self,
        histories: &mut dyn Iterator<Item = Told>,
        all: usize,
        share: f64,
    ) -> Result<()> {
        let begun = self.done.all.len() + self.made.is_some() as usize;
        let due = 1.0 - 0.5f64.powi(begun as i32 + 1);
        if begun == MOST || share < due || all < self.done.intervals + SOME {
            return Ok(());
        }
        self.take()?;
        let first = self.done.intervals;
        let some: Vec<Told> = histories.skip(first).collect();
        self.done.intervals += some.len();
        let make = move || sections_of(&some.iter().collect::<Vec<_>>(), first, (0, u32::MAX));
        // If no thread can be started, the work is done at the end.
        match std::thread::Builder::new().spawn(make) {
            Ok(made) => self.made = Some(made),
            Err(_) => self.done.intervals = first,
        }
        Ok(())
    }

    /// Waits for the generation that is being made.
    fn take(&mut self) -> Result<()> {
        match self.made.take().map(JoinHandle::join) {
            None => {}
            Some(Ok(sections)) => self.done.all.push(sections?),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
        Ok(())
    }

    /// All generations. The list is empty afterwards.
    pub fn finish(&mut self) -> Result<Generations> {
        self.take()?;
        Ok(std::mem::take(&mut self.done))
    }
}

/// Sorts by page what intervals accessed. The first of them has number `first` in the part.
pub fn sections(intervals: &[&Told], first: usize) -> Result<Vec<PageSection>> {
    // A sample of the pages. Its quantiles divide the work evenly.
    let mut some: Vec<u32> = Vec::new();
    for i in intervals {
        some.extend(i.sample(SAMPLE));
    }
    some.sort_unstable();
    let cores = hindsight_guard::processors();
    let threads = cores.min(some.len() / LEAST).max(1);
    // Threads take shares one after the other, because some pages take longer than others.
    let shares = if threads == 1 { 1 } else { threads * SHARES };
    let border = |n: usize| match n {
        0 => 0,
        n if n == shares => u32::MAX,
        n => some[n * some.len() / shares],
    };
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<PageSection>)>> {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        let mine = numbers.take_while(|n| *n < shares);
        mine.map(|n| {
            Ok((
                n,
                sections_of(intervals, first, (border(n), border(n + 1)))?,
            ))
        })
        .collect()
    };
    let mut all = std::thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| spawn(s, work)).collect();
        let mut all = work()?;
        for other in others {
            all.extend(joined(other)?);
        }
        Ok::<_, Error>(all)
    })?;
    all.sort_unstable_by_key(|(n, _)| *n);
    Ok(all.into_iter().flat_map(|(_, s)| s).collect())
}

/// The same, for pages `from..to`.
fn sections_of(
    intervals: &[&Told],
    first: usize,
    (from, to): (u32, u32),
) -> Result<Vec<PageSection>> {
    let mut out = Sections::default();
    let mut groups = BTreeSet::new();
    for told in intervals {
        groups.extend(told.groups((from, to)));
    }
    for group in groups {
        let its = pages_of(group);
        let (from, to) = (its.start.max(from), its.end.min(to));
        let histories: Result<Vec<_>> = intervals.iter().map(|i| i.group(group)).collect();
        let histories = histories?;
        let mut by_page: BTreeMap<u32, Vec<(u32, &[u8])>> = BTreeMap::new();
        for (i, history) in histories.iter().enumerate() {
            for (page, said) in history.between(from, to) {
                let list = by_page.entry(page).or_default();
                list.push(((first + i) as u32, said));
            }
        }
        for (page, list) in by_page {
            out.push(page, &list)?;
        }
    }
    out.finish()
}

/// Makes sections of pages.
#[derive(Default)]
struct Sections {
    done: Vec<PageSection>,
    open: Option<PageSection>,
    /// The page before.
    last: u32,
    /// What is said of a page.
    one: Vec<u8>,
}

impl Sections {
    /// Adds the next page: the intervals that accessed it, and what they say of it.
    fn push(&mut self, page: u32, list: &[(u32, &[u8])]) -> Result<()> {
        let one = &mut self.one;
        one.clear();
        put(one, list.len() as u64);
        let mut before = 0;
        for (i, said) in list {
            put(one, (i - before) as u64);
            before = *i;
            one.extend_from_slice(said);
        }
        let (_, raw) = self.open.get_or_insert_with(|| (page, Vec::new()));
        let delta = if raw.is_empty() {
            page
        } else {
            page - self.last
        };
        put(raw, delta as u64);
        put(raw, one.len() as u64);
        raw.extend_from_slice(one);
        self.last = page;
        if raw.len() >= SECTION {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some((first, raw)) = self.open.take() {
            self.done.push((first, pack(&raw, LEVEL)?));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PageSection>> {
        self.close()?;
        Ok(self.done)
    }
}
