//! Which instructions of files are executed, and which of them are worth a breakpoint.
//!
//! The replay tells runs of instructions, of which there are many more than different ones. Instructions that are only
//! ever executed one behind the other stop equally often. Of these the first one is enough: wherever another one leads, it
//! leads from further back. So a run becomes a few *marks*, most often one.

use super::spans::Spans;
use hindsight_isa::string::StringOp;
use hindsight_replay::Run;
use hindsight_replay::access::decode;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// The longest instruction, in bytes.
const LONGEST: usize = 15;
const PAGE: u64 = 1 << 12;

/// A map whose keys a quick hash serves. They are neither secret nor does the time matter that they take: each is a place in
/// the code that was executed.
pub type Quick<V> = HashMap<u64, V, BuildHasherDefault<Mix>>;

/// What was executed, without order and number.
#[derive(Default)]
pub struct Code {
    numbers: Quick<u32>,
    runs: Vec<Known>,
    /// Addresses of the instructions of all runs. Empty for runs outside of files.
    instructions: Vec<u64>,
    /// String instructions: a debugger that steps over a breakpoint there executes one repetition, and stops again.
    strings: HashSet<u64>,
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

/// What can be set, in all runs.
#[derive(Default)]
pub struct Marks {
    /// For each run: its number of instructions, and where its marks stand in the list.
    runs: Vec<(u16, u32, u32)>,
    marks: Vec<Mark>,
    /// The setting of an address.
    pub at: Quick<u32>,
}

impl Marks {
    /// The number of instructions of a run, and its marks.
    #[inline(always)]
    pub fn of(&self, run: u32) -> (u64, &[Mark]) {
        let (len, begin, end) = self.runs[run as usize];
        (len as u64, &self.marks[begin as usize..end as usize])
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

    fn steady(&self, pc: u64) -> bool {
        let changes = |a: u64| self.unsteady.contains(&(a / PAGE * PAGE));
        !changes(pc) && !changes(pc.saturating_add(LONGEST as u64 - 1))
    }

    /// Finds out what is worth to be set, and `goal` in any case. `listed` says which addresses count where not all do. The
    /// first one of these counts too. `name` gives an address a number, and is told whether it is worth to be set where all
    /// count. It is called once for each address.
    pub fn marks(
        &self,
        goal: Option<u64>,
        listed: impl Fn(u64) -> bool,
        mut name: impl FnMut(u64, bool) -> u32,
    ) -> Marks {
        let firsts = self.firsts(goal);
        let mut out = Marks::default();
        for run in &self.runs {
            let begin = out.marks.len() as u32;
            let mut found = false;
            for (i, pc) in self.instructions[run.first..run.behind].iter().enumerate() {
                let first = i == 0 || firsts.contains(pc);
                found &= !first;
                let lists = !found && listed(*pc);
                found |= lists;
                if !(first || lists) || self.strings.contains(pc) || !self.steady(*pc) {
                    continue;
                }
                let setting = *out.at.entry(*pc).or_insert_with(|| name(*pc, first));
                out.marks.push(Mark {
                    behind: i as u16,
                    setting,
                });
            }
            out.runs.push((run.len, begin, out.marks.len() as u32));
        }
        if let Some(goal) = goal.filter(|pc| self.steady(*pc)) {
            out.at.entry(goal).or_insert_with(|| name(goal, true));
        }
        out
    }

    /// The instructions to which not always the same one leads, or behind which not always the same one comes.
    fn firsts(&self, goal: Option<u64>) -> HashSet<u64> {
        let mut firsts: HashSet<u64> = goal.into_iter().collect();
        let (mut before, mut behind): (Quick<u64>, Quick<u64>) = Default::default();
        let mut ends: HashSet<u64> = self.strings.clone();
        firsts.extend(&self.strings);
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

/// A quick hash.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(*b as u64));
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}
