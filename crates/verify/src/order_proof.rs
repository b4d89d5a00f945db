//! Proves the order of atomic operations from a trace.
//!
//! 1. All threads of a process are replayed. Each atomic operation must have read what the latest operation
//!    before it, in the recorded order, left in the same bytes.
//! 2. Where it read something else, another write must have come in between. The threads are replayed again,
//!    and all their plain stores to these bytes are logged.
//! 3. A store explains the difference if it stored the value, and its segment may have run between the two
//!    operations.
//! 4. Otherwise something may have written that no trace has: a system call that may write memory, an
//!    unrecorded stretch, or another process that shares the memory. Then the operation is undecided.
//! 5. If nothing of this lies in between, the order is wrong.
//!
//! Each process is checked by itself. Then all processes are checked at the memory that they share. If the
//! recording does not say which memory a process shares, the process's operations on it are only compared
//! with each other. [`OrderReport::shared`] counts these.

mod judge;
mod layout;
mod play;

use crate::symbols;
use hindsight_events::ring::STRIPES;
use hindsight_replay::Code;
use hindsight_text::Shown;
use hindsight_trace::{StreamId, Taken, Trace};
use judge::{Displaced, Intervals, Mismatch, OpBytes, bits, judge, released, stored};
use layout::{Layout, Objects};
use play::{Log, OpFilter, Store, Table};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// About how many atomic operations are held in memory at a time.
const MOST: u64 = 4 << 20;

/// Why the order could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// A thread cannot be replayed.
    #[error("stream {stream}: {cause}")]
    Replay {
        /// The thread's stream.
        stream: StreamId,
        /// Why it cannot be replayed.
        #[source]
        cause: hindsight_replay::Error,
    },
    /// There is no memory for the table of watched words.
    #[error("{0}")]
    Table(std::io::Error),
}

type Result<T> = std::result::Result<T, OrderError>;

/// What is known of the order of atomic operations.
#[derive(Clone, Default, Debug)]
pub struct OrderReport {
    /// Operations that were looked at. One that accesses more than eight bytes counts once for each eight.
    pub operations: u64,
    /// Operations that read what the operation before them left.
    pub proven: u64,
    /// Operations that were the first on their bytes.
    pub first: u64,
    /// Operations that read what a plain store left that may have come in between.
    pub stored: u64,
    /// Operations that read something else and are not proven wrong. A system call, a signal, unrecorded code
    /// or another process may have written the value, or the operation's place is not exact.
    pub undecided: u64,
    /// Undecided operations whose place is not exact: a thread had stopped in the middle of an operation for
    /// which others waited.
    pub displaced: u64,
    /// Operations on memory that processes share. They were compared with the operations of all processes.
    pub common: u64,
    /// Operations on memory that unknown other processes may share. They were compared only with operations
    /// of the same process.
    pub shared: u64,
    /// Operations that contradict the recorded order.
    pub wrong: u64,
    /// The first of the wrong operations.
    pub violation: Option<Violation>,
    /// Why the result is not complete, as text.
    pub warnings: Vec<String>,
}

