//! Steps of an interval, where threads share memory. A step is a further place from which replay can begin. It says how
//! memory changed since the step before.

use super::codec::{LEVEL_STEPS, LINE, PAGE, bits};
use super::draft::Interval;
use super::frame::IndexFrame;
use super::history::History;
use super::maker::{Accesses, Maker};
use super::page_access::PageAccess;
use super::summary::{covered, words};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_replay::{LineMarks, SharedPage, State};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What an interval or a step left, as the machine tells it.
#[derive(Default)]
pub struct Raw {
    /// Where it began. `None`: this is a portion, and more will follow.
    pub state: Option<State>,
    pub to: u64,
    /// The interval ends there.
    pub last: bool,
    /// Pages that were accessed, ascending, with masks of the accessed lines.
    pub pages: Vec<(u32, u64)>,
    /// For each of those lines: how it was accessed, and its content.
    pub marks: Vec<LineMarks>,
    pub cells: Vec<[u8; LINE]>,
    /// Pages that something else changed, and their contents.
    pub changed: Vec<(u32, SharedPage)>,
}

/// A buffer is large if it has this many lines. Together with their marks they take 96 MiB.
const LARGE: usize = 1 << 20;
/// Where an interval has no steps, what it left goes to the packer in portions of this many lines: 48 MiB.
pub const PORTION: usize = LARGE / 2;

impl Raw {
    /// Forgets all, but keeps the memory.
    pub fn clear(&mut self) {
        self.state = None;
        self.last = false;
        self.pages.clear();
        self.marks.clear();
        self.cells.clear();
        self.changed.clear();
    }

    /// Whether further buffers like this one would take much memory.
    pub fn is_large(&self) -> bool {
        self.cells.len() > LARGE
    }
}

/// The steps of an interval that is not yet over.
#[derive(Default)]
pub struct Gathered {
    /// The state at the interval's beginning.
    begin: Option<State>,
    pages: BTreeMap<u32, StepPageAccess>,
    summary: Maker,
}

/// What a step accessed of a page.
struct StepPageAccess {
    /// Mask of the accessed lines.
    lines: u64,
    marks: Box<[LineMarks; 64]>,
    /// The contents of the lines before and now.
    before: SharedPage,
    now: SharedPage,
}

/// How a line was accessed in two steps together. `given` is a mask of the bytes in words that the second step changed.
fn after(first: &LineMarks, second: &LineMarks, given: impl Fn() -> u64) -> LineMarks {
    let [read, written] = second.last;
    // A byte that was written and then only read still has the written value.
    let mut same = first.last[1] & !first.last[0] & read & !second.written;
    if same != 0 {
        same &= !given();
    }
    let later = (read | written) & !same;
    LineMarks {
        read: first.read | second.read,
        written: first.written | second.written,
        last: [0, 1].map(|k| first.last[k] & !later | second.last[k] & later),
    }
}

/// A mask of the bytes in words that differ between two lines.
fn given(a: &[u8; LINE], b: &[u8; LINE]) -> u64 {
    let pairs = words(a).into_iter().zip(words(b)).enumerate();
    pairs.fold(0, |m, (i, (a, b))| {
        m | if a == b { 0 } else { 0xff << (8 * i) }
    })
}

impl Gathered {
    /// Adds what a step left. `shadow` is what pages held when they were last accessed or changed.
    pub fn add(
        &mut self,
        state: State,
        raw: &mut Raw,
        scan: &Scan,
        shadow: &mut HashMap<u32, SharedPage>,
    ) {
        let from = state.position;
        if self.begin.is_none() {
            self.summary.stepped = true;
            self.summary.step(from, None);
            self.begin = Some(state);
        } else {
            self.summary.step(from, Some(state));
            for (address, len) in scan.changed(from, raw.to) {
                self.wipe(address, len);
            }
        }
        let mut changed: Vec<(u32, SharedPage)> = raw.changed.drain(..).collect();
        // A page may be there several times. Each has the content at the step's end.
        changed.sort_by_key(|c| c.0);
        changed.dedup_by_key(|c| c.0);
        let mut changed = changed.into_iter().peekable();
        let mut at = 0;
        for (page, lines) in raw.pages.iter().copied() {
            while let Some((other, now)) = changed.next_if(|c| c.0 < page) {
                self.change(other, now, shadow);
            }
            let n = lines.count_ones() as usize;
            let (marks, cells) = (&raw.marks[at..at + n], &raw.cells[at..at + n]);
            at += n;
            let other = changed.next_if(|c| c.0 == page).map(|c| c.1);
            self.touch(page, lines, (marks, cells), other, shadow);
        }
        for (other, now) in changed {
            self.change(other, now, shadow);
        }
    }

