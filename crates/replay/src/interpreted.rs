//! Executes instructions one by one, with the interpreter.

use crate::Error;
use crate::code::Code;
use crate::cpu::Cpu;
use crate::library::Library;
use crate::processor::{Model, Processor};
use crate::queue::{Op, Queue};
use crate::window::{AccessKind, Window};
use hindsight_interp::{Fault, Interpreter, Memory, Near, Ran};
use hindsight_isa::{Executed, Lacking, VecState};
#[cfg(target_arch = "x86_64")]
use hindsight_translate::lacks;
use std::sync::Arc;

/// Most instructions until the run looks again whether the window is full.
const AT_ONCE: u64 = 1 << 22;

impl Window {
    #[inline(always)]
    fn note(&mut self, kind: AccessKind, addr: u64, len: usize) {
        if self.has_marks() {
            self.set_marks(kind, addr, len as u64, hindsight_isa::observe::MARK);
        }
    }
}

/// Each instruction has functions of its own, into which accesses to memory are compiled. For WebAssembly they are calls: the module
/// would be three times as large.
impl Memory for Window {
    #[cfg_attr(target_family = "wasm", inline(never))]
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N] {
        self.note(AccessKind::Reads, addr, N);
        self.touch(addr, N);
        self.cells(addr)
    }

    #[cfg_attr(target_family = "wasm", inline(never))]
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.note(AccessKind::Writes, addr, N);
        self.set_cells(addr, bytes);
    }

    #[cfg_attr(target_family = "wasm", inline(never))]
    fn read(&mut self, addr: u64, buf: &mut [u8]) {
        self.note(AccessKind::Reads, addr, buf.len());
        self.touch(addr, buf.len());
        Window::read(self, addr, buf);
    }

    #[cfg_attr(target_family = "wasm", inline(never))]
    fn write(&mut self, addr: u64, buf: &[u8]) {
        self.note(AccessKind::Writes, addr, buf.len());
        Window::write(self, addr, buf);
    }

    fn saved(&mut self, addr: u64, len: u64) {
        if self.has_marks() {
            self.unknown(addr, len);
        }
    }
}

/// The code of an epoch.
struct Epoch<'a> {
    code: &'a Code,
    epoch: u64,
}

impl hindsight_interp::Code for Epoch<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.code.fetch(addr, self.epoch, buf)
    }
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The target was reached, an event that is not a patch is due, or no more entries are prepared.
    Events,
    /// The next instruction has a breakpoint.
    Break,
    /// It is behind what [`Near`] allows.
    Behind,
}

/// An interpreter as the processor of a machine.
pub(crate) struct Interpreted {
    pub inner: Interpreter<Window>,
    /// Something was asked for that only the native processor can do.
    refuses: Option<&'static str>,
}

impl Interpreted {
    /// An interpreter for programs that had this processor.
    pub fn new(model: &Model) -> Interpreted {
        let mut inner = Interpreter::new();
        inner.set_layout(model.saves);
        inner.set_approximations(model.approximations.clone());
        inner.set_finer(model.finer.clone());
        inner.set_left_open(model.left_open);
        Interpreted {
            inner,
            refuses: None,
        }
    }

    /// What the machine at hand lacks. Whoever has it runs with [`Near`].
    #[cfg(target_arch = "x86_64")]
    pub fn lacks(&mut self, lacking: Lacking) {
        let traits = move |i: &_| [lacks(&lacking, i), lacking.is_apart(i)];
        self.inner.set_traits(Box::new(traits));
    }

    /// Code has changed between these epochs.
    pub fn change_epoch(&mut self, cpu: &Cpu, to: u64) {
        for page in cpu.code.changed(cpu.epoch, to) {
            self.inner.forget_page(page);
        }
    }

    /// Other code is executed from now on.
    pub fn change_code(&mut self, old: &Code, new: &Code, epoch: u64) {
        self.inner
            .keep_pages(&mut |page| new.covers(old, page, epoch));
    }

