//! Pages whose content is found out when somebody needs it.

use super::{Lines, PAGE, SharedPage};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// Of those that are made to be copied at once, so many are kept for whoever asks next: 256 MiB.
const KEPT: usize = 1 << 16;

/// Finds out what pages hold.
pub trait PageSource: Send + Sync {
    /// What a page holds. `None`: the data is damaged. It may be called by several threads at the same time, and on a stack of
    /// `STACK` bytes of `native/host.rs`.
    fn page(&self, number: u32) -> Option<SharedPage>;
}

impl<F: Fn(u32) -> Option<SharedPage> + Send + Sync> PageSource for F {
    fn page(&self, number: u32) -> Option<SharedPage> {
        self(number)
    }
}

/// Where pages come from that are not made yet.
enum Source {
    Found(Box<dyn PageSource>),
    /// Other pages that are made later, all of which are found. So nobody asks through many.
    Root(Lines),
}

/// Whole pages. What they hold is found out once.
pub(super) struct LaterPages {
    numbers: Box<[u32]>,
    made: Box<[OnceLock<SharedPage>]>,
    source: Source,
    /// How many were made.
    count: AtomicUsize,
    /// A page could not be made.
    is_bad: AtomicBool,
}

impl LaterPages {
    pub fn new(numbers: Box<[u32]>, source: Box<dyn PageSource>) -> LaterPages {
        LaterPages::of(numbers, Source::Found(source))
    }

    fn of(numbers: Box<[u32]>, source: Source) -> LaterPages {
        LaterPages {
            made: numbers.iter().map(|_| OnceLock::new()).collect(),
            numbers,
            source,
            count: AtomicUsize::new(0),
            is_bad: AtomicBool::new(false),
        }
    }

    /// The same pages as `root` has, and more. These are made already, among them all that `root` does not have. Both ascend.
    pub fn beside(
        root: Lines,
        made: impl Iterator<Item = (u32, SharedPage)>,
        numbers: Box<[u32]>,
    ) -> LaterPages {
        let pages = LaterPages::of(numbers, Source::Root(root));
        for (number, page) in made {
            if let Ok(i) = pages.numbers.binary_search(&number) {
                let new = pages.made[i].set(page).is_ok();
                pages.count.fetch_add(new as usize, Relaxed);
            }
        }
        pages
    }

    /// The pages that were made so far, with their numbers.
    pub fn made(&self) -> impl Iterator<Item = (u32, &SharedPage)> {
        let all = self.numbers.iter().zip(&self.made);
        all.filter_map(|(number, page)| Some((*number, page.get()?)))
    }

    /// The pages that those come from that are not made yet, if they come from others.
    pub fn root(&self) -> Option<&Lines> {
        match &self.source {
            Source::Root(root) => Some(root),
            Source::Found(_) => None,
        }
    }

    /// Finds out what page `i` holds. Zeros, and a note that they are bad, if it cannot be made.
    fn find(&self, i: usize) -> SharedPage {
        let number = self.numbers[i];
        let its = match &self.source {
            Source::Found(source) => source.page(number),
            Source::Root(root) => {
                let its = root.later_page(number);
                its.filter(|_| !root.is_bad())
            }
        };
        its.unwrap_or_else(|| {
            self.is_bad.store(true, Relaxed);
            Arc::new([0; PAGE])
        })
    }

    /// Page `i`. Zeros if it cannot be made; [`LaterPages::is_bad`] then says so.
    pub fn page(&self, i: usize) -> &SharedPage {
        self.made[i].get_or_init(|| {
            self.count.fetch_add(1, Relaxed);
            self.find(i)
        })
    }

    /// The same to be copied at once. It is not kept if very many are.
    pub fn look(&self, i: usize) -> SharedPage {
        if self.made[i].get().is_none() && self.count() >= KEPT {
            return self.find(i);
        }
        Arc::clone(self.page(i))
    }

    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// How many pages were made so far.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub fn is_bad(&self) -> bool {
        self.is_bad.load(Relaxed) || self.root().is_some_and(Lines::is_bad)
    }
}

/// Pages that are made when somebody needs them, as long as somebody else has them.
pub struct MadePages(pub(super) Weak<LaterPages>);

impl MadePages {
    /// A page, if it has been made.
    pub fn page(&self, number: u32) -> Option<SharedPage> {
        let pages = self.0.upgrade()?;
        let i = pages.numbers.binary_search(&number).ok()?;
        pages.made[i].get().filter(|_| !pages.is_bad()).cloned()
    }

    /// Whether nobody has the pages any more.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
