//! Instructions that the machine at hand cannot execute, because it lacks a feature of the recorded one. Others stand for some of
//! them in translated code. The interpreter executes the rest, and what is near them.
//!
//! The interpreter also has the registers that this machine does not have. One of them can change by an instruction that
//! the machine knows: an instruction of AVX zeroes what is beyond its result in zmm0 to zmm15. While any of that is not
//! zero, the interpreter executes everything.

use super::Native;
use super::host::UpperHalves;
use crate::Error;
use crate::access::decode;
use crate::cpu::Cpu;
use crate::interpreted::{Ended, Interpreted};
use crate::processor::{Model, Processor};
use crate::queue::Queue;
use hindsight_interp::Near;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{High, Lacking, VecState};
use hindsight_translate::{Translator, is_atomic, keeps_registers, lacks};
use iced_x86::{CpuidFeature, Instruction};
use std::collections::HashSet;

/// The interpreter goes on until so many instructions that the machine knows have followed. To go over from translated code
/// and back takes about as long as to interpret these.
const PATIENCE: u64 = 48;

/// The same where vector registers are not handed over, which takes a fifth of that time.
const SHORT_PATIENCE: u64 = 12;

/// What executes instructions that this machine cannot execute.
pub(crate) struct Aside {
    pub interpreted: Interpreted,
    lacking: Lacking,
    halves: UpperHalves,
    /// This machine has AVX2, but not AVX-512. Translated code has the registers of AVX-512 in the context block.
    lends: bool,
    /// This machine has not even AVX2, so the C library's functions can change no more than these halves.
    short: bool,
    /// This machine has AVX, but not the upper halves of zmm0 to zmm15.
    narrow: bool,
    /// One of these is not zero.
    wide: bool,
    /// Addresses of instructions that this machine cannot execute, as far as they were met.
    known: HashSet<u64>,
}

impl Aside {
    /// `None` if this machine can execute all that a program may have executed on that one.
    pub fn new(here: &Layout, there: &Model, lacking: Lacking) -> Option<Aside> {
        if lacking.is_empty() {
            return None;
        }
        let mut interpreted = Interpreted::new(there);
        interpreted.lacks(lacking);
        let lacks_both = [CpuidFeature::AVX512F, CpuidFeature::AVX2];
        let lacks_both = lacks_both.iter().all(|f| lacking.features.has(*f));
        Some(Aside {
            interpreted,
            lacking,
            halves: UpperHalves::new(),
            lends: keeps_registers(&lacking),
            short: lacks_both,
            narrow: here.offset(2).is_some() && here.offset(6).is_none(),
            wide: false,
            known: HashSet::new(),
        })
    }

    pub fn lacking(&self) -> Lacking {
        self.lacking
    }

    /// Adds the registers that this machine does not have.
    pub fn complete(&self, here: &Layout, v: &mut VecState) {
        here.copy_missing(&self.interpreted.inner.vectors(), v);
    }

    /// Continues with those of these registers that this machine does not have.
    pub fn set_vectors(&mut self, v: &VecState) {
        self.interpreted.inner.set_vectors(v);
        self.note_width();
    }

    fn note_width(&mut self) {
        self.wide = self.narrow && self.interpreted.inner.has_upper_halves();
    }

    /// Whether the interpreter must execute everything.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Executes at most `most` instructions, while translated code has its vector registers in the processor. True if it has executed
    /// some. Most programs use features of AVX-512 only in the C library's functions for memory and strings, and only with
    /// registers that this machine does not have.
    ///
    /// The C library's functions may use the upper halves of the vector registers, and memory that is not laid out yet is made
    /// by such functions. So the halves are saved.
    #[inline(never)]
    pub fn run_apart(&mut self, cpu: &mut Cpu, most: u64) -> bool {
        // Until the halves are saved, nothing may allocate or copy.
        let it = &mut self.interpreted.inner;
        if !self.short || !it.is_apart(cpu.rip) || !cpu.breaks().is_empty() || cpu.log.is_some() {
            return false;
        }
        self.halves.save();
        it.set_registers(&cpu.registers());
        let done = it.run_apart(&mut cpu.window, most, &mut Near::new(SHORT_PATIENCE));
        cpu.set_registers(&it.registers());
        cpu.take_jumped();
        cpu.pos += done;
        self.halves.restore();
        done > 0
    }

