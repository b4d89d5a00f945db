//! Calls of a function and its returns, found once for a thread and kept.
//!
//! A call is an instant at which a thread stands before the function's first instruction. It returns
//! where the thread first comes to the address that then was on top of the stack, with the stack
//! pointer just above it; unless the function, or as far as marks tell another one, has been called from there in between:
//! then it was left in another way, by `longjmp` or an exception. A thread is replayed with breakpoints at the function and at the addresses
//! behind the calls of it that were met, in several stretches at the same time where there is an index.

use crate::base::sync::{joined, lock};
use crate::engine::Inner;
use crate::index::{self, Reader, put};
use crate::play::Player;
use crate::{
    Breakpoint, Cancel, Cursor, Direction, Error, Filter, Position, Reason, Result, Scope, Stops,
    ThreadId, Timeline,
};
use hindsight_replay::Stop as Halt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const RAX: usize = 0;
const RSP: usize = 4;
/// rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Instructions between two looks whether it was cancelled.
const STRIDE: u64 = 1 << 22;
/// Calls without a return that are remembered in a stretch.
const OPEN: usize = 1 << 16;
/// Calls of a function in one thread that are kept.
pub const MOST: usize = 1 << 24;
/// Stretches for each job, so that all jobs end at about the same time.
const STRETCHES: u64 = 3;

/// A call of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub function: u64,
    pub thread: ThreadId,
    /// Before the function's first instruction; behind it where `handler`: before it the thread stands where the
    /// signal comes.
    pub position: Position,
    /// Instructions of the thread completed there.
    pub count: u64,
    /// The kernel called it, to handle a signal.
    pub handler: bool,
    /// `None`: it did not return within the recording, or by other means.
    pub returned: Option<Return>,
}

/// A return from a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// Before the instruction that is returned to.
    pub position: Position,
    /// Instructions of the thread completed there.
    pub count: u64,
    /// The address that is returned to.
    pub to: u64,
    /// What rax holds.
    pub value: u64,
}

/// The same as it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    pub count: u64,
    /// Where it returned to; [`NEVER`] if it did not.
    pub returned: u64,
    pub to: u64,
    pub value: u64,
}

const NEVER: u64 = u64::MAX;

/// All calls of a function in a thread.
#[derive(Default, Debug)]
pub(crate) struct Tracks {
    /// In the order of the calls.
    pub calls: Vec<Track>,
    /// Numbers of those that returned, in the order of their returns.
    pub returns: Vec<u32>,
}

/// By thread and function.
pub(crate) type Known = Mutex<BTreeMap<(ThreadId, u64), Arc<Tracks>>>;

impl Call {
    /// The integer registers in which arguments are passed, as of this state: rdi, rsi, rdx, rcx, r8, r9.
    pub fn arguments(cpu: &crate::CpuState) -> [u64; 6] {
        ARGUMENTS.map(|r| cpu.gpr[r])
    }
}

impl Tracks {
    fn new(mut calls: Vec<Track>) -> Tracks {
        calls.sort_by_key(|c| c.count);
        let mut returns: Vec<u32> = (0..calls.len() as u32)
            .filter(|i| calls[*i as usize].returned != NEVER)
            .collect();
        returns.sort_by_key(|i| calls[*i as usize].returned);
        Tracks { calls, returns }
    }

    /// As bytes: the number of calls, and of each the instructions since the one before it, where it is to return to,
    /// and 0 if it did not; else the instructions until then and 1, and what rax held.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.calls.len() as u64);
        let mut before = 0;
        for c in &self.calls {
            put(&mut out, c.count - before);
            before = c.count;
            put(&mut out, c.to);
            if c.returned == NEVER {
                put(&mut out, 0);
            } else {
                put(&mut out, c.returned - c.count + 1);
                put(&mut out, c.value);
            }
        }
        out
    }

    /// Inverse of [`Tracks::encode`]; `None` if the bytes are none.
    fn decode(bytes: &[u8]) -> Option<Tracks> {
        let mut r = Reader { b: bytes, at: 0 };
        let n = r.int()?;
        let mut calls = Vec::new();
        let mut count = 0u64;
        for _ in 0..n {
            count = count.checked_add(r.int()?)?;
            let to = r.int()?;
            let (returned, value) = match r.int()? {
                0 => (NEVER, 0),
                after => (count.checked_add(after - 1)?, r.int()?),
            };
            calls.push(Track {
                count,
                returned,
                to,
                value,
            });
        }
        (r.at == bytes.len() && calls.len() <= MOST).then(|| Tracks::new(calls))
    }

    /// The nearest return at instants `lo..=hi`, from either end.
    pub fn nearest_return(&self, lo: u64, hi: u64, last: bool) -> Option<Track> {
        let at = |i: &u32| self.calls[*i as usize].returned;
        let found = match last {
            false => self.returns.partition_point(|i| at(i) < lo),
            true => (self.returns.partition_point(|i| at(i) <= hi)).checked_sub(1)?,
        };
        let track = self.calls[*self.returns.get(found)? as usize];
        (lo..=hi).contains(&track.returned).then_some(track)
    }

    /// The nearest call at instants `lo..=hi`, from either end.
    pub fn nearest_call(&self, lo: u64, hi: u64, last: bool) -> Option<Track> {
        let found = match last {
            false => self.calls.partition_point(|c| c.count < lo),
            true => (self.calls.partition_point(|c| c.count <= hi)).checked_sub(1)?,
        };
        let track = *self.calls.get(found)?;
        (lo..=hi).contains(&track.count).then_some(track)
    }
}

