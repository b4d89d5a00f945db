//! The instructions that write what is watched: learned on the way, and then met as breakpoints.

use super::effects::Wants;
use super::hit::{Hit, Stretch};
use crate::Result;
use crate::access::Done;
use crate::model::stops::*;
use crate::play::{Learned, Player};
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::Access;
use std::collections::BTreeMap;

/// Instructions that are looked at first on the way back, and how much more each time.
const PIECE: u64 = 1 << 15;
const MORE: u64 = 16;
/// Instructions that are learned.
const WRITERS: usize = 64;
/// How often one that is learned is met without need, and for each time that it accessed what is watched, until
/// it is searched for like others.
const IN_VAIN: u64 = 1024;
const PER_ACCESS: u64 = 256;

/// The instructions that access what is watched.
#[derive(Default)]
pub struct Writers {
    /// How often each was met, and how often it accessed it.
    met: BTreeMap<u64, (u64, u64)>,
    /// Instructions to look at next on the way back; 0: the first time.
    piece: u64,
}

/// How far a look at a stretch came.
enum Skimmed {
    /// To its end.
    All,
    Hit(Hit),
    /// Something that is not learned accesses it in between.
    Other(u64, u64),
}

impl Writers {
    /// With those that a player learned where the last search found something, if that was for the same.
    pub fn known(player: &Player, wants: &Wants) -> Writers {
        let same = (player.writers.as_ref()).filter(|l| l.watches == wants.watches);
        Writers {
            met: same.map(|l| l.met.clone()).unwrap_or_default(),
            piece: 0,
        }
    }

    /// Has the player know them for the next search: whoever goes from one change to the next meets the same again.
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
        cancel: &Cancel,
    ) -> Result<Option<Hit>> {
        if !wants.compares() {
            return wants.effects(player, lo, hi, direction, cancel);
        }
        let none = &mut Stops::default();
        if direction == Direction::Forward {
            let nowhere = (none, u64::MAX);
            return self.within(wants, player, (lo, hi), direction, nowhere, cancel);
        }
        let mut end = hi;
        while end > lo {
            self.piece = self.piece.saturating_mul(MORE).max(PIECE);
            let start = end.saturating_sub(self.piece).max(lo);
            let nowhere = (&mut *none, u64::MAX);
            let found = self.within(wants, player, (start, end), direction, nowhere, cancel)?;
            if found.is_some() {
                return Ok(found);
            }
            end = start;
        }
        Ok(None)
    }

    /// The same forwards, and stops before instructions.
    pub fn first(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        s: Stretch,
        stops: &mut Stops,
        cancel: &Cancel,
    ) -> Result<Option<Hit>> {
        let met = (stops, s.first);
        self.within(wants, player, (s.lo, s.hi), Direction::Forward, met, cancel)
    }

    /// `stops`, `first`: what is met before instructions counts from there on.
    fn within(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        (lo, hi): (u64, u64),
        direction: Direction,
        (stops, first): (&mut Stops, u64),
        cancel: &Cancel,
    ) -> Result<Option<Hit>> {
        let (mut at, mut last) = (lo, None);
        while at < hi {
            cancel.check()?;
            let met = (&mut *stops, first);
            let skimmed = self.skim(wants, player, (at, hi), direction, &mut last, met, cancel);
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
                .effects(player, from, to, Direction::Forward, cancel)?;
            at = match found {
                Some(h) => {
                    // It is met as a breakpoint next.
                    player.seek_straight(h.count - 1)?;
                    if !self.learn(player.registers().rip) {
                        let one = wants.effects(player, h.count - 1, h.count, direction, cancel)?;
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

    /// Goes through the accesses of the learned instructions. Leaves marks aged.
    #[allow(clippy::too_many_arguments)]
    fn skim(
        &mut self,
        wants: &Wants,
        player: &mut Player,
        (lo, hi): (u64, u64),
        direction: Direction,
        last: &mut Option<Hit>,
        (stops, first): (&mut Stops, u64),
        cancel: &Cancel,
    ) -> Result<Skimmed> {
        let mut doing = Done::default();
        let before = match first {
            u64::MAX => Vec::new(),
            _ => wants.addresses(),
        };
        match stops.breakpoints.iter().any(|b| b.condition.is_some()) {
            // Conditions look at memory.
            true => player.seek(lo)?,
            false => player.seek_straight(lo)?,
        }
        player.set_breaks(self.breaks(&before));
        wants.age(player);
        // Marks that are not aged are of accesses from here on.
        let mut from = lo;
        let mut looks = 0u32;
        let done = loop {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(256) {
                cancel.check()?;
            }
            let halt = player.run(hi)?;
            let (pc, count) = (player.registers().rip, player.count());
            let is_stop = halt == Halt::Break && count >= first && before.contains(&pc);
            let accessed = wants.age(player);
            // A handler that is met comes behind what it has interrupted here, but where to stop before it.
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

    /// Those that are worth it, and others.
    fn breaks(&self, others: &[u64]) -> Vec<u64> {
        let worth = self.met.iter().filter(|(_, m)| is_worth(**m));
        let all = worth.map(|(pc, _)| pc).chain(others);
        all.copied().collect()
    }

    /// Whether an instruction is met from now on, and was not before.
    fn learn(&mut self, pc: u64) -> bool {
        let is_new = !self.met.contains_key(&pc) && self.met.len() < WRITERS;
        if is_new {
            self.met.insert(pc, (0, 0));
        }
        is_new
    }

    /// One was met; whether it is not to be from now on.
    fn unlearn(&mut self, pc: u64, accessed: bool) -> bool {
        let m = self.met.entry(pc).or_default();
        *m = (m.0 + 1, m.1 + accessed as u64);
        !is_worth(*m)
    }
}

fn is_worth((met, accessed): (u64, u64)) -> bool {
    met <= IN_VAIN + accessed * PER_ACCESS
}
