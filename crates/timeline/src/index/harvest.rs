//! What the machine that replays tells of an interval.

use super::{LINE, PAGE, Page};
use hindsight_replay::{LineMarks, Machine, Reads, State, Written};
use std::collections::HashSet;
use std::sync::mpsc::Receiver;

/// Pages at most that are told without being known.
const FEW: u64 = 256;

/// What an interval left, or a step of one, as the machine tells it.
#[derive(Default)]
pub struct Raw {
    pub state: Option<State>,
    pub to: u64,
    /// The interval ends there.
    pub last: bool,
    /// Pages that were touched, ascending, and which of their lines.
    pub pages: Vec<(u32, u64)>,
    /// Those lines: how they were accessed, and what they hold.
    pub marks: Vec<LineMarks>,
    pub cells: Vec<[u8; LINE]>,
    /// Pages that something else changed, and what they hold.
    pub changed: Vec<(u32, Box<Page>)>,
    /// Marks of reads that are yet to be gone through, and what was written: pages, marks and cells are made of both.
    pub reads: Option<Reads>,
    pub written: Written,
}

/// Marks of reads that were gone through, and the pages of the interval.
pub type Back = (Reads, Vec<u32>);

/// Marks of reads that are not those that the machine makes, and what comes back from the packer.
pub struct Others {
    free: Vec<Reads>,
    /// How many the packer has.
    away: usize,
    back: Receiver<Back>,
}

impl Others {
    /// `free`: without any.
    pub fn new(free: Vec<Reads>, back: Receiver<Back>) -> Others {
        Others {
            free,
            away: 0,
            back,
        }
    }

    /// Whether all pages of so many bytes are told the packer, whether or not it knows them.
    pub fn are_few(&self, len: u64) -> bool {
        (self.away > 0 || !self.free.is_empty()) && len <= FEW * PAGE as u64
    }

    /// Waits until the packer has given back what it has, or as long as there is none; `false`: it has ended.
    pub fn wait(&mut self, all: bool, known: &mut HashSet<u32>) -> bool {
        while self.away > 0 && (all || self.free.is_empty()) {
            let Ok((reads, pages)) = self.back.recv() else {
                return false;
            };
            known.extend(pages);
            self.free.push(reads);
            self.away -= 1;
        }
        true
    }
}

/// Takes the marks so that the packer goes through those of reads, if it can be done.
pub fn hand_over(
    m: &mut Machine,
    others: &mut Others,
    raw: &mut Raw,
) -> std::result::Result<bool, hindsight_replay::Error> {
    let Some(mut reads) = others.free.pop() else {
        return Ok(false);
    };
    let done = m.hand_over(&mut reads, &mut raw.written)?;
    match done {
        true => {
            raw.reads = Some(reads);
            others.away += 1;
        }
        false => others.free.push(reads),
    }
    Ok(done)
}

/// Takes the marks, and what they are of.
pub fn harvest(
    m: &mut Machine,
    known: &mut HashSet<u32>,
    raw: &mut Raw,
) -> std::result::Result<(), hindsight_replay::Error> {
    raw.pages.clear();
    raw.marks.clear();
    raw.cells.clear();
    m.take_marks(&mut |page, lines, marks, cells| {
        raw.pages.push((page, lines));
        known.insert(page);
        let cells = cells.as_chunks::<LINE>().0;
        for i in bits(lines) {
            raw.marks.push(marks[i]);
            raw.cells.push(cells[i]);
        }
    })
}

/// The numbers of the bits that are set.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (i < 64).then_some(i)
    })
}

/// Tells what the known pages of a range hold now, or `all`.
pub fn renew(
    m: &Machine,
    known: &HashSet<u32>,
    (addr, len): (u64, u64),
    all: bool,
    changed: &mut Vec<(u32, Box<Page>)>,
) {
    let first = addr / PAGE as u64;
    let last = addr.saturating_add(len).div_ceil(PAGE as u64);
    let mut one = |page: u32| {
        let mut now = Box::new([0; PAGE]);
        m.read_window(page as u64 * PAGE as u64, &mut now[..]);
        changed.push((page, now));
    };
    if !all && last - first > known.len() as u64 {
        let inside = |p: &&u32| (**p as u64).wrapping_sub(first) & 0xf_ffff < last - first;
        known.iter().filter(inside).for_each(|p| one(*p));
        return;
    }
    for page in first..last {
        let page = page as u32 & 0xf_ffff;
        if all || known.contains(&page) {
            one(page);
        }
    }
}

/// Tells what a range holds now; of pages without anything those that are known, or `all`.
pub fn take(
    m: &Machine,
    known: &mut HashSet<u32>,
    (addr, len): (u64, u64),
    all: bool,
    changed: &mut Vec<(u32, Box<Page>)>,
) {
    let mut now = [0; PAGE];
    for page in addr / PAGE as u64..addr.saturating_add(len).div_ceil(PAGE as u64) {
        m.read_window(page * PAGE as u64, &mut now);
        let page = page as u32 & 0xf_ffff;
        if now != [0; PAGE] || all || known.contains(&page) {
            known.insert(page);
            changed.push((page, Box::new(now)));
        }
    }
}