    /// Runs as [`Processor::run`] says, or less far if `near` says so. The registers are in the interpreter meanwhile.
    pub fn spin(
        &mut self,
        cpu: &mut Cpu,
        queue: &mut Queue,
        target: u64,
        mut near: Option<Near>,
    ) -> Result<Ended, Error> {
        let code = Arc::clone(&cpu.code);
        let code = Epoch {
            code: &code,
            epoch: cpu.epoch,
        };
        loop {
            let Some(next) = queue.peek() else {
                return Ok(Ended::Events);
            };
            if cpu.pos >= target {
                return Ok(Ended::Events);
            }
            if cpu.at_break() {
                return Ok(Ended::Break);
            }
            if next.pos <= cpu.pos {
                match next.op {
                    Op::Word(addr, value) if next.pos == cpu.pos => {
                        cpu.window.give_word(addr, value);
                    }
                    Op::Bytes(addr, len, value) if next.pos == cpu.pos => {
                        cpu.window.give_bytes(addr, len, value);
                    }
                    _ => return Ok(Ended::Events),
                }
                queue.advance();
                continue;
            }
            if near.is_some_and(|n| n.is_over()) {
                return Ok(Ended::Behind);
            }
            let most = match cpu.breaks().is_empty() && cpu.log.is_none() {
                true => (next.pos.min(target) - cpu.pos).min(AT_ONCE),
                false => 1,
            };
            let before = (cpu.pos, cpu.rip);
            let (done, ran) = match &mut near {
                None => self.inner.run(&mut cpu.window, &code, most),
                Some(near) => self.inner.run_near(&mut cpu.window, &code, most, near),
            };
            if let Some(log) = cpu.log.as_mut().filter(|_| done > 0) {
                log.add(before.0, before.1);
            }
            cpu.pos += done;
            cpu.executed += done;
            cpu.rip = self.inner.rip();
            if cpu.window.is_full() {
                return Err(Error::full());
            }
            if let Ran::Fault(fault) = ran {
                return Err(match fault {
                    Fault::MissingCode => cpu.missing_code(),
                    Fault::Exception(_) | Fault::Outside(_) => {
                        cpu.difference("no event", fault.to_string())
                    }
                    Fault::NoInstruction | Fault::Unsupported(_) | Fault::Approximate(_) => {
                        cpu.unsupported(fault.to_string())
                    }
                });
            }
        }
    }
}

impl Processor for Interpreted {
    fn enter(&mut self, cpu: &mut Cpu) -> Result<(), Error> {
        match self.refuses {
            None => Ok(()),
            Some(what) => Err(cpu.unsupported(what)),
        }
    }

    fn leave(&mut self) {}

    fn hold(&mut self, _: &mut Cpu) -> Result<(), Error> {
        Ok(())
    }

    fn release(&mut self) {}

    fn run(&mut self, cpu: &mut Cpu, queue: &mut Queue, target: u64) -> Result<bool, Error> {
        self.inner.set_registers(&cpu.registers());
        let done = self.spin(cpu, queue, target, None);
        cpu.set_registers(&self.inner.registers());
        done.map(|_| true)
    }

    fn vectors(&self) -> VecState {
        self.inner.vectors()
    }

    fn set_vectors(&mut self, v: &VecState) {
        self.inner.set_vectors(v);
    }

    fn set_epoch(&mut self, cpu: &mut Cpu, epoch: u64) {
        self.change_epoch(cpu, epoch);
        cpu.epoch = epoch;
    }

    fn set_code(&mut self, cpu: &mut Cpu, code: Arc<Code>) {
        if !Arc::ptr_eq(&cpu.code, &code) {
            let old = std::mem::replace(&mut cpu.code, code);
            self.change_code(&old, &cpu.code, cpu.epoch);
        }
    }

    fn set_breaks(&mut self, cpu: &mut Cpu, breaks: Vec<u64>) {
        cpu.replace_breaks(breaks);
    }

    fn watch(&mut self, _: Option<u64>) {
        self.refuses = Some("only the native processor stops before atomic operations");
    }

    fn count(&mut self) {
        self.refuses = Some("only the native processor counts what is executed");
    }

    fn counted(&self, _: &Cpu) -> Executed {
        Executed::default()
    }

    fn share(&mut self, _: &Cpu, _: Arc<Library>) {}
}
