//! Asks the questions of a round.

use super::log::{Entry, Flow, digest, digest_of};
use super::world::{StopSet, ThreadPosition, World};
use hindsight_random::Rng;
use hindsight_timeline::{
    Cancel, Cursor, Direction, Filter, KindOf, Reason, Result, Scope, ThreadId, Timeline, Watch,
};
use std::fmt;
use std::time::Instant;

/// Counts of questions by kind, and of wrong answers.
#[derive(Default)]
pub struct Tally {
    pub asked: std::collections::BTreeMap<&'static str, u64>,
    pub misses: u64,
    /// Bytes of memory: known, known to be one of several values, unknown.
    pub(super) bytes: [u64; 3],
    pub(super) slowest: (f64, String),
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let all: u64 = self.asked.values().sum();
        let [known, several, not] = self.bytes;
        write!(
            f,
            "{all} questions, {} wrong; bytes known {known}, among several {several}, not known {not}; ",
            self.misses
        )?;
        let (ms, what) = &self.slowest;
        write!(f, "slowest {ms:.0} ms: {what}")
    }
}

/// Asks about one recording.
pub struct Asker<'a> {
    pub(super) world: &'a World,
    pub(super) kinds: Vec<(&'static str, Timeline, Cursor)>,
    pub(super) random: Rng,
    pub(super) tally: &'a mut Tally,
    /// The instants at which modules come and go.
    pub(super) modules: Vec<ThreadPosition>,
    pub(super) seed: u64,
    pub(super) round: u64,
}

pub(super) const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];
pub(super) const SCOPES: [Scope; 3] = [Scope::Thread, Scope::Process, Scope::All];
/// Most instructions that are searched for the end of a step.
pub(super) const FAR: u64 = 3_000_000;

