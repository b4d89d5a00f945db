//! What a thread of the recorded process does next.

use super::{FAR, NEAR, Script, Slot};
use crate::plan::class::Class;
use crate::wire::Call;

/// How far a thread has come.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Behind its last call that agreed.
    pub(super) reached: usize,
    /// How many calls of it lie before that.
    pub(super) passed: usize,
    /// How many of them count, without those that ask for the time.
    pub(super) passed_rank: usize,
    /// How many such calls are loaded.
    pub(super) ranks: usize,
    /// Its last call that agreed.
    pub(super) last: Option<usize>,
    /// The last call that counts of those that are loaded.
    pub(super) newest: Option<usize>,
    /// The last one of all.
    pub(super) latest: Option<usize>,
    /// Behind its last call that mapped memory which the program has got, too.
    pub(super) placed: usize,
    /// Its calls that are loaded.
    pub(super) calls: Vec<usize>,
}

impl Lane {
    /// A call agrees: this one, before which so many others of the thread lie, and so many that count.
    pub(super) fn agrees(&mut self, index: usize, nth: usize, rank: usize) {
        self.last = Some(index);
        self.reached = self.reached.max(index + 1);
        self.passed = self.passed.max(nth + 1);
        self.passed_rank = self.passed_rank.max(rank + 1);
    }
}

impl Lane {
    /// From where on calls that map memory are looked for.
    fn places_from(&self) -> usize {
        self.placed.max(self.passed).min(self.calls.len())
    }
}

impl Script {
    /// The next call of a thread, counted or not, behind those that were made.
    fn next_call(&self, lane: u32) -> Option<&Call> {
        let lane = self.lane(lane)?;
        lane.calls.get(lane.passed).map(|i| &self.slots[*i].call)
    }

    /// Whether it is known what a thread does next.
    pub fn is_known(&self, lane: u32) -> bool {
        self.next_call(lane).is_some()
    }

    /// The place, in the order of all threads, of what a thread does next. Behind its last call that is the end.
    pub fn next_of(&self, lane: u32) -> u64 {
        self.next_call(lane).map_or(u64::MAX, |c| c.from)
    }

    /// How many instructions a thread made between the last call that was made and the next one.
    pub fn span(&self, lane: u32) -> u64 {
        let next = self.next_call(lane).map_or(0, |c| c.count);
        let lane = self.lane(lane);
        let before = lane.and_then(|l| l.calls.get(l.passed.checked_sub(1)?));
        next.saturating_sub(before.map_or(0, |i| self.slots[*i].call.count))
    }

    /// Whether the last recorded call of a thread is a read that did not return.
    pub fn ends_in_read(&self, lane: u32) -> bool {
        let last = self.lane(lane).and_then(|l| l.calls.last());
        let read = |s: &Slot| s.class == Class::Read && s.call.result.is_none();
        self.ended && last.is_some_and(|i| read(&self.slots[*i]))
    }

    /// Passes the next recorded call of a thread with this number and second argument, if no call that counts comes before
    /// it. Returns its result. Such a call is not compared: whether a thread has to wait depends on others.
    pub fn take_aside(&mut self, lane: u32, number: u64, how: u64) -> Option<u64> {
        let slots = &self.slots;
        let lane = self.lanes.get_mut(&lane)?;
        let rest = lane.calls.get(lane.passed..)?.iter();
        let near = rest.take_while(|i| !slots[**i].counts || slots[**i].used);
        let is_it = |i: &usize| (slots[*i].call.number, slots[*i].call.args[1]) == (number, how);
        let found = near.copied().find(is_it)?;
        lane.passed = slots[found].nth + 1;
        slots[found].call.result
    }

    /// Whether more calls must be loaded to see where a thread maps memory next.
    pub fn wants_more_of(&self, lane: u32) -> bool {
        let lane = self.lane(lane);
        let loaded = lane.map_or(0, |l| l.calls.len() - l.places_from());
        loaded < NEAR && self.wants_more()
    }

    /// Where a thread got memory by the next call with these arguments that is near.
    pub fn place_of(&mut self, lane: u32, args: &[u64; 6]) -> Option<u64> {
        let slots = &self.slots;
        let lane = self.lanes.get_mut(&lane)?;
        let from = lane.places_from();
        let what = |a: &[u64; 6]| (a[0], a[1], a[2], a[3], a[5]);
        let is_it = |i: &usize| {
            let call = &slots[*i].call;
            call.number as i64 == libc::SYS_mmap && what(&call.args) == what(args)
        };
        let near = lane.calls[from..].iter().take(NEAR);
        let n = near.clone().position(is_it)?;
        let result = slots[lane.calls[from + n]].call.result;
        lane.placed = from + n + 1;
        result.filter(|r| (*r as i64) > 0)
    }

    /// Where the heap of the present program began.
    pub fn heap(&self) -> Option<u64> {
        let asks = |c: &Call| c.number as i64 == libc::SYS_brk && c.args[0] == 0;
        let mut all = self.slots[self.begun..].iter().map(|s| &s.call);
        all.find(|c| asks(c))?.result
    }

    /// Whether a call lies far ahead of the last one of its thread that agreed. Calls that nobody looks for do not count: there may
    /// be many of them in between.
    pub(super) fn is_far(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let passed = self.lane(slot.call.lane).map_or(0, |l| l.passed_rank);
        slot.rank > passed + FAR
    }

    /// Whether a call lies far behind the last one of its thread that agreed.
    pub(super) fn is_long_ago(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let passed = self.lane(slot.call.lane).map_or(0, |l| l.passed_rank);
        slot.rank + FAR < passed
    }
}
