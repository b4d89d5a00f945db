//! Finds the calls of a function and its returns, once for each thread.
//!
//! A call is an instant at which a thread stands before the function's first instruction. The return address is then on
//! top of the stack. The call returns where the thread first comes to that address with the stack pointer just above
//! it. There is one exception: a function was called from there in between. Then the call was left in another way, by
//! `longjmp` or an exception. Marks tell that, as far as they can.
//!
//! A thread is replayed with breakpoints at the function and at the addresses after its calls. If there is an index,
//! several stretches are replayed at the same time. Several functions are looked for at once.

use crate::base::STRIDE;
use crate::base::sync::{joined, lock, spawn};
use crate::engine::Engine;
use crate::index::{self, MOST_CALLS as MOST, NEVER, Track, Tracks};
use crate::model::memory::Detail;
use crate::play::{Player, Viewpoint};
use crate::scan::Scan;
use crate::{
    Breakpoint, Cancel, Direction, Error, Filter, Position, Reason, Result, Scope, Stop, Stops,
    ThreadId, Watch,
};
use crate::{search, value};
use hindsight_isa::regs::{CALL_ARGUMENTS, RAX, RSP};
use hindsight_replay::Stop as Halt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// At most this many calls without a return are remembered in a stretch.
const OPEN: usize = 1 << 16;
/// Stretches for each job. With several, all jobs end at about the same time.
const STRETCHES: u64 = 3;

/// A call of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Call {
    /// Address of the function.
    pub function: u64,
    /// The thread that called it.
    pub thread: ThreadId,
    /// The instant before the function's first instruction. With `handler` it is the instant after that instruction: at
    /// the instant before it, the signal comes.
    pub position: Position,
    /// The number of instructions that the thread had completed there.
    pub count: u64,
    /// The kernel called it to handle a signal.
    pub handler: bool,
    /// How it returned. `None`: not within the recording, or by other means.
    pub returned: Option<Return>,
}

/// A return from a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Return {
    /// The instant before the instruction to which it returned.
    pub position: Position,
    /// The number of instructions that the thread had completed there.
    pub count: u64,
    /// The address to which it returned.
    pub to: u64,
    /// What rax held.
    pub value: u64,
}

impl Call {
    /// A call that was found in another way: of `function` by `thread`, at `position`, where the thread had completed `count`
    /// instructions.
    pub fn found(
        function: u64,
        (thread, count): (ThreadId, u64),
        position: Position,
        handler: bool,
    ) -> Call {
        Call {
            function,
            thread,
            position,
            count,
            handler,
            returned: None,
        }
    }

    /// The same, with its return to the address `to`, when the thread had completed `count` instructions. rax held `value` then.
    #[must_use]
    pub fn returning(self, position: Position, count: u64, to: u64, value: u64) -> Call {
        Call {
            returned: Some(Return {
                position,
                count,
                to,
                value,
            }),
            ..self
        }
    }

    /// The integer registers that pass arguments, in this state: rdi, rsi, rdx, rcx, r8, r9.
    pub fn arguments(cpu: &crate::CpuState) -> [u64; 6] {
        CALL_ARGUMENTS.map(|r| cpu.gpr[r])
    }
}

/// See [`crate::Timeline::calls_of`].
pub fn calls(
    engine: &Arc<Engine>,
    functions: &[u64],
    filter: &Filter,
    cancel: &Cancel,
) -> Result<Vec<Call>> {
    engine.has(filter)?;
    let mut out = Vec::new();
    for (t, scan) in engine.scans()? {
        let image = engine.image(*t);
        if filter.thread.is_some_and(|f| f != *t) || filter.image.is_some_and(|f| f != image) {
            continue;
        }
        let all = tracks(engine, *t, functions, cancel)?;
        let each = |(f, tracks): (u64, Arc<Tracks>)| {
            for c in &tracks.calls {
                let call = call(engine, (*t, scan), f, c);
                if filter.from.is_none_or(|p| p <= call.position)
                    && filter.until.is_none_or(|p| call.position < p)
                {
                    out.push(call);
                }
            }
        };
        functions.iter().copied().zip(all).for_each(each);
    }
    out.sort_by_key(|c| c.position);
    Ok(out)
}

/// A call as it was found.
fn call(engine: &Engine, (thread, scan): (ThreadId, &Scan), function: u64, c: &Track) -> Call {
    let handler = scan.handles(c.count, function);
    let count = c.count + handler as u64;
    Call {
        function,
        thread,
        position: engine.position_in(thread, scan, count),
        count,
        handler,
        returned: (c.returned != NEVER).then(|| Return {
            position: engine.position_in(thread, scan, c.returned),
            count: c.returned,
            to: c.to,
            value: c.value,
        }),
    }
}

