//! Follows a thread of each recording side by side, from one pair of events to the next.

use crate::align::Alignment;
use crate::code::module_of;
use crate::events::Events;
use crate::stream::{Item, Order, Reply, Worker};
use crate::{Both, Error, Result};
use hindsight_timeline::{CpuState, regs};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

/// Instructions between two places where registers are compared.
const STRIDE: u64 = 1 << 20;
/// So many instructions must agree one by one before only registers are compared again.
const PATIENCE: u64 = 1 << 20;
const MOST_PATIENCE: u64 = 1 << 30;
/// So many items of each side are looked through for the place where they meet again.
const AHEAD: usize = 1 << 18;
/// So many items must be the same from there on.
const ENOUGH: usize = 4;
/// So many items are compared between two looks at how far it is.
const OFTEN: u32 = 1 << 16;
/// Batches of items that wait.
const QUEUE: usize = 4;
/// Values below this are no addresses.
const NULL_PAGES: u64 = 1 << 16;

/// Two threads part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parting {
    /// The counts behind the last instruction that both executed.
    pub at: Both<u64>,
    /// Events on the way to where they meet again that the other side does not have.
    pub lone: Both<Vec<usize>>,
    /// The counts at which they meet again. `None`: they do not, as far as was looked.
    pub again: Option<Both<u64>>,
    /// The code behind the parting.
    pub next: Both<Option<Item>>,
    /// The last code that both executed.
    pub before: Option<Item>,
    /// The file in which everything was executed up to where they meet again, if that is one file.
    pub module: Option<u64>,
}

/// What comes next.
pub enum Next {
    /// Both come to this pair of events.
    Event(usize),
    /// They part.
    Parting(Parting),
    /// Both threads end.
    End,
}

/// Which values are the same, though they differ.
#[derive(Clone, Debug)]
pub struct Shifts(pub Vec<u64>);

/// The most distances that are known at a time.
const MOST_SHIFTS: usize = 256;

impl Shifts {
    /// Adds a distance. The oldest one may be forgotten.
    pub fn add(&mut self, by: u64) {
        if by != 0 && !self.0.contains(&by) {
            if self.0.len() >= MOST_SHIFTS {
                self.0.remove(0);
            }
            self.0.push(by);
        }
    }

    /// Whether both values are addresses of the same thing, or equal.
    pub fn same(&self, [a, b]: Both<u64>) -> bool {
        a == b || self.is_shifted([a, b])
    }

    /// Whether both values are addresses of the same thing in memory that is elsewhere.
    pub fn is_shifted(&self, [a, b]: Both<u64>) -> bool {
        let by = a.wrapping_sub(b);
        by != 0 && a >= NULL_PAGES && b >= NULL_PAGES && self.0.contains(&by)
    }
}

/// Where an item may have its like: its key and length, and the pair of events before it.
type Place = (u64, u32, Option<usize>);

struct Side {
    orders: SyncSender<Order>,
    replies: Receiver<Reply>,
    enough: Arc<AtomicBool>,
    items: VecDeque<Item>,
    ended: bool,
    /// A walk is under way.
    walks: bool,
}

impl Side {
    fn order(&self, order: Order) -> Result<()> {
        self.orders.send(order).map_err(|_| Error::Stopped)
    }

    fn receive(&mut self) -> Result<Reply> {
        match self.replies.recv() {
            Ok(Reply::Failed(e)) => Err(e),
            Ok(reply) => Ok(reply),
            Err(_) => Err(Error::Stopped),
        }
    }

    fn peek(&mut self, n: usize) -> Result<Option<Item>> {
        while self.items.len() <= n && !self.ended {
            match self.receive()? {
                Reply::Items(items) => self.items.extend(items),
                _ => self.ended = true,
            }
        }
        Ok(self.items.get(n).copied())
    }

    fn begin(&mut self, from: u64, to: u64) -> Result<()> {
        self.enough.store(false, Relaxed);
        (self.ended, self.walks) = (false, true);
        self.order(Order::Walk(from, to))
    }

