//! How large the file may become, depending on why something is added.

use super::file::{Contents, Key};

/// Why something is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// A question made it. Saving is optional.
    Question,
    /// Somebody builds the index. It is to be saved.
    Index,
    /// Somebody builds all of the index. Nothing else has to make room for it, and the file may become larger.
    Rest,
    /// Nobody asked for it. Nothing has to make room for it, and nobody waits for it.
    Background,
}

/// The largest sizes that the file may have, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// With what questions need.
    pub usual: u64,
    /// With what is made ahead since somebody wants all of it. A file that has become larger than usual keeps this limit.
    pub full: u64,
    /// The coarse level is saved however large it is: without it, each question would make it again. All else has at least so
    /// many bytes beside it. `None`: somebody has chosen the limits, and they hold for everything.
    pub beside: Option<u64>,
}

impl Limits {
    /// The largest size of a file that has nothing but this record.
    pub(super) fn alone(&self, key: Key) -> u64 {
        match (key, self.beside) {
            (Key::Coarse(..), Some(_)) => u64::MAX,
            _ => self.usual,
        }
    }

    /// The largest size of a file with these contents once a record is added.
    pub(super) fn of(&self, why: For, key: Key, contents: &Contents) -> u64 {
        let usual = self.alone(key).max(self.least(contents));
        match why == For::Rest || contents.live() > usual {
            true => self.full.max(usual),
            false => usual,
        }
    }

    /// The largest size with what is made for the rest.
    pub(super) fn full(&self, contents: &Contents) -> u64 {
        self.full.max(self.least(contents))
    }

    /// The size that a file with these contents may have at any rate.
    fn least(&self, contents: &Contents) -> u64 {
        let beside = |b: u64| contents.coarse().saturating_add(b);
        self.beside.map_or(0, beside)
    }
}
