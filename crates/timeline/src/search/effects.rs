//! Which instructions of one thread stop a run, and what they access.

use super::hit::{Hit, SearchRange};
use crate::access::{Done, FEW};
use crate::base::STRIDE;
use crate::engine::Engine;
use crate::index::{IndexPart, IntervalSummary, Touching};
use crate::model::stops::*;
use crate::play::Player;
use crate::play::Viewpoint;
use crate::{Result, ThreadId};
use hindsight_isa::CpuState;
use hindsight_replay::access::Access;
use hindsight_replay::{Expression, Look, Machine, Operand, Stop as Halt};
use std::sync::Arc;

/// To find an access, a stretch is cut into this many pieces. Going back costs most, and each cut goes back once.
const SLICES: u64 = 128;
/// A piece has at least this many instructions.
const LEAST: u64 = 16;
/// Up to this many watched bytes, each line is looked up in the index of steps.
const SMALL: u64 = 1 << 16;

/// A breakpoint.
struct Wanted {
    /// Its number in the list of stops.
    number: usize,
    /// The caller's number.
    id: u64,
    address: u64,
    expression: Option<Arc<Expression>>,
    /// Its condition is code.
    code: bool,
}

/// The things that instructions of a thread may do to stop a run.
pub struct Wants {
    breaks: Vec<Wanted>,
    calls: Vec<u64>,
    pub(super) watches: Vec<Watchpoint>,
    /// Watchpoints for writes that stop only where one of these values changes.
    values: Vec<WatchedValue>,
    registers: Vec<Register>,
}

impl Wants {
    pub fn of(view: &Viewpoint, thread: ThreadId, stops: &Stops) -> Wants {
        let image = view.engine().image(thread);
        let here = |i: Option<u32>| i.is_none_or(|i| i == image);
        Wants {
            breaks: (stops.breakpoints.iter().enumerate())
                .filter(|(_, b)| here(b.image) && b.thread.is_none_or(|t| t == thread))
                .map(|(number, b)| Wanted {
                    number,
                    id: b.id,
                    address: b.address,
                    expression: match &b.condition {
                        Some(Condition::Expression(e)) => Some(Arc::clone(e)),
                        _ => None,
                    },
                    code: matches!(b.condition, Some(Condition::Code(_))),
                })
                .collect(),
            calls: (stops.calls.iter().copied())
                .filter(|f| view.engine().known_tracks(thread, *f).is_none())
                .collect(),
            watches: (stops.watchpoints.iter().copied())
                .filter(|w| here(w.image) && w.len > 0)
                .collect(),
            values: stops.values.clone(),
            registers: stops.registers.clone(),
        }
    }

    /// Whether the values that writes leave decide, and only accesses have to be looked at.
    pub fn compares(&self) -> bool {
        !self.values.is_empty() && self.registers.is_empty()
    }

    /// The same watchpoints, which stop at every access.
    pub fn accesses(&self) -> Wants {
        Wants {
            breaks: Vec::new(),
            calls: Vec::new(),
            watches: self.watches.clone(),
            values: Vec::new(),
            registers: Vec::new(),
        }
    }

    /// Whether a run stops before some instructions.
    pub fn breaks(&self) -> bool {
        !self.breaks.is_empty() || !self.calls.is_empty()
    }

    /// Whether the effects of instructions matter.
    pub fn steps(&self) -> bool {
        !self.watches.is_empty() || !self.registers.is_empty()
    }

    /// Whether only accesses matter, which leave marks.
    pub fn marks_tell(&self) -> bool {
        self.registers.is_empty() && !self.watches.is_empty()
    }

    /// Whether the index is certain of the accesses: it knows words, and bytes where both kinds count.
    pub fn are_certain(&self) -> bool {
        let certain = |w: &Watchpoint| {
            let words = w.address.is_multiple_of(8) && w.len.is_multiple_of(8);
            words || w.watch.kinds() == (true, true)
        };
        self.values.is_empty() && self.watches.iter().all(certain)
    }

