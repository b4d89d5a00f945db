//! Whether folders are still found under the paths by which the program knows them.

use hindsight_timeline::Named;
use std::collections::HashSet;

/// More names are not kept.
const MOST: usize = 1 << 20;

/// More bytes of them are not told.
const MOST_TOLD: usize = 1 << 20;

/// The names that files and folders lost or got. A path of which they are a part may lead elsewhere, and so may one that goes
/// there through links: who follows these looks at the names again.
#[derive(Default)]
pub(super) struct Renamed {
    names: HashSet<Vec<u8>>,
    /// Names changed that are not known.
    unknown: bool,
}

impl Renamed {
    pub fn note(&mut self, n: &Named) {
        let new = n.gives_name.then_some(&n.to);
        for path in [&n.path].into_iter().chain(new) {
            match path.as_deref().and_then(last) {
                Some(name) if self.names.len() < MOST => drop(self.names.insert(name.to_vec())),
                _ => self.unknown = true,
            }
        }
    }

    /// All of the names, in order. `None`: they are not known, or too long to be told.
    pub fn all(&self) -> Option<Vec<Vec<u8>>> {
        let bytes: usize = self.names.iter().map(|n| n.len() + 1).sum();
        let mut all: Vec<Vec<u8>> = match !self.unknown && bytes <= MOST_TOLD {
            true => self.names.iter().cloned().collect(),
            false => return None,
        };
        all.sort();
        Some(all)
    }

    /// Whether this path may lead elsewhere than before.
    pub fn may_move(&self, path: &[u8]) -> bool {
        let mut parts = path.split(|b| *b == b'/');
        self.unknown || parts.any(|part| self.names.contains(part))
    }
}

/// The last part of a path.
fn last(path: &[u8]) -> Option<&[u8]> {
    let parts = path.rsplit(|b| *b == b'/');
    let name = parts.into_iter().find(|part| !part.is_empty())?;
    (name != b"." && name != b"..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_moves_with_each_of_its_parts() {
        assert_eq!(last(b"../place//"), Some(&b"place"[..]));
        assert_eq!((last(b"a/.."), last(b"/"), last(b".")), (None, None, None));
        let mut renamed = Renamed::default();
        renamed.names.insert(b"place".to_vec());
        assert!(renamed.may_move(b"/home/place/in"));
        assert!(!renamed.may_move(b"/home/places"));
        renamed.unknown = true;
        assert!(renamed.may_move(b"/home"));
    }
}
