//! Files that the process has mapped to read them, and what the kernel said of them.

use super::ProcessState;
use super::files::Files;
use super::names::may_write;

use hindsight_timeline::{Mapped, Result, Timeline};
use std::collections::{BTreeMap, HashSet};

/// The mappings of an instant that are shared and only read, and the openings by which they came.
#[derive(Default)]
pub(super) struct Mappings {
    /// The program images in whose memory they may have been made: the process's own, and those from which it was forked.
    images: HashSet<u32>,
    /// By the first address: one past the last one, the offset in the file, and the number of the opening.
    ranges: BTreeMap<u64, (u64, u64, Option<u64>)>,
}

impl Mappings {
    pub fn new(timeline: &Timeline, image: u32, state: &ProcessState) -> Result<Mappings> {
        let processes = timeline.processes()?;
        let mut images = HashSet::new();
        let mut next = Some(image);
        while let Some(image) = next.filter(|i| images.insert(*i)) {
            let own = processes.iter().find(|p| p.image == image);
            let forked = own.filter(|p| !p.by_exec && p.parent != 0);
            next = forked.map(|p| p.parent);
        }
        let read = |m: &&super::MappedRange| m.shared && m.prot & 2 == 0 && m.name.starts_with('/');
        let ranges = state.mappings.iter().filter(read);
        let ranges = ranges.map(|m| (m.start, (m.end, m.offset, None)));
        Ok(Mappings {
            images,
            ranges: ranges.collect(),
        })
    }

    /// A call mapped a file.
    pub fn note(&mut self, timeline: &Timeline, m: &Mapped) -> Result<()> {
        let end = m.address.saturating_add(m.len);
        if self.ranges.range(m.address..end).next().is_none()
            || !self.images.contains(&timeline.thread(m.thread)?.image)
        {
            return Ok(());
        }
        let reads = m.is_shared() && !may_write(&m.file.what);
        for (start, (_, offset, number)) in self.ranges.range_mut(m.address..end) {
            let fits = m.offset.checked_add(start - m.address) == Some(*offset);
            *number = (reads && fits).then_some(m.file.number);
        }
        Ok(())
    }
}

impl Files<'_> {
    /// Says of the process's mappings what the kernel said of their files.
    pub(super) fn describe(&self, state: &mut ProcessState) {
        for m in &mut state.mappings {
            let number = self.mappings.ranges.get(&m.start).and_then(|r| r.2);
            m.stat = number.and_then(|n| self.stats.get(&n)).copied();
        }
    }
}
