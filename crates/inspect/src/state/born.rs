//! Which threads a process had made: those that live, those that have ended, and those that have not begun.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::ThreadState;
use super::history::History;
use super::made::Made;
use super::past::{Did, Past};
use super::threads::Ended;
use crate::Result;
use hindsight_syscalls::abi::*;
use hindsight_timeline::{Cursor, Position, Thread, ThreadId};
use std::collections::BTreeSet;

/// What the threads of a process that is made again share.
const SHARED: u64 = (CLONE_FS | CLONE_FILES) as u64;

impl History {
    /// What its making says of a living thread. Says why the process cannot be made again with it.
    pub fn making(
        &self,
        cursor: &mut Cursor,
        id: ThreadId,
        to: &mut ThreadState,
        refused: &mut Vec<String>,
    ) -> Result<()> {
        to.clears = self.clears(cursor, id)?;
        if to.tid == self.pid {
            return Ok(());
        }
        let made = match self.maker(id, self.last()) {
            Some(m) => Made::by(cursor, &m)?,
            None => None,
        };
        match made {
            // Also where the call has not returned: it would begin again, and make another one.
            None => refused.push(format!(
                "thread {} has begun, and the call that made it has not returned or is not known",
                to.tid
            )),
            Some(m) if m.flags & SHARED != SHARED => refused.push(format!(
                "thread {} has descriptors or a working directory of its own (`clone` without `CLONE_FILES` or `CLONE_FS`)",
                to.tid
            )),
            Some(m) => to.stack = m.stack,
        }
        Ok(())
    }

    /// What threads have left that are not there: they ended before `here`, or have not begun. `live`: those that are there.
    pub fn not_there(
        &self,
        cursor: &mut Cursor,
        live: &BTreeSet<ThreadId>,
        here: Position,
        refused: &mut Vec<String>,
    ) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        let mut own: Vec<&Thread> = self.of_process().collect();
        own.sort_by_key(|t| t.first);
        // A thread that is made later may get the id of an earlier one, but not its maker.
        let mut makers = BTreeSet::new();
        for t in own {
            let maker = self.maker(t.id, self.last());
            let Some(maker) = maker.filter(|m| makers.insert((m.thread, m.count))) else {
                continue;
            };
            if live.contains(&t.id) {
                continue;
            }
            if t.first > here {
                refused.push(format!(
                    "thread {} was made and has not begun, which it does at {}",
                    t.tid, t.first
                ));
                continue;
            }
            ended.push(Ended {
                thread: t.id,
                last: t.last,
                clears: self.clears(cursor, t.id)?,
                stack: Made::by(cursor, &maker)?.and_then(|m| m.stack),
            });
        }
        let of_image = self.generations.last().map_or(&[][..], |g| &g.1);
        for p in of_image {
            if makers.contains(&(p.thread, p.count)) {
                continue;
            }
            let (made, tid) = self.made(cursor, p)?;
            if made == Some(true) {
                let why = "was made and never begins in the recording";
                refused.push(format!("thread {tid} {why}"));
            }
        }
        let apart = |p: &Past| {
            matches!(p.what, Did::Call { number: __NR_unshare, args, result: Some(_) }
                if args[0] & SHARED != 0)
        };
        if live.len() > 1 && self.since_loaded(self.last()).any(apart) {
            let why = "a thread may have descriptors or a working directory of its own (`unshare`)";
            refused.push(why.into());
        }
        Ok(ended)
    }

    /// Whether a call made a thread, and the id of what it made. `None`: that is not known, or it made nothing.
    pub fn made(&self, cursor: &mut Cursor, p: &Past) -> Result<(Option<bool>, u64)> {
        match p.what {
            Did::Call {
                number: __NR_clone | __NR_clone3,
                result: Some(id),
                ..
            } if id != 0 => {
                let made = Made::by(cursor, p)?;
                Ok((made.map(|m| m.flags & CLONE_THREAD as u64 != 0), id))
            }
            _ => Ok((None, 0)),
        }
    }

    /// The word that the kernel clears when a thread ends; 0: none.
    fn clears(&self, cursor: &mut Cursor, id: ThreadId) -> Result<u64> {
        let chosen = self.last_arguments(id, __NR_set_tid_address);
        if let Some(chosen) = chosen {
            return Ok(chosen[0]);
        }
        let made = match self.maker(id, self.last()) {
            Some(m) => Made::by(cursor, &m)?,
            None => None,
        };
        Ok(made.map_or(0, |m| m.clears))
    }
}