/// An atomic operation that cannot have taken effect at its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The stream of its thread.
    pub stream: StreamId,
    /// Process and thread, as text for people.
    pub who: String,
    /// Instructions that the thread completed before it.
    pub count: u64,
    pub pc: u64,
    /// Where in the program it is, as text.
    pub location: Option<String>,
    /// Its order number.
    pub number: u64,
    /// The bytes that contradict the order: their address.
    pub address: u64,
    pub len: u64,
    pub found: u64,
    /// The value that the operation before it left.
    pub expected: u64,
    /// That operation: its order number, its stream, and the instructions completed before it.
    pub before: (u64, StreamId, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}, position {}, address {:#x}",
            Shown(&self.who),
            self.count,
            self.pc
        )?;
        if let Some(p) = &self.location {
            write!(f, " ({})", Shown(p))?;
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

/// Checks the order of all atomic operations of `trace`, with `jobs` threads.
pub fn check_order(trace: &Trace, jobs: usize) -> Result<OrderReport> {
    let mut report = OrderReport::default();
    let taken = trace.taken();
    if !taken.is_empty() {
        report.warnings.push(format!(
            "threads stopped in the middle of atomic operations while others waited. From then on the order is not \
             exact in {} of the {STRIPES} parts of pages that are ordered separately",
            taken.len()
        ));
    }
    let mut objects = Objects::default();
    let mut processes = Vec::new();
    for image in trace.images() {
        let own = |s: &StreamId| {
            trace
                .stream_info(*s)
                .is_some_and(|i| i.image == image.number)
        };
        let threads: Vec<StreamId> = trace.threads().into_iter().filter(own).collect();
        let Some(first) = threads.first() else {
            continue;
        };
        let layout = tag(*first, Layout::new(trace, image.number, &mut objects))?;
        processes.push(Process {
            trace,
            image: image.number,
            threads,
            layout,
            jobs: jobs.max(1),
        });
    }
    for p in &processes {
        let alone = Group {
            members: vec![p],
            common: None,
            taken,
        };
        alone.check(&mut report)?;
    }
    let sharing = Group {
        members: processes.iter().filter(|p| p.layout.has_keys()).collect(),
        common: Some(&objects),
        taken,
    };
    sharing.check(&mut report)?;
    Ok(report)
}

fn tag<T>(s: StreamId, r: std::result::Result<T, hindsight_replay::Error>) -> Result<T> {
    r.map_err(|cause| OrderError::Replay { stream: s, cause })
}

/// A process while it ran one program.
struct Process<'t> {
    trace: &'t Trace,
    image: u32,
    threads: Vec<StreamId>,
    layout: Layout,
    jobs: usize,
}

