//! Questions about lists, named places and changes, and questions that are cancelled.

use super::ask::{Asker, BOTH};
use super::log::Log;
use super::world::StopSet;
use hindsight_timeline::{
    Cancel, Condition, Direction, Error, Place as Name, Reason, Result, Scope, Stops, ThreadId,
    Watch, WatchedValue, Watchpoint,
};
use std::time::{Duration, Instant};

/// Number of writes of a list that are compared.
const WRITES: usize = 6;
/// Number of instructions before or behind an instant in which a change is searched.
const NEAR: u64 = 200_000;
/// Longest time in which a cancelled question must end. Longer in tests, which run beside each other.
const SOON: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3000 } else { 100 });

impl Asker<'_> {
    /// The writes before an instant: as a list, and one by one.
    pub(super) fn list(&mut self, k: usize) -> Result<()> {
        let mut place = self.instant();
        let (address, len) = self.somewhere();
        let wanted = StopSet {
            watches: vec![(address, len, Watch::Write)],
            ..StopSet::default()
        };
        let what = format!("{}: {address:#x}+{len} before {place:?}", self.kinds[k].0);
        let world = self.world;
        let c = self.go(k, place)?;
        let mut list = c.writes(address, len, len.min(16) as usize)?;
        for n in 0..WRITES {
            let have = list.next(&Cancel::new())?.map(|w| w.access);
            let found = have.map(|f| (f.thread.0, f.count));
            let want = world.next(place, Direction::Backward, Scope::Process, &wanted);
            self.check("writes", found == want, || {
                format!("{what}, number {n}: {have:?}, not {want:?}")
            });
            let (Some(next), true) = (want, found == want) else {
                break;
            };
            place = next;
        }
        Ok(())
    }

    /// Finds events and system calls by their numbers, and instants by their times.
    pub(super) fn names(&mut self, k: usize) -> Result<()> {
        let logs = self.world.logs.iter();
        let mut calls: Vec<_> = logs
            .flat_map(|l| l.calls.iter().map(|c| l.position(c.0)))
            .collect();
        calls.sort_unstable();
        let n = self.below(calls.len() as u64 + 2) + 1;
        let have = self.kinds[k].1.find(Name::Syscall(n), None).ok();
        let want = calls.get(n as usize - 1).copied();
        self.check("system call by number", have == want, || {
            format!("{n}: {have:?}, not {want:?}")
        });
        let (thread, count) = self.instant();
        let at = self.world.of(thread).position(count);
        let t = self.kinds[k].1.clone();
        if let Some(when) = t.when(at)? {
            let in_order = when.since <= when.estimate && when.estimate <= when.until;
            let there = t.at_time(when.estimate, None)?;
            let then = t.when(there)?;
            let near = then.is_some_and(|w| w.since <= when.estimate);
            self.check("time", in_order && near, || {
                format!("{at} at {when}: {there} at {then:?}")
            });
        }
        Ok(())
    }

    /// A run that stops only where a watched value changes. Only for a process with one thread, whose log
    /// knows all changes.
    pub(super) fn change(&mut self, k: usize) -> Result<()> {
        let (thread, count) = self.instant();
        let log = self.world.of(thread);
        let (address, len) = self.somewhere();
        let len = len.min(1 + self.below(16));
        let alone = self.world.logs.iter().filter(|l| l.image == log.image);
        if alone.count() != 1 {
            return Ok(());
        }
        let held = self
            .go(k, (thread, count))?
            .known_memory(address, len as usize)?;
        let value: Option<Vec<u8>> = held.bytes.iter().map(|b| b.map(|b| b.value)).collect();
        let Some(value) = value else { return Ok(()) };
        let direction = self.one(&BOTH);
        let want = match direction {
            Direction::Forward => log.changes_after(count, address, &value).map(|n| n + 1),
            Direction::Backward => log.changed_before(count, address, &value),
        };
        // The log does not know.
        let Some(want) = want else { return Ok(()) };
        let mut stops = Stops {
            watchpoints: vec![Watchpoint {
                id: 1,
                address,
                len,
                watch: Watch::Write,
                image: None,
            }],
            values: vec![WatchedValue {
                id: 1,
                bytes: value.clone(),
            }],
            ..Stops::default()
        };
        let what = format!(
            "{}: {direction:?} change of {address:#x}+{len} {value:x?} from {thread}, {count}",
            self.kinds[k].0
        );
        let c = &mut self.kinds[k].2;
        let stop = c.run(direction, Scope::Process, &mut stops)?;
        self.here(k, "change", (thread, want), &format!("{what}: {stop:?}"))
    }

    /// A cancelled question ends soon, and leaves the cursor where it was.
    pub(super) fn cancelled(&mut self, k: usize) -> Result<()> {
        let place = self.instant();
        let (address, len) = self.somewhere();
        let (kind, direction) = (self.below(7), self.one(&BOTH));
        let delay = Duration::from_micros(self.below(30_000));
        let name = self.kinds[k].0;
        self.go(k, place)?;
        let cancel = Cancel::new();
        let never = 0x1000;
        let asked = Instant::now();
        let (done, late) = std::thread::scope(|s| {
            let other = cancel.clone();
            let waits = s.spawn(move || {
                std::thread::sleep(delay);
                other.cancel();
                Instant::now()
            });
            let (_, t, c) = &mut self.kinds[k];
            let watch = |address, len, watch| Watchpoint {
                id: 0,
                address,
                len,
                watch,
                image: None,
            };
            let run = |c: &mut hindsight_timeline::Cursor, mut stops: Stops| {
                c.cancellable(&cancel, |c| c.run(direction, Scope::All, &mut stops))
                    .map(|s| s.reason == Reason::Cancelled)
            };
            let done = match kind {
                0 => c
                    .cancellable(&cancel, |c| c.step_out(direction))
                    .map(|s| s.reason == Reason::Cancelled),
                1 => c
                    .cancellable(&cancel, |c| c.step_over(direction))
                    .map(|s| s.reason == Reason::Cancelled),
                2 => c
                    .cancellable(&cancel, |c| c.find(direction, never, 8, Watch::Access))
                    .map(|_| false),
                3 => {
                    let b = hindsight_timeline::Breakpoint {
                        condition: Some(Condition::code(|_| false)),
                        ..hindsight_timeline::Breakpoint::at(0, address)
                    };
                    let watchpoints = vec![watch(never, 64, Watch::Write)];
                    run(
                        c,
                        Stops {
                            breakpoints: vec![b],
                            watchpoints,
                            ..Stops::default()
                        },
                    )
                }
                4 => run(
                    c,
                    Stops {
                        registers: vec![hindsight_timeline::Register::GsBase],
                        ..Stops::default()
                    },
                ),
                5 => c.writes(address, len, 8).and_then(|mut all| {
                    while all.next(&cancel)?.is_some() {}
                    Ok(false)
                }),
                _ => t
                    .calls(address, &Default::default(), &cancel)
                    .map(|_| false),
            };
            let ended = Instant::now();
            let at = waits.join().unwrap_or(asked);
            (done, ended.saturating_duration_since(at))
        });
        let given_up = match done {
            Ok(given_up) => given_up,
            Err(Error::Cancelled) => true,
            Err(e) => return Err(e),
        };
        self.check("cancelled", late < SOON, || {
            format!("{name}: question {kind} from {place:?} ended {late:?} after it was cancelled")
        });
        if given_up || kind == 2 || kind > 4 {
            self.here(k, "cancelled", place, "cursor")?;
        }
        let c = self.go(k, place)?;
        let here = (c.thread(), c.count());
        self.check("cancelled", here == (ThreadId(place.0), place.1), || {
            format!("{name}: {here:?}")
        });
        self.here(k, "behind what was cancelled", place, "seek")
    }
}

