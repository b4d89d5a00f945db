//! All threads of a recording in their total order, and what a search in it must find.

use super::log::{Flow, Log, One, bit};
use hindsight_timeline::{Direction, Position, Register, Scope, Watch};
use std::collections::{HashMap, HashSet};

/// An instant of a thread: its stream, and the instructions completed.
pub type ThreadPosition = (u32, u64);

/// What to stop at, as far as a log knows it.
#[derive(Clone, Default, Debug)]
pub struct StopSet {
    /// Addresses, and the lowest bit that rax must have, if that matters.
    pub breaks: Vec<(u64, Option<u64>)>,
    pub watches: Vec<(u64, u64, Watch)>,
    pub registers: Vec<Register>,
    pub signals: bool,
    pub syscalls: Option<Vec<u64>>,
    pub threads: bool,
    pub returns: Vec<u64>,
    /// Other instants to stop at.
    pub places: Vec<ThreadPosition>,
}

/// A recording.
pub struct World {
    pub logs: Vec<Log>,
    /// Segments with instructions, in the total order: order number, log, first instruction, end.
    pub segments: Vec<(u64, usize, u64, u64)>,
}

impl World {
    pub fn new(logs: Vec<Log>) -> World {
        let mut segments = Vec::new();
        for (i, log) in logs.iter().enumerate() {
            let ends = log.numbers.iter().map(|n| n.1).chain([log.to()]);
            let begins = [(0, log.from)]
                .into_iter()
                .chain(log.numbers.iter().copied());
            for ((number, from), to) in begins.zip(ends) {
                if from < to {
                    segments.push((number, i, from, to));
                }
            }
        }
        segments.sort_unstable();
        World { logs, segments }
    }

    /// The log of a thread.
    pub fn of(&self, thread: u32) -> &Log {
        let found = self.logs.iter().find(|l| l.thread == thread);
        found.unwrap_or(&self.logs[0])
    }

    /// The logs of a scope.
    pub fn scope(&self, home: u32, scope: Scope) -> impl Iterator<Item = &Log> {
        let image = self.of(home).image;
        self.logs.iter().filter(move |l| match scope {
            Scope::Thread => l.thread == home,
            Scope::Process => l.image == image,
            Scope::All => true,
        })
    }

    /// The instant one step further or back. `None` at the end.
    pub fn step(
        &self,
        (home, count): ThreadPosition,
        direction: Direction,
        scope: Scope,
    ) -> Option<ThreadPosition> {
        let log = self.of(home);
        if scope == Scope::Thread {
            return match direction {
                Direction::Forward => (count < log.to()).then_some((home, count + 1)),
                Direction::Backward => (count > log.from).then(|| (home, count - 1)),
            };
        }
        let inside = |s: &&(u64, usize, u64, u64)| {
            self.scope(home, scope)
                .any(|l| std::ptr::eq(l, &self.logs[s.1]))
        };
        let here = log.position(count);
        match direction {
            Direction::Forward => {
                let mine = self
                    .segments
                    .iter()
                    .find(|s| self.logs[s.1].thread == home && s.2 <= count && count < s.3);
                if let Some(s) = mine
                    && count + 1 < s.3
                {
                    return Some((home, count + 1));
                }
                let next = self
                    .segments
                    .iter()
                    .filter(inside)
                    .find(|s| s.0 > here.segment);
                match next {
                    Some(s) => Some((self.logs[s.1].thread, s.2)),
                    None => (count < log.to()).then_some((home, count + 1)),
                }
            }
            Direction::Backward => {
                if here.offset > 0 {
                    return Some((home, count - 1));
                }
                let before = self
                    .segments
                    .iter()
                    .filter(inside)
                    .rfind(|s| s.0 < here.segment);
                before.map(|s| (self.logs[s.1].thread, s.3 - 1))
            }
        }
    }

