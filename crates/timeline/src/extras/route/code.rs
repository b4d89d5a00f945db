//! Which instructions of files are executed, and which of them are worth a breakpoint.
//!
//! The replay tells runs of instructions, of which there are many more than different ones. Instructions that are only
//! ever executed one behind the other stop equally often. Of these the first one is enough: wherever another one leads, it
//! leads from further back. So a run becomes a few *marks*, most often one.

use super::spans::Spans;
use hindsight_isa::string::StringOp;
use hindsight_replay::Run;
use hindsight_replay::access::decode;
use std::collections::HashSet;

/// The longest instruction, in bytes.
const LONGEST: usize = 15;
const PAGE: u64 = 1 << 12;

/// A map whose keys a quick hash serves. They are neither secret nor does the time matter that they take: each is a place in
/// the code that was executed.
pub type Quick<V> = hindsight_replay::AddressMap<V>;

/// What was executed, without order and number.
#[derive(Default)]
pub struct Code {
    numbers: Quick<u32>,
    runs: Vec<Known>,
    /// Addresses of the instructions of all runs. Empty for runs outside of files.
    instructions: Vec<u64>,
    /// String instructions: a debugger that steps over a breakpoint there executes one repetition, and stops again.
    pub(super) strings: HashSet<u64>,
    /// Pages whose code changes.
    unsteady: HashSet<u64>,
}

/// A run: how many instructions it has, and where they stand in the list.
struct Known {
    len: u16,
    first: usize,
    behind: usize,
}

/// A place at which something can be set, in a run.
#[derive(Clone, Copy)]
pub struct Mark {
    /// Instructions of the run before it.
    pub behind: u16,
    /// The setting.
    pub setting: u32,
}

/// Where an instruction counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Everywhere, under a restriction to what is listed, too.
    First,
    /// Everywhere, but only under a restriction to what is listed.
    Listed,
    /// Only at steps at which data counts.
    Near,
}

/// The settings of an address.
#[derive(Clone, Copy, Default)]
pub struct At {
    /// [`Role::First`] or [`Role::Listed`].
    pub mark: Option<u32>,
    /// [`Role::Near`].
    pub near: Option<u32>,
}

/// What can be set, in all runs.
#[derive(Default)]
pub struct Marks {
    /// For each run: its number of instructions, and where its marks stand in the list.
    runs: Vec<(u16, u32, u32)>,
    marks: Vec<Mark>,
    /// The settings of an address.
    pub at: Quick<At>,
}

impl Marks {
    /// The number of instructions of a run, and its marks. `None`: it is not known.
    #[inline(always)]
    pub fn of(&self, run: u32) -> Option<(u64, &[Mark])> {
        let (len, begin, end) = *self.runs.get(run as usize)?;
        Some((len as u64, &self.marks[begin as usize..end as usize]))
    }

    /// Adds runs that were met since. Another replay may cut what was executed into other runs.
    pub fn grow(&mut self, code: &Code) {
        for run in code.runs.get(self.runs.len()..).unwrap_or_default() {
            let begin = self.marks.len() as u32;
            for (i, pc) in code.instructions[run.first..run.behind].iter().enumerate() {
                let setting = self.at.get(pc).and_then(|at| at.mark);
                self.marks.extend(setting.map(|setting| Mark {
                    behind: i as u16,
                    setting,
                }));
            }
            self.runs.push((run.len, begin, self.marks.len() as u32));
        }
    }
}

impl Code {
    /// The number of a run. `read` reads code at an address.
    #[inline(always)]
    pub fn number(
        &mut self,
        run: Run,
        spans: &mut Spans,
        read: impl Fn(u64, &mut [u8]) -> usize,
    ) -> u32 {
        match self.numbers.get(&run.id()) {
            Some(n) => *n,
            None => self.add(run, spans, read),
        }
    }

    fn add(&mut self, run: Run, spans: &mut Spans, read: impl Fn(u64, &mut [u8]) -> usize) -> u32 {
        let first = self.instructions.len();
        let mut pc = run.pc();
        for _ in 0..run.instructions() {
            let mut buf = [0; LONGEST];
            let n = read(pc, &mut buf);
            let code = &buf[..n];
            let Some(i) = spans.code_at(pc).and_then(|_| decode(code, pc)) else {
                break;
            };
            if StringOp::decode(code).is_some() {
                self.strings.insert(pc);
            }
            self.instructions.push(pc);
            pc = i.next_ip();
        }
        let number = self.runs.len() as u32;
        self.runs.push(Known {
            // A run has no more.
            len: run.instructions() as u16,
            first,
            behind: self.instructions.len(),
        });
        self.numbers.insert(run.id(), number);
        number
    }