    /// Whether an interval of a part may have effects that stop. `known` has the answers for the parts of the last
    /// questions.
    pub fn touched(
        &self,
        engine: &Arc<Engine>,
        part: &IndexPart,
        interval: usize,
        known: &mut Touching,
    ) -> Result<bool> {
        if !self.registers.is_empty() {
            return Ok(true);
        }
        let sets = known.of(part, || {
            let set = |w: &Watchpoint| {
                let (reads, writes) = w.watch.kinds();
                part.touching(engine, w.address, w.len, reads, writes)
            };
            self.watches.iter().map(set).collect()
        })?;
        Ok(sets.iter().any(|s| s.has(interval)))
    }

    /// The first place in a stretch before which a run stops.
    pub fn first_break(
        &self,
        player: &mut Player,
        s: SearchRange,
        stops: &mut Stops,
    ) -> Result<Option<Hit>> {
        let mut found = None;
        let mut lo = s.lo;
        while self.breaks() && lo < s.hi && found.is_none() {
            let hi = s.hi.min((lo / STRIDE + 1) * STRIDE);
            self.breaks_in(player, lo, hi, stops, &mut |h| {
                if h.count >= s.first {
                    found = Some(h);
                }
                found.is_none()
            })?;
            lo = hi;
        }
        Ok(found)
    }

    /// The steps of an interval that may have effects that stop, among instructions `lo..hi`. `None`: it is better to
    /// look at these as a whole.
    pub fn steps_touching(
        &self,
        engine: &Engine,
        summary: &IntervalSummary,
        lo: u64,
        hi: u64,
    ) -> Result<Option<Vec<usize>>> {
        let small = self.watches.iter().all(|w| w.len <= SMALL);
        let only_accesses = self.registers.is_empty() && self.values.is_empty();
        if !summary.stepped || !only_accesses || !small {
            return Ok(None);
        }
        let mut out = Vec::new();
        for n in summary.step(lo)..=summary.step(hi - 1) {
            let mut any = false;
            for w in &self.watches {
                let reads = w.watch.kinds().0;
                let may = summary.touches(n, w.address, w.len, reads);
                any |= may.ok_or_else(|| engine.bad_frame())?;
            }
            if any {
                out.push(n);
            }
        }
        Ok(Some(out))
    }