    /// The next or previous stop. `None` if there is none.
    pub fn next(
        &self,
        (home, count): ThreadPosition,
        direction: Direction,
        scope: Scope,
        wanted: &StopSet,
    ) -> Option<ThreadPosition> {
        let here = self.of(home).position(count);
        let mut best: Option<(Position, ThreadPosition)> = None;
        for log in self.scope(home, scope) {
            let found = match direction {
                Direction::Forward => log.first(
                    wanted,
                    |n| match log.thread == home {
                        true => n > count,
                        false => log.position(n) > here,
                    },
                    (log.thread == home) as u64,
                ),
                Direction::Backward => log.last(wanted, |n| match log.thread == home {
                    true => n < count,
                    false => log.position(n) < here,
                }),
            };
            let Some(n) = found else { continue };
            let p = log.position(n);
            let better = best.is_none_or(|b| match direction {
                Direction::Forward => p < b.0,
                Direction::Backward => p > b.0,
            });
            if better {
                best = Some((p, (log.thread, n)));
            }
        }
        best.map(|b| b.1)
    }

    /// Where a run ends that meets no stop.
    pub fn end(&self, home: u32, direction: Direction, scope: Scope) -> ThreadPosition {
        let ends = self.scope(home, scope).map(|l| match direction {
            Direction::Forward => (l.position(l.to()), (l.thread, l.to())),
            Direction::Backward => (l.position(l.from), (l.thread, l.from)),
        });
        let end = match direction {
            Direction::Forward => ends.max(),
            Direction::Backward => ends.min(),
        };
        end.map_or((home, 0), |e| e.1)
    }
}