impl Log {
    /// The first instruction from `count` on that changes the bytes from `value`. `None` if the log does not
    /// know.
    fn changes_after(&self, count: u64, address: u64, value: &[u8]) -> Option<u64> {
        let end = self.to().min(count + NEAR);
        let len = value.len() as u64;
        let mut found = None;
        for a in self.touching(address, len) {
            let n = self.from + a.at as u64;
            if n < count || !a.write || found.is_some_and(|f| n > f) {
                continue;
            }
            let range = a.address.max(address)..(a.address + a.len).min(address + len);
            for at in range {
                if self.value(a, at)? != value[(at - address) as usize] {
                    found = Some(n);
                }
            }
        }
        let found = found.filter(|n| *n < end)?;
        // If an instruction writes twice, the log does not know which write was last.
        let twice = self.touching(address, len).into_iter();
        let twice = twice.filter(|a| a.write && self.from + a.at as u64 == found);
        (twice.count() == 1 && !self.is_said(address, len, count, found + 1)).then_some(found)
    }

    /// The last instruction before `count` that changed the bytes to `value`. `None` if the log does not
    /// know.
    fn changed_before(&self, count: u64, address: u64, value: &[u8]) -> Option<u64> {
        let len = value.len() as u64;
        let all = self.touching(address, len);
        let before = all.iter().rev();
        let mut last = None;
        for a in before.filter(|a| self.from + (a.at as u64) < count) {
            let n = self.from + a.at as u64;
            if count - n > NEAR || a.address > address || a.address + a.len < address + len {
                return None;
            }
            let same = (address..address + len)
                .map(|at| Some(self.value(a, at)? == value[(at - address) as usize]))
                .collect::<Option<Vec<bool>>>()?;
            if same.contains(&false) {
                let found = last?;
                return (found >= n && !self.is_said(address, len, n, count)).then_some(found);
            }
            if a.write {
                last = Some(n);
            }
        }
        None
    }

    /// Whether the recording has events about these bytes at instants `from..=to`.
    fn is_said(&self, address: u64, len: u64, from: u64, to: u64) -> bool {
        let of_it = |s: &super::log::Said| {
            s.address < address + len
                && address < s.address.saturating_add(s.len)
                && (from..=to + 1).contains(&s.at)
        };
        self.said.iter().any(of_it)
    }
}
