//! One thread on a virtual processor that can be anywhere in its stream.

use crate::index::{self, Page, Place};
use crate::memory::Known;
use crate::timeline::{Inner, replay};
use crate::{Cancel, Error, Result, ThreadId};
use hindsight_isa::observe::UNKNOWN;
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{Machine, Marks, Source, State, Stop};
use std::collections::HashMap;
use std::sync::Arc;

/// Instructions before a place at which snapshots are taken on the way to it, for steps back.
const TRAIL: [u64; 2] = [1 << 20, 1 << 14];
/// Snapshots that are kept.
const SNAPSHOTS: usize = 24;
/// Instructions between two looks whether it was cancelled.
pub const STRIDE: u64 = 1 << 22;
/// Pages beyond which none is taken: 32 MiB.
const LARGE: usize = 8192;

/// Plays one thread.
///
/// The machine's window holds what was touched since `since`, and perhaps what was before; its marks
/// say what was touched since then.
pub struct Player {
    inner: Arc<Inner>,
    pub thread: ThreadId,
    machine: Machine<'static>,
    places: Vec<Place>,
    /// First and last instruction count of the thread.
    pub from: u64,
    pub to: u64,
    /// The part that is played, and as of when window and marks are.
    at: Option<Since>,
    snapshots: Vec<Snapshot>,
    /// For conditions: values of words by the interval that touched them last, and who finds them.
    pub kept: HashMap<(u64, u64), [Option<Known>; 8]>,
    helper: Option<Box<Player>>,
    /// What ends what it is doing, also while it builds the index that it needs.
    pub cancel: Cancel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Since {
    part: usize,
    /// Marks are of accesses from here on.
    count: u64,
    /// The window has only what is needed up to here.
    until: u64,
}

/// A state in the interval that is played.
struct Snapshot {
    state: State,
    since: Since,
    /// Pages of the window, the marks of reads, and those of writes.
    pages: [Vec<(u32, Box<Page>)>; 3],
}

/// The chunks of a stream from one on.
pub struct Chunks {
    inner: Arc<Inner>,
    thread: ThreadId,
    next: usize,
}

impl Chunks {
    pub fn new(inner: &Arc<Inner>, thread: ThreadId, next: usize) -> Chunks {
        Chunks {
            inner: Arc::clone(inner),
            thread,
            next,
        }
    }
}

impl Source for Chunks {
    fn next_chunk(&mut self) -> std::result::Result<Option<Vec<u8>>, hindsight_replay::Error> {
        let wire = self.inner.chunk(self.thread, self.next)?;
        self.next += 1;
        Ok(wire)
    }

    fn module(
        &self,
        module: u32,
        offset: u64,
        len: usize,
    ) -> std::result::Result<Vec<u8>, hindsight_replay::Error> {
        Ok(self.inner.trace.module_part(module, offset, len)?)
    }
}

impl Player {
    pub fn new(inner: &Arc<Inner>, thread: ThreadId) -> Result<Player> {
        let places = index::places(inner, thread);
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Err(Error::NoThread(thread));
        };
        let code = inner.code(inner.image(thread), thread)?;
        let machine = Machine::observing(code).map_err(|e| replay(thread, e))?;
        Ok(Player {
            from: inner.trace.chunks(thread.0)[0].first_pos,
            to: last.to.max(first.from),
            inner: Arc::clone(inner),
            thread,
            machine,
            places,
            at: None,
            snapshots: Vec::new(),
            kept: HashMap::new(),
            helper: None,
            cancel: Cancel::new(),
        })
    }

    /// Instructions completed.
    pub fn count(&self) -> u64 {
        self.machine.position()
    }

    pub fn registers(&self) -> CpuState {
        self.machine.registers()
    }

    pub fn vectors(&self) -> VecState {
        self.machine.vectors()
    }