/// The calls of functions in a thread, known or found now.
fn tracks(
    engine: &Arc<Engine>,
    thread: ThreadId,
    functions: &[u64],
    cancel: &Cancel,
) -> Result<Vec<Arc<Tracks>>> {
    let known = |f: &u64| engine.known_tracks(thread, *f);
    let mut all: Vec<Option<Arc<Tracks>>> = functions.iter().map(known).collect();
    let sidecar = &engine.sidecar;
    if !engine.unsaved && all.iter().any(Option::is_none) {
        sidecar.refresh();
    }
    let chunks = engine.trace.chunks(thread.0).len();
    let mut missing = Vec::new();
    for (f, here) in functions.iter().zip(&mut all) {
        if here.is_some() {
            continue;
        }
        let saved = sidecar.load_calls(thread, *f, chunks);
        match saved.and_then(|b| Tracks::decode(&b)) {
            Some(saved) => {
                let saved = Arc::new(saved);
                engine.remember_tracks(thread, *f, &saved);
                *here = Some(saved);
            }
            None if missing.contains(f) => {}
            None => missing.push(*f),
        }
    }
    let found = match missing.is_empty() {
        true => Vec::new(),
        false => find(engine, thread, &missing, cancel)?,
    };
    for (f, found) in missing.into_iter().zip(found) {
        let found = Arc::new(Tracks::new(found));
        if !engine.unsaved {
            // If they cannot be saved, they are found again.
            let _ = sidecar.add_calls(thread, f, chunks, found.encode());
        }
        engine.remember_tracks(thread, f, &found);
        let here = (functions.iter().zip(&mut all)).filter(|(g, _)| **g == f);
        here.for_each(|(_, t)| *t = Some(Arc::clone(&found)));
    }
    Ok(all.into_iter().flatten().collect())
}

/// Runs to the next or previous stop. If it shall stop at returns, the calls are found first.
pub fn run(
    view: &mut Viewpoint,
    direction: Direction,
    scope: Scope,
    stops: &mut Stops,
) -> Result<Stop> {
    match prepare(view, scope, stops) {
        Ok(()) => search::run(view, direction, scope, stops),
        Err(Error::Cancelled) => view.stop(Reason::Cancelled),
        Err(e) => Err(e),
    }
}

/// Finds the calls for which a run is to stop at the return.
fn prepare(view: &Viewpoint, scope: Scope, stops: &Stops) -> Result<()> {
    if stops.returns.is_empty() {
        return Ok(());
    }
    let engine = view.engine();
    for t in engine.scans()?.keys() {
        for function in stops.returns.iter().filter(|_| view.within(scope, *t)) {
            tracks(engine, *t, &[*function], view.cancel())?;
        }
    }
    Ok(())
}

/// Goes to where a call begins. The registers are those that the function finds. That also holds for a function that
/// handles a signal.
pub fn seek_call(view: &mut Viewpoint, call: &Call) -> Result<()> {
    let home = (view.thread(), view.count());
    let done = go_to_call(view, call);
    if done.is_err() {
        view.go_back(home);
    }
    done
}

fn go_to_call(view: &mut Viewpoint, call: &Call) -> Result<()> {
    view.seek_count(call.thread, call.count)?;
    if !call.handler {
        return Ok(());
    }
    // First to where the signal comes, then on into the handler.
    view.seek_count(call.thread, call.count.saturating_sub(2))?;
    let mut stops = Stops {
        breakpoints: vec![Breakpoint::at(0, call.function)],
        ..Stops::default()
    };
    while view.count() < call.count {
        let stop = search::run(view, Direction::Forward, Scope::Thread, &mut stops)?;
        match stop.reason {
            Reason::Breakpoint { .. } if view.count() + 1 == call.count => return Ok(()),
            Reason::Breakpoint { .. } => {}
            Reason::Cancelled => return Err(Error::Cancelled),
            _ => break,
        }
    }
    view.seek_count(call.thread, call.count)
}