impl Process<'_> {
    /// Replays all threads of the process.
    fn play(&self, table: Option<&Table>, wanted: &OpFilter) -> Result<Log> {
        let code = Arc::new(tag(0, Code::from_trace(self.trace, self.image))?);
        let next = AtomicUsize::new(0);
        let all = Mutex::new((Log::default(), None));
        let work = || {
            while let Some(s) = self.threads.get(next.fetch_add(1, Relaxed)) {
                let mut log = Log::default();
                let done = play::play(self.trace, *s, Arc::clone(&code), table, wanted, &mut log)
                    .and_then(|()| match table {
                        Some(_) => play::unknown(self.trace, *s, &mut log),
                        None => Ok(()),
                    });
                let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
                all.0.append(log);
                if let Err(e) = tag(*s, done) {
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
}

/// Processes whose operations are compared with each other: one process alone, or all that share memory.
struct Group<'p, 't> {
    members: Vec<&'p Process<'t>>,
    /// Some: looks only at memory that processes share. None: looks only at the other memory.
    common: Option<&'p Objects>,
    /// Locks that were taken from their threads: operations under them may have taken place later than their
    /// numbers say.
    taken: &'p [Taken],
}

impl Group<'_, '_> {
    /// What a word of a process is called in comparisons. `None` if this group does not look at it.
    fn key(&self, p: &Process, word: u64, when: (u64, u64)) -> Option<u64> {
        let key = p.layout.key(word, when);
        match self.common {
            Some(_) => key,
            None => key.is_none().then_some(word),
        }
    }

    fn addresses(&self, p: &Process, key: u64) -> Vec<u64> {
        match self.common {
            Some(_) => p.layout.addresses(key).collect(),
            None => vec![key],
        }
    }

    /// Whether somebody outside the group may have written to the word.
    fn is_open(&self, key: u64, when: (u64, u64)) -> bool {
        match self.common {
            Some(objects) => !objects.is_own(key),
            None => self.members.iter().any(|p| p.layout.is_unclear(key, when)),
        }
    }

    fn check(&self, report: &mut OrderReport) -> Result<()> {
        let mut total = 0;
        for p in &self.members {
            for s in &p.threads {
                total += tag(*s, play::count(p.trace, *s))?;
            }
        }
        let rounds = total.div_ceil(MOST).max(1);
        for round in 0..rounds {
            let chosen =
                |key: u64| ((key >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % rounds == round;
            let mut ops = Vec::new();
            let mut displaced = Displaced::new(self.taken);
            for p in &self.members {
                let wanted = |word, when| self.key(p, word, when).is_some_and(chosen);
                for mut op in p.play(None, &wanted)?.ops {
                    let when = (op.number, op.next);
                    report.shared += p.layout.is_unclear(op.word, when) as u64;
                    displaced.see(&op);
                    op.word = self.key(p, op.word, when).unwrap_or(op.word);
                    ops.push(op);
                }
            }
            if self.common.is_some() {
                report.common += ops.len() as u64;
            }
            let mismatches = judge(ops, report);
            if !mismatches.is_empty() {
                self.explain(mismatches, &displaced, report)?;
            }
        }
        Ok(())
    }

    /// Decides what the mismatches mean.
    fn explain(
        &self,
        mismatches: Vec<Mismatch>,
        displaced: &Displaced,
        report: &mut OrderReport,
    ) -> Result<()> {
        let keys: HashSet<u64> = mismatches.iter().map(|m| m.op.word).collect();
        let mut stores: HashMap<u64, Vec<Store>> = HashMap::new();
        let (mut kernel, mut missing) = (Vec::new(), Vec::new());
        for p in &self.members {
            let mut words: Vec<u64> = keys.iter().flat_map(|k| self.addresses(p, *k)).collect();
            words.sort_unstable();
            let table = Table::new(words.iter().copied().collect()).map_err(OrderError::Table)?;
            let log = p.play(Some(&table), &|_, _| false)?;
            for s in log.stores {
                if let Some(key) = self.key(p, s.word, (s.open, s.close)) {
                    stores.entry(key).or_default().push(s);
                }
            }
            kernel.extend(log.kernel.into_iter().filter(|u| u.touches(&words)));
            missing.extend(log.missing);
        }
        stores.values_mut().for_each(|l| l.sort_by_key(|s| s.open));
        let kernel = Intervals::new(&mut kernel);
        let missing = Intervals::new(&mut missing);
        for m in mismatches {
            let list = stores.get(&m.op.word).map_or(&[][..], |l| l);
            let unexplained = |p: &&OpBytes| !stored(&m.op, p, list);
            // Something else may have written there.
            let undecided = |p: &OpBytes| {
                let (from, to) = (p.before.number, m.op.next);
                released(&m.op, p)
                    || kernel.any(from, to)
                    || missing.any(from, to)
                    || self.is_open(m.op.word, (from, to))
            };
            let left: Vec<&OpBytes> = m.parts.iter().filter(unexplained).collect();
            if left.is_empty() {
                report.stored += 1;
            } else if displaced.has(&m.op) {
                report.undecided += 1;
                report.displaced += 1;
            } else if let Some(part) = left.into_iter().find(|p| !undecided(p)) {
                report.wrong += 1;
                let earlier = report
                    .violation
                    .as_ref()
                    .is_none_or(|v| m.op.number < v.number);
                if earlier {
                    report.violation = self.violation(&m, part);
                }
            } else {
                report.undecided += 1;
            }
        }
        Ok(())
    }

    fn violation(&self, m: &Mismatch, part: &OpBytes) -> Option<Violation> {
        let mut members = self.members.iter();
        let p = members.find(|p| p.threads.contains(&m.op.stream))?;
        let first = part.mask.trailing_zeros();
        let len = 8 - part.mask.leading_zeros() - first;
        let value = |v: u64| (v & bits(part.mask)) >> (8 * first);
        let info = p.trace.stream_info(m.op.stream)?;
        let word = *self.addresses(p, m.op.word).first()?;
        Some(Violation {
            stream: m.op.stream,
            who: format!(
                "process {}, thread {} (stream {})",
                info.pid, info.tid, m.op.stream
            ),
            count: m.op.pos,
            pc: m.op.pc,
            location: symbols::location(p.trace, p.image, m.op.pc).map(|p| p.to_string()),
            number: m.op.number,
            address: word + first as u64,
            len: len as u64,
            found: value(m.op.before),
            expected: value(m.expected),
            before: (part.before.number, part.before.stream, part.before.pos),
        })
    }
}