impl<'a> Asker<'a> {
    pub fn new(
        world: &'a World,
        kinds: &[(&'static str, Timeline)],
        seed: u64,
        tally: &'a mut Tally,
    ) -> Result<Asker<'a>> {
        let filter = Filter {
            kinds: vec![KindOf::Module],
            ..Filter::default()
        };
        let modules = kinds[0].1.events(&filter)?;
        let kinds = kinds.iter().map(|(n, t)| Ok((*n, t.clone(), t.cursor()?)));
        Ok(Asker {
            world,
            kinds: kinds.collect::<Result<_>>()?,
            random: Rng(seed),
            tally,
            modules: modules.iter().map(|h| (h.thread.0, h.count)).collect(),
            seed,
            round: 0,
        })
    }

    /// Asks one question of each kind, to one of the timelines.
    pub fn round(&mut self) -> Result<()> {
        self.round += 1;
        let k = self.below(self.kinds.len() as u64) as usize;
        self.registers(k)?;
        self.steps(k)?;
        self.find(k)?;
        self.run(k)?;
        self.truth(k)?;
        self.truth(k)?;
        self.lasting(k)?;
        if self.round.is_multiple_of(4) {
            self.over(k)?;
            self.out(k)?;
            self.same()?;
            self.list(k)?;
            self.change(k)?;
        }
        if self.round.is_multiple_of(16) {
            self.calls(k)?;
            self.places(k)?;
            self.names(k)?;
            self.cancelled(k)?;
        }
        Ok(())
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random.below(n.max(1))
    }

    pub(super) fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    pub(super) fn check(
        &mut self,
        what: &'static str,
        right: bool,
        context: impl FnOnce() -> String,
    ) {
        *self.tally.asked.entry(what).or_default() += 1;
        if !right {
            self.tally.misses += 1;
            if self.tally.misses <= 40 {
                println!(
                    "  WRONG {what} (seed {}, round {}): {}",
                    self.seed,
                    self.round,
                    context()
                );
            }
        }
    }

    pub(super) fn timed<T>(
        &mut self,
        what: impl FnOnce() -> String,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let started = Instant::now();
        let done = f(self)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        if ms > self.tally.slowest.0 {
            self.tally.slowest = (ms, what());
        }
        Ok(done)
    }

    /// A random instant. Often one at which something begins or ends.
    pub(super) fn instant(&mut self) -> ThreadPosition {
        let world = self.world;
        let total: u64 = world.logs.iter().map(|l| l.instructions() + 1).sum();
        let mut n = self.below(total);
        let mut log = &world.logs[0];
        if self.below(4) == 0 {
            log = &world.logs[self.below(world.logs.len() as u64) as usize];
            n = self.below(log.instructions() + 1);
        } else {
            for l in &world.logs {
                log = l;
                if n <= l.instructions() {
                    break;
                }
                n -= l.instructions() + 1;
            }
        }
        let near = |r: &mut Rng, list: &[u64]| match list.len() {
            0 => None,
            len => Some((list[r.below(len as u64) as usize] + r.below(5)).saturating_sub(2)),
        };
        let r = &mut self.random;
        let at = match r.below(12) {
            0 => Some(log.from + r.below(3)),
            1 => Some(log.to().saturating_sub(r.below(3))),
            2 => near(r, &log.numbers.iter().map(|n| n.1).collect::<Vec<_>>()),
            3 => near(r, &log.signals.iter().map(|n| n.0).collect::<Vec<_>>()),
            4 => near(r, &log.kernel.iter().map(|n| n.at).collect::<Vec<_>>()),
            _ => None,
        };
        (
            log.thread,
            at.unwrap_or(log.from + n).clamp(log.from, log.to()),
        )
    }

    pub(super) fn go(&mut self, k: usize, (thread, count): ThreadPosition) -> Result<&mut Cursor> {
        let c = &mut self.kinds[k].2;
        c.seek_count(ThreadId(thread), count)?;
        Ok(c)
    }

    /// Compares the registers at the cursor.
    pub(super) fn here(
        &mut self,
        k: usize,
        what: &'static str,
        want: ThreadPosition,
        context: &str,
    ) -> Result<()> {
        let c = &mut self.kinds[k].2;
        let at = (c.thread().0, c.count());
        let name = self.kinds[k].0;
        if at != want {
            self.check(what, false, || {
                format!("{name}: {context}: at {at:?}, not {want:?}")
            });
            return Ok(());
        }
        let c = &mut self.kinds[k].2;
        let (cpu, vec) = (c.registers()?, c.vectors()?);
        let log = self.world.of(want.0);
        let i = (want.1 - log.from) as usize;
        let have = (digest(&cpu), digest_of(&vec));
        // A run that stops at the beginning of a signal's handler shows the registers there.
        let entered = |e: &Entry| e.0 == want.1 && e.2 == have && what == "run";
        let right = have == (log.digest[i], log.vectors[i]) || log.entered.iter().any(entered);
        self.check(what, right, || {
            let differs = [have.0 != log.digest[i], have.1 != log.vectors[i]];
            format!(
                "{name}: {context}: registers at {want:?} (general, vector: {differs:?}): {cpu:x?}"
            )
        });
        Ok(())
    }

    fn registers(&mut self, k: usize) -> Result<()> {
        let place = self.instant();
        self.timed(|| format!("seek {place:?}"), |s| s.go(k, place).map(|_| ()))?;
        self.here(k, "registers", place, "seek")?;
        let log = self.world.of(place.0);
        let want = log.position(place.1);
        let (_, t, c) = &mut self.kinds[k];
        let (have, back) = (c.position()?, t.locate(c.position()?)?);
        let printed = want.to_string().parse() == Ok(want);
        self.check(
            "position",
            have == want && (back.thread, back.count) == (ThreadId(place.0), place.1) && printed,
            || format!("{place:?}: {have}, not {want}; back {back:?}"),
        );
        // The registers of another thread at the same time.
        let other = self.one(&self.world.logs.iter().map(|l| l.thread).collect::<Vec<_>>());
        let o = self.world.of(other);
        let state = self.kinds[k].2.registers_of(ThreadId(other))?;
        let stands = match other == place.0 {
            true => Some(place.1),
            false => {
                // The first of its instants behind this one.
                let first = (o.from..=o.to())
                    .collect::<Vec<_>>()
                    .partition_point(|n| o.position(*n) < want) as u64
                    + o.from;
                (first > o.from || o.position(o.from).segment == 0).then_some(first.min(o.to()))
            }
        };
        let right = match (&state, stands) {
            (Some(r), Some(n)) => digest(&r.general) == o.digest[(n - o.from) as usize],
            (None, None) => true,
            // It may have begun with a segment without instructions. No position of its own lies in that.
            (Some(r), None) => digest(&r.general) == o.digest[0],
            (None, Some(_)) => false,
        };
        let begun = state.is_some();
        self.check("another's registers", right, || {
            format!("thread {other} at {place:?}: begun {begun}, stands at {stands:?}")
        });
        Ok(())
    }

    fn steps(&mut self, k: usize) -> Result<()> {
        let mut place = self.instant();
        self.go(k, place)?;
        let scope = self.one(&SCOPES);
        for _ in 0..self.below(6) {
            let direction = self.one(&BOTH);
            let stop = self.kinds[k].2.step(direction, scope)?;
            let want = self.world.step(place, direction, scope);
            let context = format!("{direction:?} {scope:?} from {place:?}: {stop:?}");
            let ended = matches!(stop.reason, Reason::Begin | Reason::End);
            self.check("step", ended == want.is_none(), || context.clone());
            place = want.unwrap_or(place);
            self.here(k, "step", place, &context)?;
            self.go(k, place)?;
        }
        Ok(())
    }

    /// The address and length of bytes that are accessed somewhere, or that lie near them.
    pub(super) fn somewhere(&mut self) -> (u64, u64) {
        let world = self.world;
        let log = loop {
            let i = self.below(world.logs.len() as u64) as usize;
            if !world.logs[i].accesses.is_empty()
                || world.logs.iter().all(|l| l.accesses.is_empty())
            {
                break &world.logs[i];
            }
        };
        if log.accesses.is_empty() {
            return (0x1000, 8);
        }
        if self.below(6) == 0 && !log.kernel.is_empty() {
            let k = log.kernel[self.below(log.kernel.len() as u64) as usize];
            return (k.address + self.below(k.len), 1 + self.below(16));
        }
        let a = &log.accesses[self.below(log.accesses.len() as u64) as usize];
        let r = &mut self.random;
        let address = a.address.wrapping_add(r.below(a.len + 12)).wrapping_sub(6);
        match r.below(10) {
            // Up to the end of a page, and beyond it.
            0 => ((a.address | 4095) - r.below(16), 1 + r.below(40)),
            1 => (address, 1 + r.below(5000)),
            2 => (a.address, a.len.max(1)),
            _ => (address, 1 + r.below(24)),
        }
    }

    fn find(&mut self, k: usize) -> Result<()> {
        let place = self.instant();
        let (address, len) = self.somewhere();
        let watch = self.one(&[Watch::Read, Watch::Write, Watch::Access]);
        let direction = self.one(&BOTH);
        let what = format!(
            "{}: {direction:?} {watch:?} {address:#x}+{len} from {place:?}",
            self.kinds[k].0
        );
        self.go(k, place)?;
        let found = self.timed(
            || what.clone(),
            |s| s.kinds[k].2.find(direction, address, len, watch),
        )?;
        let wanted = StopSet {
            watches: vec![(address, len, watch)],
            ..StopSet::default()
        };
        let want = self.world.next(place, direction, Scope::Process, &wanted);
        let behind = (direction == Direction::Forward) as u64;
        let have = found.map(|f| (f.thread.0, f.count + behind));
        let log = have.map(|h| self.world.of(h.0));
        let pc = found.is_none_or(|f| {
            f.kernel
                || log.is_some_and(|l| {
                    let i = (f.count - l.from) as usize;
                    l.rip[i] == f.pc || l.entered.iter().any(|e| (e.0, e.1) == (f.count, f.pc))
                })
        });
        self.check("find", have == want && pc, || {
            format!("{what}: {found:?}, not {want:?}")
        });
        self.here(k, "find stays", place, &what)
    }

    fn over(&mut self, k: usize) -> Result<()> {
        let mut place = self.instant();
        let log = self.world.of(place.0);
        if log.instructions() > FAR {
            return Ok(());
        }
        // From instants at which something is called or returns.
        let direction = self.one(&BOTH);
        let wanted = |f: &Flow| match direction {
            Direction::Forward => matches!(f, Flow::Call(_)),
            Direction::Backward => *f == Flow::Return,
        };
        let i = (place.1 - log.from) as usize;
        let found = log.flow[i..].iter().position(wanted);
        place.1 += found.map_or(0, |n| n as u64 + (direction == Direction::Backward) as u64);
        place.1 = place.1.min(log.to());
        let want = match direction {
            Direction::Forward => log.over(place.1),
            Direction::Backward => log.over_back(place.1),
        };
        self.go(k, place)?;
        let what = format!("{}: over {direction:?} from {place:?}", self.kinds[k].0);
        let stop = self.timed(|| what.clone(), |s| s.kinds[k].2.step_over(direction))?;
        self.here(
            k,
            "step over",
            (place.0, want),
            &format!("{what}: {stop:?}"),
        )
    }

    fn out(&mut self, k: usize) -> Result<()> {
        let place = self.instant();
        let log = self.world.of(place.0);
        if log.instructions() > FAR / 4 {
            return Ok(());
        }
        let direction = self.one(&BOTH);
        let want = match direction {
            Direction::Forward => log.out(place.1),
            Direction::Backward => log.out_back(place.1),
        };
        self.go(k, place)?;
        let what = format!("{}: out {direction:?} from {place:?}", self.kinds[k].0);
        let stop = self.timed(|| what.clone(), |s| s.kinds[k].2.step_out(direction))?;
        self.here(k, "step out", (place.0, want), &format!("{what}: {stop:?}"))
    }

    /// Compares the calls of a function.
    fn calls(&mut self, k: usize) -> Result<()> {
        let (thread, count) = self.instant();
        let log = self.world.of(thread);
        let i = (count - log.from) as usize;
        let Some(n) = log.flow[i..]
            .iter()
            .position(|f| matches!(f, Flow::Call(_)))
        else {
            return Ok(());
        };
        let Some(function) = log.rip.get(i + n + 1).copied() else {
            return Ok(());
        };
        if log.instructions() > FAR {
            return Ok(());
        }
        let filter = Filter {
            thread: Some(ThreadId(thread)),
            ..Filter::default()
        };
        let Some(want) = log.calls_of(function).filter(|w| w.len() <= 2000) else {
            return Ok(());
        };
        let have = self.kinds[k].1.calls(function, &filter, &Cancel::new())?;
        let have: Vec<_> = have
            .iter()
            .map(|c| (c.count - c.handler as u64, c.returned.map(|r| r.count)))
            .collect();
        let name = self.kinds[k].0;
        let different = have.iter().zip(&want).find(|(a, b)| a != b);
        self.check("calls", have == want, || {
            format!(
                "{name}: {function:#x} in {thread}: {} and {}, first {different:?}",
                have.len(),
                want.len()
            )
        });
        Ok(())
    }

    /// Finds places by their names.
    fn places(&mut self, k: usize) -> Result<()> {
        let percent = self.below(101) as f64;
        let total: u64 = self.world.logs.iter().map(|l| l.instructions()).sum();
        let wanted = (total as f64 * percent / 100.0) as u64;
        let mut left = wanted;
        let mut want = None;
        for s in &self.world.segments {
            if left < s.3 - s.2 {
                want = Some(self.world.logs[s.1].position(s.2 + left));
                break;
            }
            left -= s.3 - s.2;
        }
        let have = self.kinds[k].1.percent(percent, None)?;
        self.check("percent", want.is_none_or(|w| w == have), || {
            format!("{percent}%: {have}, not {want:?}")
        });
        Ok(())
    }
}
