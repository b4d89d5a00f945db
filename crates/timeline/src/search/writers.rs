//! The instructions that access watched memory. A search learns them on the way, and then meets them as breakpoints.

use super::effects::Wants;
use super::hit::{Hit, SearchRange};
use crate::Result;
use crate::access::Done;
use crate::model::stops::*;
use crate::play::{Learned, Player};
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::Access;
use std::collections::BTreeMap;

/// Backwards, this many instructions are looked at first, and `MORE` times as many each next time.
const PIECE: u64 = 1 << 15;
const MORE: u64 = 16;
/// At most this many instructions are learned.
const WRITERS: usize = 64;
/// A learned instruction may be met in vain this often, and `PER_ACCESS` times more for each time that it accessed
/// watched memory. After that, its accesses are searched for like others.
const IN_VAIN: u64 = 1024;
const PER_ACCESS: u64 = 256;

/// The instructions that access watched memory.
#[derive(Default)]
pub struct Writers {
    /// How often each was met, and how often it accessed watched memory.
    met: BTreeMap<u64, (u64, u64)>,
    /// The number of instructions to look at next on the way back. 0: nothing was looked at yet.
    piece: u64,
}

/// How far a pass over a stretch came.
enum Skimmed {
    /// To the end of the stretch.
    All,
    Hit(Hit),
    /// Another instruction accessed the memory between these counts.
    Other(u64, u64),
}

impl Writers {
    /// Begins with the instructions that the player's last search learned, if that watched the same memory.
    pub fn known(player: &Player, wants: &Wants) -> Writers {
        let same = (player.writers.as_ref()).filter(|l| l.watches == wants.watches);
        Writers {
            met: same.map(|l| l.met.clone()).unwrap_or_default(),
            piece: 0,
        }
    }

    /// Leaves them to the player for the next search. Who goes from one change to the next meets the same instructions
    /// again.
    pub fn remember(self, player: &mut Player, wants: &Wants) {
        player.writers = Some(Learned {
            watches: wants.watches.clone(),
            met: self.met,
        });
    }

    /// See [`Wants::effects`].
    pub fn effects(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        lo: u64,
        hi: u64,
        direction: Direction,
    ) -> Result<Option<Hit>> {
        if !wants.compares() {
            return wants.effects(player, lo, hi, direction);
        }
        let none = &mut Stops::default();
        if direction == Direction::Forward {
            let nowhere = (none, u64::MAX);
            return self.within(wants, player, (lo, hi), direction, nowhere);
        }
        let mut end = hi;
        while end > lo {
            self.piece = self.piece.saturating_mul(MORE).max(PIECE);
            let start = end.saturating_sub(self.piece).max(lo);
            let nowhere = (&mut *none, u64::MAX);
            let found = self.within(wants, player, (start, end), direction, nowhere)?;
            if found.is_some() {
                return Ok(found);
            }
            end = start;
        }
        Ok(None)
    }

    /// Forwards, the same together with stops before instructions.
    pub fn first(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        s: SearchRange,
        stops: &mut Stops,
    ) -> Result<Option<Hit>> {
        let met = (stops, s.first);
        self.within(wants, player, (s.lo, s.hi), Direction::Forward, met)
    }

    /// The stop in a stretch. Stops before instructions count from `first` on.
    fn within(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        (lo, hi): (u64, u64),
        direction: Direction,
        (stops, first): (&mut Stops, u64),
    ) -> Result<Option<Hit>> {
        let (mut at, mut last) = (lo, None);
        while at < hi {
            player.cancel.check()?;
            let met = (&mut *stops, first);
            let skimmed = self.skim(wants, player, (at, hi), direction, &mut last, met);
            match skimmed {
                Ok(_) => wants.rejuvenate(player),
                Err(_) => player.spoil(),
            }
            let (from, to) = match skimmed? {
                Skimmed::All => return Ok(last),
                Skimmed::Hit(h) => return Ok(Some(h)),
                Skimmed::Other(from, to) => (from, to),
            };
            let found = wants
                .accesses()
                .effects(player, from, to, Direction::Forward)?;
            at = match found {
                Some(h) => {
                    // It is met as a breakpoint next.
                    player.seek_straight(h.count - 1)?;
                    if !self.learn(player.registers().rip) {
                        let one = wants.effects(player, h.count - 1, h.count, direction)?;
                        match direction {
                            Direction::Forward if one.is_some() => return Ok(one),
                            _ => last = one.or(last),
                        }
                        h.count
                    } else {
                        h.count - 1
                    }
                }
                None => to.max(from + 1),
            };
        }
        Ok(last)
    }

