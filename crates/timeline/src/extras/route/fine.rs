//! The last steps before a position one by one, with the data that they access.

use super::code::{Marks, Quick};
use super::spans::Spans;
use crate::breakpath::StopCandidate;
use crate::model::error::replay;
use crate::play::begins;
use crate::{Cancel, Error, Result, ThreadId, Timeline};
use hindsight_isa::CpuState;
use hindsight_isa::regs::RCX;
use hindsight_isa::string::StringOp;
use hindsight_replay::access::{Access, Finder, decode, kinds};
use hindsight_replay::{Machine, Stop};
use hindsight_translate::effective::Sum;
use iced_x86::{Instruction, InstructionInfoFactory, Register};
use std::collections::HashMap;

/// Bytes that one hardware watchpoint watches.
pub const WORD: u64 = 8;
/// Steps between two looks at [`Cancel`].
const BREATH: u64 = 1 << 16;
/// A repeated instruction is assumed to process at most this many bytes.
const LONGEST: u64 = 1 << 20;

/// A part of a log says how many steps come between two that have stops. Otherwise it is a setting.
const DISTANCE: u32 = 1 << 31;
/// The setting stops there more or less than once.
const INEXACT: u32 = 1 << 30;

/// Which settings stop at which steps. A step with stops takes four bytes and four for each of them.
pub struct Log {
    parts: Vec<u32>,
    last: u64,
}

impl Log {
    fn new(from: u64) -> Log {
        Log {
            parts: Vec::new(),
            last: from,
        }
    }

    fn add(&mut self, step: u64, stops: &[StopCandidate]) {
        if stops.is_empty() {
            return;
        }
        let mut distance = step - self.last;
        loop {
            let part = distance.min((DISTANCE - 1) as u64);
            self.parts.push(DISTANCE | part as u32);
            distance -= part;
            if distance == 0 {
                break;
            }
        }
        self.last = step;
        let part = |s: &StopCandidate| s.setting | if s.exact { 0 } else { INEXACT };
        self.parts.extend(stops.iter().map(part));
    }

    /// Shows the steps that have stops, the last one first.
    pub fn backwards(&self, mut show: impl FnMut(u64, &[StopCandidate])) {
        let (mut step, mut stops) = (self.last, Vec::new());
        for part in self.parts.iter().rev() {
            if part & DISTANCE == 0 {
                stops.push(StopCandidate {
                    setting: part & !INEXACT,
                    exact: part & INEXACT == 0,
                });
                continue;
            }
            if !stops.is_empty() {
                show(step, &stops);
                stops.clear();
            }
            step -= (part & !DISTANCE) as u64;
        }
    }
}

/// A memory operand whose address comes from general registers alone, and its length.
type Operand = (Sum, u64);

/// What is known of an instruction from its address alone, while the module is mapped.
enum Kind {
    Simple(Vec<Operand>),
    Complex,
}

/// A machine that has completed `from` steps.
fn machine(timeline: &Timeline, thread: ThreadId, from: u64) -> Result<Machine<'static>> {
    let engine = &timeline.0;
    let mut machine = engine.machine(thread)?;
    let all = begins(engine, thread, (from, from + 1))?;
    let (_, begin) = all
        .range(..=from)
        .next_back()
        .ok_or(Error::NoThread(thread))?;
    begin.start(engine, thread, &mut machine)?;
    while machine.position() < from {
        let stop = machine.run_to(from).map_err(|e| replay(thread, e))?;
        if stop != Stop::Position {
            break;
        }
    }
    Ok(machine)
}

/// Shows the machine before each step from `from` on, and at `to`.
pub fn each(
    timeline: &Timeline,
    thread: ThreadId,
    (from, to): (u64, u64),
    cancel: &Cancel,
    mut show: impl FnMut(u64, &Machine),
) -> Result<()> {
    let mut machine = machine(timeline, thread, from)?;
    let unlike = || Error::Unsupported("parts of the program before it were not recorded".into());
    let mut step = from;
    while machine.position() < to {
        cancel.check()?;
        let until = to.min(machine.position() + BREATH);
        let stop = machine.each(until, &mut |m| {
            show(step, m);
            step += 1;
            true
        });
        if stop.map_err(|e| replay(thread, e))? != Stop::Position || machine.skipped() > 0 {
            return Err(unlike());
        }
    }
    if step != to {
        return Err(unlike());
    }
    show(to, &machine);
    Ok(())
}

/// Turns what a machine does into settings.
pub struct Collector<'a> {
    pub log: Log,
    spans: &'a mut Spans,
    marks: &'a Marks,
    /// The settings of words in files.
    pub words: Quick<u32>,
    kinds: HashMap<u64, Kind>,
    finder: Finder,
    info: InstructionInfoFactory,
    /// What the instruction before this step accessed.
    touched: Vec<StopCandidate>,
    accesses: Vec<Access>,
}

