//! A player plays one thread on a virtual processor, and can go anywhere in it.

mod aged;
mod ahead;
mod checkpoints;
mod entered;
mod starts;
mod steps;

use crate::base::STRIDE;
use crate::engine::{Engine, Looked};
use crate::index::{self, IndexPart, PartRange};
use crate::model::error::replay;
use crate::model::memory::KnownByte;
use crate::recording::Chunks;
use crate::{Cancel, Error, Result, ThreadId};
use checkpoints::PlayerCheckpoint;
use hindsight_isa::observe::UNKNOWN;
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{AccessKind, Expression, Lines, Machine, Stop};
use std::collections::HashMap;
use std::sync::Arc;
use steps::Steps;

/// On the way to an instant, a checkpoint is taken this many instructions before it, for steps back. Replaying them
/// takes less time than the checkpoint.
const TRAIL: u64 = 1 << 18;
/// Plays one thread.
///
/// The machine's window holds what was accessed since the instant that `at` names. It may hold older memory too. Marks
/// say what was accessed since then.
pub struct Player {
    engine: Arc<Engine>,
    pub thread: ThreadId,
    machine: Machine<'static>,
    ranges: Vec<PartRange>,
    /// First and last instruction count of the thread.
    pub from: u64,
    pub to: u64,
    /// The part that is played, and since when window and marks count.
    at: Option<Since>,
    /// What the window held at the interval's beginning.
    base: Lines,
    /// The interval whose steps were used last.
    steps: Option<Steps>,
    checkpoints: Vec<PlayerCheckpoint>,
    /// The chunk at which the machine's stream began.
    first: usize,
    /// What the recording says of memory at this instant has taken effect.
    settled: bool,
    /// For conditions: the values of words, by the bounds of the interval that accessed the word last. The helper finds
    /// them.
    pub word_values: HashMap<(u64, u64, u64), [Option<KnownByte>; 8]>,
    helper: Option<Box<Player>>,
    /// The machine that runs ahead where there is no index.
    ahead: Option<ahead::Ahead>,
    /// What the last search for accesses learned.
    pub writers: Option<super::Learned>,
    /// What searches have found out where the fine level is missing.
    pub slices: Option<super::Slices>,
    /// What searches for last accesses have found.
    pub swept: super::Swept,
    /// Cancels what the player does, including building the index that it needs.
    pub cancel: Cancel,
}

/// What must be known at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// Accesses since the interval began.
    Marks,
    /// Registers and memory, with marks since some instant.
    State,
    /// Registers and memory. Only marks that are made from there on count.
    Memory,
    /// Like `Memory`, before what is due at the instant has taken effect.
    Fresh,
}