impl Timeline {
    /// All calls of the function that begins at an address, with their returns, in the total order.
    /// `filter`: threads, program image and instants (of the calls); its kinds do not matter.
    ///
    /// The first question about a function replays the threads that are asked about; what was found is
    /// kept, and saved beside the trace.
    pub fn calls(&self, function: u64, filter: &Filter, cancel: &Cancel) -> Result<Vec<Call>> {
        self.has(filter)?;
        let mut out = Vec::new();
        for (t, scan) in self.scans()? {
            let image = self.0.image(*t);
            if filter.thread.is_some_and(|f| f != *t) || filter.image.is_some_and(|f| f != image) {
                continue;
            }
            let tracks = self.tracks(*t, function, cancel)?;
            for c in &tracks.calls {
                let handler = scan.handles(c.count, function);
                let count = c.count + handler as u64;
                let position = self.0.position(*t, scan, count);
                if filter.from.is_some_and(|p| position < p)
                    || filter.until.is_some_and(|p| p <= position)
                {
                    continue;
                }
                out.push(Call {
                    function,
                    thread: *t,
                    position,
                    count,
                    handler,
                    returned: (c.returned != NEVER).then(|| Return {
                        position: self.0.position(*t, scan, c.returned),
                        count: c.returned,
                        to: c.to,
                        value: c.value,
                    }),
                });
            }
        }
        out.sort_by_key(|c| c.position);
        Ok(out)
    }

    /// The calls in a thread, if they are already known.
    pub(crate) fn known_tracks(&self, thread: ThreadId, function: u64) -> Option<Arc<Tracks>> {
        lock(&self.0.calls).get(&(thread, function)).cloned()
    }

    /// The calls in a thread.
    pub(crate) fn tracks(
        &self,
        thread: ThreadId,
        function: u64,
        cancel: &Cancel,
    ) -> Result<Arc<Tracks>> {
        if let Some(t) = self.known_tracks(thread, function) {
            return Ok(t);
        }
        let sidecar = &self.0.sidecar;
        if !self.0.unsaved {
            sidecar.refresh();
        }
        let saved = sidecar.load_calls(thread, function);
        let all = match saved.and_then(|b| Tracks::decode(&b)) {
            Some(saved) => saved,
            None => {
                let found = Tracks::new(find(&self.0, thread, function, cancel)?);
                if !self.0.unsaved {
                    // Where it cannot be saved it is found again.
                    let _ = sidecar.add_calls(thread, function, found.encode());
                }
                found
            }
        };
        let all = Arc::new(all);
        lock(&self.0.calls).insert((thread, function), Arc::clone(&all));
        Ok(all)
    }
}

impl Cursor {
    /// Goes to where a call begins: registers are those that the function finds, also if it handles a signal.
    pub fn seek_call(&mut self, call: &Call, cancel: &Cancel) -> Result<()> {
        self.seek_count(call.thread, call.count)?;
        if !call.handler {
            return Ok(());
        }
        // To where the signal comes, and on into the handler.
        self.seek_count(call.thread, call.count.saturating_sub(2))?;
        let mut stops = Stops {
            breakpoints: vec![Breakpoint::at(0, call.function)],
            ..Stops::default()
        };
        while self.count() < call.count {
            let stop = self.run(Direction::Forward, Scope::Thread, &mut stops, cancel)?;
            match stop.reason {
                Reason::Breakpoint { .. } if self.count() + 1 == call.count => return Ok(()),
                Reason::Breakpoint { .. } => {}
                _ => break,
            }
        }
        self.seek_count(call.thread, call.count)
    }
}

