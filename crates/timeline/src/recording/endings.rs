//! How threads ended.

use super::Recording;
use crate::Ending;
use crate::model::contents::ThreadId;
use crate::scan::{Scan, Waited};
use hindsight_trace::meta;
use std::collections::BTreeMap;

impl Recording {
    /// How a thread ended. If it was killed from outside, its own stream does not say. But the recorder saw how the
    /// recorded program ended, and a parent saw how its child ended.
    pub fn ending(&self, t: ThreadId, scan: &Scan) -> Ending {
        if let Some(e) = &scan.ending {
            return e.clone();
        }
        let signal = match self.scans.get() {
            Some(scans) => (self.killed.get_or_init(|| self.find_killed(scans)))
                .get(&t)
                .copied(),
            None => None,
        };
        signal.map_or(Ending::Unknown, Ending::Signal)
    }

    /// Threads that a signal killed, as others tell.
    fn find_killed(&self, scans: &BTreeMap<ThreadId, Scan>) -> BTreeMap<ThreadId, u32> {
        let mut waits: Vec<(ThreadId, Waited)> = Vec::new();
        for (t, scan) in scans {
            waits.extend(scan.waited().map(|w| (*t, w)));
        }
        let open = |t: &ThreadId| scans[t].ending.is_none();
        let open: Vec<ThreadId> = scans.keys().copied().filter(open).collect();
        let killed = |t: &ThreadId| {
            let waited = waits.iter().filter(|w| self.may_tell(scans, w, *t));
            let told = waited.min_by_key(|(by, w)| scans[by].segment(*by, w.count + 1).opens);
            let signal = match told {
                Some((_, w)) => w.signal,
                None => self.as_program(*t),
            };
            signal.map(|n| (*t, n))
        };
        open.iter().filter_map(killed).collect()
    }

    fn pid(&self, t: ThreadId) -> Option<i32> {
        self.trace.stream_info(t.0).map(|i| i.pid)
    }

    /// The signal that ended the recorded program, if the thread belongs to it.
    fn as_program(&self, t: ThreadId) -> Option<u32> {
        let program = (self.trace.streams().into_iter())
            .filter_map(|s| self.trace.stream_info(s))
            .find(|i| i.image == 1 && i.tid != 0)?;
        match self.trace.summary()?.ending.as_ref()? {
            meta::Ending::Signal(n) if self.pid(t) == Some(program.pid) => Some(*n as u32),
            _ => None,
        }
    }

    /// Whether a wait found out about this thread's process. Process ids are used again. Of two processes with the same
    /// one, the first was waited for before the second began.
    fn may_tell(
        &self,
        scans: &BTreeMap<ThreadId, Scan>,
        (by, wait): &(ThreadId, Waited),
        t: ThreadId,
    ) -> bool {
        let Some(pid) = self.pid(t).filter(|p| *p == wait.pid) else {
            return false;
        };
        let waiting = scans[by].segment(*by, wait.count + 1);
        let born = scans[&t].segment(t, scans[&t].from).opens;
        self.pid(*by) == self.maker(t, pid) && waiting.closes.is_none_or(|c| born < c)
    }

    /// The process that created the process of a thread.
    fn maker(&self, t: ThreadId, pid: i32) -> Option<i32> {
        let mut image = self.trace.image(self.image(t))?;
        // A child that still runs in its parent's memory belongs to its parent's image.
        while image.pid == pid {
            image = self.trace.image(image.parent)?;
        }
        Some(image.pid)
    }
}
