//! Writes that leave a watched variable as it was. gdb goes on at these by itself, after it has asked for all
//! registers and threads; where a program writes the same value a million times, that takes minutes. So it is not
//! told of them.
//!
//! This leaves out nothing that gdb would show. What gdb compares are the values at its last stop and now; since no
//! write in between is left out unless it left the value as it was, the value before each write is that of the last
//! stop. It is the value in the total order of positions: where threads race, as everywhere else, other orders are
//! possible, and where a value is not known gdb is told.

use crate::Result;
use crate::session::Session;
use hindsight_timeline::{Direction, Reason, Stop, Watch, Watchpoint};
use std::collections::BTreeMap;

/// Bytes of the largest variable whose value is compared here.
const LARGEST: u64 = 64;

/// Values by number of the watchpoint, where they are known.
pub type Values = BTreeMap<u64, Vec<u8>>;

impl Session {
    /// What the watched variables hold where a run begins.
    pub fn values(&mut self) -> Result<Values> {
        let mut out = Values::new();
        if !self.wanted.execs || self.every_write {
            return Ok(out);
        }
        let here = self.inferior.cursor.position()?;
        for w in self.inferior.watches.clone() {
            if w.watch != Watch::Write || w.len > LARGEST {
                continue;
            }
            let known = match &self.inferior.left {
                Some((at, id, value)) if (*at, *id) == (here, w.id) => Some(value.clone()),
                _ => self.value(&w)?,
            };
            known.map(|v| out.insert(w.id, v));
        }
        Ok(out)
    }

    /// Whether a stop is at a write that left its variable, and no other watchpoint, as it was. The cursor is at the stop.
    pub fn is_no_change(
        &mut self,
        stop: &Stop,
        direction: Direction,
        values: &mut Values,
    ) -> Result<bool> {
        let Reason::Watchpoint {
            id,
            count,
            address,
            len,
            kernel,
            ..
        } = stop.reason
        else {
            return Ok(false);
        };
        let found = self.inferior.watches.iter().find(|w| w.id == id);
        let Some(w) = found.copied().filter(|w| w.watch == Watch::Write) else {
            return Ok(false);
        };
        if !self.wanted.execs || self.every_write || w.len > LARGEST {
            return Ok(false);
        }
        // Behind an instruction that wrote all of it, and where there is nobody else, the thread knows it.
        let whole = address <= w.address && w.address + w.len <= address.saturating_add(len);
        let own = match direction {
            Direction::Forward => whole && !kernel,
            Direction::Backward => self.is_alone()?,
        };
        let mut now = vec![0; w.len as usize];
        let known = match own && self.inferior.cursor.own_memory(w.address, &mut now)? {
            true => Some(now),
            false => self.value(&w)?,
        };
        let Some(now) = known else {
            values.remove(&id);
            return Ok(false);
        };
        let same = values.get(&id) == Some(&now);
        if same && !self.touches_another(stop, count, &w)? {
            return Ok(true);
        }
        self.inferior.left = Some((stop.position, id, now));
        Ok(false)
    }

    /// What gdb would read.
    fn value(&mut self, w: &Watchpoint) -> Result<Option<Vec<u8>>> {
        let known = self.read(w.address, w.len as usize)?;
        Ok((known.len() as u64 == w.len).then_some(known))
    }

    fn is_alone(&self) -> Result<bool> {
        let image = self.inferior.image;
        let all = self.timeline.threads()?;
        Ok(all.iter().filter(|t| t.image == image).count() == 1)
    }

    /// Whether what stopped there also touched another watchpoint, of which a run tells only one.
    fn touches_another(&mut self, stop: &Stop, count: u64, w: &Watchpoint) -> Result<bool> {
        if self.inferior.watches.len() < 2 {
            return Ok(false);
        }
        let (cursor, watches) = (&mut self.inferior.cursor, &self.inferior.watches);
        let back = cursor.count();
        cursor.seek_count(stop.thread, count)?;
        let accesses = cursor.accesses();
        cursor.seek_count(stop.thread, back)?;
        let accesses = accesses?;
        let mut others = watches.iter().filter(|o| o.id != w.id);
        Ok(others.any(|o| accesses.iter().any(|a| a.touches(o.address, o.len))))
    }
}
