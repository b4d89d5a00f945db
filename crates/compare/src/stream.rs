//! What a thread executed, as items that can be compared with those of the other recording.

use crate::code::{EVENT, Key, Keys};
use crate::events::RT_SIGRETURN;
use crate::{Error, Result};
use hindsight_timeline::{CpuState, FlowControl, Happening, Kind, Straight, Walk};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender};

/// Items that are sent at once.
const BATCH: usize = 2048;

/// A stretch of code that was executed up to a branch, or an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// Names the code, or the pair of events.
    pub key: u64,
    /// How many instructions it has. 0: an event, or a function of a file that was built anew.
    pub len: u32,
    /// How many more functions have been called than have returned, since the walk began.
    pub depth: i32,
    /// The number of instructions that the thread had completed before it.
    pub count: u64,
}

impl Item {
    /// Whether it says the same as one of the other recording.
    pub fn fits(&self, other: &Item) -> bool {
        (self.key, self.len) == (other.key, other.len)
    }

    /// The number of an event among the thread's events, if it is one that has no like in the other recording.
    pub fn lone(&self) -> Option<usize> {
        let number = self.key & !EVENT;
        let index = (number & (SECOND - 1)) as usize;
        (self.key & EVENT != 0 && number >= LONE).then_some(index)
    }

    /// The number of a pair of events, if it is one.
    pub fn pair(&self) -> Option<usize> {
        let number = self.key & !EVENT;
        (self.key & EVENT != 0 && number < LONE).then_some(number as usize)
    }
}

/// Events without their like have numbers from here on. Those of the second recording have another bit, so that they differ.
const LONE: u64 = 1 << 40;
const SECOND: u64 = 1 << 39;

/// What a worker is to do.
pub enum Order {
    /// To go on to this count.
    Go(u64),
    /// To say what was executed from one count to another.
    Walk(u64, u64),
}

/// What a worker answers.
pub enum Reply {
    /// The registers at the count.
    At(Box<CpuState>),
    /// Some items.
    Items(Vec<Item>),
    /// There are no more.
    End,
    /// It cannot go on.
    Failed(Error),
}

/// Executes one thread.
pub struct Worker {
    /// Executes it.
    pub walk: Walk,
    /// Names its code.
    pub keys: Keys,
    /// Its events.
    pub events: Arc<Vec<Happening>>,
    /// The pair that each event belongs to.
    pub pair_of: Vec<Option<u32>>,
    /// Where handlers run of which nothing is told.
    pub handlers: Vec<Range<u64>>,
    /// 0 or 1.
    pub side: usize,
    /// Nobody wants more of the present walk.
    pub enough: Arc<AtomicBool>,
}

impl Worker {
    /// Carries out orders until there are no more.
    pub fn serve(mut self, orders: &Receiver<Order>, replies: &SyncSender<Reply>) {
        for order in orders {
            let reply = match order {
                Order::Go(to) => match self.walk.go(to) {
                    Ok(cpu) => Reply::At(Box::new(cpu)),
                    Err(e) => Reply::Failed(e.into()),
                },
                Order::Walk(from, to) => match self.walk(from, to, replies) {
                    Ok(()) => Reply::End,
                    Err(e) => Reply::Failed(e),
                },
            };
            if replies.send(reply).is_err() {
                return;
            }
        }
    }

    fn walk(&mut self, from: u64, to: u64, replies: &SyncSender<Reply>) -> Result<()> {
        let mut joiner = Joiner {
            keys: &mut self.keys,
            events: &self.events,
            pair_of: &self.pair_of,
            side: self.side,
            next: self.events.partition_point(|e| e.count < from),
            handlers: &self.handlers,
            handler: self.handlers.partition_point(|h| h.end <= from),
            now: None,
            depth: 0,
            returned: false,
            last: None,
            out: Vec::with_capacity(BATCH),
        };
        let enough = &self.enough;
        self.walk.run_straight((from, to), &mut |s| {
            joiner.add(s);
            if joiner.out.len() < BATCH {
                return true;
            }
            let batch = std::mem::replace(&mut joiner.out, Vec::with_capacity(BATCH));
            replies.send(Reply::Items(batch)).is_ok() && !enough.load(Relaxed)
        })?;
        joiner.finish(to);
        // If nobody takes them, nobody waits either.
        let _ = replies.send(Reply::Items(joiner.out));
        Ok(())
    }
}