impl Need {
    /// Whether marks from before the instant matter.
    fn has_marks(self) -> bool {
        matches!(self, Need::Marks | Need::State)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Since {
    part: usize,
    /// Marks tell accesses from here on. Here an interval or a step begins.
    count: u64,
    /// It is the beginning of a step.
    step: bool,
    /// The window has only what is needed up to here.
    until: u64,
    /// An interval of the coarse level began there. The fine level has nearer places to begin at.
    coarse: bool,
    /// A machine that ran ahead came there: the index knows nothing of this border.
    ahead: bool,
    /// Marks are complete, and there are no others.
    marks: bool,
}

impl Player {
    pub fn new(engine: &Arc<Engine>, thread: ThreadId) -> Result<Player> {
        let ranges = index::part_ranges(engine, thread);
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Err(Error::NoThread(thread));
        };
        let machine = engine.observing(thread)?;
        Ok(Player {
            from: engine.trace.chunks(thread.0)[0].first_pos,
            to: last.to.max(first.from),
            engine: Arc::clone(engine),
            thread,
            machine,
            ranges,
            at: None,
            base: Lines::default(),
            steps: None,
            checkpoints: Vec::new(),
            first: 0,
            settled: false,
            word_values: HashMap::new(),
            helper: None,
            ahead: None,
            writers: None,
            slices: None,
            swept: Default::default(),
            cancel: Cancel::new(),
        })
    }

    /// The number of instructions completed.
    pub fn count(&self) -> u64 {
        self.machine.position()
    }

    pub fn registers(&self) -> CpuState {
        self.machine.registers()
    }

    pub fn vectors(&self) -> VecState {
        self.machine.vectors()
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Copies code bytes at `addr`, at the present instant. Returns how many are known.
    pub fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.machine.code(addr, buf)
    }

    /// Hands all known code bytes of a stretch to `each`, piece by piece, each with its offset.
    pub fn known_code(&self, addr: u64, len: usize, each: &mut dyn FnMut(usize, &[u8])) {
        self.machine.known_code(addr, len, each);
    }

    /// Sets breaks: [`Player::run`] stops before these addresses.
    pub fn set_breaks(&mut self, addresses: Vec<u64>) {
        self.machine.set_breaks(addresses);
    }

    /// The same with conditions. A run goes on where they fail, as far as the player's marks tell.
    pub fn set_conditional_breaks(&mut self, breaks: &[(u64, Option<Arc<Expression>>)]) {
        self.machine.set_conditional_breaks(breaks);
    }

    /// The instruction count since which [`Player::known`] tells accesses.
    pub fn since(&self) -> u64 {
        self.at.map_or(0, |s| s.count)
    }

    /// What the thread accessed of these bytes since [`Player::since`], and what they hold: marks of reads, marks of
    /// writes, and the cells.
    pub fn known(&self, address: u64, len: usize) -> [Vec<u8>; 3] {
        let [reads, writes] = self.marks(address, len);
        let mut cells = vec![0; len];
        self.machine.read_window(address, &mut cells);
        [reads, writes, cells]
    }

    /// Whether all that the window was to hold could be found out, as far as it was needed. Nothing that it shows is to be trusted
    /// otherwise. Each run ends with this check, so it is needed only for bytes that no run has touched.
    pub fn sound(&self) -> Result<()> {
        self.machine.check().map_err(|e| replay(self.thread, e))
    }

    /// The marks of these bytes: of reads, and of writes.
    pub fn marks(&self, address: u64, len: usize) -> [Vec<u8>; 2] {
        let mut out = [vec![0; len], vec![0; len]];
        self.machine
            .read_marks(AccessKind::Reads, address, &mut out[0]);
        self.machine
            .read_marks(AccessKind::Writes, address, &mut out[1]);
        if self.machine.in_gap() {
            // What was known may have changed since the gap began.
            out.iter_mut().flatten().for_each(|m| *m &= UNKNOWN);
        }
        out
    }

    /// Copies what the cells of these addresses hold. Ask [`Player::sound`] behind that.
    pub fn cells(&self, address: u64, buf: &mut [u8]) {
        self.machine.read_window(address, buf);
    }

    /// Goes to where `count` instructions are completed, with marks since the interval began.
    pub fn seek(&mut self, count: u64) -> Result<()> {
        self.seek_with(count, Need::Marks)
    }

    /// Like [`Player::seek`], with marks since some instant of the interval.
    pub fn go(&mut self, count: u64) -> Result<()> {
        self.seek_with(count, Need::State)
    }

    fn seek_with(&mut self, count: u64, need: Need) -> Result<()> {
        let count = self.approach(count, need)?;
        // From the beginning of a coarse interval it is far. Whoever goes there most often goes somewhere near next.
        let near = count.saturating_sub(self.span());
        if near > self.count() && self.at.is_some_and(|at| at.coarse) && !self.is_in_large()? {
            self.advance(near)?;
            self.take_checkpoint()?;
        }
        let stop = count.saturating_sub(TRAIL);
        if stop > self.count() + TRAIL / 4 && !self.is_in_large()? {
            self.advance(stop)?;
            self.take_checkpoint()?;
        }
        self.advance(count)?;
        self.settle()
    }

    /// Like [`Player::seek`], for a search that goes back farther than a step. No checkpoint is taken on the way, and
    /// older marks are undefined.
    pub fn seek_straight(&mut self, count: u64) -> Result<()> {
        let count = self.approach(count, Need::Memory)?;
        self.advance(count)?;
        self.settle()
    }

    /// Like [`Player::seek_straight`], before what the recording says of memory there has taken effect.
    pub fn reach(&mut self, count: u64) -> Result<()> {
        let count = self.approach(count, Need::Fresh)?;
        self.advance(count)
    }

    /// Makes many short runs of this player, and of no other, quicker; see [`Machine::hold`].
    pub fn prepared<T>(&mut self, runs: impl FnOnce(&mut Player) -> Result<T>) -> Result<T> {
        let thread = self.thread;
        self.machine.hold().map_err(|e| replay(thread, e))?;
        let done = runs(self);
        self.machine.release();
        done
    }

    /// Goes to the nearest place before `count` from which replay can begin. Returns `count`, limited to the thread's
    /// range.
    fn approach(&mut self, count: u64, need: Need) -> Result<u64> {
        let count = count.clamp(self.from, self.to);
        self.machine.look_again();
        let step = match need {
            Need::Marks => None,
            _ => self.step_before(count)?,
        };
        let least = step.unwrap_or(0);
        if !self.near(count, need, least) {
            match step {
                Some(_) => self.start_step(count)?,
                None => self.start_for(count, need)?,
            }
        }
        if self.count() != count {
            self.machine.set_breaks(Vec::new());
        }
        Ok(count)
    }

    fn settle(&mut self) -> Result<()> {
        let thread = self.thread;
        let settled = self.machine.settle_memory();
        self.settled = settled.is_ok();
        settled.map_err(|e| replay(thread, e))
    }

    /// Goes to where `count` instructions are completed. Marks are those of the step or interval before: at a border,
    /// of the one that ends there.
    pub fn seek_end(&mut self, count: u64) -> Result<()> {
        self.go(count)?;
        self.end_at(count)
    }

    /// Like [`Player::seek_end`], for a search that does not go back from there. No checkpoint is taken on the way.
    pub fn seek_end_straight(&mut self, count: u64) -> Result<()> {
        let count = count.clamp(self.from, self.to);
        if count > self.from && self.is_border(count)? {
            return self.reach_end(count);
        }
        let count = self.approach(count, Need::State)?;
        self.advance(count)?;
        self.settle()?;
        self.end_at(count)
    }

    /// Like [`Player::seek_end_straight`], with marks from `begin` on. An interval that has steps begins there. A player
    /// that came from before it, without the index, begins again at the last step: its marks say too much.
    pub fn seek_end_since(&mut self, count: u64, begin: u64) -> Result<()> {
        self.seek_end_straight(count)?;
        if self.since() >= begin || count <= self.from {
            return Ok(());
        }
        self.start_nearest(count - 1)?;
        self.machine.set_breaks(Vec::new());
        self.advance(count)?;
        match self.is_border(count)? {
            true => Ok(()),
            false => self.settle(),
        }
    }

    /// Whether an interval or a step begins there.
    fn is_border(&self, count: u64) -> Result<bool> {
        if let Some(from) = self.step_before(count)? {
            return Ok(from == count);
        }
        Ok(self.begin_of(count) == count)
    }

    /// Goes to a border from the beginning of what ends there. It does not begin what begins there.
    fn reach_end(&mut self, count: u64) -> Result<()> {
        let least = self.step_before(count - 1)?.unwrap_or(0);
        let on_the_way = self.at.is_some_and(|at| {
            at.marks
                && (at.count < count && count <= at.until)
                && (least..count).contains(&self.count())
                && !(at.coarse && self.is_far(count))
        });
        if !on_the_way {
            self.start_nearest(count - 1)?;
        }
        self.machine.set_breaks(Vec::new());
        self.advance(count)
    }

    /// At a border, begins again at the border before.
    fn end_at(&mut self, count: u64) -> Result<()> {
        let count = count.clamp(self.from, self.to);
        if self.since() < count || count == self.from {
            return Ok(());
        }
        self.start_nearest(count - 1)?;
        self.machine.set_breaks(Vec::new());
        self.advance(count)
    }

    /// Asks another player of the thread, so that this one stays where it is.
    pub fn with_helper<T>(&mut self, ask: impl FnOnce(&mut Player) -> Result<T>) -> Result<T> {
        let mut helper = self.take_helper()?;
        let answer = ask(&mut helper);
        self.helper = Some(helper);
        answer
    }

    /// Takes another player of the thread. [`Player::give_helper`] gives it back.
    pub fn take_helper(&mut self) -> Result<Box<Player>> {
        let mut helper = match self.helper.take() {
            Some(h) => h,
            None => Box::new(Player::new(&self.engine, self.thread)?),
        };
        helper.cancel = self.cancel.clone();
        Ok(helper)
    }

    /// Takes a player of the same thread back.
    pub fn give_helper(&mut self, helper: Box<Player>) {
        self.helper = Some(helper);
    }

    /// Takes the place of another player of the thread, and keeps what it has learned.
    pub fn change_places(&mut self, mut other: Player) {
        std::mem::swap(self, &mut other);
        self.writers = other.writers.take();
        self.slices = other.slices.take();
        self.swept = std::mem::take(&mut other.swept);
        self.helper = other.helper.take();
    }

    /// The stream from the chunk on that has the events at a position.
    fn source(&mut self, position: u64) -> Chunks {
        let chunks = self.engine.trace.chunks(self.thread.0);
        self.first = chunks.partition_point(|c| c.last_pos < position);
        Chunks::new(&self.engine.recording, self.thread, self.first)
    }

    fn advance(&mut self, count: u64) -> Result<()> {
        while self.count() < count {
            if !matches!(self.run(count)?, Stop::Position | Stop::Break) {
                break;
            }
        }
        Ok(())
    }

    /// Whether it stands in a gap.
    pub fn in_gap(&self) -> bool {
        self.machine.in_gap()
    }

    /// The number of instructions in gaps that were passed.
    pub fn skipped(&self) -> u64 {
        self.machine.skipped()
    }

    /// Goes to the end of the present gap, but not beyond `count`.
    pub fn leave_gap(&mut self, count: u64) -> Result<()> {
        let thread = self.thread;
        self.machine.leave_gap(count).map_err(|e| replay(thread, e))
    }

    /// Whether it stands where `count` instructions are completed, as [`Player::go`] leaves it.
    pub fn stands(&self, count: u64) -> bool {
        self.count() == count && self.settled && self.at.is_some_and(|at| at.marks)
    }

    /// Plays until `count` instructions are completed, or to a break, or to the end.
    pub fn run(&mut self, count: u64) -> Result<Stop> {
        self.play(count, false)
    }

    /// Like [`Player::run`], but it may stop a few instructions before `count`, or not move at all. That takes less
    /// time.
    pub fn run_near(&mut self, count: u64) -> Result<Stop> {
        // If it stops before `count`, memory that is due there may have taken effect. That includes what the next
        // instruction reads.
        self.spoil();
        let stop = self.play(count, true)?;
        self.settled |= self.count() < count;
        if stop == Stop::Position && self.count() < count && self.has_begun()? {
            // The interrupted instruction has done its work. That belongs to the same instant as what follows.
            return self.play(self.count() + 1, false);
        }
        Ok(stop)
    }

    fn play(&mut self, count: u64, near: bool) -> Result<Stop> {
        loop {
            let Some(at) = self.at else {
                return Err(Error::NoThread(self.thread));
            };
            let end = self.ranges[at.part].to;
            let border = match self.ranges[at.part].last {
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
            self.settled &= to <= self.count();
            let stop = match near {
                true => self.machine.run_near(to),
                false => self.machine.run_to(to),
            };
            let stop = stop.map_err(|e| replay(thread, e))?;
            if stop != Stop::Position || self.count() >= count || near {
                return Ok(stop);
            }
        }
    }

    /// Clears the marks of these bytes and returns them. Later seeks that need marks begin at a checkpoint or a frame.
    pub fn take_marks(&mut self, address: u64, len: u64) -> [Vec<u8>; 2] {
        self.spoil();
        let none = vec![0; len as usize];
        [AccessKind::Reads, AccessKind::Writes].map(|k| {
            let mut old = none.clone();
            self.machine.read_marks(k, address, &mut old);
            self.machine.write_marks(k, address, &none);
            old
        })
    }

    /// The index that has instruction `count`, of the finest level.
    pub fn index(&self, count: u64) -> Result<Arc<IndexPart>> {
        (self.engine).finest(self.ranges[self.part(count)], count, &self.cancel)
    }

    /// Looks for the interval that has instruction `count`, see [`Engine::look`].
    pub fn look(
        &self,
        count: u64,
        touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
    ) -> Result<Looked> {
        let range = self.ranges[self.part(count)];
        self.engine.look(range, count, &self.cancel, touched)
    }

    /// The same without making a part of the fine level. A coarse interval is then the answer that has what is looked for.
    pub fn look_at_built(
        &self,
        count: u64,
        touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
    ) -> Result<Looked> {
        let range = self.ranges[self.part(count)];
        (self.engine).look_at_built(range, count, &self.cancel, touched)
    }

    /// Whether there is a coarse level at instruction `count`.
    pub fn has_coarse(&self, count: u64) -> bool {
        let range = self.ranges[self.part(count)];
        range.is_coarse() && self.engine.part_if_built(range).is_some()
    }

    /// Where the interval begins that has instruction `count`, in the finest index that is there.
    pub fn begin_of(&self, count: u64) -> u64 {
        let range = self.ranges[self.part(count)];
        let built = self.engine.nearest_if_built(range, count);
        built.map_or(range.from, |b| b.bounds(b.interval(count)).0)
    }
}
