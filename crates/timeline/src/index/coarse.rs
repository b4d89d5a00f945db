//! What an interval of the coarse level left: which bytes it accessed, and how memory changed in it.
//!
//! Marks take as much memory as what they are about, twice. So they are taken whenever there are many, however long the
//! interval is. What they said is kept as bits.

use super::build::LOOK;
use super::codec::{LEVEL, LINE, PAGE, Page, bits};
use super::draft::Interval;
use super::frame::IndexFrame;
use super::held::Held;
use super::history::History;
use super::maker::Maker;
use super::page_access::{PageAccess, whole, words_of};
use super::pages::PageSet;
use super::pieces::{Packing, SOME};
use super::ranges::much;
use super::summary::{covered, words};
use super::told::Told;
use crate::Result;
use crate::base::sync::lock;
use crate::recording::Recording;
use crate::scan::Scan;
use hindsight_replay::{LineMarks, Machine, State, page_faults};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Marks are taken when the thread that plays has got this many pages since the last time: 4 GiB. To get them again takes longer
/// than all else, so there must be many.
const MANY: u64 = 1 << 20;
/// The same where somebody chose the length of coarse intervals, and how often that is looked at in an interval. The programs of
/// tests are small.
const MANY_IF_CHOSEN: u64 = 256;
const LOOKS_IF_CHOSEN: u64 = 8;
/// An interval that accesses much memory may end when so many times its pages were looked at as instructions were played: to look
/// for marks costs a fraction of what playing does.
const PER_PAGE: u64 = 400;
/// Its frame has the lines that it accesses, if they are no more than these: 256 MiB. They wait in memory to be packed.
const LINES: usize = 4 << 20;
/// The same where somebody chose the length of coarse intervals.
const LINES_IF_CHOSEN: usize = 4 << 10;
/// Pages in memory, by number. Numbers of cells go up to here.
const PAGES: u64 = 1 << 20;

/// Gathers what intervals leave, one after the other.
pub struct Coarse {
    /// What pages held at the last border.
    held: Held,
    touched: BTreeMap<u32, Box<Touched>>,
    /// To be used again: to get memory takes long.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    idle: Vec<Box<Touched>>,
    spare: Spare,
    /// Where marks were taken last, and how many pages the thread had got by then.
    since: u64,
    /// Where they were taken in this interval last.
    taken: Option<u64>,
    faults: u64,
    /// How many pages more are many.
    many: u64,
    /// After so many instructions it is looked whether there are many.
    pub every: u64,
    /// Where the interval begins, and where it is looked next whether it has accessed much memory, if it may end early.
    from: u64,
    look: Option<u64>,
    /// How many lines its frame may have.
    may_frame: usize,
    /// How many pages are much, how many instructions an interval has then at least, and how many lines its frame may have.
    much: Option<usize>,
    least: u64,
    lines: usize,
}

/// What an interval left.
pub struct Change {
    state: State,
    pub to: u64,
    /// The pages that it accessed, with the lines of them that the frame has.
    accessed: Vec<(u32, u64)>,
    framed: Vec<u8>,
    history: History,
    /// All that changed in memory. A program that works through all of its memory again and again changes little of it.
    /// So that is much smaller than what the interval reads.
    summary: Maker,
    spare: Spare,
}

/// Some of the differences of the interval whose [`Change`] follows.
pub struct Differences {
    bytes: Vec<u8>,
    spare: Spare,
}

impl Differences {
    pub fn pack(self, to: &mut Packing) -> Result<()> {
        to.add(&self.bytes, LEVEL)?;
        self.spare.give(self.bytes);
        Ok(())
    }
}

impl Change {
    /// Packs it. `begun` has the differences that came before.
    pub fn pack(mut self, begun: Packing) -> Result<Interval> {
        self.summary.begun = begun;
        let interval = Interval {
            from: self.state.position,
            to: self.to,
            frame: IndexFrame::made(&self.state, &self.accessed, &self.framed, LEVEL)?,
            history: Told::packed(&self.history)?,
            summary: self.summary.pack(LEVEL)?,
        };
        self.spare.give(self.summary.bytes);
        Ok(interval)
    }
}