/// Joins straights that one would also see as one if nothing but the program decided where they end.
struct Joiner<'a> {
    keys: &'a mut Keys,
    events: &'a [Happening],
    pair_of: &'a [Option<u32>],
    side: usize,
    /// The next event.
    next: usize,
    handlers: &'a [Range<u64>],
    /// The next handler.
    handler: usize,
    now: Option<Straight>,
    depth: i32,
    /// A handler has just returned.
    returned: bool,
    /// The function that was named last, and the depth there.
    last: Option<(u64, i32)>,
    out: Vec<Item>,
}

impl Joiner<'_> {
    fn add(&mut self, s: &Straight) {
        while let Some(h) = self.handlers.get(self.handler)
            && h.start <= s.count
        {
            if s.count < h.end {
                return;
            }
            self.handler += 1;
            self.returned = true;
        }
        // It goes on where a signal has interrupted it.
        let mut s = *s;
        s.entered &= !std::mem::take(&mut self.returned);
        if let Some(now) = &mut self.now {
            let joins = now.flow == FlowControl::Next && now.end == s.pc && !s.entered;
            if joins
                && self
                    .events
                    .get(self.next)
                    .is_none_or(|e| e.count >= s.count)
            {
                now.len = now.len.saturating_add(s.len);
                (now.end, now.flow) = (s.end, s.flow);
                return;
            }
            let now = *now;
            self.put(&now);
            match now.flow {
                // A call to the instruction behind it only asks where it is.
                FlowControl::Call | FlowControl::IndirectCall if s.pc != now.end => {
                    self.depth += 1;
                }
                FlowControl::Return => self.depth -= 1,
                _ => {}
            }
        }
        self.tell(s.count, s.entered);
        self.now = Some(s);
    }

    /// Tells of the events before an instant, and of those at it that let the thread go on elsewhere.
    fn tell(&mut self, count: u64, entered: bool) {
        while let Some(e) = self.events.get(self.next) {
            let signal = matches!(e.kind, Kind::Signal { .. });
            if e.count > count || e.count == count && !(signal && entered) {
                break;
            }
            let number = match self.pair_of[self.next] {
                Some(pair) => u64::from(pair),
                None => LONE | (self.side as u64 * SECOND) | self.next as u64,
            };
            self.out.push(Item {
                key: EVENT | number,
                len: 0,
                depth: self.depth,
                count: e.count,
            });
            match e.kind {
                Kind::Signal { .. } if entered => self.depth += 1,
                Kind::Syscall { number, .. } if number == RT_SIGRETURN => self.depth -= 1,
                _ => {}
            }
            self.last = None;
            self.next += 1;
        }
    }

    /// Puts a stretch out.
    fn put(&mut self, s: &Straight) {
        let mut item = |key, len| {
            self.out.push(Item {
                key,
                len,
                depth: self.depth,
                count: s.count,
            });
        };
        match self.keys.key(s.pc, s.count) {
            Key::Exact(key) => {
                item(key, s.len);
                self.last = None;
            }
            Key::Function(key) => {
                if self.last != Some((key, self.depth)) {
                    item(key, 0);
                    self.last = Some((key, self.depth));
                }
            }
            Key::Nothing => {}
        }
    }

    /// The walk is over.
    fn finish(&mut self, to: u64) {
        if let Some(now) = self.now.take() {
            self.put(&now);
        }
        self.tell(to.saturating_sub(1), true);
    }
}
