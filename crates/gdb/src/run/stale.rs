//! Watched variables that a seek has changed.
//!
//! At a watchpoint gdb compares the variable with the value that it read last. Behind a seek, that value may be an old
//! one. Then gdb would pass over a write that restores the old value. So it hears of the watchpoint before anything is
//! executed, and reads the variable.

use crate::Result;
use crate::state::session::Session;
use crate::state::stops::LARGEST;
use crate::state::told::{Told, kind};
use hindsight_packets::Event;
use hindsight_timeline::{Watch, Watchpoint};

impl Session {
    /// The cursor is about to move without gdb's knowledge.
    pub(crate) fn leaves_unseen(&mut self) {
        let here = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        self.inferior.seen.get_or_insert(here);
    }

    /// A watched variable that gdb must read before it goes on.
    pub(crate) fn unseen(&mut self) -> Result<Option<Told>> {
        let seen = self.inferior.seen.take();
        if seen.is_some() {
            self.inferior.stale.clear();
        }
        if let Some((thread, count)) = seen
            && self.features.execs
            && self.timeline.thread(thread)?.image == self.inferior.image
        {
            let compared = |w: &&Watchpoint| w.watch == Watch::Write && w.len <= LARGEST;
            let watches: Vec<_> = self.inferior.watches.iter().filter(compared).collect();
            if watches.is_empty() {
                return Ok(None);
            }
            let places: Vec<_> = watches.iter().map(|w| (w.address, w.len)).collect();
            let mut before = self.timeline.cursor()?;
            before.seek_count(thread, count)?;
            for (address, len) in places {
                let then =
                    before.cancellable(&self.cancel, |c| c.known_memory(address, len as usize))?;
                let then = then.prefix();
                // What is not known may have been completed when gdb read it, and may be completed here in another way.
                let completed = self.carrying.shown && (then.len() as u64) < len;
                if completed || then != self.read(address, len as usize)? {
                    self.inferior.stale.push((address, len));
                }
            }
        }
        // gdb sets watchpoints anew for each run, so one may be gone.
        while let Some(place) = self.inferior.stale.pop() {
            let is = |w: &&Watchpoint| (w.address, w.len) == place && w.watch == Watch::Write;
            if let Some(w) = self.inferior.watches.iter().find(is) {
                return Ok(Some(self.told(Event::Watchpoint {
                    kind: kind(w.watch),
                    address: w.address,
                })));
            }
        }
        Ok(None)
    }
}