impl Collector<'_> {
    /// Begins at step `first`. `goal` is the last step.
    pub fn new<'a>(spans: &'a mut Spans, marks: &'a Marks, first: u64) -> Collector<'a> {
        Collector {
            log: Log::new(first),
            spans,
            marks,
            words: Quick::default(),
            kinds: HashMap::new(),
            finder: Finder::new(),
            info: InstructionInfoFactory::new(),
            touched: Vec::new(),
            accesses: Vec::new(),
        }
    }

    /// The thread arrives at a step.
    pub fn arrive(&mut self, step: u64, m: &Machine) {
        let rip = m.registers().rip;
        let setting = self.marks.at.get(&rip).copied();
        self.touched.extend(setting.map(|setting| StopCandidate {
            setting,
            exact: true,
        }));
        if step > 0 {
            self.log.add(step, &self.touched);
        }
        self.touched.clear();
    }

    /// The thread executes the instruction of a step. `name` gives a number to a word that is met for the first time, and gets
    /// the number of its module.
    pub fn execute(&mut self, step: u64, m: &Machine, name: &mut dyn FnMut(u64, usize) -> u32) {
        let cpu = m.registers();
        // Something else may be mapped where a module was unloaded.
        let lasting = |s: &super::spans::Span| s.gone == u64::MAX && s.usable <= step;
        let module = self.spans.at(cpu.rip);
        let lasting = module.is_some_and(|i| lasting(&self.spans.all()[i]));
        if lasting && !self.kinds.contains_key(&cpu.rip) {
            let kind = self.kind(m, cpu.rip);
            self.kinds.insert(cpu.rip, kind);
        }
        let known = self.kinds.get(&cpu.rip).filter(|_| lasting);
        let mut list = std::mem::take(&mut self.accesses);
        list.clear();
        let exact = match known {
            Some(Kind::Simple(operands)) => {
                list.extend(operands.iter().map(|(sum, len)| Access {
                    address: sum.address(&cpu.gpr),
                    len: *len,
                    read: true,
                    write: true,
                    unknown: false,
                }));
                true
            }
            _ => {
                self.complex(m, &cpu, &mut list);
                false
            }
        };
        for a in &list {
            let end = a.address.saturating_add(a.len);
            let mut word = a.address / WORD * WORD;
            while word < end {
                // Goes on with the next module, if there is one.
                let Some(module) = self.spans.at(word) else {
                    match self.spans.next(word) {
                        Some(next) => word = next,
                        None => break,
                    }
                    continue;
                };
                let span = &self.spans.all()[module];
                if (span.usable..span.gone).contains(&step) {
                    let named = self.words.entry(word);
                    let setting = *named.or_insert_with(|| name(word, module));
                    if self.touched.iter().all(|t| t.setting != setting) {
                        self.touched.push(StopCandidate { setting, exact });
                    }
                }
                word += WORD;
            }
        }
        self.accesses = list;
    }

    fn complex(&mut self, m: &Machine, cpu: &CpuState, list: &mut Vec<Access>) {
        let mut buf = [0; 15];
        let n = m.code(cpu.rip, &mut buf);
        // A repeated instruction is assumed to process everything that its count says.
        let mut after = *cpu;
        if let Some(op) = StringOp::decode(&buf[..n]) {
            after.gpr[RCX] = cpu.gpr[RCX].saturating_sub(LONGEST / op.size as u64);
        }
        self.finder
            .find(&buf[..n], (cpu, &m.vectors()), &after, list);
    }

    fn kind(&mut self, m: &Machine, pc: u64) -> Kind {
        let mut buf = [0; 15];
        let n = m.code(pc, &mut buf);
        if StringOp::decode(&buf[..n]).is_some() {
            return Kind::Complex;
        }
        let Some(i) = decode(&buf[..n], pc) else {
            return Kind::Complex;
        };
        simple(&i, &mut self.info).map_or(Kind::Complex, Kind::Simple)
    }
}

/// The operands of an instruction, including those that are popped or pushed. `None`: some are not simple.
fn simple(i: &Instruction, info: &mut InstructionInfoFactory) -> Option<Vec<Operand>> {
    use iced_x86::Mnemonic::*;
    let odd = matches!(
        i.mnemonic(),
        Bt | Bts | Btr | Btc | Pop | Xlatb | Enter | Leave | Maskmovq
    ) || matches!(
        i.mnemonic(),
        Maskmovdqu | Vmaskmovdqu | Vmaskmovps | Vmaskmovpd
    ) || matches!(i.mnemonic(), Vpmaskmovd | Vpmaskmovq)
        || i.op_mask() != Register::None
        || i.memory_index().is_vector_register();
    if odd {
        return None;
    }
    let mut out = Vec::new();
    for m in info.info(i).used_memory() {
        let (read, write) = kinds(m.access());
        if !read && !write {
            continue;
        }
        let len = m.memory_size().size() as u64;
        if len == 0 {
            return None;
        }
        out.push((Sum::of(m)?, len));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_backwards() {
        let stop = |setting, exact| StopCandidate { setting, exact };
        let given = [
            (7, vec![stop(3, true)]),
            (8, vec![stop(0, false), stop(9, true)]),
            (9_000_000_000, vec![stop(1, true)]),
        ];
        let mut log = Log::new(5);
        for (step, stops) in &given {
            log.add(*step, stops);
            log.add(step + 1, &[]);
        }
        let mut seen = Vec::new();
        log.backwards(|step, stops| seen.push((step, stops.iter().rev().copied().collect())));
        seen.reverse();
        assert_eq!(seen, given);
    }
}