    pub fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Code bytes at `addr`, as of now.
    pub fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.machine.code(addr, buf)
    }

    /// Stops before these addresses in [`Player::run`].
    pub fn set_breaks(&mut self, addresses: Vec<u64>) {
        self.machine.set_breaks(addresses);
    }

    /// Since which instruction count [`Player::known`] tells about accesses.
    pub fn since(&self) -> u64 {
        self.at.map_or(0, |s| s.count)
    }

    /// What the thread accessed of these bytes since [`Player::since`], and what they hold: marks of
    /// reads and of writes, and the cells.
    pub fn known(&self, address: u64, len: usize) -> [Vec<u8>; 3] {
        let mut out = [vec![0; len], vec![0; len], vec![0; len]];
        self.machine.read_marks(Marks::Reads, address, &mut out[0]);
        self.machine.read_marks(Marks::Writes, address, &mut out[1]);
        self.machine.read_window(address, &mut out[2]);
        if self.machine.in_gap() {
            // Whatever was known may have changed since it began.
            out[..2].iter_mut().flatten().for_each(|m| *m &= UNKNOWN);
        }
        out
    }

    /// Goes to where `count` instructions are completed.
    pub fn seek(&mut self, count: u64) -> Result<()> {
        let count = count.clamp(self.from, self.to);
        self.machine.look_again();
        if !self.near(count) {
            self.start_for(count)?;
        }
        if self.count() != count {
            self.machine.set_breaks(Vec::new());
        }
        for trail in TRAIL {
            let stop = count.saturating_sub(trail);
            if stop > self.count() + trail / 4 {
                self.advance(stop)?;
                self.snapshot()?;
            }
        }
        self.advance(count)?;
        let thread = self.thread;
        let settled = self.machine.settle_memory();
        settled.map_err(|e| replay(thread, e))
    }

    /// Goes to where `count` instructions are completed, with marks of what was accessed before: at a
    /// border between intervals those of the one that ends there.
    pub fn seek_end(&mut self, count: u64) -> Result<()> {
        let count = count.clamp(self.from, self.to);
        self.seek(count)?;
        if self.since() < count || count == self.from {
            return Ok(());
        }
        self.start_for(count - 1)?;
        self.machine.set_breaks(Vec::new());
        self.advance(count)
    }

    /// Asks another player of the thread, so that this one stays where it is.
    pub fn with_helper<T>(&mut self, ask: impl FnOnce(&mut Player) -> Result<T>) -> Result<T> {
        let mut helper = match self.helper.take() {
            Some(h) => h,
            None => Box::new(Player::new(&self.inner, self.thread)?),
        };
        helper.cancel = self.cancel.clone();
        let answer = ask(&mut helper);
        self.helper = Some(helper);
        answer
    }

    /// Whether `count` can be reached from here, or from a snapshot, which is then taken up.
    fn near(&mut self, count: u64) -> bool {
        let here = self.count();
        let ahead = self.at.is_some_and(|at| {
            here <= count
                && (count <= at.until || at.until == u64::MAX && count - here < self.inner.interval)
        });
        let best = (self.snapshots.iter().enumerate())
            .filter(|(_, s)| s.state.position <= count && (ahead || count <= s.since.until))
            .max_by_key(|(_, s)| s.state.position);
        match best {
            Some((_, s)) if ahead && s.state.position <= here => true,
            Some((i, s)) if count - s.state.position <= self.inner.interval => {
                self.restore(i).is_ok()
            }
            _ => ahead,
        }
    }

    /// Takes up the state of a snapshot.
    fn restore(&mut self, i: usize) -> Result<()> {
        let s = self.snapshots.swap_remove(i);
        let done = self.restore_from(&s);
        self.snapshots.push(s);
        done
    }

    fn restore_from(&mut self, s: &Snapshot) -> Result<()> {
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        self.at = None;
        let m = &mut self.machine;
        m.clear_window().map_err(fail)?;
        m.clear_marks().map_err(fail)?;
        for (page, bytes) in &s.pages[0] {
            m.write_window(*page as u64 * bytes.len() as u64, &bytes[..]);
        }
        for (marks, pages) in [Marks::Reads, Marks::Writes].into_iter().zip(&s.pages[1..]) {
            for (page, bytes) in pages {
                m.write_marks(marks, *page as u64 * bytes.len() as u64, &bytes[..]);
            }
        }
        let source = self.source(s.state.position);
        let m = &mut self.machine;
        m.resume(Box::new(source), &s.state).map_err(fail)?;
        self.at = Some(s.since);
        Ok(())
    }

    /// The stream from the chunk on that has the events at a position.
    fn source(&self, position: u64) -> Chunks {
        let chunks = self.inner.trace.chunks(self.thread.0);
        let next = chunks.partition_point(|c| c.last_pos < position);
        Chunks::new(&self.inner, self.thread, next)
    }

    /// Keeps the present state.
    pub fn snapshot(&mut self) -> Result<()> {
        let Some(since) = self.at else { return Ok(()) };
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        let state = self.machine.state();
        if self
            .snapshots
            .iter()
            .any(|s| s.state.position == state.position)
        {
            return Ok(());
        }
        let m = &self.machine;
        let list = m.window_pages().map_err(fail)?;
        if list.len() > LARGE {
            return Ok(());
        }
        let copy = |pages: Vec<u32>, read: &dyn Fn(u64, &mut [u8])| -> Vec<(u32, Box<Page>)> {
            let one = |p: u32| {
                let mut b = Box::new([0; index::PAGE]);
                read(p as u64 * index::PAGE as u64, &mut b[..]);
                (p, b)
            };
            pages.into_iter().map(one).collect()
        };
        let window = copy(list, &|a, b| m.read_window(a, b));
        let marks = |k| -> Result<Vec<(u32, Box<Page>)>> {
            let pages = m.marked_pages(k).map_err(fail)?;
            Ok(copy(pages, &|a, b| m.read_marks(k, a, b)))
        };
        let pages = [window, marks(Marks::Reads)?, marks(Marks::Writes)?];
        if self.snapshots.len() >= SNAPSHOTS {
            self.snapshots.remove(0);
        }
        self.snapshots.push(Snapshot {
            state,
            since,
            pages,
        });
        Ok(())
    }

    /// Begins to play where it is nearest before `count`.
    fn start_for(&mut self, count: u64) -> Result<()> {
        let part = self.part(count);
        let place = self.places[part];
        let have = self.inner.part_if_built(place);
        if have.is_none() && count.saturating_sub(place.from) < self.inner.interval {
            return self.start_part(part);
        }
        // What is far ahead in the part that is played whole is reached by playing on.
        if have.is_none()
            && let Some(at) = self.at
            && at.part == part
            && at.until == u64::MAX
            && self.count() <= count
        {
            return Ok(());
        }
        let built = match have {
            Some(b) => b,
            None => self.inner.part(place, &self.cancel)?,
        };
        let i = built.interval(count);
        let (from, to) = built.bounds(i);
        let frame = built.frame(&self.inner, i)?;
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        self.snapshots.clear();
        self.at = None;
        self.machine.clear_window().map_err(fail)?;
        self.machine.clear_marks().map_err(fail)?;
        let state = frame
            .load(&mut self.machine)
            .ok_or_else(|| self.inner.bad_frame())?;
        let source = self.source(state.position);
        self.machine
            .resume(Box::new(source), &state)
            .map_err(fail)?;
        self.at = Some(Since {
            part,
            count: from,
            until: to,
        });
        self.snapshot()
    }

    /// The number of the part in which `count` instructions are completed.
    fn part(&self, count: u64) -> usize {
        let i = self.places.partition_point(|p| p.from <= count);
        i.saturating_sub(1)
    }

    fn start_part(&mut self, part: usize) -> Result<()> {
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        self.snapshots.clear();
        self.at = None;
        let place = self.places[part];
        let source = Chunks::new(&self.inner, thread, place.chunk);
        self.machine.from_keyframe(Box::new(source)).map_err(fail)?;
        self.machine.clear_marks().map_err(fail)?;
        self.at = Some(Since {
            part,
            count: place.from,
            until: u64::MAX,
        });
        Ok(())
    }

    fn advance(&mut self, count: u64) -> Result<()> {
        while self.count() < count {
            if !matches!(self.run(count)?, Stop::Position | Stop::Break) {
                break;
            }
        }
        Ok(())
    }

    /// Instructions in gaps that all runs have gone over.
    pub fn skipped(&self) -> u64 {
        self.machine.skipped()
    }

    /// Goes to the end of the gap at hand, but not beyond `count`.
    pub fn leave_gap(&mut self, count: u64) -> Result<()> {
        let thread = self.thread;
        self.machine.leave_gap(count).map_err(|e| replay(thread, e))
    }

    /// Plays until `count` instructions are completed, or a break, or the end.
    pub fn run(&mut self, count: u64) -> Result<Stop> {
        loop {
            let Some(at) = self.at else {
                return Err(Error::NoThread(self.thread));
            };
            let end = self.places[at.part].to;
            let border = match self.places[at.part].last {
                true => at.until,
                false => at.until.min(end),
            };
            if self.count() >= border && self.count() < count {
                self.cross(at)?;
                continue;
            }
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let thread = self.thread;
            let to = count.min(border).min(self.count().saturating_add(STRIDE));
            let stop = self.machine.run_to(to).map_err(|e| replay(thread, e))?;
            if stop != Stop::Position || self.count() >= count {
                return Ok(stop);
            }
        }
    }

    /// Goes on into the next interval, or the next part.
    fn cross(&mut self, at: Since) -> Result<()> {
        let thread = self.thread;
        let here = self.count();
        self.snapshots.clear();
        let part = self.part(here);
        if part != at.part {
            // The key frame there empties the window.
            self.machine.clear_marks().map_err(|e| replay(thread, e))?;
            self.at = Some(Since {
                part,
                count: here,
                until: u64::MAX,
            });
            return Ok(());
        }
        let built = self.inner.part(self.places[part], &self.cancel)?;
        let i = built.interval(here);
        let (from, to) = built.bounds(i);
        let loaded = match from == here {
            true => built.frame(&self.inner, i)?.load(&mut self.machine),
            false => None,
        };
        loaded.ok_or_else(|| self.inner.bad_frame())?;
        self.machine.clear_marks().map_err(|e| replay(thread, e))?;
        self.at = Some(Since {
            part,
            count: here,
            until: to,
        });
        Ok(())
    }

    /// Marks of these bytes are taken away; what there was.
    pub fn take_marks(&mut self, address: u64, len: u64) -> [Vec<u8>; 2] {
        let none = vec![0; len as usize];
        [Marks::Reads, Marks::Writes].map(|k| {
            let mut old = none.clone();
            self.machine.read_marks(k, address, &mut old);
            self.machine.write_marks(k, address, &none);
            old
        })
    }

    /// The machine's marks no longer tell what was touched: it continues from a snapshot or a frame.
    pub fn spoil(&mut self) {
        self.at = None;
    }

    /// The index of the part in which instruction `count` is.
    pub fn index(&self, count: u64) -> Result<Arc<index::Part>> {
        (self.inner).part(self.places[self.part(count)], &self.cancel)
    }
}