impl Log {
    /// The first instant, among those for which `counts` is true, at which something stops a run forwards.
    /// The effects of the `back` instructions before them count, too.
    fn first(&self, wanted: &StopSet, counts: impl Fn(u64) -> bool, back: u64) -> Option<u64> {
        // The instants that count are the last ones.
        let (mut lo, mut hi) = (self.from, self.to() + 1);
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            match counts(middle) {
                true => hi = middle,
                false => lo = middle + 1,
            }
        }
        let mut found = self.instants(wanted, lo, self.to() + 1, true);
        // An effect is seen behind its instruction.
        let from = lo.saturating_sub(back).max(self.from);
        found = nearer(
            found,
            self.effects(wanted, from, self.to(), true).map(|n| n + 1),
            true,
        );
        found.filter(|n| *n >= lo)
    }

    fn last(&self, wanted: &StopSet, counts: impl Fn(u64) -> bool) -> Option<u64> {
        let (mut lo, mut hi) = (self.from, self.to() + 1);
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            match counts(middle) {
                true => lo = middle + 1,
                false => hi = middle,
            }
        }
        let found = self.instants(wanted, self.from, lo, false);
        nearer(
            found,
            self.effects(wanted, self.from, lo.min(self.to()), false),
            false,
        )
    }

    /// The first or last instant in `lo..hi` at which something other than an effect stops.
    fn instants(&self, wanted: &StopSet, lo: u64, hi: u64, first: bool) -> Option<u64> {
        let mut best = None;
        let mut offer = |n: u64| {
            if (lo..hi).contains(&n) {
                best = nearer(best, Some(n), first);
            }
        };
        if wanted.threads {
            offer(self.from);
            offer(self.to());
        }
        if wanted.signals {
            self.signals.iter().for_each(|s| offer(s.0));
        }
        if let Some(list) = &wanted.syscalls {
            for (at, nr) in &self.calls {
                if list.is_empty() || list.contains(nr) {
                    offer(*at);
                    offer(at + 1);
                }
            }
        }
        let mine = wanted.places.iter().filter(|p| p.0 == self.thread);
        mine.for_each(|p| offer(p.1));
        for function in &wanted.returns {
            let calls = self.calls_of(*function).unwrap_or_default();
            calls.iter().filter_map(|c| c.1).for_each(&mut offer);
        }
        if !wanted.breaks.is_empty() {
            for (at, pc, ..) in &self.entered {
                // There rax is the handler's argument. Only breakpoints without a condition are asked for.
                if wanted.breaks.iter().any(|b| b.0 == *pc && b.1.is_none()) {
                    offer(*at);
                }
            }
            let meets = |n: &u64| {
                let i = (*n - self.from) as usize;
                let holds = |b: &(u64, Option<u64>)| {
                    b.0 == self.rip[i] && b.1.is_none_or(|p| self.rax[i] & 1 == p)
                };
                wanted.breaks.iter().any(holds)
            };
            let mut range = lo..hi.min(self.to());
            let found = if first {
                range.find(meets)
            } else {
                range.rfind(meets)
            };
            best = nearer(best, found, first);
        }
        best
    }

    /// The first or last instruction in `lo..hi` whose effect stops.
    fn effects(&self, wanted: &StopSet, lo: u64, hi: u64, first: bool) -> Option<u64> {
        let mut best = None;
        for (address, len, watch) in &wanted.watches {
            let found = self.accessed(*address, *len, *watch, lo, hi, first);
            best = nearer(best, found, first);
        }
        let bits = wanted.registers.iter().fold(0, |m, r| m | bit(*r));
        if bits != 0 && lo < hi {
            let range = (lo - self.from) as usize..(hi - self.from) as usize;
            let list = &self.changed[range];
            let found = match first {
                true => list.iter().position(|c| c & bits != 0),
                false => list.iter().rposition(|c| c & bits != 0),
            };
            best = nearer(best, found.map(|i| lo + i as u64), first);
        }
        best
    }

    /// The first or last instruction in `lo..hi` that accesses these bytes, or at which the kernel writes
    /// them.
    pub fn accessed(
        &self,
        address: u64,
        len: u64,
        watch: Watch,
        lo: u64,
        hi: u64,
        first: bool,
    ) -> Option<u64> {
        let fits = |a: &&&One| match watch {
            Watch::Read => a.read,
            Watch::Write => a.write,
            Watch::Access => true,
        };
        let all = self.touching(address, len);
        let within = |n: &u64| (lo..hi).contains(n);
        let mut own = all
            .iter()
            .filter(fits)
            .map(|a| self.from + a.at as u64)
            .filter(within);
        let found = if first { own.next() } else { own.next_back() };
        let touches = |k: &&super::log::Said| {
            watch != Watch::Read
                && k.len > 0
                && k.address < address.saturating_add(len)
                && address < k.address.saturating_add(k.len)
        };
        let mut kernel = self
            .kernel
            .iter()
            .filter(touches)
            .map(|k| k.at)
            .filter(within);
        let other = if first {
            kernel.next()
        } else {
            kernel.next_back()
        };
        nearer(found, other, first)
    }

    /// The calls of a function, and where they return. `None` if the thread did not write a return address
    /// itself: the kernel calls handlers.
    pub fn calls_of(&self, function: u64) -> Option<Vec<(u64, Option<u64>)>> {
        let mut out: Vec<(u64, Option<u64>)> = Vec::new();
        // By stack pointer: the calls that may not have returned.
        let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
        let hits = (0..self.instructions()).filter(|i| self.rip[*i as usize] == function);
        for i in hits.map(|i| i as usize) {
            let sp = self.rsp[i];
            let to = self.word_at(sp, self.from + i as u64)?;
            let end = (i + 1..self.rip.len())
                .find(|j| self.rip[*j] == to && self.rsp[*j] == sp.wrapping_add(8));
            let end = end.map(|j| self.from + j as u64);
            let here = open.entry(sp).or_default();
            if i > 0 && matches!(self.flow[i - 1], Flow::Call(_)) {
                // A new call at the same stack pointer: the earlier call was left without a return.
                for left in here.drain(..) {
                    let one: &mut (u64, Option<u64>) = &mut out[left];
                    one.1 = one.1.filter(|end| *end <= self.from + i as u64);
                }
            }
            here.push(out.len());
            out.push((self.from + i as u64, end));
        }
        Some(out)
    }

    /// A word of the stack before an instruction, as the thread's own accesses show it.
    fn word_at(&self, address: u64, before: u64) -> Option<u64> {
        let list = self.touching(address, 8);
        let a = list.iter().rfind(|a| self.from + (a.at as u64) < before)?;
        let bytes: Option<Vec<u8>> = (0..8)
            .map(
                |k| match a.address <= address + k && address + k < a.address + a.len {
                    true => self.value(a, address + k),
                    false => None,
                },
            )
            .collect();
        Some(u64::from_le_bytes(bytes?.try_into().ok()?))
    }

    /// Where a step over ends, forwards: at the latest at the thread's end.
    pub fn over(&self, count: u64) -> u64 {
        let i = (count - self.from) as usize;
        if count == self.to() {
            return count;
        }
        let Flow::Call(n) = self.flow[i] else {
            return count + 1;
        };
        let next = self.done[i].0.wrapping_add(n as u64);
        let found = (i + 1..self.instructions() as usize).find(|j| {
            [(self.rip[*j], self.rsp[*j]), self.done[*j]]
                .iter()
                .any(|(rip, rsp)| *rip == next && *rsp >= self.done[i].1)
        });
        found.map_or(self.to(), |j| self.from + j as u64)
    }

    /// Where a step out ends, forwards.
    pub fn out(&self, count: u64) -> u64 {
        let floor = self.rsp[(count - self.from) as usize];
        let mut at = count;
        while at < self.to() {
            let i = (at - self.from) as usize;
            let next = self.over(at);
            if self.flow[i] == Flow::Return && self.done[i].1 >= floor {
                return next;
            }
            if next == self.to() && matches!(self.flow[i], Flow::Call(_)) {
                return self.out_of_left(count, floor);
            }
            at = next;
        }
        self.to()
    }

    /// The same for a function that is left without its own return: behind the first return to an address
    /// that was on the stack before.
    fn out_of_left(&self, count: u64, floor: u64) -> u64 {
        let mut pushed = HashSet::new();
        for i in (count - self.from) as usize..self.instructions() as usize {
            let sp = self.done[i].1;
            match self.flow[i] {
                Flow::Call(_) => {
                    pushed.insert(sp.wrapping_sub(8));
                }
                Flow::Return if !pushed.remove(&sp) && sp >= floor => {
                    // A stack pointer far above belongs to another stack.
                    return match sp - floor < 1 << 20 {
                        true => self.from + i as u64 + 1,
                        false => self.to(),
                    };
                }
                _ => {}
            }
        }
        self.to()
    }
}