    /// Passes over a stretch and looks at what the learned instructions access. Marks are aged afterwards.
    #[allow(clippy::too_many_arguments)]
    fn skim(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        (lo, hi): (u64, u64),
        direction: Direction,
        last: &mut Option<Hit>,
        (stops, first): (&mut Stops, u64),
    ) -> Result<Skimmed> {
        let mut doing = Done::new(player);
        let before = match first {
            u64::MAX => Vec::new(),
            _ => wants.addresses(),
        };
        match stops.breakpoints.iter().any(|b| b.condition.is_some()) {
            // Conditions look at memory, which needs the marks.
            true => player.seek_for_conditions(lo)?,
            false => player.seek_straight(lo)?,
        }
        player.set_breaks(self.breaks(&before));
        wants.age(player);
        // From here on, a mark that is not aged means an access.
        let mut from = lo;
        let mut looks = 0u32;
        let done = loop {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(256) {
                player.cancel.check()?;
            }
            let halt = player.run(hi)?;
            let (pc, count) = (player.registers().rip, player.count());
            let is_stop = halt == Halt::Break && count >= first && before.contains(&pc);
            let accessed = wants.age(player);
            // A signal's handler that begins here comes after the interrupted instruction at the same count. A stop
            // before an instruction comes before it.
            let begun = accessed && halt == Halt::Break && player.has_begun()?;
            if accessed && count > from {
                break Skimmed::Other(from, count + (begun && !is_stop) as u64);
            }
            if halt != Halt::Break {
                break Skimmed::All;
            }
            if is_stop {
                wants.rejuvenate(player);
                if let Some(h) = wants.stops_here(player, stops) {
                    break Skimmed::Hit(h);
                }
                wants.age(player);
            }
            if begun {
                break Skimmed::Other(from, count + 1);
            }
            let stepped = doing.step(player, hi)?;
            wants.age(player);
            from = player.count();
            match stepped {
                Some(true) => {}
                Some(false) => continue,
                None => break Skimmed::All,
            }
            let touches = |a: &Access| wants.watches.iter().any(|w| a.touches(w.address, w.len));
            if self.met.contains_key(&pc) && self.unlearn(pc, doing.list.iter().any(touches)) {
                player.set_breaks(self.breaks(&before));
            }
            let Some((reason, doer)) = wants.watched(player, count, &doing) else {
                continue;
            };
            let hit = |count| Hit {
                thread: player.thread,
                count,
                reason,
                pc: Some(doer),
            };
            match direction {
                Direction::Forward => break Skimmed::Hit(hit(count + 1)),
                Direction::Backward => *last = Some(hit(count)),
            }
        };
        Ok(done)
    }

    /// The addresses of learned instructions that are worth a breakpoint, and of `others`.
    fn breaks(&self, others: &[u64]) -> Vec<u64> {
        let worth = self.met.iter().filter(|(_, m)| is_worth(**m));
        let all = worth.map(|(pc, _)| pc).chain(others);
        all.copied().collect()
    }

    /// Learns an instruction. Returns whether it is new, so that it is met from now on.
    fn learn(&mut self, pc: u64) -> bool {
        let is_new = !self.met.contains_key(&pc) && self.met.len() < WRITERS;
        if is_new {
            self.met.insert(pc, (0, 0));
        }
        is_new
    }

    /// Counts a meeting. Returns whether the instruction is not worth a breakpoint any more.
    fn unlearn(&mut self, pc: u64, accessed: bool) -> bool {
        let m = self.met.entry(pc).or_default();
        *m = (m.0 + 1, m.1 + accessed as u64);
        !is_worth(*m)
    }
}

fn is_worth((met, accessed): (u64, u64)) -> bool {
    met <= IN_VAIN + accessed * PER_ACCESS
}
