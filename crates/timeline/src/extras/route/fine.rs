//! The last steps before a position one by one, with the data that they access.

use super::code::{Code, Marks, Quick};
use super::spans::Spans;
use crate::breakpath::StopCandidate;
use crate::model::error::replay;
use crate::play::begins;
use crate::{Cancel, Error, Result, ThreadId, Timeline};
use hindsight_isa::string::StringOp;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::access::{Access, Finder, decode, kinds};
use hindsight_replay::{Machine, Stop};
use hindsight_translate::effective::Sum;
use iced_x86::{Instruction, InstructionInfoFactory, Register};
use std::collections::HashMap;

/// Bytes that one hardware watchpoint watches.
pub const WORD: u64 = 8;
/// Steps between two looks at [`Cancel`].
const BREATH: u64 = 1 << 16;

/// A part of a log says how many steps come between two that have stops. Otherwise it is a setting.
const DISTANCE: u32 = 1 << 31;
/// The setting stops there more or less than once.
const INEXACT: u32 = 1 << 30;

/// Parts of a log that are in memory as one.
const CHUNK: usize = 1 << 16;
/// Most different words that count. Each takes some hundred bytes.
const MOST_WORDS: usize = 1 << 21;

/// Which settings stop at which steps. A step with stops takes four bytes and four for each of them.
pub struct Log {
    chunks: Vec<Vec<u32>>,
    /// Parts that still fit.
    room: u64,
    last: u64,
}

impl Log {
    pub fn new(from: u64, room: u64) -> Log {
        Log {
            chunks: Vec::new(),
            room,
            last: from,
        }
    }

