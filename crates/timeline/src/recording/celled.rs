//! Which memory of a program shares cells of the window with other memory.

use super::maps::{Change, What, at, made};
use crate::{Mapping, Position};

/// Memory with cells of the window: what was mapped at the beginning, and later up to an instant. What the recorder has
/// moved before the program ran is only where it came to.
pub struct Celled {
    /// First addresses and lengths.
    all: Vec<(u64, u64)>,
}

impl Celled {
    /// `until`: `None` is the end.
    pub fn at(changes: &[Change], until: Option<Position>) -> Celled {
        let end = until.map_or(changes.len(), |p| made(changes, p));
        let begin = changes[..end].partition_point(|c| c.when.is_none());
        let mut all = Vec::new();
        // Memory that nobody can access has no values.
        let mut add = |m: &Mapping| {
            if m.prot != 0 {
                all.push((m.start, m.end - m.start));
            }
        };
        at(&changes[..begin], None).iter().for_each(&mut add);
        for c in &changes[begin..end] {
            if let What::Map(m) = &c.what {
                add(m);
            }
        }
        Celled { all }
    }

    /// Whether any of it shares cells with these bytes. It does if its addresses differ from theirs by a multiple of
    /// 2^32.
    pub fn aliases(&self, address: u64, len: u64) -> bool {
        self.all.iter().any(|(start, size)| {
            let ahead = address.wrapping_sub(*start);
            let cells = ahead as u32 as u64;
            let same = ahead < *size || start.wrapping_sub(address) < len;
            let shares = cells < *size || (1 << 32) - cells < len;
            shares && (!same || *size > 1 << 32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(when: Option<Position>, start: u64, end: u64) -> Change {
        Change {
            when,
            what: What::Map(Mapping {
                start,
                end,
                prot: 3,
                flags: 2,
                offset: 0,
                path: String::new(),
            }),
        }
    }

    #[test]
    fn finds_what_shares_cells() {
        let list = [
            map(None, 0x1_0000_1000, 0x1_0000_3000),
            map(None, 0x5000, 0x6000),
        ];
        let aliased = |at, len| Celled::at(&list, None).aliases(at, len);
        assert!(!aliased(0x1_0000_1000, 0x2000));
        assert!(!aliased(0x5000, 8));
        assert!(aliased(0x1000, 8));
        assert!(aliased(0xff8, 9));
        assert!(!aliased(0xff8, 8));
        assert!(aliased(0x7_0000_5ff8, 8));
        assert!(aliased(0x4_ffff_ffff, 0x1002));
    }

    #[test]
    fn only_what_there_was_shares_cells() {
        let [early, late] = [1, 9].map(|offset| Position { segment: 0, offset });
        let list = [
            map(None, 0x1_0000_1000, 0x1_0000_3000),
            Change {
                when: None,
                what: What::Unmap(0x1_0000_1000, 0x1_0000_2000),
            },
            map(Some(late), 0x1_0000_5000, 0x1_0000_6000),
        ];
        let aliased = |until, at| Celled::at(&list, until).aliases(at, 8);
        assert!(!aliased(None, 0x1000));
        assert!(aliased(Some(early), 0x2000));
        assert!(!aliased(Some(early), 0x5000));
        assert!(aliased(Some(late), 0x5000) && aliased(None, 0x5000));
    }
}
