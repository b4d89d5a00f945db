//! What a debugger could stop at on the way to a position. It gives the steps of a thread to [`crate::breakpath`].

use crate::ThreadInstant;
use crate::breakpath::{Breakpath, StopCandidate};
use crate::model::error::replay;
use crate::recording::Chunks;
use crate::{Cancel, Error, Filter, KindOf, Module, Position, Result, Timeline};
use hindsight_isa::regs::RCX;
use hindsight_isa::string::StringOp;
use hindsight_replay::access::{Access, Finder, decode, kinds};
use hindsight_replay::{Machine, Stop};
use hindsight_translate::effective::Sum;
use iced_x86::{Instruction, InstructionInfoFactory, Register};
use std::collections::HashMap;

/// Bytes that one hardware watchpoint watches.
const WORD: u64 = 8;
/// `mmap` maps the parts of a module.
const MMAP: u64 = 9;
const PROT_EXEC: u32 = 4;
/// Steps between two looks at [`Cancel`].
const BREATH: u64 = 1 << 16;

/// What to set in the live program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Path of the module. Offsets count from its first mapping.
    pub module: String,
    /// The offset in bytes from the first mapping's address.
    pub offset: u64,
    /// It is a word of eight bytes that is read or written. Otherwise it is an instruction.
    pub data: bool,
}

/// One stop on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Halt {
    /// What to stop at.
    pub setting: Setting,
    /// The position of the recording at that stop.
    pub position: Position,
    /// The address of the next instruction, in the recording.
    pub pc: u64,
}

/// How to reach a position of a live program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The number of instructions from the program's start.
    pub steps: u64,
    /// The stops. The last one is at the position.
    pub halts: Vec<Halt>,
}

/// A module, and the steps in which it can be used.
struct ModuleSpan {
    module: Module,
    /// The first step at which all of it is mapped.
    usable: u32,
    /// The first step at which it no longer is.
    gone: u32,
    code: Vec<std::ops::Range<u64>>,
}

/// A memory operand whose address comes from general registers alone, and its length.
type Operand = (Sum, u64);

/// What is known of an instruction from its address alone, while the module is mapped.
enum Kind {
    Simple(Vec<Operand>),
    Complex,
}

impl Timeline {
    /// The fewest stops to reach a position in a live run of the recorded program. Only one breakpoint or hardware
    /// watchpoint is set at a time. Only settings in files count, because all else lies elsewhere in each run.
    ///
    /// At most `limit` steps are considered. Each takes eight bytes of memory, and each different setting forty.
    pub fn route(&self, to: Position, limit: u64, cancel: &Cancel) -> Result<Route> {
        let ThreadInstant { thread, count } = self.locate(to)?;
        let t = self.thread(thread)?;
        let first = self.processes()?.into_iter().next().ok_or(Error::Empty)?;
        let no = |why: String| Err(Error::Unsupported(why));
        if t.image != first.image {
            return no(format!(
                "position {to} is in program image {}; only the first one of a recording is started by gdb",
                t.image
            ));
        }
        if first.threads.first() != Some(&thread) || self.begun(&first.threads, to)? > 1 {
            return no(format!(
                "other threads run before position {to}; where they stop a live program is not determined"
            ));
        }
        if t.from > 0 {
            return no("the recording does not begin at the program's start".into());
        }
        let steps = count;
        if steps > limit {
            return no(format!(
                "position {to} is {steps} instructions from the start; at most {limit} are considered (--limit)"
            ));
        }
        let signals = self.events(&Filter {
            thread: Some(thread),
            until: Some(to),
            kinds: vec![KindOf::Signal],
            ..Filter::default()
        })?;
        if let Some(s) = signals.first() {
            return no(format!(
                "a signal arrives at {}, before position {to}; in a live program it arrives elsewhere",
                s.position
            ));
        }
        let mut collector = Collector::new(self.module_spans(t.image, to)?);
        let inner = &self.0;
        let fail = |e| replay(thread, e);
        let mut machine = inner.machine(thread)?;
        let source = Chunks::new(&inner.recording, thread, 0);
        machine.from_keyframe(Box::new(source)).map_err(fail)?;
        let mut n = 0;
        while machine.position() < count {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let until = count.min(machine.position() + BREATH);
            let stop = machine.each(until, &mut |m| {
                if n > 0 {
                    collector.arrive(n, m);
                }
                collector.execute(n, m);
                n += 1;
                true
            });
            if stop.map_err(fail)? != Stop::Position {
                return Err(Error::NoPosition(to));
            }
            if machine.skipped() > 0 {
                return no(format!(
                    "parts of the program before position {to} were not recorded"
                ));
            }
        }
        if count > 0 {
            collector.arrive(n, &machine);
        }
        collector.route(self, thread, steps)
    }

    /// How many of these threads have begun at a position.
    fn begun(&self, threads: &[crate::ThreadId], at: Position) -> Result<usize> {
        let mut n = 0;
        for t in threads {
            n += (self.thread(*t)?.first < at) as usize;
        }
        Ok(n)
    }