/// Finds all calls of a function in a thread, unordered.
fn find(
    inner: &Arc<Inner>,
    thread: ThreadId,
    function: u64,
    cancel: &Cancel,
) -> Result<Vec<Track>> {
    let stretches = stretches(inner, thread)?;
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let Some((lo, hi)) = stretches.get(next.fetch_add(1, Relaxed)) else {
                return Ok(());
            };
            let mine = Stretch::new(inner, thread, function)?.play(*lo, *hi, cancel)?;
            let mut found = lock(&found);
            if found.len() + mine.len() > MOST {
                return Err(Error::Unsupported(format!(
                    "the function at {function:#x} is called more than {MOST} times in thread {thread}"
                )));
            }
            found.extend(mine);
        }
    };
    std::thread::scope(|s| {
        let n = inner.jobs.min(stretches.len());
        let all: Vec<_> = (0..n).map(|_| s.spawn(work)).collect();
        all.into_iter().try_for_each(joined)
    })?;
    Ok(without_left(
        found.into_inner().unwrap_or_else(|e| e.into_inner()),
    ))
}

/// Stretches of a thread that can be played by themselves: from one frame of the index to another, or
/// where there is no index, from one key frame to another.
fn stretches(inner: &Arc<Inner>, thread: ThreadId) -> Result<Vec<(u64, u64)>> {
    let scan = inner.scan(thread)?;
    let size = ((scan.to - scan.from) / (inner.jobs as u64 * STRETCHES)).max(inner.span(thread));
    let mut starts: Vec<u64> = Vec::new();
    for place in index::places(inner, thread) {
        let frames = match inner.part_if_built(place) {
            Some(part) => part.borders.clone(),
            None => vec![place.from],
        };
        for at in frames {
            if starts.last().is_none_or(|last| at >= last + size) {
                starts.push(at);
            }
        }
    }
    let ends = starts.iter().skip(1).copied().chain([scan.to]);
    Ok(starts.iter().copied().zip(ends).collect())
}

/// A call that has not returned.
struct Open {
    /// Its number among those found.
    number: usize,
    to: u64,
}

/// A call as it was found.
#[derive(Clone, Copy)]
struct Begun {
    track: Track,
    sp: u64,
    /// The address to return to was written for it, and not for what went on as this function.
    pushed: bool,
}

/// Bytes of an instruction at most.
const LONGEST: u64 = 15;

struct Stretch {
    player: Player,
    function: u64,
    /// Addresses behind calls.
    behind: BTreeSet<u64>,
    /// By the stack pointer at their beginning, several where a function goes on as another one.
    open: BTreeMap<u64, VecDeque<Open>>,
    found: Vec<Begun>,
}

impl Stretch {
    fn new(inner: &Arc<Inner>, thread: ThreadId, function: u64) -> Result<Stretch> {
        Ok(Stretch {
            player: Player::new(inner, thread)?,
            function,
            behind: BTreeSet::new(),
            open: BTreeMap::new(),
            found: Vec::new(),
        })
    }

    /// The calls at instants `lo..hi`; their returns may be later.
    fn play(mut self, lo: u64, hi: u64, cancel: &Cancel) -> Result<Vec<Begun>> {
        self.player.seek(lo)?;
        self.player.set_breaks(vec![self.function]);
        self.run(hi, cancel, &mut |s| {
            if s.player.registers().rip == s.function {
                s.call(cancel)?;
            }
            s.back(cancel)?;
            Ok(s.found.len() <= MOST)
        })?;
        if !self.open.is_empty() {
            // Only what is still missing.
            let open = self.open.values().flatten();
            let behind: BTreeSet<u64> = open.map(|o| o.to).collect();
            self.player.set_breaks(behind.into_iter().collect());
            let end = self.player.to;
            self.run(end, cancel, &mut |s| {
                s.back(cancel)?;
                Ok(!s.open.is_empty())
            })?;
        }
        Ok(self.found)
    }