fn nearer(a: Option<u64>, b: Option<u64>, first: bool) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if first { a.min(b) } else { a.max(b) }),
        (a, b) => a.or(b),
    }
}

impl Log {
    /// Where a step over ends, backwards.
    pub fn over_back(&self, count: u64) -> u64 {
        if count == self.from {
            return count;
        }
        let (i, j) = (
            (count - self.from) as usize,
            (count - 1 - self.from) as usize,
        );
        if self.flow[j] != Flow::Return {
            return count - 1;
        }
        let is = |k: &usize| match self.flow[*k] {
            Flow::Call(n) => {
                self.done[*k].1.wrapping_sub(8) == self.done[j].1
                    && self.done[*k].0.wrapping_add(n as u64) == self.rip[i]
            }
            _ => false,
        };
        let call = (0..j).rfind(is);
        call.map_or(count - 1, |k| self.from + k as u64)
    }

    /// Where a step out ends, backwards.
    pub fn out_back(&self, count: u64) -> u64 {
        let mut floor = self.rsp[(count - self.from) as usize];
        let mut at = count;
        while at > self.from {
            at = self.over_back(at);
            let i = (at - self.from) as usize;
            if matches!(self.flow[i], Flow::Call(_)) && self.done[i].1.wrapping_sub(8) >= floor {
                return at;
            }
            floor = floor.max(self.done[i].1);
        }
        self.from
    }
}