    /// Calls `found` for each place before which a run stops, among instructions `lo..hi`, in order. It ends when
    /// `found` wants no more.
    pub fn breaks_in(
        &self,
        player: &mut Player,
        lo: u64,
        hi: u64,
        stops: &mut Stops,
        found: &mut dyn FnMut(Hit) -> bool,
    ) -> Result<()> {
        player.cancel.check()?;
        player.seek_for_conditions(lo)?;
        player.set_conditional_breaks(&self.conditional());
        let mut looks = 0u32;
        while player.run(hi)? == Halt::Break {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(256) {
                player.cancel.check()?;
            }
            if let Some(h) = self.stops_here(player, stops) {
                // A condition that was cancelled while it read memory seems to hold.
                player.cancel.check()?;
                if !found(h) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The first or last instruction among `lo..hi` whose effect stops.
    pub fn effects(
        &self,
        player: &mut Player,
        lo: u64,
        hi: u64,
        direction: Direction,
    ) -> Result<Option<Hit>> {
        player.cancel.check()?;
        if hi <= lo {
            return Ok(None);
        }
        player.seek_straight(lo)?;
        player.set_breaks(Vec::new());
        if !self.registers.is_empty() || hi - lo <= FEW {
            return self.step_through(player, hi, direction);
        }
        player.checkpoint_memory_if_far()?;
        let size = ((hi - lo) / SLICES).max(LEAST);
        let mut touched = Vec::new();
        let mut a = lo;
        self.clear(player);
        while a < hi {
            let mut b = hi.min(a + size);
            // It does not matter where exactly a piece ends.
            let mut halt = player.run_near(b)?;
            if halt == Halt::Position && player.count() == a {
                halt = player.run(b)?;
            }
            if halt != Halt::Position {
                // The thread ends here.
                touched.push((a, b));
                break;
            }
            b = player.count();
            if self.clear(player) {
                touched.push((a, b));
                if direction == Direction::Forward {
                    if let Some(h) = self.effects(player, a, b, direction)? {
                        return Ok(Some(h));
                    }
                    touched.pop();
                    player.seek_straight(b)?;
                    self.clear(player);
                }
            }
            a = b;
        }
        if direction == Direction::Forward {
            touched.reverse();
        }
        while let Some((a, b)) = touched.pop() {
            if let Some(h) = self.effects(player, a, b, direction)? {
                return Ok(Some(h));
            }
        }
        Ok(None)
    }

    /// Clears the marks of all watched memory. Returns whether there were any.
    pub(super) fn clear(&self, player: &mut Player) -> bool {
        let mut any = false;
        for w in &self.watches {
            let [r, wr, _] = player.known(w.address, w.len as usize);
            let (reads, writes) = w.watch.kinds();
            any |= reads && r.iter().any(|m| *m != 0);
            any |= writes && wr.iter().any(|m| *m != 0);
        }
        // Only now, because watchpoints may share bytes and watch different kinds of access.
        for w in &self.watches {
            player.take_marks(w.address, w.len);
        }
        any
    }

    /// Ages the marks of all watched memory: later accesses make marks that differ. Returns whether there were new
    /// ones.
    pub(super) fn age(&self, player: &mut Player) -> bool {
        let mut any = false;
        for w in &self.watches {
            let [r, wr] = player.is_marked_anew(w.address, w.len);
            let (reads, writes) = w.watch.kinds();
            any |= reads && r || writes && wr;
        }
        // Only now, because watchpoints may share bytes and watch different kinds of access.
        for w in &self.watches {
            player.age(w.address, w.len);
        }
        any
    }

    /// Makes aged marks ordinary ones again.
    pub(super) fn rejuvenate(&self, player: &mut Player) {
        for w in &self.watches {
            player.rejuvenate(w.address, w.len);
        }
    }

    /// The addresses before which a run stops.
    pub(super) fn addresses(&self) -> Vec<u64> {
        self.conditional().iter().map(|b| b.0).collect()
    }

    /// The same, with the conditions that a machine can evaluate.
    pub(super) fn conditional(&self) -> Vec<(u64, Option<Arc<Expression>>)> {
        let breaks = self
            .breaks
            .iter()
            .map(|b| (b.address, b.expression.clone()));
        let calls = self.calls.iter().map(|c| (*c, None));
        breaks.chain(calls).collect()
    }

    /// Whether code decides about a stop before an instruction. Only the thread that asks can run it.
    pub(super) fn has_code(&self) -> bool {
        self.breaks.iter().any(|b| b.code)
    }

    /// Whether registers alone decide about all stops before instructions.
    pub(super) fn needs_registers_only(&self) -> bool {
        let mut conditions = self.breaks.iter().filter_map(|b| b.expression.as_ref());
        !self.has_code() && !conditions.any(|e| e.reads_memory())
    }

    /// The stop before the instruction at the player's place.
    pub(super) fn stops_here(&self, player: &mut Player, stops: &mut Stops) -> Option<Hit> {
        let pc = player.registers().rip;
        let reason = self.reason(pc, &mut |b| {
            let condition = stops.breakpoints[b.number].condition.as_mut();
            condition.is_none_or(|c| c.holds(player))
        })?;
        Some(here(player, reason))
    }

    /// The same where no condition is code.
    pub(super) fn stops_player(&self, player: &mut Player) -> Option<Hit> {
        let pc = player.registers().rip;
        let reason = self.reason(pc, &mut |b| {
            let expression = b.expression.as_ref();
            expression.is_none_or(|e| e.holds(&mut At(player)))
        })?;
        Some(here(player, reason))
    }

    /// Why a run stops before the instruction of a machine that has no marks. Registers alone must decide.
    pub(super) fn stops_machine(&self, m: &Machine) -> Option<Reason> {
        let mut state = Bare(m.registers());
        self.reason(state.0.rip, &mut |b| {
            let expression = b.expression.as_ref();
            expression.is_none_or(|e| e.holds(&mut state))
        })
    }

    /// Why a run stops before an instruction.
    fn reason(&self, pc: u64, holds: &mut dyn FnMut(&Wanted) -> bool) -> Option<Reason> {
        let here = self.breaks.iter().filter(|b| b.address == pc);
        for b in here {
            if holds(b) {
                let (id, address) = (b.id, b.address);
                return Some(Reason::Breakpoint { id, address });
            }
        }
        self.calls
            .contains(&pc)
            .then_some(Reason::Call { function: pc })
    }

    /// Like [`Wants::effects`], one instruction after the other, from where the player is.
    fn step_through(
        &self,
        player: &mut Player,
        hi: u64,
        direction: Direction,
    ) -> Result<Option<Hit>> {
        let mut done = Done::new(player);
        let thread = player.thread;
        let mut last = None;
        while player.count() < hi {
            player.cancel.check()?;
            let count = player.count();
            let (cpu, vec) = (player.registers(), player.vectors());
            match done.step(player, hi)? {
                Some(true) => {}
                Some(false) => continue,
                None => break,
            }
            let after = player.registers();
            let reason = self.watched(player, count, &done).or_else(|| {
                let after_vec = player.vectors();
                let changed = |r: &&Register| r.differs((&cpu, &vec), (&after, &after_vec));
                let register = self.registers.iter().find(changed)?;
                Some((Reason::Register(*register), done.last_pc()))
            });
            let Some((reason, pc)) = reason else { continue };
            last = Some(Hit {
                thread,
                count: match direction {
                    Direction::Forward => count + 1,
                    Direction::Backward => count,
                },
                reason,
                pc: Some(pc),
            });
            if direction == Direction::Forward {
                break;
            }
        }
        Ok(last)
    }

    /// The watchpoint that an instruction's accesses meet, and the address of the instruction. The player must stand
    /// after that instruction.
    pub(super) fn watched(
        &self,
        player: &Player,
        count: u64,
        done: &Done,
    ) -> Option<(Reason, u64)> {
        for w in &self.watches {
            let (reads, writes) = w.watch.kinds();
            let value = self.values.iter().find(|v| v.id == w.id);
            let fits = |(_, a): &(usize, &Access)| {
                a.touches(w.address, w.len)
                    && (a.read && reads || a.write && writes)
                    && value.is_none_or(|v| leaves_other(player, a, w, &v.bytes))
            };
            if let Some((i, a)) = done.list.iter().enumerate().find(fits) {
                let reason = Reason::Watchpoint {
                    id: w.id,
                    count,
                    address: a.address,
                    len: a.len,
                    read: a.read,
                    write: a.write,
                    kernel: false,
                };
                return Some((reason, done.pc(i)));
            }
        }
        None
    }
}

/// A stop before the instruction at the player's place.
fn here(player: &Player, reason: Reason) -> Hit {
    Hit {
        thread: player.thread,
        count: player.count(),
        reason,
        pc: Some(player.registers().rip),
    }
}

/// Registers alone.
struct Bare(CpuState);

impl Look for Bare {
    fn register(&self, operand: Operand) -> u64 {
        operand.of(&self.0)
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// Whether an access left another value than `value` in watched memory. The player must stand after the access.
fn leaves_other(player: &Player, a: &Access, w: &Watchpoint, value: &[u8]) -> bool {
    let from = a.address.max(w.address);
    let to = (a.address.saturating_add(a.len)).min(w.address.saturating_add(w.len));
    let Some(held) = value.get((from - w.address) as usize..(to - w.address) as usize) else {
        return true;
    };
    let mut cells = vec![0; held.len()];
    player.cells(from, &mut cells);
    a.unknown || cells != held
}
