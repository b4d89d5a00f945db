//! Side branches: what would happen if registers or memory were different. A virtual processor goes on from an instant
//! of a recording with other values. Afterwards all is thrown away, and nothing reaches the kernel.

mod saving;

use crate::{Cancel, Cursor, Result, View};
use hindsight_events::{Encoder, Event, MAX_EVENT};
use hindsight_isa::regs::{RAX, RCX};
use hindsight_isa::string::{Kind, Repeat, StringOp};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{CpuState, Predictor, VecState, comes_from_outside};
use hindsight_replay::access::{Access, Finder, decode};
use hindsight_replay::{Code, Gap, Machine, Model, State};
use hindsight_translate::effective::Registers;
use iced_x86::{Instruction, Mnemonic};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const PAGE: u64 = 4096;
/// A position that no branch reaches.
const FAR: u64 = 1 << 61;
/// A repeated instruction is assumed to process at most this many bytes.
const LONGEST: u64 = 1 << 20;
/// A repeated comparison gets this many bytes in addition to those that it certainly reads.
const AHEAD: u64 = 4096;
const WRITE: u32 = 2;

/// Why a branch stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halted {
    /// The step is done.
    Step,
    /// It is before the instruction at one of the given addresses.
    Break,
    /// It was cancelled.
    Cancelled,
    /// It cannot go on, for this reason.
    Stuck(String),
}

/// A side branch of a recording.
pub struct Branch {
    machine: Machine<'static>,
    /// Where it began. What the branch has not touched is as it is there.
    cursor: Cursor,
    /// Bytes that were written in the branch, or looked up.
    memory: HashMap<u64, u8>,
    /// Known code bytes, by page.
    code: Vec<(u64, Vec<u8>)>,
    fetched: HashSet<u64>,
    saves: Layout,
    finder: Finder,
    list: Vec<Access>,
}

impl Branch {
    /// Begins a branch at the instant of a cursor. The cursor stays.
    pub fn new(cursor: &mut Cursor) -> Result<Branch> {
        let mut base = cursor.timeline().cursor()?;
        base.seek_count(cursor.thread(), cursor.count())?;
        let (cpu, vec) = (base.registers()?, base.vectors()?);
        let fail = |source| crate::model::error::replay(base.thread(), source);
        let code = Arc::new(Code::new(&mut []).map_err(fail)?);
        let model = Model {
            // A branch has no events. So what this machine's processor gives has to do.
            transcendental: false,
            ..base.timeline().0.model.clone()
        };
        let mut branch = Branch {
            machine: Machine::with(model.clone(), code, Predictor::WINDOW).map_err(fail)?,
            cursor: base,
            memory: HashMap::new(),
            code: Vec::new(),
            fetched: HashSet::new(),
            saves: model.saves,
            finder: Finder::new(model.saves),
            list: Vec::new(),
        };
        branch.set_registers(&cpu, &vec)?;
        Ok(branch)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&self) -> CpuState {
        self.machine.registers()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&self) -> VecState {
        self.machine.vectors()
    }

    /// Sets the registers.
    pub fn set_registers(&mut self, cpu: &CpuState, vec: &VecState) -> Result<()> {
        // A stream without events.
        let mut wire = vec![0; MAX_EVENT];
        let n = Encoder::default().encode(FAR, &Event::CodeEpoch { epoch: 0 }, &mut wire);
        wire.truncate(n);
        let state = State {
            position: self.machine.position(),
            gap: Gap::Outside,
            epoch: 0,
            cpu: *cpu,
            vec: *vec,
        };
        let done = self.machine.resume(Box::new(std::iter::once(wire)), &state);
        done.map_err(|e| crate::model::error::replay(self.cursor.thread(), e))
    }