    fn part(&mut self, part: u32) {
        match self.chunks.last_mut().filter(|c| c.len() < CHUNK) {
            Some(chunk) => chunk.push(part),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(part);
                self.chunks.push(chunk);
            }
        }
        self.room = self.room.saturating_sub(1);
    }

    pub fn add(&mut self, step: u64, stops: &[StopCandidate]) {
        if stops.is_empty() {
            return;
        }
        let mut distance = step - self.last;
        loop {
            let part = distance.min((DISTANCE - 1) as u64);
            self.part(DISTANCE | part as u32);
            distance -= part;
            if distance == 0 {
                break;
            }
        }
        self.last = step;
        for s in stops {
            self.part(s.setting | if s.exact { 0 } else { INEXACT });
        }
    }

    /// Shows the steps that have stops, the last one first.
    pub fn backwards(&self, mut show: impl FnMut(u64, &[StopCandidate])) {
        let (mut step, mut stops) = (self.last, Vec::new());
        for part in self.chunks.iter().rev().flat_map(|c| c.iter().rev()) {
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
    begin.start(engine, thread, &mut machine, &|_| true)?;
    while machine.position() < from {
        let stop = machine.run_to(from).map_err(|e| replay(thread, e))?;
        if stop != Stop::Position {
            break;
        }
    }
    Ok(machine)
}

/// Shows the machine before each step from `from` on, and at `to`. Ends early when `show` returns false.
pub fn each(
    timeline: &Timeline,
    thread: ThreadId,
    (from, to): (u64, u64),
    cancel: &Cancel,
    mut show: impl FnMut(u64, &Machine) -> bool,
) -> Result<()> {
    let mut machine = machine(timeline, thread, from)?;
    let unlike = || Error::Unsupported("parts of the program before it were not recorded".into());
    let (mut step, mut goes_on) = (from, true);
    while machine.position() < to {
        cancel.check()?;
        let until = to.min(machine.position() + BREATH);
        let stop = machine.each(until, &mut |m| {
            goes_on = show(step, m);
            step += 1;
            goes_on
        });
        if stop.map_err(|e| replay(thread, e))? != Stop::Position || machine.skipped() > 0 {
            return Err(unlike());
        }
        if !goes_on {
            return Ok(());
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
    /// More data was accessed than is kept.
    pub full: bool,
    spans: &'a mut Spans,
    marks: &'a Marks,
    code: &'a Code,
    /// The settings of words in files.
    words: Quick<u32>,
    kinds: HashMap<u64, Kind>,
    finder: Finder,
    info: InstructionInfoFactory,
    /// What the instruction before this step accessed.
    touched: Vec<StopCandidate>,
    accesses: Vec<Access>,
    /// A string instruction before this step, and the registers before it. How far it got is seen behind it.
    string: Option<([u8; 15], usize, CpuState, VecState)>,
}

impl Collector<'_> {
    /// Begins at step `first`. So many steps follow.
    pub fn new<'a>(
        spans: &'a mut Spans,
        (marks, code): (&'a Marks, &'a Code),
        saves: Layout,
        first: u64,
        steps: u64,
    ) -> Collector<'a> {
        Collector {
            // Three parts for each step, as most programs need less, and a few for those that copy much.
            log: Log::new(first, steps.saturating_mul(3).saturating_add(1 << 20)),
            full: false,
            spans,
            marks,
            code,
            words: Quick::default(),
            kinds: HashMap::new(),
            finder: Finder::new(saves),
            info: InstructionInfoFactory::new(),
            touched: Vec::new(),
            accesses: Vec::new(),
            string: None,
        }
    }

    /// The thread stands at a step, and executes the next instruction unless it is the last step. `name` gives a number to a
    /// word that is met for the first time, and gets the number of its module. Returns false if there is too much.
    pub fn step(
        &mut self,
        step: u64,
        is_last: bool,
        m: &Machine,
        name: &mut dyn FnMut(u64, usize) -> u32,
    ) -> bool {
        let cpu = m.registers();
        if let Some((code, n, before, vectors)) = self.string.take() {
            let mut list = std::mem::take(&mut self.accesses);
            let state = (&before, &vectors);
            self.finder.find(&code[..n], state, &cpu, &mut list);
            self.touch(&list, false, step.saturating_sub(1), name);
            self.accesses = list;
        }
        let at = self.marks.at.get(&cpu.rip).copied().unwrap_or_default();
        for setting in at.mark.into_iter().chain(at.near) {
            self.touched.push(StopCandidate {
                setting,
                exact: true,
            });
        }
        self.full |= self.log.room <= self.touched.len() as u64;
        if step > 0 && !self.full {
            self.log.add(step, &self.touched);
        }
        self.touched.clear();
        if !is_last && !self.full {
            self.execute(step, m, &cpu, name);
        }
        !self.full
    }

    fn execute(
        &mut self,
        step: u64,
        m: &Machine,
        cpu: &CpuState,
        name: &mut dyn FnMut(u64, usize) -> u32,
    ) {
        // Something else may be mapped where a module was unloaded, and a program may change its code.
        let lasting = |s: &super::spans::Span| s.gone == u64::MAX && s.usable <= step;
        let module = self.spans.at(cpu.rip);
        let lasting = module.is_some_and(|i| lasting(&self.spans.all()[i]));
        let lasting = lasting && self.code.stays(cpu.rip);
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
                let mut code = [0; 15];
                let n = m.code(cpu.rip, &mut code);
                match StringOp::decode(&code[..n]) {
                    Some(_) => self.string = Some((code, n, *cpu, m.vectors())),
                    None => (self.finder).find(&code[..n], (cpu, &m.vectors()), cpu, &mut list),
                }
                false
            }
        };
        self.touch(&list, exact, step, name);
        self.accesses = list;
    }

    /// Notes the words in files that the instruction of a step accesses, each once.
    fn touch(
        &mut self,
        list: &[Access],
        exact: bool,
        step: u64,
        name: &mut dyn FnMut(u64, usize) -> u32,
    ) {
        let words = |a: &Access| (a.address / WORD * WORD, a.address.saturating_add(a.len));
        for (i, a) in list.iter().enumerate() {
            let (mut word, end) = words(a);
            while word < end && !self.full {
                // Goes on with the next module, if there is one.
                let Some(module) = self.spans.at(word) else {
                    match self.spans.next(word) {
                        Some(next) => word = next,
                        None => break,
                    }
                    continue;
                };
                let span = &self.spans.all()[module];
                if !(span.usable..span.gone).contains(&step) {
                    match span.range.end.checked_next_multiple_of(WORD) {
                        Some(behind) => word = behind,
                        None => break,
                    }
                    continue;
                }
                let mut before = list[..i].iter().map(words);
                if !before.any(|w| (w.0..w.1).contains(&word)) {
                    let named = self.words.entry(word);
                    let setting = *named.or_insert_with(|| name(word, module));
                    self.touched.push(StopCandidate { setting, exact });
                    self.full |=
                        self.words.len() > MOST_WORDS || self.touched.len() as u64 >= self.log.room;
                }
                let Some(next) = word.checked_add(WORD) else {
                    break;
                };
                word = next;
            }
        }
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
        let mut log = Log::new(5, 100);
        for (step, stops) in &given {
            log.add(*step, stops);
            log.add(step + 1, &[]);
        }
        let mut seen = Vec::new();
        log.backwards(|step, stops| seen.push((step, stops.iter().rev().copied().collect())));
        seen.reverse();
        assert_eq!(seen, given);
        assert!(log.room < 100);
    }
}