    /// The code of this page changes. What a debugger writes there may get lost.
    pub fn changes(&mut self, page: u64) {
        self.unsteady.insert(page / PAGE * PAGE);
    }

    /// Whether an instruction always is the same.
    pub fn stays(&self, pc: u64) -> bool {
        let end = pc.saturating_add(LONGEST as u64 - 1);
        [pc, end]
            .iter()
            .all(|a| !self.unsteady.contains(&(a / PAGE * PAGE)))
    }

    /// Whether a debugger can stop at an instruction, each time that it is executed.
    fn serves(&self, pc: u64) -> bool {
        // Behind code that changes, in the same run, other instructions may have begun. No run is longer than a page.
        let steady = self.stays(pc) && self.stays(pc.wrapping_sub(PAGE));
        steady && !self.strings.contains(&pc)
    }

    /// Finds out what is worth to be set, and `goal` in any case. `listed` says which addresses count where not all do. The
    /// first one of these counts too. `name` gives an address a number, once for each role.
    pub fn marks(
        &self,
        goal: Option<u64>,
        listed: impl Fn(u64) -> bool,
        mut name: impl FnMut(u64, Role) -> u32,
    ) -> Marks {
        let firsts = self.firsts(goal);
        let mut out = Marks::default();
        // Addresses that count everywhere.
        let mut whole = HashSet::new();
        for run in &self.runs {
            // What is still to be found since the last first one: one that serves, and a listed one that serves.
            let (mut first, mut list) = (false, false);
            for pc in &self.instructions[run.first..run.behind] {
                if firsts.contains(pc) {
                    (first, list) = (true, true);
                }
                if !self.serves(*pc) {
                    continue;
                }
                let lists = list && listed(*pc);
                if first || lists {
                    let role = if first { Role::First } else { Role::Listed };
                    let at = out.at.entry(*pc).or_default();
                    at.mark.get_or_insert_with(|| name(*pc, role));
                    if first {
                        whole.insert(*pc);
                    }
                }
                first = false;
                list &= !lists;
            }
        }
        if let Some(goal) = goal.filter(|pc| self.serves(*pc)) {
            let at = out.at.entry(goal).or_default();
            at.mark.get_or_insert_with(|| name(goal, Role::First));
            whole.insert(goal);
        }
        // An access to data can stop between two that are always executed one behind the other.
        for pc in &self.instructions {
            if self.serves(*pc) && !whole.contains(pc) {
                let at = out.at.entry(*pc).or_default();
                at.near.get_or_insert_with(|| name(*pc, Role::Near));
            }
        }
        out.grow(self);
        out
    }

    /// The instructions to which not always the same one leads, or behind which not always the same one comes.
    fn firsts(&self, goal: Option<u64>) -> HashSet<u64> {
        let mut firsts: HashSet<u64> = goal.into_iter().collect();
        let (mut before, mut behind): (Quick<u64>, Quick<u64>) = Default::default();
        let mut ends: HashSet<u64> = self.strings.clone();
        firsts.extend(&self.strings);
        // The program stands at its very first instruction when it starts. The next one stops it.
        let start = self
            .runs
            .first()
            .and_then(|run| self.instructions[run.first..run.behind].get(1));
        firsts.extend(start);
        for run in &self.runs {
            let list = &self.instructions[run.first..run.behind];
            firsts.extend(list.first());
            ends.extend(list.last());
            for pair in list.windows(2) {
                if *before.entry(pair[1]).or_insert(pair[0]) != pair[0] {
                    firsts.insert(pair[1]);
                }
                if *behind.entry(pair[0]).or_insert(pair[1]) != pair[1] {
                    ends.insert(pair[0]);
                }
            }
        }
        let forks = before.iter().filter(|(_, from)| ends.contains(from));
        firsts.extend(forks.map(|(pc, _)| pc));
        firsts
    }
}