    /// Plays up to an instant; shows itself at each break as long as that wants more.
    fn run(
        &mut self,
        to: u64,
        cancel: &Cancel,
        look: &mut dyn FnMut(&mut Stretch) -> Result<bool>,
    ) -> Result<()> {
        let mut looks = 0u32;
        while self.player.count() < to {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let stop = to.min(self.player.count().saturating_add(STRIDE));
            loop {
                match self.player.run(stop)? {
                    Halt::Break => {}
                    Halt::Position => break,
                    // The thread's end.
                    _ => return Ok(()),
                }
                if !look(self)? {
                    return Ok(());
                }
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(256) && cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(())
    }

    /// The thread stands before the function.
    fn call(&mut self, cancel: &Cancel) -> Result<()> {
        let sp = self.player.registers().gpr[RSP];
        let count = self.player.count();
        // At a border marks begin anew, and the player need not have what was written before.
        let border = self.player.since() == count;
        let mut to = [0; 8];
        if border {
            let mut cursor = Timeline(Arc::clone(self.player.inner())).cursor()?;
            cursor.seek_count(self.player.thread, count)?;
            let bytes = cursor.peek_unless(sp, 8, cancel)?.bytes;
            to = std::array::from_fn(|i| bytes.get(i).copied().flatten().map_or(0, |k| k.value));
        } else {
            let [_, _, cells] = self.player.known(sp, 8);
            to.copy_from_slice(&cells);
        }
        let to = u64::from_le_bytes(to);
        if self.behind.insert(to) {
            let breaks = self.behind.iter().copied().chain([self.function]);
            self.player.set_breaks(breaks.collect());
        }
        // From here on what is written there is seen.
        let [_, writes] = self.player.take_marks(sp, 8);
        let open = self.open.entry(sp).or_default();
        let pushed = writes.iter().any(|m| *m != 0) || border;
        if pushed {
            // Those that began with this stack pointer are gone.
            open.clear();
        }
        if open.len() == OPEN {
            open.pop_front();
        }
        open.push_back(Open {
            number: self.found.len(),
            to,
        });
        if self.open.len() > OPEN {
            self.open.pop_last();
        }
        let track = Track {
            count,
            returned: NEVER,
            to,
            value: 0,
        };
        self.found.push(Begun { track, sp, pushed });
        Ok(())
    }

    /// The thread may stand behind a call.
    fn back(&mut self, cancel: &Cancel) -> Result<()> {
        let cpu = self.player.registers();
        let (pc, sp) = (cpu.rip, cpu.gpr[RSP].wrapping_sub(8));
        let Some(open) = self.open.get_mut(&sp) else {
            return Ok(());
        };
        let count = self.player.count();
        // Another function was called from there in between. At a border marks begin anew.
        let [_, writes, _] = self.player.known(sp, 8);
        if open.iter().any(|o| o.to == pc) && writes.iter().any(|m| *m != 0) {
            // Unless it was no call that wrote it: `vfork` takes its return address from the stack, and puts it back.
            let mut cursor = Timeline(Arc::clone(self.player.inner())).cursor()?;
            cursor.seek_count(self.player.thread, count)?;
            let last = cursor.last_write(sp, 8, cancel)?;
            if last.is_none_or(|w| (1..=LONGEST).contains(&pc.wrapping_sub(w.pc))) {
                self.open.remove(&sp);
                return Ok(());
            }
        }
        open.retain(|o| {
            if o.to == pc {
                let track = &mut self.found[o.number].track;
                (track.returned, track.value) = (count, cpu.gpr[RAX]);
            }
            o.to != pc
        });
        if open.is_empty() {
            self.open.remove(&sp);
        }
        Ok(())
    }
}

/// Of all calls in a thread those that have not returned before the function was called with the same stack pointer: what
/// they would have returned by was overwritten.
fn without_left(mut all: Vec<Begun>) -> Vec<Track> {
    all.sort_by_key(|b| b.track.count);
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for i in 0..all.len() {
        let Begun { track, sp, pushed } = all[i];
        let here = open.entry(sp).or_default();
        if pushed {
            for left in here.drain(..) {
                let before = &mut all[left].track;
                if before.returned > track.count {
                    (before.returned, before.value) = (NEVER, 0);
                }
            }
        }
        here.push(i);
    }
    all.into_iter().map(|b| b.track).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_saved_as_they_are() {
        let track = |count, returned, value| Track {
            count,
            returned,
            to: 0x40_1000 + count,
            value,
        };
        let all = [track(5, 9, 1), track(6, NEVER, 0), track(7, 8, u64::MAX)];
        let tracks = Tracks::new(all.to_vec());
        let bytes = tracks.encode();
        let back = Tracks::decode(&bytes).unwrap();
        assert_eq!(format!("{tracks:?}"), format!("{back:?}"));
        for n in 0..bytes.len() {
            assert!(Tracks::decode(&bytes[..n]).is_none(), "{n}");
        }
    }
}
