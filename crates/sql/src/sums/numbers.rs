//! Finds again what is known of a run.
//!
//! Runs come by the billion, and most are few. So [`Front`] is a table in which each run has one place, and which a processor's
//! cache holds. What has lost its place there, [`Numbers`] finds.

use hindsight_timeline::{Executed, Run};
use std::collections::HashMap;

/// Numbers that somebody gave to runs, by program image. They are forgotten where the program changes its code.
#[derive(Default)]
pub struct Numbers {
    images: Vec<(u32, Image)>,
    /// The one that was asked for last.
    last: usize,
}

const PAGE: u64 = 4096;
/// The most runs that a table without chains has.
const QUICK: usize = 1 << 16;

#[derive(Default)]
struct Image {
    /// Some of them, each where its hash says. A number of 0 stands for none.
    quick: Vec<(u64, u32)>,
    all: HashMap<u64, u32>,
    /// The runs that begin or end on a page.
    pages: HashMap<u64, Vec<u64>>,
    epoch: Option<u64>,
}

impl Numbers {
    /// The number of a run of a program image, or the one that `make` gives it. Numbers begin at 1.
    #[inline]
    pub fn find<E>(
        &mut self,
        image: u32,
        executed: &Executed,
        run: Run,
        make: impl FnOnce() -> Result<u32, E>,
    ) -> Result<u32, E> {
        if self.images.get(self.last).is_none_or(|i| i.0 != image) {
            self.last = self.at(image);
        }
        let image = &mut self.images[self.last].1;
        image.follow(executed);
        let place = image.place(run);
        if let Some((id, number)) = place.and_then(|p| image.quick.get(p))
            && *id == run.id()
            && *number != 0
        {
            return Ok(*number);
        }
        image.look(run, make)
    }

    fn at(&mut self, image: u32) -> usize {
        let found = self.images.iter().position(|i| i.0 == image);
        found.unwrap_or_else(|| {
            self.images.push((image, Image::default()));
            self.images.len() - 1
        })
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.images.clear();
        self.last = 0;
    }
}

/// The place of a run in a table of this size, which is a power of 2. `None`: it has none.
#[inline]
fn place_of(id: u64, size: usize) -> Option<usize> {
    let bits = size.checked_ilog2()?;
    Some((id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize)
}

impl Image {
    /// Forgets what has changed.
    #[inline]
    fn follow(&mut self, e: &Executed) {
        if self.epoch != Some(e.epoch()) {
            let old = self.epoch.replace(e.epoch());
            for page in old.map_or_else(Vec::new, |old| e.changed_since(old)) {
                for id in self.pages.remove(&page).unwrap_or_default() {
                    self.all.remove(&id);
                    let place = place_of(id, self.quick.len());
                    if let Some(q) = place.and_then(|p| self.quick.get_mut(p)) {
                        *q = (0, 0);
                    }
                }
            }
        }
    }

    fn place(&self, run: Run) -> Option<usize> {
        place_of(run.id(), self.quick.len())
    }

    fn look<E>(&mut self, run: Run, make: impl FnOnce() -> Result<u32, E>) -> Result<u32, E> {
        let number = match self.all.get(&run.id()) {
            Some(n) => *n,
            None => {
                let n = make()?;
                self.all.insert(run.id(), n);
                let last = run.pc().wrapping_add(15 * run.instructions());
                let mut page = run.pc() / PAGE;
                while page <= last / PAGE {
                    self.pages.entry(page * PAGE).or_default().push(run.id());
                    page += 1;
                }
                if self.all.len() > self.quick.len() / 4 && self.quick.len() < QUICK {
                    let more = (2 * self.quick.len()).max(1 << 8);
                    self.quick = vec![(0, 0); more];
                }
                n
            }
        };
        if let Some(q) = self.place(run).and_then(|p| self.quick.get_mut(p)) {
            *q = (run.id(), number);
        }
        Ok(number)
    }
}

/// What is known of some runs of one program image, each where its hash says.
pub struct Front<T> {
    places: Vec<(u64, T)>,
    epoch: Option<u64>,
}

/// Places of a front.
const PLACES: usize = 1 << 14;

impl<T: Copy + Default> Default for Front<T> {
    fn default() -> Front<T> {
        Front {
            // No run has this number: runs have one instruction at least.
            places: vec![(0, T::default()); PLACES],
            epoch: None,
        }
    }
}

impl<T: Copy + Default> Front<T> {
    /// To be called before the first of some runs. If other code counts for them, all is forgotten and given to `left`.
    pub fn begin(&mut self, e: &Executed, left: impl FnMut(T)) {
        if self.epoch.replace(e.epoch()) != Some(e.epoch()) {
            self.empty(left);
        }
    }

    /// Forgets all, and gives it to `left`.
    pub fn empty(&mut self, mut left: impl FnMut(T)) {
        for place in self.places.iter_mut().filter(|p| p.0 != 0) {
            left(std::mem::take(place).1);
        }
    }

    /// What is known of a run. If nothing is, `find` finds it. It gets what had its place before.
    #[inline(always)]
    pub fn of<E>(
        &mut self,
        run: Run,
        find: impl FnOnce(Option<T>) -> Result<T, E>,
    ) -> Result<&mut T, E> {
        let place = &mut self.places[place_of(run.id(), PLACES).unwrap_or(0)];
        if place.0 != run.id() {
            let old = (place.0 != 0).then_some(place.1);
            *place = (run.id(), find(old)?);
        }
        Ok(&mut place.1)
    }
}
