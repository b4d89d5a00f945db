//! The descriptors of a process, on either side.

use hindsight_timeline::effects::{Effect, Flags, effect};
use std::collections::BTreeMap;

/// What a descriptor leads to: an open file, by number. 0, 1 and 2 are what the program began with.
pub type FileId = u32;

/// The descriptors of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table(BTreeMap<i32, (FileId, bool)>);

impl Table {
    /// Of a program that begins.
    pub fn new() -> Table {
        Table((0..3).map(|n| (n, (n as FileId, false))).collect())
    }

    /// What a descriptor leads to.
    pub fn find(&self, fd: i32) -> Option<FileId> {
        self.0.get(&fd).map(|f| f.0)
    }

    /// Notes what a descriptor leads to, and whether the next program does not get it.
    pub fn put(&mut self, fd: i32, file: FileId, on_exec: bool) {
        self.0.insert(fd, (file, on_exec));
    }

    /// Notes descriptors that came in a message. New open files take their numbers from `fresh`, and are returned.
    pub fn receive(
        &mut self,
        fds: impl Iterator<Item = i32>,
        on_exec: bool,
        fresh: &mut dyn FnMut() -> FileId,
    ) -> Vec<FileId> {
        let one = |fd| {
            let file = fresh();
            self.put(fd, file, on_exec);
            file
        };
        fds.map(one).collect()
    }

    /// What the next program gets.
    pub fn exec(&mut self) {
        self.0.retain(|_, f| !f.1);
    }

    /// What a call does to descriptors. `pair` are two that it made and told in memory. New open files take their numbers from
    /// `fresh`; those that the call has made are returned.
    pub fn apply(
        &mut self,
        number: u64,
        args: &[u64; 6],
        result: Option<u64>,
        pair: Option<[i32; 2]>,
        fresh: &mut dyn FnMut() -> FileId,
    ) -> Vec<FileId> {
        let mut make = |table: &mut Table, fd, on_exec| {
            let file = fresh();
            table.put(fd, file, on_exec);
            vec![file]
        };
        match effect(number, args, result) {
            Effect::Open { fd, flags, .. } => {
                let close = matches!(flags, Flags::Are(f) if f as i32 & libc::O_CLOEXEC != 0);
                make(self, fd, close)
            }
            Effect::Made { fd, on_exec, .. } | Effect::Accept { fd, on_exec, .. } => {
                make(self, fd, on_exec)
            }
            Effect::Pair { on_exec, .. } => {
                let mut out = Vec::new();
                for fd in pair.into_iter().flatten() {
                    out.extend(make(self, fd, on_exec));
                }
                out
            }
            Effect::Copy { from, to, on_exec } => {
                match self.find(from) {
                    Some(file) => self.put(to, file, on_exec),
                    None => drop(self.0.remove(&to)),
                }
                Vec::new()
            }
            Effect::Close { first, last } => {
                self.0.retain(|fd, _| !(first..=last).contains(fd));
                Vec::new()
            }
            Effect::OnExec { first, last, close } => {
                if first <= last {
                    self.0
                        .range_mut(first..=last)
                        .for_each(|(_, f)| f.1 = close);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::*;

    #[test]
    fn descriptors_are_followed() {
        let mut table = Table::new();
        let mut next = 10;
        let mut fresh = || {
            next += 1;
            next
        };
        let mut apply = |t: &mut Table, nr: i64, a: [u64; 6], r: u64, pair| {
            t.apply(nr as u64, &a, Some(r), pair, &mut fresh)
        };
        let open = [0, 0, O_CLOEXEC as u64, 0, 0, 0];
        assert_eq!(apply(&mut table, SYS_openat, open, 3, None), [11]);
        assert!(apply(&mut table, SYS_dup2, [3, 1, 0, 0, 0, 0], 1, None).is_empty());
        let made = apply(&mut table, SYS_pipe2, [0; 6], 0, Some([4, 5]));
        assert_eq!(made, [12, 13]);
        assert_eq!(table.find(1), Some(11));
        apply(&mut table, SYS_close, [4, 0, 0, 0, 0, 0], 0, None);
        assert_eq!((table.find(4), table.find(5)), (None, Some(13)));
        table.exec();
        assert_eq!((table.find(3), table.find(1)), (None, Some(11)));
    }
}