    /// Something else changed these bytes: how they were accessed no longer tells their values.
    fn wipe(&mut self, address: u64, len: u64) {
        let one = |page: u32, t: &mut StepPageAccess| {
            for i in bits(t.lines) {
                let wiped = covered(page, i, address, len);
                let last = &mut t.marks[i].last;
                let lost = (last[0] | last[1]) & wiped;
                *last = last.map(|m| m | lost);
            }
        };
        let first = address / PAGE as u64;
        let count = (address.saturating_add(len)).div_ceil(PAGE as u64) - first;
        if count > self.pages.len() as u64 {
            self.pages.iter_mut().for_each(|(p, t)| one(*p, t));
            return;
        }
        for page in first..first + count {
            let page = page as u32 & 0xf_ffff;
            if let Some(t) = self.pages.get_mut(&page) {
                one(page, t);
            }
        }
    }

    /// Adds a page that a step accessed. `other` is the whole page if something else changed it.
    fn touch(
        &mut self,
        page: u32,
        lines: u64,
        (marks, cells): (&[LineMarks], &[[u8; LINE]]),
        other: Option<SharedPage>,
        shadow: &HashMap<u32, SharedPage>,
    ) {
        let t = self.pages.entry(page).or_insert_with(|| {
            let held = shadow.get(&page).cloned();
            let held = held.unwrap_or_else(|| Arc::new([0; PAGE]));
            StepPageAccess {
                lines: 0,
                marks: Box::new([LineMarks::default(); 64]),
                before: held.clone(),
                now: held,
            }
        });
        let mut accessed = Vec::with_capacity(marks.len());
        for ((i, m), now) in bits(lines).zip(marks).zip(cells) {
            t.lines |= 1 << i;
            accessed.push([m.read & !m.written, m.written]);
            let had = &t.now.as_chunks::<LINE>().0[i];
            t.marks[i] = after(&t.marks[i], m, || given(had, now));
        }
        let mut new = t.lines & other.as_ref().map_or(0, |_| u64::MAX) | lines;
        let mut cells = cells.iter();
        let mut differences = Vec::new();
        for i in bits(new) {
            let part = i * LINE..(i + 1) * LINE;
            let now = match lines & (1 << i) != 0 {
                true => cells.next(),
                false => None,
            };
            let now: &[u8] = match (now, &other) {
                (Some(line), _) => line,
                (None, Some(page)) => &page[part.clone()],
                (None, None) => continue,
            };
            if t.now[part.clone()] == *now {
                new &= !(1 << i);
                continue;
            }
            let had = &mut Arc::make_mut(&mut t.now)[part];
            differences.extend(had.iter().zip(now).map(|(a, b)| a ^ b));
            had.copy_from_slice(now);
        }
        if let Some(other) = other {
            // Lines that were not accessed must have their new content when they are accessed later.
            for i in bits(!t.lines) {
                let part = i * LINE..(i + 1) * LINE;
                for held in [&mut t.now, &mut t.before] {
                    Arc::make_mut(held)[part.clone()].copy_from_slice(&other[part.clone()]);
                }
            }
        }
        let its = Accesses {
            any: lines,
            bytes: &accessed,
        };
        self.summary.differ(page, its, new, &differences);
    }

    /// Something else changed a page that the step did not access.
    fn change(&mut self, page: u32, now: SharedPage, shadow: &mut HashMap<u32, SharedPage>) {
        match self.pages.contains_key(&page) {
            true => self.touch(page, 0, (&[], &[]), Some(now), shadow),
            false => {
                shadow.insert(page, now);
            }
        }
    }

    /// Ends the interval at `to`. Its frame gets the lines that were accessed, with their contents at the start.
    pub fn finish(&mut self, to: u64, shadow: &mut HashMap<u32, SharedPage>) -> Result<Interval> {
        let missing = || Error::Unsupported("an interval ends that has not begun".into());
        let state = self.begin.take().ok_or_else(missing)?;
        let mut history = History::of(self.pages.len());
        let (mut framed, mut bodies, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        for (page, t) in std::mem::take(&mut self.pages) {
            marks.clear();
            marks.extend(bits(t.lines).map(|i| t.marks[i]));
            let mut touched = PageAccess::of(page, t.lines, &marks);
            let mut wanted = 0u64;
            for i in bits(t.lines) {
                touched.set_masks(i, t.marks[i].last);
                let line = &t.before[i * LINE..(i + 1) * LINE];
                if line != [0; LINE] {
                    wanted |= 1 << i;
                    bodies.extend_from_slice(line);
                }
            }
            framed.push((page, wanted));
            history.push(&touched);
            shadow.insert(page, t.now);
        }
        let mut summary = std::mem::take(&mut self.summary);
        Ok(Interval {
            from: state.position,
            to,
            frame: IndexFrame::made(&state, &framed, &bodies, LEVEL_STEPS)?,
            history: history.into(),
            summary: summary.pack(LEVEL_STEPS)?,
        })
    }
}
