//! Proves the order of atomic operations from a trace.
//!
//! All threads of a process are replayed and what each atomic operation read is compared with what the
//! latest atomic operation before it, in the recorded order, left in the same bytes. Where the two
//! differ something else must have written in between: the threads are replayed again, with all their
//! plain stores to those places written down. A store by a segment that may have run between the two
//! operations, of the value that was read, explains the difference. Otherwise only what no trace
//! tells can: a system call that may write memory, a stretch that was not recorded, another process
//! that shares the memory. If there was none of these in between, the order is wrong.
//!
//! Processes are looked at one by one. Of memory that several have this proves no more than that each
//! process's own operations fit; [`OrderReport::shared`] says how many operations that concerns.

mod play;

use crate::{Error, Result, ThreadId};
use hindsight_events::{Decoder, Event};
use hindsight_replay::{Code, symbols};
use hindsight_trace::{StreamId, StreamKind, Trace};
use play::{Log, Op, Store, Table, Unknown};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Atomic operations that are held in memory at a time, about.
const MOST: u64 = 4 << 20;

const MAP_SHARED: u32 = 1;

/// What is known of the order of atomic operations.
#[derive(Clone, Default, Debug)]
pub struct OrderReport {
    /// Atomic operations looked at; one on more than eight bytes counts for each eight.
    pub operations: u64,
    /// Those that read what the one before them left.
    pub proven: u64,
    /// The first on their bytes.
    pub first: u64,
    /// Those that read what a plain store left that may have come in between.
    pub stored: u64,
    /// Those that read something else, and a system call, a signal, unrecorded code or another process may
    /// have written it.
    pub undecided: u64,
    /// Those of all on memory that other processes may have had too. Only operations of the same process are
    /// compared with each other.
    pub shared: u64,
    /// Those that contradict the recorded order.
    pub wrong: u64,
    /// The first of these.
    pub violation: Option<Violation>,
    /// What keeps the result from being complete.
    pub warnings: Vec<String>,
}

/// An atomic operation that cannot have taken effect where the order says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub thread: ThreadId,
    /// Process and thread, for people.
    pub who: String,
    /// Instructions completed before it.
    pub count: u64,
    pub pc: u64,
    /// Where in the program that is.
    pub place: Option<String>,
    /// Its number in the order.
    pub number: u64,
    /// The bytes in question.
    pub address: u64,
    pub len: u64,
    pub found: u64,
    /// What the operation before it left, its number, thread and count.
    pub expected: u64,
    pub before: (u64, ThreadId, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}, position {}, address {:#x}",
            self.who, self.count, self.pc
        )?;
        if let Some(p) = &self.place {
            write!(f, " ({p})")?;
        }
        let (number, thread, count) = self.before;
        write!(
            f,
            ": operation {} on {} bytes at {:#x} read {:#x}, but operation {number} (thread {thread}, \
             position {count}) had left {:#x} there, and nothing else wrote in between",
            self.number, self.len, self.address, self.found, self.expected
        )
    }
}

/// Checks the order of all atomic operations of `trace` with as many threads as `jobs` says.
pub fn check_order(trace: &Trace, jobs: usize) -> Result<OrderReport> {
    let mut report = OrderReport::default();
    if let Some(n) = trace.summary().map(|s| s.stolen_locks).filter(|n| *n > 0) {
        report.warnings.push(format!(
            "{n} threads were stopped amid atomic operations that others waited for: \
             the places of these are not exact"
        ));
    }
    for image in trace.images() {
        let own = |s: &StreamId| {
            trace
                .stream_info(*s)
                .is_some_and(|i| i.image == image.number)
        };
        let threads: Vec<StreamId> = trace.threads().into_iter().filter(own).collect();
        if threads.is_empty() {
            continue;
        }
        let part = Process {
            trace,
            image: image.number,
            threads,
            jobs: jobs.max(1),
        };
        part.check(&mut report)?;
    }
    Ok(report)
}

/// One process as far as it ran one program.
struct Process<'t> {
    trace: &'t Trace,
    image: u32,
    threads: Vec<StreamId>,
    jobs: usize,
}

/// What bytes of a word are known to hold, and who left that.
#[derive(Default)]
struct Cell {
    mask: u8,
    value: u64,
    last: Option<Op>,
}

/// An operation that read something else than the one before it left.
struct Mismatch {
    op: Op,
    before: Op,
    expected: u64,
    /// Bytes that differ.
    mask: u8,
}

fn bits(mask: u8) -> u64 {
    (0..8)
        .filter(|i| mask >> i & 1 != 0)
        .fold(0, |m, i| m | 0xff << (8 * i))
}