    fn module_spans(&self, image: u32, to: Position) -> Result<Vec<ModuleSpan>> {
        let mut out = Vec::new();
        let maps = self.events(&Filter {
            image: Some(image),
            until: Some(to),
            kinds: vec![KindOf::Syscall],
            syscalls: vec![MMAP],
            ..Filter::default()
        })?;
        let step = |p: Position| self.locate(p).map(|i| i.count.min(u32::MAX as u64) as u32);
        for module in self.modules(image)? {
            if !module.path.starts_with('/') || module.load.is_some_and(|p| p >= to) {
                continue;
            }
            let mut usable = 0;
            if let Some(load) = module.load {
                usable = step(load)?.saturating_add(1);
                for m in &maps {
                    let crate::Kind::Syscall {
                        result: Some(at), ..
                    } = m.kind
                    else {
                        continue;
                    };
                    let within = (module.start..module.end).contains(&at);
                    let there = m.position >= load && module.unload.is_none_or(|u| m.position < u);
                    if within && there {
                        usable = usable.max(m.count.min(u32::MAX as u64 - 1) as u32 + 1);
                    }
                }
            }
            let gone = module.unload.map_or(Ok(u32::MAX), step)?;
            let code = module.parts.iter().filter(|p| p.prot & PROT_EXEC != 0);
            let code = code.map(|p| p.start..p.end).collect();
            out.push(ModuleSpan {
                module,
                usable,
                gone,
                code,
            });
        }
        Ok(out)
    }
}

/// Turns what a machine does into settings.
struct Collector {
    modules: Vec<ModuleSpan>,
    path: Breakpath,
    kinds: HashMap<u64, Kind>,
    finder: Finder,
    info: InstructionInfoFactory,
    /// What the instruction before this step accessed.
    touched: Vec<StopCandidate>,
    /// The module that was used last.
    last: usize,
    accesses: Vec<Access>,
}

impl Collector {
    fn new(modules: Vec<ModuleSpan>) -> Collector {
        Collector {
            modules,
            path: Breakpath::new(),
            kinds: HashMap::new(),
            finder: Finder::new(),
            info: InstructionInfoFactory::new(),
            touched: Vec::new(),
            last: 0,
            accesses: Vec::new(),
        }
    }

    /// The module at an address: sets its index, and returns the step from which it can be used.
    fn module_at(&mut self, address: u64, step: u32) -> Option<u32> {
        let at = |p: &ModuleSpan| {
            (p.module.start..p.module.end).contains(&address) && p.usable <= step && step < p.gone
        };
        if !self.modules.get(self.last).is_some_and(at) {
            self.last = self.modules.iter().position(at)?;
        }
        Some(self.modules[self.last].usable)
    }

    /// The thread arrives at a step.
    fn arrive(&mut self, step: u32, m: &Machine) {
        let rip = m.registers().rip;
        let mut touches = std::mem::take(&mut self.touched);
        if let Some(usable) = self.module_at(rip, step) {
            let code = self.modules[self.last]
                .code
                .iter()
                .any(|r| r.contains(&rip));
            let mut buf = [0; 15];
            let n = m.code(rip, &mut buf);
            // A debugger that steps over a breakpoint at a repeated instruction executes one repetition, and stops
            // there again.
            let exact = code && StringOp::decode(&buf[..n]).is_none();
            touches.insert(
                0,
                StopCandidate {
                    setting: rip << 1,
                    usable,
                    exact,
                },
            );
        }
        self.path.push(&touches);
        touches.clear();
        self.touched = touches;
    }

    /// The thread executes the instruction of a step.
    fn execute(&mut self, step: u32, m: &Machine) {
        let cpu = m.registers();
        // Something else may be mapped where a module was unloaded.
        let lasting =
            self.module_at(cpu.rip, step).is_some() && self.modules[self.last].gone == u32::MAX;
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
                let mut buf = [0; 15];
                let n = m.code(cpu.rip, &mut buf);
                // A repeated instruction is assumed to process everything that its count says.
                let mut after = cpu;
                if let Some(op) = StringOp::decode(&buf[..n]) {
                    after.gpr[RCX] = cpu.gpr[RCX].saturating_sub(LONGEST / op.size as u64);
                }
                self.finder
                    .find(&buf[..n], (&cpu, &m.vectors()), &after, &mut list);
                false
            }
        };
        for a in &list {
            let mut word = a.address / WORD * WORD;
            while word < a.address.saturating_add(a.len) {
                match self.module_at(word, step) {
                    Some(usable) => {
                        let setting = word << 1 | 1;
                        if self.touched.iter().all(|t| t.setting != setting) {
                            self.touched.push(StopCandidate {
                                setting,
                                usable,
                                exact,
                            });
                        }
                        word += WORD;
                    }
                    // Goes on with the next module, if there is one.
                    None => {
                        let starts = self.modules.iter().map(|p| p.module.start);
                        let Some(next) = starts.filter(|s| *s > word).min() else {
                            break;
                        };
                        word = next;
                    }
                }
            }
        }
        self.accesses = list;
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

    fn route(self, timeline: &Timeline, thread: crate::ThreadId, steps: u64) -> Result<Route> {
        let to = timeline.position(thread, steps)?;
        let Some(way) = self.path.way(steps as u32) else {
            return Err(Error::Unsupported(format!(
                "no breakpoint in a file of the program stops at position {to}"
            )));
        };
        let mut cursor = timeline.cursor()?;
        let mut halts = Vec::new();
        for leg in way {
            let (address, data) = (leg.setting >> 1, leg.setting & 1 != 0);
            let place = self.modules.iter().find(|p| {
                let range = p.module.start..p.module.end;
                range.contains(&address) && p.usable <= leg.step && leg.step <= p.gone
            });
            let module = &place.ok_or(Error::NoPosition(to))?.module;
            let pc = match data {
                true => {
                    cursor.seek_count(thread, leg.step as u64)?;
                    cursor.registers()?.rip
                }
                false => address,
            };
            halts.push(Halt {
                setting: Setting {
                    module: module.path.clone(),
                    offset: address - module.start,
                    data,
                },
                position: timeline.position(thread, leg.step as u64)?,
                pc,
            });
        }
        Ok(Route { steps, halts })
    }
}

/// A repeated instruction is assumed to process at most this many bytes.
const LONGEST: u64 = 1 << 20;

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