    fn stop(&mut self) -> Result<()> {
        self.enough.store(true, Relaxed);
        while self.walks && !self.ended {
            self.ended = matches!(self.receive()?, Reply::End);
        }
        self.walks = false;
        self.items.clear();
        Ok(())
    }

    fn went(&mut self) -> Result<Box<CpuState>> {
        loop {
            if let Reply::At(cpu) = self.receive()? {
                return Ok(cpu);
            }
        }
    }
}

/// Two threads side by side.
pub struct Course<'a> {
    sides: Both<Side>,
    events: &'a Events,
    /// Everything is compared, not only registers where that is enough.
    exact: bool,
    shifts: Shifts,
    /// Where handlers of signals run that are left out.
    handlers: Alignment,
    /// Both agree up to here.
    at: Both<u64>,
    to: Both<u64>,
    /// The next pair of events.
    pair: usize,
    /// Items are compared, and have agreed since this count of the first thread.
    walks: Option<u64>,
    /// The last item that both had.
    last: Option<Both<Item>>,
    patience: u64,
    /// The registers where all had been compared last.
    stale: Option<[Both<u64>; 16]>,
    /// They have not met again: they go on at the next pair of events.
    lost: bool,
}

impl<'a> Course<'a> {
    /// Starts the workers.
    pub fn new<'s>(
        scope: &'s Scope<'s, '_>,
        workers: Both<Worker>,
        events: &'a Events,
        exact: bool,
        shifts: Shifts,
        (at, to): (Both<u64>, Both<u64>),
    ) -> Course<'a> {
        let sides = workers.map(|worker| {
            let (orders, todo) = sync_channel(1);
            let (done, replies) = sync_channel(QUEUE);
            let enough = Arc::clone(&worker.enough);
            scope.spawn(move || worker.serve(&todo, &done));
            Side {
                orders,
                replies,
                enough,
                items: VecDeque::new(),
                ended: true,
                walks: false,
            }
        });
        Course {
            sides,
            events,
            exact,
            shifts,
            handlers: Alignment::new(events.handlers.clone(), at),
            at,
            to,
            pair: 0,
            walks: None,
            last: None,
            patience: PATIENCE,
            stale: None,
            lost: false,
        }
    }

    /// Which values are the same.
    pub fn shifts(&mut self) -> &mut Shifts {
        &mut self.shifts
    }

    /// The counts up to which both agree.
    pub fn at(&self) -> Both<u64> {
        self.at
    }

    /// What comes next. `tick` is told from time to time how many instructions of the first thread are done.
    pub fn next(&mut self, tick: &dyn Fn(u64)) -> Result<Next> {
        loop {
            if self.lost {
                self.find_pair()?;
            }
            if self.walks.is_none() && !self.goes(tick)? {
                for side in 0..2 {
                    self.sides[side].begin(self.at[side], self.to[side])?;
                }
                self.walks = Some(self.at[0]);
                self.last = None;
            }
            if self.walks.is_none() {
                // Both stand before the next pair.
                if self.pair >= self.events.pairs.len() {
                    return Ok(Next::End);
                }
                self.pair += 1;
                return Ok(Next::Event(self.pair - 1));
            }
            if let Some(next) = self.items(tick)? {
                return Ok(next);
            }
        }
    }

    /// Where the stretch ends that both are in: at the next pair of events, or at the ends of the threads.
    fn goal(&self) -> Both<u64> {
        match self.events.pairs.get(self.pair) {
            Some(pair) => [0, 1].map(|s| self.events.each[s][pair[s]].count),
            None => self.to,
        }
    }

    /// Goes on to the next pair of events and compares only registers. False: they do not agree.
    fn goes(&mut self, tick: &dyn Fn(u64)) -> Result<bool> {
        let goal = self.goal();
        let lone = |s: usize| {
            let list = &self.events.each[s];
            let from = list.partition_point(|e| e.count < self.at[s]);
            let to = list.partition_point(|e| e.count < goal[s]);
            (from..to).any(|i| self.events.pair_of[s][i].is_none())
        };
        let begun = self.at;
        // Handlers of signals that came when they came are left out.
        let plain = |c: &Course, at: Both<u64>| [0, 1].map(|s| c.handlers.plain(s, at[s]));
        let goal = plain(self, goal);
        let left = |c: &Course| {
            let at = plain(c, c.at);
            [0, 1].map(|s| goal[s].saturating_sub(at[s]))
        };
        if self.exact || lone(0) || lone(1) {
            return Ok(left(self) == [0, 0]);
        }
        while left(self) != [0, 0] {
            let [a, b] = left(self);
            let n = STRIDE.min(a.max(1)).min(b.max(1));
            let at = plain(self, self.at);
            let to = [0, 1].map(|s| self.handlers.full(s, at[s].saturating_add(n)));
            if a < n || b < n || !self.agrees(to)? {
                let stuck = self.at[0] < begun[0] + STRIDE;
                let more = if stuck { self.patience * 4 } else { PATIENCE };
                self.patience = more.min(MOST_PATIENCE);
                return Ok(false);
            }
            self.at = to;
            tick(self.at[0]);
        }
        Ok(true)
    }

    /// Whether both have the same registers at these counts. What differs as it did where all had been compared does not count.
    fn agrees(&mut self, to: Both<u64>) -> Result<bool> {
        let [a, b] = self.registers(to)?;
        let mut shifts = self.shifts.clone();
        let stack = a.gpr[regs::RSP].wrapping_sub(b.gpr[regs::RSP]);
        shifts.0.push(stack);
        let same = |r: Both<u64>| shifts.same(r);
        let stale = |n: usize, r: Both<u64>| self.stale.is_some_and(|s| s[n] == r);
        let mut all = a.gpr.into_iter().zip(b.gpr).enumerate();
        Ok(same([a.rip, b.rip]) && all.all(|(n, (x, y))| same([x, y]) || stale(n, [x, y])))
    }

    /// Goes on to these counts.
    fn registers(&mut self, to: Both<u64>) -> Result<Both<Box<CpuState>>> {
        for (side, to) in self.sides.iter().zip(to) {
            side.order(Order::Go(to))?;
        }
        let [a, b] = &mut self.sides;
        Ok([a.went()?, b.went()?])
    }

    /// Compares items. `None`: registers are to be compared from here on.
    fn items(&mut self, tick: &dyn Fn(u64)) -> Result<Option<Next>> {
        for n in 0u32.. {
            if n.is_multiple_of(OFTEN) {
                tick(self.at[0]);
            }
            let [a, b] = &mut self.sides;
            let (Some(x), Some(y)) = (a.peek(0)?, b.peek(0)?) else {
                let over = a.peek(0)?.is_none() && b.peek(0)?.is_none();
                return Ok(Some(match over {
                    true => Next::End,
                    false => Next::Parting(self.part()?),
                }));
            };
            if !x.fits(&y) {
                return Ok(Some(Next::Parting(self.part()?)));
            }
            let since = self.walks.unwrap_or(x.count);
            let is_long = x.count.saturating_sub(since) > self.patience;
            if is_long && !self.exact && x.pair().is_none() {
                self.sides.iter_mut().try_for_each(Side::stop)?;
                (self.walks, self.at) = (None, [x.count, y.count]);
                let [a, b] = self.registers(self.at)?;
                self.stale = Some(std::array::from_fn(|n| [a.gpr[n], b.gpr[n]]));
                return Ok(None);
            }
            for side in &mut self.sides {
                side.items.pop_front();
            }
            self.at = [x, y].map(|i| i.count.saturating_add(i.len.into()));
            if let Some(pair) = x.pair() {
                self.pair = pair + 1;
                return Ok(Some(Next::Event(pair)));
            }
            self.last = Some([x, y]);
        }
        Ok(None)
    }

    /// The items differ. Looks for where they meet again.
    fn part(&mut self) -> Result<Parting> {
        let depth = self.last.map_or([0, 0], |l| l.map(|i| i.depth));
        let found = self.meeting(depth)?;
        let [a, b] = &mut self.sides;
        let next = [a.peek(0)?, b.peek(0)?];
        let mut at = self.at;
        if let [Some(x), Some(y)] = next
            && x.key == y.key
        {
            // One of them goes on where the other one leaves.
            let common = u64::from(x.len.min(y.len));
            at = [x, y].map(|i| i.count.saturating_add(common));
        }
        let mut parting = Parting {
            at,
            lone: [Vec::new(), Vec::new()],
            again: None,
            next,
            before: self.last.map(|l| l[0]),
            module: next[0].or(next[1]).map(|i| module_of(i.key)),
        };
        let skip = found.unwrap_or([AHEAD, AHEAD]);
        for (s, n) in (0..2).zip(skip) {
            let n = n.min(self.sides[s].items.len());
            let lone = self.sides[s].items.iter().take(n).filter_map(Item::lone);
            parting.lone[s] = lone.collect();
            let mut within = self.sides[s].items.iter().take(n).map(|i| module_of(i.key));
            if within.any(|m| Some(m) != parting.module) {
                parting.module = None;
            }
            if found.is_some() {
                self.sides[s].items.drain(..n);
            }
        }
        let [a, b] = &mut self.sides;
        match (found, a.peek(0)?, b.peek(0)?) {
            (Some(_), Some(x), Some(y)) => {
                parting.again = Some([x.count, y.count]);
                self.walks = Some(x.count);
            }
            (Some(_), ..) => parting.again = Some(self.to),
            (None, ..) => self.lost = true,
        }
        Ok(parting)
    }

    /// How many items of each side lie before the place where they meet again.
    fn meeting(&mut self, depth: Both<i32>) -> Result<Option<Both<usize>>> {
        // Where an item comes first.
        let mut seen: Both<HashMap<Place, usize>> = Default::default();
        let mut pair: Both<Option<usize>> = [None; 2];
        for i in 0..AHEAD {
            let mut over = true;
            for s in 0..2 {
                let Some(item) = self.sides[s].peek(i)? else {
                    continue;
                };
                over = false;
                if item.lone().is_some() || item.depth > depth[s] && item.pair().is_none() {
                    continue;
                }
                let key = (item.key, item.len, pair[s]);
                if let Some(j) = seen[1 - s].get(&key) {
                    let at = if s == 0 { [i, *j] } else { [*j, i] };
                    if at != [0, 0] && self.fits_from(at)? {
                        return Ok(Some(at));
                    }
                }
                seen[s].entry(key).or_insert(i);
                pair[s] = item.pair().or(pair[s]);
            }
            if over {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn fits_from(&mut self, at: Both<usize>) -> Result<bool> {
        for n in 0..ENOUGH {
            let [a, b] = &mut self.sides;
            match (a.peek(at[0] + n)?, b.peek(at[1] + n)?) {
                (Some(x), Some(y)) if x.fits(&y) => {
                    if x.pair().is_some() {
                        return Ok(true);
                    }
                }
                (None, None) => return Ok(n > 0),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Goes on at the next pair of events that both come to.
    fn find_pair(&mut self) -> Result<()> {
        self.lost = false;
        loop {
            let mut pairs = [None; 2];
            for (side, pair) in self.sides.iter_mut().zip(&mut pairs) {
                while let Some(item) = side.peek(0)? {
                    *pair = item.pair();
                    if pair.is_some() {
                        break;
                    }
                    side.items.pop_front();
                }
            }
            match pairs {
                [Some(a), Some(b)] if a == b => return Ok(()),
                [Some(a), Some(b)] => {
                    let behind = usize::from(a > b);
                    self.sides[behind].items.pop_front();
                }
                // What is left of one of them has nothing to be compared with.
                _ => {
                    for side in &mut self.sides {
                        side.stop()?;
                        side.ended = true;
                    }
                    return Ok(());
                }
            }
        }
    }
}