impl Coarse {
    /// `held` is what memory holds at the beginning, as far as that is known.
    pub fn new(held: Held, recording: &Recording, least: u64) -> Coarse {
        Coarse {
            held,
            touched: BTreeMap::new(),
            idle: Vec::new(),
            spare: Spare::default(),
            since: 0,
            taken: None,
            faults: page_faults(),
            many: match recording.coarse {
                0 => MANY,
                _ => MANY_IF_CHOSEN,
            },
            every: match recording.coarse {
                0 => least.min(LOOK),
                n => (n / LOOKS_IF_CHOSEN).clamp(1, LOOK),
            },
            from: 0,
            look: None,
            may_frame: 0,
            much: much(recording),
            least: match recording.coarse {
                0 => least,
                n => n / LOOKS_IF_CHOSEN,
            },
            lines: match recording.coarse {
                0 => LINES,
                _ => LINES_IF_CHOSEN,
            },
        }
    }

    /// Begins an interval at instruction `from`.
    ///
    /// - `least`: it may end early, behind at least so many instructions.
    /// - `lines`: its frame may have so many lines.
    /// - `pages`: so many are known so far.
    pub fn begin(&mut self, from: u64, least: Option<u64>, lines: usize, pages: usize) {
        let looks = (pages as u64).saturating_mul(PER_PAGE);
        let least = least.map(|l| l.max(self.least).max(looks));
        let look = least.map(|l| from.saturating_add(l));
        self.look = look.filter(|_| self.much.is_some());
        (self.from, self.may_frame) = (from, lines.min(self.lines));
        // What takes effect before the first instruction has marks, too.
        self.taken = None;
    }

    /// Takes marks on the way, if there are many. Returns whether the interval is to end here, since it has accessed much memory.
    pub fn pause(
        &mut self,
        m: &mut Machine,
        scan: &Scan,
        known: &mut PageSet,
    ) -> std::result::Result<bool, hindsight_replay::Error> {
        let here = m.position();
        if self.look.is_some_and(|at| at <= here) {
            self.take(m, scan, known)?;
            if self.is_much() {
                return Ok(true);
            }
            self.look = Some(here.saturating_add(here - self.from));
        }
        if page_faults().saturating_sub(self.faults) < self.many {
            return Ok(false);
        }
        self.take(m, scan, known)?;
        // Otherwise they stay in memory as zeros.
        m.clear_marks()?;
        self.faults = page_faults();
        Ok(false)
    }

    /// Takes marks. `known` gets their pages.
    pub fn take(
        &mut self,
        m: &mut Machine,
        scan: &Scan,
        known: &mut PageSet,
    ) -> std::result::Result<(), hindsight_replay::Error> {
        if self.taken == Some(m.position()) {
            return Ok(());
        }
        self.taken = Some(m.position());
        if !self.touched.is_empty() {
            for (addr, len) in scan.changed(self.since, m.position()) {
                self.wipe(addr, len);
            }
        }
        self.since = m.position();
        let (touched, idle) = (&mut self.touched, &mut self.idle);
        m.take_marks(&mut |page, lines, marks, _| {
            known.insert(page);
            let its = touched.entry(page).or_insert_with(|| {
                let mut its = idle.pop().unwrap_or_default();
                its.begin();
                its
            });
            its.add(lines, marks);
        })
    }

