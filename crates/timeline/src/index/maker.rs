//! Makes the summary of an interval, with one step or several.

use super::codec::{LINE, Page, bits, put};
use super::frame::{parts_begun, put_state};
use super::given::Given;
use super::held::HeldPage;
use super::page_access::PageAccess;
use super::pieces::Packing;
use super::stored::{Scratch, Stored};
use super::summary::{Changed, FinalLine, IntervalStep, IntervalSummary, MASK, framed, words};
use crate::Result;
use hindsight_replay::State;
use std::sync::Arc;

/// The number of steps in an interval. Longer intervals have longer steps, because what each step left is most of the
/// index.
pub const STEPS: u64 = 4;

/// A summary in the making.
#[derive(Default)]
pub struct Maker {
    steps: Vec<IntervalStep>,
    /// The differences of the steps.
    pub bytes: Vec<u8>,
    /// Those that come before them, and are packed already.
    pub begun: Packing,
    /// Whether each step says what it accessed.
    pub stepped: bool,
    /// The access masks of each line that a step accessed ([`Changed::accessed`]).
    masks: Vec<u8>,
}

/// How a step accessed lines of a page.
#[derive(Clone, Copy, Default)]
pub struct Accesses<'a> {
    /// The mask of the lines that it accessed. For each of them a mask of the bytes that it only read, and one of those
    /// that it wrote.
    pub any: u64,
    pub bytes: &'a [[u64; 2]],
}

impl Maker {
    /// What is packed goes to this file, if there is much.
    pub fn with(scratch: Option<Arc<Scratch>>) -> Maker {
        Maker {
            begun: Packing::with(scratch),
            ..Maker::default()
        }
    }

    /// Begins the next step. `state` has the registers there, unless the frame has them.
    pub fn step(&mut self, from: u64, state: Option<State>) {
        self.steps.push(IntervalStep {
            from,
            state,
            pages: Vec::new(),
        });
    }

    /// Adds the next page that a step accessed, or whose content differs at the step's end. `its` are its accesses,
    /// `new` is a mask of the lines that differ, and `difference` has their differences.
    pub fn differ(&mut self, page: u32, its: Accesses, new: u64, difference: &[u8]) {
        if its.any | new == 0 {
            return;
        }
        let mut written = 0;
        let masks = self.masks.len() / MASK;
        for (i, [read, wrote]) in bits(its.any).zip(its.bytes) {
            self.masks.extend(read.to_le_bytes());
            if *wrote != 0 {
                written |= 1 << i;
                self.masks.extend(wrote.to_le_bytes());
            }
        }
        let changed = Changed {
            page,
            any: its.any,
            written,
            new,
            before: self.bytes.len() / LINE,
            masks,
        };
        self.bytes.extend_from_slice(difference);
        if let Some(step) = self.steps.last_mut() {
            step.pages.push(changed);
        }
    }

    /// Appends the steps of another summary. `begin` is the state at the first of them. `None`: the data is damaged.
    pub fn append(&mut self, summary: &IntervalSummary, begin: Option<State>) -> Option<()> {
        let (lines, masks) = (self.bytes.len() / LINE, self.masks.len() / MASK);
        self.bytes.extend_from_slice(&summary.differences()?);
        self.masks.extend_from_slice(&summary.masks.all()?);
        let new = self.steps.len();
        self.steps.extend(summary.steps.iter().cloned());
        if let Some(first) = self.steps.get_mut(new) {
            first.state = begin;
        }
        for p in self.steps[new..].iter_mut().flat_map(|s| &mut s.pages) {
            p.before += lines;
            p.masks += masks;
        }
        Some(())
    }

    /// Adds the next page to a summary without steps. `base` is the frame's content of the page.
    pub fn page(
        &mut self,
        touched: &mut PageAccess,
        base: Option<(u64, &Page)>,
        end: impl Fn(usize) -> FinalLine,
    ) {
        let mut new = 0u64;
        let any = touched.any();
        let before = self.bytes.len() / LINE;
        for i in (0..64).filter(|i| any & (1 << i) != 0) {
            let e = end(i);
            touched.set_masks(i, e.masks);
            new |= (self.line(&framed(base, i), &e.bytes) as u64) << i;
        }
        self.lines_differ(touched.page, new, before);
    }

    /// Adds the next page to a summary that says how all of memory changed in an interval. Only these lines can differ.
    /// `held` is what they held, and gets what they hold now.
    pub fn changed(&mut self, page: u32, lines: u64, held: &mut HeldPage, now: &Page) {
        let before = self.bytes.len() / LINE;
        let mut new = 0u64;
        let now = now.as_chunks().0;
        for i in bits(lines) {
            if self.line(&held.get().as_chunks().0[i], &now[i]) {
                new |= 1 << i;
                held.get_mut().as_chunks_mut().0[i] = now[i];
            }
        }
        self.lines_differ(page, new, before);
    }

    /// Adds the difference of a line. `false`: there is none.
    fn line(&mut self, old: &[u8; LINE], now: &[u8; LINE]) -> bool {
        let (now, old) = (words(now), words(old));
        let difference: [u64; LINE / 8] = std::array::from_fn(|k| now[k] ^ old[k]);
        let differs = difference.iter().fold(0, |all, d| all | d) != 0;
        if differs {
            self.bytes
                .extend_from_slice(difference.map(u64::to_ne_bytes).as_flattened());
        }
        differs
    }

    /// Names the lines of a page whose differences were added. `before` is the number of lines of earlier pages. The history
    /// says what was accessed.
    fn lines_differ(&mut self, page: u32, new: u64, before: usize) {
        if self.steps.is_empty() {
            self.step(0, None);
        }
        if new != 0 {
            self.steps[0].pages.push(Changed {
                page,
                any: u64::MAX,
                written: u64::MAX,
                new,
                before,
                masks: 0,
            });
        }
    }

    /// Adds further differences at the end of the last step. Pages must be ascending.
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
            self.differ(page, Accesses::default(), new, &differences);
        }
        self.join_pairs(|step| step == last);
    }

    /// Joins steps in pairs if there are too many.
    pub fn thin(&mut self) {
        if self.steps.len() > STEPS as usize {
            self.join_pairs(|_| true);
        }
    }

    /// Joins a step with the next one if `pair` says so of its number.
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
                let any = mask(|c| c.any);
                let get = |at: usize| old.masks.get(at..)?.first_chunk().copied();
                let one = |c: &Changed, i| c.accessed(i, get).unwrap_or_default();
                let accessed = |i| {
                    let all = both.clone().map(|c| one(c, i));
                    let [read, wrote] = all.fold([0; 2], |m, c| [m[0] | c[0], m[1] | c[1]]);
                    [read & !wrote, wrote]
                };
                let its = Accesses {
                    any,
                    bytes: &bits(any).map(accessed).collect::<Vec<_>>(),
                };
                self.differ(page, its, new, &difference);
            }
        }
    }

    /// Packs differences of a summary with one step, if there are many. More may follow.
    pub fn relieve(&mut self, level: i32) -> Result<()> {
        self.begun.relieve(&mut self.bytes, level)
    }

    /// The summary, compressed.
    pub fn pack(&mut self, level: i32) -> Result<Stored> {
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
        let begun = self.begun.take();
        parts_begun(&head, begun, &[&self.bytes, &self.masks], level)
    }
}
