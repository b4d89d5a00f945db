//! Lists what is in a recording: processes, threads, mappings.

use super::Recording;
use super::maps::{self, Change};
use crate::base::sync::lock;
use crate::scan::Scan;
use crate::{Mapping, Module, Position, Process, Result, Thread, ThreadId};
use std::sync::Arc;

impl Recording {
    /// All program images, parents before children.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let scans = self.scans()?;
        let mut out = Vec::new();
        for i in self.trace.images() {
            let threads: Vec<ThreadId> = (i.threads.iter().copied().map(ThreadId))
                .filter(|t| scans.contains_key(t))
                .collect();
            let ends = |t: &ThreadId| self.bounds(*t, &scans[t]);
            out.push(Process {
                image: i.number,
                parent: i.parent,
                by_exec: i.by_exec,
                is_whole: self.has_all_of(i.number)?,
                pid: i.pid,
                command: self.trace.command(i.number),
                begin: threads.iter().map(|t| ends(t).0).min().unwrap_or_default(),
                end: threads.iter().map(|t| ends(t).1).max().unwrap_or_default(),
                threads,
            });
        }
        Ok(out)
    }

    /// All threads of all processes, in the order in which they were first seen.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        let scans = self.scans()?;
        Ok(scans.iter().map(|(t, s)| self.describe(*t, s)).collect())
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<Thread> {
        Ok(self.describe(id, self.scan(id)?))
    }

    fn describe(&self, id: ThreadId, scan: &Scan) -> Thread {
        let info = self.trace.stream_info(id.0).cloned().unwrap_or_default();
        let command = self.trace.command(info.image);
        let program = command.split(' ').next().unwrap_or("");
        let name = program.rsplit('/').next().unwrap_or("");
        let (first, last) = self.bounds(id, scan);
        Thread {
            id,
            tid: info.tid,
            pid: info.pid,
            image: info.image,
            // The kernel cuts names to this length.
            name: name.chars().take(15).collect(),
            first,
            last,
            from: scan.from,
            to: scan.to,
            ending: self.ending(id, scan),
        }
    }

    /// The files that a program image had mapped, in the order of their first mappings.
    pub fn modules(&self, image: u32) -> Result<Vec<Module>> {
        Ok(maps::modules(&self.trace, &self.changes(image)?))
    }

    /// What a program image has mapped at a position, in order of address.
    pub fn mappings(&self, image: u32, at: Position) -> Result<Vec<Mapping>> {
        Ok(maps::at(&self.changes(image)?, Some(at)))
    }

    /// How often mappings have changed up to a position.
    pub fn mapping_changes(&self, image: u32, at: Position) -> Result<usize> {
        Ok(maps::made(&self.changes(image)?, at))
    }

    pub fn changes(&self, image: u32) -> Result<Arc<Vec<Change>>> {
        let mut all = lock(&self.changes);
        if let Some(c) = all.get(&image) {
            return Ok(Arc::clone(c));
        }
        let scans = self.scans()?;
        let mine: Vec<(ThreadId, &Scan)> = (scans.iter())
            .filter(|(t, _)| self.image(**t) == image)
            .map(|(t, s)| (*t, s))
            .collect();
        let position = |t: ThreadId, n: u64| self.position_in(t, &scans[&t], n);
        let new = Arc::new(maps::changes(&self.trace, image, &mine, &position)?);
        all.insert(image, Arc::clone(&new));
        Ok(new)
    }
}