    /// Notes that something else than the thread changed memory, after what is known so far.
    fn wipe(&mut self, addr: u64, len: u64) {
        let first = addr / PAGE as u64;
        let pages = (addr.saturating_add(len).div_ceil(PAGE as u64) - first).min(PAGES);
        let begin = first % PAGES;
        let end = begin + pages;
        let parts = [begin..end.min(PAGES), 0..end.saturating_sub(PAGES)];
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let its = self.touched.range_mut(part.start as u32..part.end as u32);
            its.for_each(|(page, t)| t.wipe(|line| covered(*page, line, addr, len)));
        }
    }

    /// Whether the interval has accessed much memory, as far as marks were taken.
    fn is_much(&self) -> bool {
        self.much.is_some_and(|much| self.touched.len() >= much)
    }

    /// How many lines the frame is to have: those that were accessed, and held something at the interval's beginning.
    fn lines_to_frame(&mut self) -> Result<usize> {
        let mut touched = self.touched.values();
        let mut lines = 0;
        self.held
            .each(self.touched.keys().copied(), &mut |_, held| {
                let any = touched.next().map_or(0, |t| t.any());
                lines += nonzero(held.get(), any).count_ones() as usize;
                Ok(())
            })?;
        Ok(lines)
    }

    /// What the interval left that begins with `state` and ends where the machine is. `changed` has pages that something else
    /// changed. `send` gets some of the differences, if there are many. Call [`Coarse::take`] before.
    pub fn finish(
        &mut self,
        m: &Machine,
        state: State,
        changed: Vec<u32>,
        send: &mut dyn FnMut(Differences),
    ) -> Result<Change> {
        let much = self.is_much();
        let lines = if much { self.lines_to_frame()? } else { 0 };
        let framed = much && lines <= self.may_frame;
        let touched = std::mem::take(&mut self.touched);
        let mut out = Change {
            state,
            to: m.position(),
            accessed: Vec::with_capacity(touched.len()),
            framed: Vec::with_capacity(if framed { lines * LINE } else { 0 }),
            history: History::of(touched.len()),
            summary: Maker::default(),
            spare: self.spare.clone(),
        };
        let mut given = changed;
        given.sort_unstable();
        let mut pages: Vec<u32> = touched.keys().copied().chain(given.clone()).collect();
        pages.sort_unstable();
        pages.dedup();
        let (mut touched, mut given) = (touched.into_iter().peekable(), given.iter().peekable());
        let (spare, summary, frame) = (&self.spare, &mut out.summary, &mut out.framed);
        summary.bytes = spare.take();
        self.held.each(pages.into_iter(), &mut |page, held| {
            let its = touched.next_if(|t| t.0 == page).map(|t| t.1);
            let any = its.as_ref().map_or(0, |t| t.any());
            let wanted = nonzero(held.get(), if framed { any } else { 0 });
            for i in bits(wanted) {
                frame.extend_from_slice(&held.get().as_chunks::<LINE>().0[i]);
            }
            // What something else changed is told with all that the page holds at the end. Otherwise some lines can differ.
            let lines = match given.next_if_eq(&&page) {
                Some(_) => u64::MAX,
                None => any,
            };
            summary.changed(page, lines, held, m.window_page(page));
            if summary.bytes.len() >= SOME {
                let mut next = spare.take();
                next.extend_from_slice(&summary.bytes[SOME..]);
                summary.bytes.truncate(SOME);
                send(Differences {
                    bytes: std::mem::replace(&mut summary.bytes, next),
                    spare: spare.clone(),
                });
            }
            if let Some(t) = its {
                out.history.push(&t.access(page));
                out.accessed.push((page, wanted));
                self.idle.push(t);
            }
            Ok(())
        })?;
        Ok(out)
    }
}

/// Those of some lines of a page that have something else than zeros.
fn nonzero(page: &Page, lines: u64) -> u64 {
    let page = page.as_chunks::<LINE>().0;
    let some = bits(lines).filter(|i| !is_zero(&page[*i]));
    some.fold(0, |mask, i| mask | 1 << i)
}

/// Whether a line has nothing but zeros. It makes no calls.
fn is_zero(line: &[u8; LINE]) -> bool {
    words(line).iter().fold(0, |all, w| all | w) == 0
}

/// A buffer that comes back from the packer.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Vec<u8>>>);

impl Spare {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.0))
    }

    fn give(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        *lock(&self.0) = bytes;
    }
}

/// How a page was accessed, as [`PageAccess`] has it.
struct Touched {
    words: [[u8; 2]; 64],
    /// Lines that were accessed in other units than whole words, and how each was accessed last.
    odd: u64,
    masks: Vec<[u64; 2]>,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched {
            words: [[0; 2]; 64],
            odd: 0,
            masks: Vec::new(),
        }
    }
}

impl Touched {
    /// Forgets all.
    fn begin(&mut self) {
        self.words = [[0; 2]; 64];
        self.odd = 0;
        self.masks.clear();
    }

    fn rank(&self, line: usize) -> usize {
        (self.odd & ((1 << line) - 1)).count_ones() as usize
    }

    /// How the bytes of a line were accessed last.
    fn last(&self, line: usize) -> [u64; 2] {
        match self.odd & (1 << line) {
            0 => whole(self.words[line]),
            _ => self.masks[self.rank(line)],
        }
    }

