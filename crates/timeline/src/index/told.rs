//! What intervals accessed, until it is sorted by page. A long part of a large program has gigabytes of it, so large ones
//! wait packed.

use super::codec::{LEVEL, Reader, pack, put, unpack};
use super::history::History;
use crate::{Error, Result};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Pages in a group. It is unpacked as a whole, and then has some 150 KiB if all its lines were accessed in whole words.
const GROUP: u32 = 1024;

/// The number of the group that has a page.
pub fn group_of(page: u32) -> u32 {
    page / GROUP
}

/// The pages of a group.
pub fn pages_of(group: u32) -> Range<u32> {
    group * GROUP..group.saturating_add(1).saturating_mul(GROUP)
}

/// What an interval accessed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Plain(Arc<History>),
    Packed(Arc<Packed>),
}

/// A history that takes little memory. It is read by groups.
#[derive(PartialEq, Eq, Debug)]
pub struct Packed {
    /// By the number of the group: how many pages it has, and what [`write`] makes of them, compressed.
    groups: BTreeMap<u32, (u32, Box<[u8]>)>,
    size: usize,
}

impl From<History> for Told {
    fn from(all: History) -> Told {
        Told::Plain(Arc::new(all))
    }
}

impl Told {
    /// The same, packed. Such intervals are not joined later.
    pub fn packed(all: &History) -> Result<Told> {
        let mut groups = BTreeMap::new();
        for group in all.pages().map(group_of).collect::<BTreeSet<u32>>() {
            let pages = pages_of(group);
            let (count, raw) = write(all.between(pages.start, pages.end));
            groups.insert(group, (count, pack(&raw, LEVEL)?.into()));
        }
        Ok(Told::Packed(Arc::new(Packed {
            groups,
            size: all.size(),
        })))
    }

    /// Its approximate size in an index file, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Told::Plain(all) => all.size(),
            Told::Packed(all) => all.size,
        }
    }

    /// What is not packed. Fails if it is.
    pub fn plain(&self) -> Result<&History> {
        match self {
            Told::Plain(all) => Ok(all),
            Told::Packed(_) => Err(Error::Unsupported("a packed interval is joined".into())),
        }
    }

    /// Every `step`th page; approximately.
    pub fn sample(&self, step: usize) -> Vec<u32> {
        match self {
            Told::Plain(all) => all.pages().step_by(step).collect(),
            Told::Packed(all) => {
                let each = all.groups.iter().flat_map(|(group, (count, _))| {
                    std::iter::repeat_n(pages_of(*group).start, *count as usize)
                });
                each.step_by(step).collect()
            }
        }
    }

    /// The groups that have some of these pages.
    pub fn groups(&self, (from, to): (u32, u32)) -> BTreeSet<u32> {
        match self {
            Told::Plain(all) => all.between(from, to).map(|p| group_of(p.0)).collect(),
            Told::Packed(all) if from < to => {
                let some = all.groups.range(group_of(from)..=group_of(to - 1));
                some.map(|g| *g.0).collect()
            }
            Told::Packed(_) => BTreeSet::new(),
        }
    }

    /// A history that has what the interval accessed in a group. It may have more.
    pub fn group(&self, group: u32) -> Result<Cow<'_, History>> {
        match self {
            Told::Plain(all) => Ok(Cow::Borrowed(all)),
            Told::Packed(all) => {
                let Some((count, packed)) = all.groups.get(&group) else {
                    return Ok(Cow::Owned(History::default()));
                };
                let damaged = || Error::Unsupported("an interval in memory does not decode".into());
                let its = read(packed, *count).ok_or_else(damaged)?;
                Ok(Cow::Owned(its))
            }
        }
    }
}

/// Writes pages: first their numbers and the lengths of what is said of each, then what is said. Returns the number of pages too.
fn write<'a>(pages: impl Iterator<Item = (u32, &'a [u8])>) -> (u32, Vec<u8>) {
    let (mut head, mut bytes, mut count) = (Vec::new(), Vec::new(), 0);
    for (page, said) in pages {
        put(&mut head, page as u64);
        put(&mut head, said.len() as u64);
        bytes.extend_from_slice(said);
        count += 1;
    }
    head.extend_from_slice(&bytes);
    (count, head)
}

/// Inverse of [`write`]. `None`: the data is damaged.
fn read(packed: &[u8], count: u32) -> Option<History> {
    let raw = unpack(packed)?;
    let mut r = Reader { b: &raw, at: 0 };
    let mut lengths = Vec::new();
    for _ in 0..count {
        let page = u32::try_from(r.int()?).ok()?;
        lengths.push((page, usize::try_from(r.int()?).ok()?));
    }
    let bytes = r.b.get(r.at..)?;
    History::made(&lengths, bytes)
}

#[cfg(test)]
mod tests {
    use super::super::page_access::PageAccess;
    use super::*;

    fn touched(page: u32) -> PageAccess {
        let mut words = [[0; 2]; 64];
        words[page as usize % 64] = [page as u8 | 1, 1];
        let mut t = PageAccess::new(page, &words);
        t.set_masks(page as usize % 64, [7, page as u64]);
        t
    }

    #[test]
    fn what_is_packed_comes_back_by_groups() {
        let pages = [0, 5, 1023, 1024, 3000, 3001, 0xf_ffff];
        let history: History = pages.iter().map(|p| touched(*p)).collect();
        let packed = Told::packed(&history).unwrap();
        let plain = Told::from(history);
        assert!(packed.plain().is_err() && plain.plain().is_ok());
        assert_eq!(packed.size(), plain.size());
        for range in [(0, u32::MAX), (0, 1024), (1024, 3001), (6, 7), (9, 9)] {
            let mut found = [&packed, &plain].map(|told| {
                let groups = told.groups(range).into_iter();
                groups
                    .flat_map(|g| {
                        let history = told.group(g).unwrap();
                        let its = pages_of(g);
                        let (from, to) = (its.start.max(range.0), its.end.min(range.1));
                        let said = history.between(from, to);
                        said.map(|(p, b)| (p, b.to_vec())).collect::<Vec<_>>()
                    })
                    .collect::<Vec<_>>()
            });
            assert_eq!(found[0], found[1], "{range:?}");
            let inside = |p: &&u32| (range.0..range.1).contains(p);
            assert_eq!(found[1].len(), pages.iter().filter(inside).count());
            found[0].clear();
        }
        assert_eq!(plain.sample(2), [0, 1023, 3000, 0xf_ffff]);
        assert_eq!(packed.sample(2), [0, 0, 2048, pages_of(1023).start]);
    }
}