impl Process<'_> {
    fn check(&self, report: &mut OrderReport) -> Result<()> {
        let code = Arc::new(self.tag(0, Code::from_trace(self.trace, self.image))?);
        let mut total = 0;
        for s in &self.threads {
            total += self.tag(*s, play::count(self.trace, *s))?;
        }
        let rounds = total.div_ceil(MOST).max(1);
        let shared = self.shared()?;
        for round in 0..rounds {
            let wanted = |word: u64| {
                ((word >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % rounds == round
            };
            let log = self.play(&code, None, &wanted)?;
            report.shared += log.ops.iter().filter(|o| shared.contains(o.word)).count() as u64;
            let mismatches = judge(log.ops, report);
            if !mismatches.is_empty() {
                self.explain(&code, &shared, mismatches, report)?;
            }
        }
        Ok(())
    }

    fn tag<T>(&self, s: StreamId, r: std::result::Result<T, hindsight_replay::Error>) -> Result<T> {
        r.map_err(|source| Error::Replay {
            thread: ThreadId(s),
            source,
        })
    }

    /// Replays all threads.
    fn play(
        &self,
        code: &Arc<Code>,
        table: Option<&Table>,
        wanted: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Log> {
        let next = AtomicUsize::new(0);
        let all = Mutex::new((Log::default(), None));
        let work = || {
            while let Some(s) = self.threads.get(next.fetch_add(1, Relaxed)) {
                let mut log = Log::default();
                let done = play::play(self.trace, *s, Arc::clone(code), table, wanted, &mut log)
                    .and_then(|()| match table {
                        Some(_) => play::unknown(self.trace, *s, &mut log),
                        None => Ok(()),
                    });
                let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
                all.0.ops.append(&mut log.ops);
                all.0.stores.append(&mut log.stores);
                all.0.kernel.append(&mut log.kernel);
                all.0.missing.append(&mut log.missing);
                if let Err(e) = self.tag(*s, done) {
                    all.1.get_or_insert(e);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(self.threads.len()) {
                scope.spawn(work);
            }
        });
        match all.into_inner().unwrap_or_else(|e| e.into_inner()) {
            (_, Some(e)) => Err(e),
            (log, None) => Ok(log),
        }
    }

    /// Decides what the mismatches mean.
    fn explain(
        &self,
        code: &Arc<Code>,
        shared: &Ranges,
        mismatches: Vec<Mismatch>,
        report: &mut OrderReport,
    ) -> Result<()> {
        let words: HashSet<u64> = mismatches.iter().map(|m| m.op.word).collect();
        let table = Table::new(words).map_err(|e| Error::Unsupported(e.to_string()))?;
        let mut log = self.play(code, Some(&table), &|_| false)?;
        drop(table);
        let mut stores: HashMap<u64, Vec<Store>> = HashMap::new();
        for s in log.stores {
            stores.entry(s.word).or_default().push(s);
        }
        stores.values_mut().for_each(|l| l.sort_by_key(|s| s.open));
        let kernel = Intervals::new(&mut log.kernel);
        let missing = Intervals::new(&mut log.missing);
        for m in mismatches {
            let list = stores.get(&m.op.word).map_or(&[][..], |l| l);
            let (from, to) = (m.before.number, m.op.next);
            if stored(&m, list) {
                report.stored += 1;
            } else if kernel.any(from, to) || missing.any(from, to) || shared.contains(m.op.word) {
                report.undecided += 1;
            } else {
                report.wrong += 1;
                let earlier = report
                    .violation
                    .as_ref()
                    .is_none_or(|v| m.op.number < v.number);
                if earlier {
                    report.violation = Some(self.violation(&m));
                }
            }
        }
        Ok(())
    }

    fn violation(&self, m: &Mismatch) -> Violation {
        let first = m.mask.trailing_zeros();
        let len = 8 - m.mask.leading_zeros() - first;
        let value = |v: u64| (v & bits(m.mask)) >> (8 * first);
        let pid = self.trace.stream_info(m.op.stream).map_or(0, |i| i.pid);
        let tid = self.trace.stream_info(m.op.stream).map_or(0, |i| i.tid);
        Violation {
            thread: ThreadId(m.op.stream),
            who: format!("process {pid}, thread {tid} (stream {})", m.op.stream),
            count: m.op.pos,
            pc: m.op.pc,
            place: symbols::place(self.trace, self.image, m.op.pc).map(|p| p.to_string()),
            number: m.op.number,
            address: m.op.word + first as u64,
            len: len as u64,
            found: value(m.op.before),
            expected: value(m.expected),
            before: (m.before.number, ThreadId(m.before.stream), m.before.pos),
        }
    }

    /// Memory that other processes may have had too.
    fn shared(&self) -> Result<Ranges> {
        let mut out = Vec::new();
        let streams = self.trace.image(self.image).map_or(&[][..], |i| &i.streams);
        for s in streams {
            if self
                .trace
                .stream_info(*s)
                .is_none_or(|i| i.kind != StreamKind::Image)
            {
                continue;
            }
            for c in self.trace.chunks(*s) {
                let wire = self.trace.load(c)?;
                let (mut decoder, mut at) = (Decoder::default(), 0);
                while let Some((_, event, n)) = wire.get(at..).and_then(|b| decoder.decode(b)) {
                    at += n;
                    if let Event::Map {
                        addr, len, flags, ..
                    } = event
                        && flags & MAP_SHARED != 0
                    {
                        out.push(addr..addr.saturating_add(len));
                    }
                }
            }
        }
        Ok(Ranges::new(out))
    }
}

/// Stretches of memory, sorted, none of which overlap.
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn new(mut list: Vec<Range<u64>>) -> Ranges {
        list.sort_by_key(|r| r.start);
        let mut out: Vec<Range<u64>> = Vec::new();
        for r in list {
            match out.last_mut() {
                Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
                _ => out.push(r),
            }
        }
        Ranges(out)
    }

    fn contains(&self, address: u64) -> bool {
        let n = self.0.partition_point(|r| r.start <= address);
        n.checked_sub(1).is_some_and(|i| address < self.0[i].end)
    }
}

/// Compares each operation with the one before it; returns those that do not fit.
fn judge(mut ops: Vec<Op>, report: &mut OrderReport) -> Vec<Mismatch> {
    // Operations of one thread without a number of their own share that of their segment.
    ops.sort_by_key(|o| (o.number, o.stream, o.pos));
    let mut cells: HashMap<u64, Cell> = HashMap::new();
    let mut out = Vec::new();
    for op in ops {
        report.operations += 1;
        let cell = cells.entry(op.word).or_default();
        let wrong = (0..8)
            .filter(|i| cell.mask & op.mask & 1 << i != 0)
            .filter(|i| (cell.value ^ op.before) >> (8 * i) & 0xff != 0)
            .fold(0u8, |m, i| m | 1 << i);
        match cell.last {
            Some(before) if wrong != 0 => out.push(Mismatch {
                op,
                before,
                expected: cell.value,
                mask: wrong,
            }),
            _ if cell.mask & op.mask == 0 => report.first += 1,
            _ => report.proven += 1,
        }
        cell.value = cell.value & !bits(op.mask) | op.after;
        cell.mask |= op.mask;
        cell.last = Some(op);
    }
    out
}

/// Whether plain stores explain all bytes that differ.
fn stored(m: &Mismatch, stores: &[Store]) -> bool {
    let (a, b) = (&m.before, &m.op);
    let possible = |s: &&Store| {
        let before_b = if s.stream == b.stream {
            s.pos < b.pos
        } else {
            s.open < b.next
        };
        let after_a = if s.stream == a.stream {
            s.pos > a.pos
        } else {
            s.close > a.number
        };
        before_b && after_a
    };
    let same = |s: &Store, i: u32| {
        s.mask >> i & 1 != 0
            && s.value
                .is_none_or(|v| (v ^ b.before) >> (8 * i) & 0xff == 0)
    };
    // Sorted by `open`: what begins after the operation cannot come before it.
    let end = stores.partition_point(|s| s.open < b.next);
    let mut left = m.mask;
    for s in stores[..end].iter().rev().filter(possible) {
        for i in 0..8 {
            if left >> i & 1 != 0 && same(s, i) {
                left &= !(1 << i);
            }
        }
        if left == 0 {
            return true;
        }
    }
    false
}

/// Stretches of the order, sorted, with the greatest end so far.
struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    fn new(list: &mut [Unknown]) -> Intervals {
        list.sort_by_key(|u| u.open);
        let mut most = 0;
        let with = |u: &Unknown| {
            most = most.max(u.close);
            (u.open, most)
        };
        Intervals(list.iter().map(with).collect())
    }

    /// Whether one of them may overlap what lies between two numbers.
    fn any(&self, from: u64, to: u64) -> bool {
        let n = self.0.partition_point(|(open, _)| *open < to);
        n.checked_sub(1).is_some_and(|i| self.0[i].1 > from)
    }
}