    fn set_last(&mut self, line: usize, last: [u64; 2]) {
        let (rank, had) = (self.rank(line), self.odd & (1 << line) != 0);
        let odd = last != whole(self.words[line]);
        match (had, odd) {
            (true, true) => self.masks[rank] = last,
            (false, true) => self.masks.insert(rank, last),
            (true, false) => drop(self.masks.remove(rank)),
            (false, false) => {}
        }
        self.odd = self.odd & !(1 << line) | (odd as u64) << line;
    }

    /// Adds what some lines' marks say.
    fn add(&mut self, lines: u64, marks: &[LineMarks; 64]) {
        for i in bits(lines) {
            let (m, before) = (&marks[i], self.last(i));
            let later = m.last[0] | m.last[1];
            let words = &mut self.words[i];
            words[0] |= words_of(m.read);
            words[1] |= words_of(m.written);
            self.set_last(i, [0, 1].map(|k| m.last[k] | before[k] & !later));
        }
    }

    /// Notes that something else changed bytes: nobody knows what the last access left.
    fn wipe(&mut self, covered: impl Fn(usize) -> u64) {
        for i in (0..64)
            .filter(|i| self.words[*i] != [0; 2])
            .collect::<Vec<_>>()
        {
            let last = self.last(i);
            let lost = (last[0] | last[1]) & covered(i);
            if lost != 0 {
                self.set_last(i, last.map(|m| m | lost));
            }
        }
    }

    /// The mask of the lines that were accessed.
    fn any(&self) -> u64 {
        let accessed = |w: &[u8; 2]| (w[0] | w[1] != 0) as u64;
        (self.words.iter().enumerate()).fold(0, |m, (i, w)| m | accessed(w) << i)
    }

    fn access(&self, page: u32) -> PageAccess {
        let mut out = PageAccess::new(page, &self.words);
        for i in bits(out.any()) {
            out.set_masks(i, self.last(i));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A line, the bytes that were read there, and those that were written.
    fn marks() -> impl Strategy<Value = (usize, u64, u64)> {
        let mask = prop_oneof![Just(0), Just(u64::MAX), Just(0xff00), any::<u64>()];
        (0..64usize, mask.clone(), mask)
    }

    fn as_marks((line, read, written): (usize, u64, u64)) -> (u64, [LineMarks; 64]) {
        let mut all = [LineMarks::default(); 64];
        all[line] = LineMarks {
            read,
            written,
            last: [read & !written, written],
        };
        (u64::from(read | written != 0) << line, all)
    }

    proptest! {
        /// Taken in several goes, marks say the same as at once, byte by byte.
        #[test]
        fn marks_may_be_taken_at_any_time(
            steps in proptest::collection::vec((marks(), proptest::option::of((0..4096u64, 1..300u64))), 1..40),
        ) {
            let mut t = Touched::default();
            // For each byte: how it was accessed last.
            let mut last = vec![[false; 2]; PAGE];
            let mut words = [[0u8; 2]; 64];
            for (m, wiped) in steps {
                let (lines, all) = as_marks(m);
                t.add(lines, &all);
                let (line, read, written) = m;
                for b in 0..64 {
                    let bit = |mask: u64| mask & (1 << b) != 0;
                    if bit(read | written) {
                        last[line * 64 + b] = [!bit(written), bit(written)];
                    }
                    words[line][0] |= u8::from(bit(read)) << (b / 8);
                    words[line][1] |= u8::from(bit(written)) << (b / 8);
                }
                if let Some((at, len)) = wiped {
                    t.wipe(|line| covered(0, line, at, len));
                    let end = (at + len).min(PAGE as u64) as usize;
                    for l in &mut last[at as usize..end] {
                        if *l != [false; 2] {
                            *l = [true; 2];
                        }
                    }
                }
            }
            prop_assert_eq!(t.words, words);
            let access = t.access(7);
            for (line, its) in words.iter().enumerate().filter(|w| *w.1 != [0; 2]) {
                prop_assert_eq!(access.line(line), *its);
                let masks = access.masks(line);
                for b in 0..64 {
                    let bits = masks.map(|m| m & (1 << b) != 0);
                    prop_assert_eq!(bits, last[line * 64 + b], "line {} byte {}", line, b);
                }
            }
        }
    }
}