    /// Lends the registers that only AVX-512 has to translated code, if it has them in the context block.
    pub fn lend(&self, to: &mut High) {
        if self.lends {
            *to = self.interpreted.inner.high();
        }
    }

    /// Takes them back.
    pub fn take_back(&mut self, from: &High) {
        if self.lends {
            self.interpreted.inner.set_high(from);
        }
    }

    /// Code at any address may be another one now.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

impl Native {
    /// Whether the interpreter must execute the next instruction.
    pub(super) fn is_aside(&mut self, cpu: &Cpu) -> bool {
        let Some(aside) = &mut self.aside else {
            return false;
        };
        if aside.wide || aside.known.contains(&cpu.rip) {
            return true;
        }
        let it = next(cpu).is_some_and(|i| lacks(&aside.lacking, &i));
        if it {
            aside.known.insert(cpu.rip);
        }
        it
    }

    /// Has the interpreter execute from here on, until the machine at hand can go on or something else is due.
    pub(super) fn step_aside(
        &mut self,
        cpu: &mut Cpu,
        queue: &mut Queue,
        target: u64,
    ) -> Result<Ended, Error> {
        if self.translator.count {
            return Err(cpu.unsupported(
                "this processor lacks the instruction, and the interpreter does not count",
            ));
        }
        let v = self.vectors();
        let stops = Stops::of(&self.translator);
        let breaks = &mut self.translator.breaks;
        let Some(aside) = &mut self.aside else {
            return Ok(Ended::Behind);
        };
        let it = &mut aside.interpreted;
        it.inner.set_registers(&cpu.registers());
        it.inner.set_vectors(&v);
        let careful = stops.is_some() || cpu.log.is_some();
        let ended = loop {
            let ended = match careful {
                true => carefully(it, stops.as_ref(), cpu, (queue, target), breaks),
                false => it.spin(cpu, queue, target, Some(Near::new(PATIENCE))),
            };
            if !matches!(ended, Ok(Ended::Behind)) {
                break ended;
            }
            let wide = aside.narrow && it.inner.has_upper_halves();
            let goes_on = wide || careful && next(cpu).is_some_and(|i| lacks(&aside.lacking, &i));
            if !goes_on {
                break ended;
            }
        };
        cpu.set_registers(&it.inner.registers());
        (self.layout).from_state(&it.inner.vectors(), &mut self.area);
        aside.note_width();
        self.lose_way();
        ended
    }
}

/// The next instruction. `None`: its code is not known.
fn next(cpu: &Cpu) -> Option<Instruction> {
    let mut bytes = [0; 15];
    let n = cpu.fetch(&mut bytes).unwrap_or(0);
    decode(&bytes[..n], cpu.rip)
}

/// Before which instructions a run stops, besides breaks.
struct Stops {
    /// Atomic operations.
    atomics: bool,
    /// What may write to watched memory: here, all.
    watched: bool,
}

impl Stops {
    fn of(translator: &Translator) -> Option<Stops> {
        let (atomics, watched) = (translator.atomics, translator.watch.is_some());
        (atomics || watched).then_some(Stops { atomics, watched })
    }
}

/// Executes one instruction, with all that may be asked for at each one.
fn carefully(
    it: &mut Interpreted,
    stops: Option<&Stops>,
    cpu: &mut Cpu,
    (queue, target): (&mut Queue, u64),
    breaks: &mut Vec<u64>,
) -> Result<Ended, Error> {
    if let Some((i, stops)) = next(cpu).zip(stops) {
        if stops.atomics
            && is_atomic(&i)
            && let Err(at) = breaks.binary_search(&cpu.rip)
        {
            breaks.insert(at, cpu.rip);
            cpu.replace_breaks(breaks.clone());
        }
        let due = queue.peek().is_none_or(|next| next.pos <= cpu.pos) || cpu.pos >= target;
        if stops.watched && !due && !cpu.has_passed() {
            cpu.watched = true;
            return Ok(Ended::Break);
        }
    }
    let before = cpu.pos;
    let ended = it.spin(cpu, queue, target.min(cpu.pos.saturating_add(1)), None)?;
    Ok(match cpu.pos == before {
        true => ended,
        false => Ended::Behind,
    })
}