/// Finds all calls of functions in a thread.
fn find(
    engine: &Arc<Engine>,
    thread: ThreadId,
    functions: &[u64],
    cancel: &Cancel,
) -> Result<Vec<Vec<Track>>> {
    let stretches = stretches(engine, thread)?;
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![Vec::new(); functions.len()]);
    let work = || -> Result<()> {
        loop {
            let Some((lo, hi)) = stretches.get(next.fetch_add(1, Relaxed)) else {
                return Ok(());
            };
            let mine = CallFinder::new(engine, thread, functions, cancel)?.play(*lo, *hi)?;
            let mut found = lock(&found);
            for ((all, mine), function) in found.iter_mut().zip(mine).zip(functions) {
                if all.len() + mine.len() > MOST {
                    return Err(Error::Unsupported(format!(
                        "the function at {function:#x} is called more than {MOST} times in thread {thread}"
                    )));
                }
                all.extend(mine);
            }
        }
    };
    std::thread::scope(|s| {
        let n = engine.jobs.min(stretches.len());
        let all: Vec<_> = (0..n).map(|_| spawn(s, work)).collect();
        all.into_iter().try_for_each(joined)
    })?;
    let found = found.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok(found.into_iter().map(without_left).collect())
}

/// Stretches of a thread that can be played separately. They go from one frame of the index to another. Without an
/// index they go from one key frame to another.
fn stretches(engine: &Arc<Engine>, thread: ThreadId) -> Result<Vec<(u64, u64)>> {
    let scan = engine.scan(thread)?;
    let size =
        ((scan.to - scan.from) / (engine.jobs as u64 * STRETCHES)).max(index::span(engine, thread));
    let mut starts: Vec<u64> = Vec::new();
    for range in index::part_ranges(engine, thread) {
        let frames = match engine.part_if_built(range) {
            Some(part) => part.borders.clone(),
            None => vec![range.from],
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
    /// Its index among those found.
    number: usize,
    to: u64,
}

/// A call as it was found.
#[derive(Clone, Copy)]
struct Begun {
    track: Track,
    sp: u64,
    /// The return address was written for this call. Otherwise another function went on as this one (a tail call).
    pushed: bool,
}

/// The most bytes that an instruction may have.
const LONGEST: u64 = 15;

/// What is known of the calls of one function.
struct Finding {
    function: u64,
    /// Open calls by the stack pointer at their beginning. There may be several, because of tail calls.
    open: BTreeMap<u64, VecDeque<Open>>,
    found: Vec<Begun>,
}

struct CallFinder {
    player: Player,
    /// Addresses after calls.
    behind: BTreeSet<u64>,
    of: Vec<Finding>,
}

impl CallFinder {
    fn new(
        engine: &Arc<Engine>,
        thread: ThreadId,
        functions: &[u64],
        cancel: &Cancel,
    ) -> Result<CallFinder> {
        let mut player = Player::new(engine, thread)?;
        player.cancel = cancel.clone();
        let of = |function: &u64| Finding {
            function: *function,
            open: BTreeMap::new(),
            found: Vec::new(),
        };
        Ok(CallFinder {
            player,
            behind: BTreeSet::new(),
            of: functions.iter().map(of).collect(),
        })
    }

    /// Stops at the functions and behind their calls.
    fn set_breaks(&mut self) {
        let functions = self.of.iter().map(|f| f.function);
        let breaks = self.behind.iter().copied().chain(functions);
        self.player.set_breaks(breaks.collect());
    }

    /// The calls at instants `lo..hi`, of each function. Their returns may be later.
    fn play(mut self, lo: u64, hi: u64) -> Result<Vec<Vec<Begun>>> {
        self.player.seek(lo)?;
        self.set_breaks();
        self.run(hi, &mut |s| {
            let pc = s.player.registers().rip;
            if let Some(n) = s.of.iter().position(|f| f.function == pc) {
                s.call(n)?;
            }
            s.back()?;
            Ok(s.of.iter().all(|f| f.found.len() <= MOST))
        })?;
        let is_open = |f: &Finding| !f.open.is_empty();
        if self.of.iter().any(is_open) {
            // Only the returns that are still missing matter now.
            let open = self.of.iter().flat_map(|f| f.open.values()).flatten();
            let behind: BTreeSet<u64> = open.map(|o| o.to).collect();
            self.player.set_breaks(behind.into_iter().collect());
            let end = self.player.to;
            self.run(end, &mut |s| {
                s.back()?;
                Ok(s.of.iter().any(is_open))
            })?;
        }
        Ok(self.of.into_iter().map(|f| f.found).collect())
    }

    /// Plays up to an instant, and calls `look` at each break until that wants no more.
    fn run(
        &mut self,
        to: u64,
        look: &mut dyn FnMut(&mut CallFinder) -> Result<bool>,
    ) -> Result<()> {
        let mut looks = 0u32;
        while self.player.count() < to {
            self.player.cancel.check()?;
            let stop = to.min(self.player.count().saturating_add(STRIDE));
            loop {
                match self.player.run(stop)? {
                    Halt::Break => {}
                    Halt::Position => break,
                    // The thread ends here.
                    _ => return Ok(()),
                }
                if !look(self)? {
                    return Ok(());
                }
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(256) {
                    self.player.cancel.check()?;
                }
            }
        }
        Ok(())
    }

    /// The thread stands before a function.
    fn call(&mut self, n: usize) -> Result<()> {
        let sp = self.player.registers().gpr[RSP];
        let count = self.player.count();
        // At a border marks begin anew. The player may not have what was written before.
        let border = self.player.since() == count;
        let mut to = [0; 8];
        if border {
            let mut view = Viewpoint::new(Arc::clone(self.player.engine()))?;
            view.set_cancel(self.player.cancel.clone());
            view.seek_count(self.player.thread, count)?;
            let bytes = value::memory(&mut view, sp, 8, Detail::Known)?.bytes;
            to = std::array::from_fn(|i| bytes.get(i).copied().flatten().map_or(0, |k| k.value));
        } else {
            let [_, _, cells] = self.player.known(sp, 8);
            self.player.sound()?;
            to.copy_from_slice(&cells);
        }
        let to = u64::from_le_bytes(to);
        if self.behind.insert(to) {
            self.set_breaks();
        }
        // From here on, writes to the word are seen.
        let [_, writes] = self.player.take_marks(sp, 8);
        let pushed = writes.iter().any(|m| *m != 0) || border;
        if pushed {
            // Calls that began with this stack pointer are over. At a border nobody knows whether the word was written: one that
            // another function goes on from, by a jump, has the same return address.
            for (i, f) in self.of.iter_mut().enumerate() {
                match f.open.get_mut(&sp) {
                    Some(open) if border && i != n => open.retain(|o| o.to == to),
                    Some(_) => drop(f.open.remove(&sp)),
                    None => {}
                }
            }
        }
        let f = &mut self.of[n];
        let open = f.open.entry(sp).or_default();
        if open.len() == OPEN {
            open.pop_front();
        }
        open.push_back(Open {
            number: f.found.len(),
            to,
        });
        if f.open.len() > OPEN {
            f.open.pop_last();
        }
        let track = Track {
            count,
            returned: NEVER,
            to,
            value: 0,
        };
        f.found.push(Begun { track, sp, pushed });
        Ok(())
    }

    /// The thread may have returned from calls.
    fn back(&mut self) -> Result<()> {
        let cpu = self.player.registers();
        let (pc, sp) = (cpu.rip, cpu.gpr[RSP].wrapping_sub(8));
        let count = self.player.count();
        let opened = |f: &Finding| {
            f.open
                .get(&sp)
                .is_some_and(|o| o.iter().any(|o| o.to == pc))
        };
        if !self.of.iter().any(opened) {
            return Ok(());
        }
        // Another function was called from there in between. At a border marks begin anew.
        let [_, writes, _] = self.player.known(sp, 8);
        if writes.iter().any(|m| *m != 0) {
            // But perhaps no call wrote it. `vfork` takes its return address from the stack, and puts it back.
            let mut view = Viewpoint::new(Arc::clone(self.player.engine()))?;
            view.set_cancel(self.player.cancel.clone());
            view.seek_count(self.player.thread, count)?;
            let last = search::find(&mut view, Direction::Backward, sp, 8, Watch::Write)?;
            if last.is_none_or(|w| (1..=LONGEST).contains(&pc.wrapping_sub(w.pc))) {
                self.of.iter_mut().for_each(|f| drop(f.open.remove(&sp)));
                return Ok(());
            }
        }
        for f in &mut self.of {
            let Some(open) = f.open.get_mut(&sp) else {
                continue;
            };
            open.retain(|o| {
                if o.to == pc {
                    let track = &mut f.found[o.number].track;
                    (track.returned, track.value) = (count, cpu.gpr[RAX]);
                }
                o.to != pc
            });
            if open.is_empty() {
                f.open.remove(&sp);
            }
        }
        Ok(())
    }
}

/// Removes returns that cannot be. The function may be called again with the same stack pointer before an earlier call
/// has returned. That one then never returns: its return address was overwritten.
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
