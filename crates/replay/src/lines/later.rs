//! Pages whose content is found out when somebody needs it.

use super::{PAGE, SharedPage};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// Finds out what pages hold.
pub trait PageSource: Send + Sync {
    /// What a page holds. `None`: the data is damaged. It may be called by several threads at the same time, and on a stack of
    /// [`crate::host::STACK`] bytes.
    fn page(&self, number: u32) -> Option<SharedPage>;
}

impl<F: Fn(u32) -> Option<SharedPage> + Send + Sync> PageSource for F {
    fn page(&self, number: u32) -> Option<SharedPage> {
        self(number)
    }
}

/// Whole pages. What they hold is found out once.
pub(super) struct LaterPages {
    numbers: Box<[u32]>,
    made: Box<[OnceLock<SharedPage>]>,
    source: Box<dyn PageSource>,
    /// How many were made.
    count: AtomicUsize,
    /// A page could not be made.
    is_bad: AtomicBool,
}

impl LaterPages {
    pub fn new(numbers: Box<[u32]>, source: Box<dyn PageSource>) -> LaterPages {
        LaterPages {
            made: numbers.iter().map(|_| OnceLock::new()).collect(),
            numbers,
            source,
            count: AtomicUsize::new(0),
            is_bad: AtomicBool::new(false),
        }
    }

    /// The same, some pages of which are made already: both ascend.
    pub fn with(
        made: impl Iterator<Item = (u32, SharedPage)>,
        numbers: Box<[u32]>,
        source: Box<dyn PageSource>,
    ) -> LaterPages {
        let pages = LaterPages::new(numbers, source);
        for (number, page) in made {
            if let Ok(i) = pages.numbers.binary_search(&number) {
                let new = pages.made[i].set(page).is_ok();
                pages.count.fetch_add(new as usize, Relaxed);
            }
        }
        pages
    }

    /// The pages that were made so far.
    pub fn made(&self) -> impl Iterator<Item = &SharedPage> {
        self.made.iter().filter_map(OnceLock::get)
    }

    /// Page `i`. Zeros if it cannot be made; [`LaterPages::is_bad`] then says so.
    pub fn page(&self, i: usize) -> &SharedPage {
        self.made[i].get_or_init(|| {
            self.count.fetch_add(1, Relaxed);
            self.source.page(self.numbers[i]).unwrap_or_else(|| {
                self.is_bad.store(true, Relaxed);
                Arc::new([0; PAGE])
            })
        })
    }

    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// How many pages were made so far.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub fn is_bad(&self) -> bool {
        self.is_bad.load(Relaxed)
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
