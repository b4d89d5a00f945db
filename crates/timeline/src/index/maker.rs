//! Makes the ends of an interval, in one step or several.

use super::build::bits;
use super::ends::{Changed, End, Ends, Step, framed, nonzero, words};
use super::frame::{parts, put_state};
use super::given::Given;
use super::steps::MOST;
use super::{LINE, Page, Touched, put};
use crate::Result;
use hindsight_replay::State;
use std::sync::Arc;

/// The ends of an interval, as they are made.
#[derive(Default)]
pub struct Maker {
    steps: Vec<Step>,
    /// Their differences.
    pub bytes: Vec<u8>,
    /// It is said of each step what it accessed.
    pub stepped: bool,
    /// Of each line that a step wrote, the bytes that it wrote and that do not differ, or the other way round.
    other: Vec<u8>,
}

impl Maker {
    /// The next step begins. `state`: in which the processor is then, unless the frame tells.
    pub fn step(&mut self, from: u64, state: Option<State>) {
        self.steps.push(Step {
            from,
            state,
            pages: Vec::new(),
        });
    }

    /// The next page of which something differs at the step's end from what it was at its start, or was accessed:
    /// the lines that were accessed, those that were written with their bytes that were, and the lines that differ, with
    /// the difference.
    pub fn differ(
        &mut self,
        page: u32,
        any: u64,
        (written, bytes): (u64, &[u64]),
        new: u64,
        difference: &[u8],
    ) {
        if any | new == 0 {
            return;
        }
        let changed = Changed {
            page,
            any,
            written,
            new,
            before: self.bytes.len() / LINE,
            writes: self.other.len() / 8,
        };
        self.bytes.extend_from_slice(difference);
        for (i, wrote) in bits(written).zip(bytes) {
            let differs = changed
                .at(i)
                .map_or(0, |at| nonzero(&self.bytes[at..at + LINE]));
            self.other
                .extend_from_slice(&(wrote ^ differs).to_le_bytes());
        }
        if let Some(step) = self.steps.last_mut() {
            step.pages.push(changed);
        }
    }

    /// Steps that were made before follow, of which the first one begins in this state. `None`: they are damaged.
    pub fn append(&mut self, ends: &Ends, begin: Option<State>) -> Option<()> {
        let (lines, writes) = (self.bytes.len() / LINE, self.other.len() / 8);
        self.bytes.extend_from_slice(&ends.differences()?);
        self.other.extend_from_slice(&ends.other.all()?);
        let new = self.steps.len();
        self.steps.extend(ends.steps.iter().cloned());
        if let Some(first) = self.steps.get_mut(new) {
            first.state = begin;
        }
        for p in self.steps[new..].iter_mut().flat_map(|s| &mut s.pages) {
            p.before += lines;
            p.writes += writes;
        }
        Some(())
    }

    /// The next page: the ends of the lines that were touched. `base`: what the frame has of it.
    pub fn page(
        &mut self,
        touched: &mut Touched,
        base: Option<(u64, &Page)>,
        end: impl Fn(usize) -> End,
    ) {
        let mut new = 0u64;
        let any = touched.any();
        let before = self.bytes.len() / LINE;
        for i in (0..64).filter(|i| any & (1 << i) != 0) {
            let e = end(i);
            touched.mark(i, e.masks);
            let old = framed(base, i);
            let (now, old) = (words(&e.bytes), words(&old));
            let difference: [u64; LINE / 8] = std::array::from_fn(|k| now[k] ^ old[k]);
            if difference.iter().fold(0, |all, d| all | d) != 0 {
                new |= 1 << i;
                self.bytes
                    .extend_from_slice(difference.map(u64::to_ne_bytes).as_flattened());
            }
        }
        if self.steps.is_empty() {
            self.step(0, None);
        }
        // What was accessed is said in the history.
        if new != 0 {
            self.steps[0].pages.push(Changed {
                page: touched.page,
                any: u64::MAX,
                written: u64::MAX,
                new,
                before,
                writes: 0,
            });
        }
    }

    /// Adds to the last step how lines of pages, ascending, differ at its end besides.
    pub fn add_to_last(&mut self, given: Vec<Given>) {
        let Some(last) = self
            .steps
            .len()
            .checked_sub(1)
            .filter(|_| !given.is_empty())
        else {
            return;
        };
        self.step(self.steps[last].from, None);
        for (page, new, differences) in given {
            self.differ(page, 0, (0, &[]), new, &differences);
        }
        self.join_pairs(|step| step == last);
    }

    /// Joins steps in pairs if there are too many.
    pub fn thin(&mut self) {
        if self.steps.len() > MOST {
            self.join_pairs(|_| true);
        }
    }

    /// Joins steps with the ones that follow them, if `pair` says so of their numbers.
    fn join_pairs(&mut self, pair: impl Fn(usize) -> bool) {
        let old = std::mem::take(self);
        self.stepped = old.stepped;
        let mut steps = old.steps.into_iter().enumerate();
        let line = |at: usize| old.bytes[at..at + LINE].iter();
        while let Some((number, first)) = steps.next() {
            self.step(first.from, first.state);
            let second = if pair(number) { steps.next() } else { None };
            let second = second.map_or(Vec::new(), |s| s.1.pages);
            let (mut a, mut b) = (
                first.pages.into_iter().peekable(),
                second.into_iter().peekable(),
            );
            while let Some(page) = [a.peek(), b.peek()].iter().flatten().map(|c| c.page).min() {
                let both = [&mut a, &mut b].map(|l| l.next_if(|c| c.page == page));
                let both = both.iter().flatten();
                let mask = |of: fn(&Changed) -> u64| both.clone().fold(0, |m, c| m | of(c));
                let mut new = 0u64;
                let mut difference = Vec::new();
                for i in bits(mask(|c| c.new)) {
                    let mut sum = [0; LINE];
                    for at in both.clone().filter_map(|c| c.at(i)) {
                        sum.iter_mut().zip(line(at)).for_each(|(s, d)| *s ^= d);
                    }
                    if sum != [0; LINE] {
                        new |= 1 << i;
                        difference.extend_from_slice(&sum);
                    }
                }
                let written = mask(|c| c.written);
                let one = |c: &Changed, i| c.wrote(i, &old.bytes, &old.other);
                let wrote = |i| both.clone().fold(0, |m, c| m | one(c, i));
                let bytes: Vec<u64> = bits(written).map(wrote).collect();
                self.differ(page, mask(|c| c.any), (written, &bytes), new, &difference);
            }
        }
    }

    /// All of it, compressed.
    pub fn pack(&mut self, level: i32) -> Result<Arc<[u8]>> {
        if self.steps.is_empty() {
            self.step(0, None);
        }
        let mut head = Vec::new();
        put(
            &mut head,
            (self.steps.len() as u64) << 1 | self.stepped as u64,
        );
        let mut from = self.steps[0].from;
        for s in &self.steps {
            if let Some(state) = &s.state {
                put(&mut head, s.from - from);
                put_state(&mut head, state);
            }
            from = s.from;
            put(&mut head, s.pages.len() as u64);
            let mut before = 0;
            for p in &s.pages {
                put(&mut head, (p.page - before) as u64);
                before = p.page;
                let accessed = [p.any, p.written];
                for mask in accessed.iter().filter(|_| self.stepped).chain([&p.new]) {
                    head.extend_from_slice(&mask.to_le_bytes());
                }
            }
        }
        parts(&head, &[&self.bytes, &self.other], level)
    }
}