    /// The known bytes from an address on, at most `len`.
    pub fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let all = |m: &HashMap<u64, u8>| -> Option<Vec<u8>> {
            let byte = |i| m.get(&address.wrapping_add(i)).copied();
            (0..len as u64).map(byte).collect()
        };
        if let Some(found) = all(&self.memory) {
            return Ok(found);
        }
        let recorded = self.cursor.known_memory(address, len)?;
        let mut out = Vec::new();
        for (i, known) in recorded.bytes.iter().enumerate() {
            let at = address.wrapping_add(i as u64);
            match (self.memory.get(&at), known) {
                (Some(b), _) => out.push(*b),
                (None, Some(k)) => {
                    self.memory.insert(at, k.value);
                    out.push(k.value);
                }
                (None, None) => break,
            }
        }
        Ok(out)
    }

    /// The bytes from an address on. Bytes that are not known are zero.
    fn known_or_zero(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let recorded = self.cursor.known_memory(address, len)?;
        let value = |(i, known): (usize, &Option<crate::KnownByte>)| {
            let own = self.memory.get(&address.wrapping_add(i as u64));
            own.copied()
                .or(known.as_ref().map(|k| k.value))
                .unwrap_or(0)
        };
        Ok(recorded.bytes.iter().enumerate().map(value).collect())
    }

    /// Changes memory. `false`: the program cannot write there.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<bool> {
        if !self.writable(address, bytes.len() as u64)? {
            return Ok(false);
        }
        self.store(address, bytes);
        Ok(true)
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        for (i, b) in bytes.iter().enumerate() {
            self.memory.insert(address.wrapping_add(i as u64), *b);
        }
    }

    fn writable(&self, address: u64, len: u64) -> Result<bool> {
        let here = self.cursor.position()?;
        let maps = self.cursor.timeline().mappings(self.cursor.image(), here)?;
        let (mut at, end) = (address, address.saturating_add(len));
        while at < end {
            let found = maps.iter().find(|m| (m.start..m.end).contains(&at));
            match found {
                Some(m) if m.prot & WRITE != 0 => at = m.end,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Executes one instruction if `step` is set. Otherwise it runs, up to the next instruction at `breaks` for which
    /// `stop` holds.
    pub fn run(
        &mut self,
        step: bool,
        breaks: &[u64],
        stop: &mut dyn FnMut(&mut Branch) -> bool,
        cancel: &Cancel,
    ) -> Result<Halted> {
        loop {
            if cancel.is_cancelled() {
                return Ok(Halted::Cancelled);
            }
            if let Some(why) = self.one()? {
                return Ok(Halted::Stuck(why));
            }
            if step {
                return Ok(Halted::Step);
            }
            if breaks.contains(&self.registers().rip) && stop(self) {
                return Ok(Halted::Break);
            }
        }
    }

    /// Writes what an instruction saves of the processor's state, by place in the area.
    fn save(&mut self, area: &Access, parts: Vec<(usize, Vec<u8>)>) -> Result<()> {
        // Nobody looks at the bytes that it leaves alone, if they are not known.
        let mut saved = self.known_or_zero(area.address, area.len as usize)?;
        for (at, bytes) in parts {
            if let Some(to) = saved.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(&bytes);
            }
        }
        self.machine.write_window(area.address, &saved);
        Ok(())
    }

    /// Executes one instruction. Returns the reason if it cannot.
    fn one(&mut self) -> Result<Option<String>> {
        let cpu = self.registers();
        let mut buf = [0; 15];
        let Some(i) = self.fetch(cpu.rip, &mut buf)? else {
            return Ok(Some(format!("the code at {:#x} is not known", cpu.rip)));
        };
        if let Some(why) = outside(&i, &cpu) {
            return Ok(Some(why));
        }
        let bytes = &buf[..i.len()];
        let vec = self.machine.vectors();
        let string = StringOp::decode(bytes);
        let mut after = cpu;
        if let Some(op) = &string {
            // It is assumed to process everything that its count says.
            let size = op.size as u64;
            let count = match op.kind {
                Kind::Cmps | Kind::Scas => cpu.gpr[RCX].min(AHEAD / size),
                _ => cpu.gpr[RCX],
            };
            if op.repeat != Repeat::No && count.saturating_mul(size) > LONGEST {
                return Ok(Some(format!(
                    "an instruction at {:#x} goes over too much memory",
                    cpu.rip
                )));
            }
            after.gpr[RCX] = cpu.gpr[RCX].wrapping_sub(count);
        }
        let mut list = std::mem::take(&mut self.list);
        // The header of the area tells what `xrstor` reads.
        let mut header = Vec::new();
        if matches!(i.mnemonic(), Mnemonic::Xrstor | Mnemonic::Xrstor64)
            && let Some(area) = Registers::from(&cpu).operand(&i, 0)
        {
            header = self.known_or_zero(area.wrapping_add(512), 16)?;
        }
        let held = |_, buf: &mut [u8]| buf.iter_mut().zip(&header).for_each(|(to, b)| *to = *b);
        (self.finder).find_in(bytes, (&cpu, &vec), &after, &held, &mut list);
        let mut known = Vec::new();
        for a in &list {
            if a.unknown
                && let Some(parts) = saving::written(&self.saves, &i, &cpu, &vec)
            {
                self.save(a, parts)?;
            } else if a.unknown {
                return Ok(Some(format!(
                    "{:?} at {:#x} is not supported here",
                    i.mnemonic(),
                    cpu.rip
                )));
            }
            if a.read {
                let found = self.read(a.address, a.len as usize)?;
                if found.len() < a.len as usize && string.is_none() {
                    let at = a.address.wrapping_add(found.len() as u64);
                    return Ok(Some(format!(
                        "it reads memory at {at:#x}, which is not known"
                    )));
                }
                self.machine.write_window(a.address, &found);
                known.push((a.address, found.len() as u64));
            }
            if a.write && !self.writable(a.address, a.len)? {
                return Ok(Some(format!(
                    "it writes to {:#x}, where it must not",
                    a.address
                )));
            }
        }
        let next = self.machine.position() + 1;
        if let Err(e) = self.machine.run_to(next) {
            return Ok(Some(e.to_string()));
        }
        if string.is_some() {
            let after = self.registers();
            self.finder.find(bytes, (&cpu, &vec), &after, &mut list);
        }
        for a in &list {
            let inside = |(at, len): &(u64, u64)| {
                *at <= a.address && a.address + a.len <= at.saturating_add(*len)
            };
            if a.read && string.is_some() && !known.iter().any(inside) {
                return Ok(Some(format!(
                    "it reads memory behind {:#x}, which is not known",
                    a.address
                )));
            }
            if a.write {
                let mut bytes = vec![0; a.len as usize];
                self.machine.read_window(a.address, &mut bytes);
                self.store(a.address, &bytes);
            }
        }
        self.list = list;
        Ok(None)
    }

    /// The instruction at an address.
    fn fetch(&mut self, pc: u64, buf: &mut [u8; 15]) -> Result<Option<Instruction>> {
        for _ in 0..3 {
            let n = self.machine.code(pc, buf);
            if let Some(i) = decode(&buf[..n], pc) {
                return Ok(Some(i));
            }
            if !self.learn(pc.wrapping_add(n as u64))? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Looks up the code of a page. Returns whether that brought something new.
    fn learn(&mut self, address: u64) -> Result<bool> {
        let page = address / PAGE * PAGE;
        if !self.fetched.insert(page) {
            return Ok(false);
        }
        let memory = self.cursor.known_memory(page, PAGE as usize)?;
        let mut run: Vec<u8> = Vec::new();
        for (i, byte) in memory.bytes.iter().chain([&None]).enumerate() {
            match byte {
                Some(k) => run.push(k.value),
                None if run.is_empty() => {}
                None => {
                    let start = page + (i - run.len()) as u64;
                    self.code.push((start, std::mem::take(&mut run)));
                }
            }
        }
        let mut pieces: Vec<_> = self.code.iter().map(|(a, b)| (0, *a, &b[..])).collect();
        let fail = |e| crate::model::error::replay(self.cursor.thread(), e);
        let code = Code::new(&mut pieces).map_err(fail)?;
        self.machine.set_code(Arc::new(code));
        Ok(true)
    }
}

/// Why an instruction has no result in a branch: the result comes from outside of the program.
fn outside(i: &Instruction, cpu: &CpuState) -> Option<String> {
    use Mnemonic::*;
    match i.mnemonic() {
        Syscall => Some(format!(
            "it makes system call {}, which is not passed to the kernel",
            cpu.gpr[RAX]
        )),
        Sysenter | Int | Int1 | Int3 | Into | Hlt | Ud0 | Ud1 | Ud2 => {
            Some(format!("{:?} at {:#x} ends it", i.mnemonic(), cpu.rip))
        }
        m if comes_from_outside(m) || matches!(m, In | Out) => Some(format!(
            "the result of {m:?} at {:#x} is not known",
            cpu.rip
        )),
        _ => None,
    }
}

impl View for Branch {
    fn registers(&self) -> CpuState {
        Branch::registers(self)
    }
    fn vectors(&self) -> VecState {
        Branch::vectors(self)
    }
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<bool> {
        let found = Branch::read(self, address, buf.len())?;
        if found.len() < buf.len() {
            return Ok(false);
        }
        buf.copy_from_slice(&found);
        Ok(true)
    }
}
