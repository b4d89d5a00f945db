//! The last instructions before an instant, with everything that they found.

use crate::Result;
use hindsight_timeline::{Cancel, CpuState, Executed, Run, ThreadId, Timeline, Touch, Walk};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, Register};
use std::collections::HashMap;

/// Instructions that are kept with all that they found.
const KEPT: u64 = 1024;
/// Instructions that are looked through for the one that wrote a register. Each next time more are.
const FIRST: u64 = 1 << 14;
const MOST: u64 = 1 << 17;
/// The same where nothing else is looked through.
const MOST_NEAR: u64 = 1 << 22;
/// The longest instruction, in bytes.
const LONGEST: usize = 15;

/// An instruction that was executed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instructions completed before.
    pub count: u64,
    /// The instruction.
    pub instruction: Instruction,
    /// Its bytes. Some may follow that stand behind it.
    pub code: Vec<u8>,
    /// The registers that it found.
    pub cpu: CpuState,
    /// What it accessed.
    pub touches: Vec<Touch>,
    /// The kernel let the thread go on here.
    pub entered: bool,
}

/// What gave a register its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrote {
    /// This instruction.
    At(u64),
    /// The kernel, when it let the thread go on at this instant: for a handler, or behind one.
    Kernel(u64),
    /// The thread began with it.
    Begin,
    /// It was before this instant. What was farther back was not looked through, or the processor that was chosen cannot.
    Before(u64),
}

/// Looks back in one recording.
pub struct Past {
    timeline: Timeline,
    cancel: Cancel,
    /// Looks for who wrote a register as far back as the thread goes.
    far: bool,
    walk: Option<(ThreadId, Walk)>,
    /// Of this thread, up to this count.
    thread: ThreadId,
    until: u64,
    /// In the order of their counts, without gaps but those of the recording.
    steps: Vec<Step>,
}

impl Past {
    /// Of a recording.
    pub fn new(timeline: &Timeline, cancel: Cancel) -> Past {
        Past {
            timeline: timeline.clone(),
            cancel,
            far: true,
            walk: None,
            thread: ThreadId(0),
            until: 0,
            steps: Vec::new(),
        }
    }

    /// Looks only some four million instructions back for who wrote a register.
    pub fn near(self) -> Past {
        Past { far: false, ..self }
    }

    fn walk(&mut self, thread: ThreadId) -> Result<&mut Walk> {
        let walk = match self.walk.take().filter(|w| w.0 == thread) {
            Some(walk) => walk,
            // One has the memory of the thread's program, so only one is kept.
            None => (thread, self.timeline.walk(thread, self.cancel.clone())?),
        };
        Ok(&mut self.walk.insert(walk).1)
    }

    /// The instruction that a thread executes after `count` others. `None`: the recording does not have it.
    pub fn step(&mut self, thread: ThreadId, count: u64) -> Result<Option<Step>> {
        let found = |p: &Past| {
            let i = p.steps.partition_point(|s| s.count < count);
            (p.thread == thread)
                .then(|| p.steps.get(i).filter(|s| s.count == count).cloned())
                .flatten()
        };
        if let Some(step) = found(self) {
            return Ok(Some(step));
        }
        let mut steps = Vec::new();
        let from = count.saturating_sub(KEPT);
        self.walk(thread)?
            .run((from, count.saturating_add(1)), true, &mut |w| {
                if let Some(cpu) = w.registers {
                    steps.push(Step {
                        count: w.count,
                        instruction: decode(w.code, w.pc),
                        code: w.code.to_vec(),
                        cpu: *cpu,
                        touches: w.accesses.to_vec(),
                        entered: w.entered,
                    });
                }
                true
            })?;
        (self.thread, self.until, self.steps) = (thread, count.saturating_add(1), steps);
        Ok(found(self))
    }

    /// The kept steps before an instant, the last one first. There are none if those right before it are not kept.
    fn before(&self, thread: ThreadId, count: u64) -> impl Iterator<Item = &Step> {
        let end = match self.thread == thread && count <= self.until {
            true => self.steps.partition_point(|s| s.count < count),
            false => 0,
        };
        self.steps[..end].iter().rev()
    }

    /// What gave a register the value that it has at an instant. 64 bits of it or more are meant.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn wrote(&mut self, thread: ThreadId, count: u64, register: Register) -> Result<Wrote> {
        let mut info = InstructionInfoFactory::new();
        let mut wrote = |i: &Instruction| writes(&mut info, i, register);
        let begin = self.timeline.thread(thread)?.from;
        let by_kernel = |count| match count == begin {
            true => Wrote::Begin,
            false => Wrote::Kernel(count),
        };
        let mut first = None;
        for s in self.before(thread, count) {
            if wrote(&s.instruction) {
                return Ok(Wrote::At(s.count));
            }
            if s.entered {
                return Ok(by_kernel(s.count));
            }
            first = Some(s.count);
        }
        let mut until = first.unwrap_or(count);
        let mut size = FIRST;
        let mut known: HashMap<(u64, Vec<u8>), bool> = HashMap::new();
        let mut found = None;
        while found.is_none() && until > begin {
            match self.far {
                true if size > MOST => {
                    return self.wrote_long_ago(thread, (begin, until), register);
                }
                false if size > MOST_NEAR => return Ok(Wrote::Before(until)),
                _ => {}
            }
            let from = until.saturating_sub(size).max(begin);
            self.walk(thread)?.run((from, until), false, &mut |w| {
                if w.entered {
                    found = Some(by_kernel(w.count));
                }
                let is = known
                    .entry((w.pc, w.code.to_vec()))
                    .or_insert_with(|| writes(&mut info, &decode(w.code, w.pc), register));
                if *is {
                    found = Some(Wrote::At(w.count));
                }
                true
            })?;
            (until, size) = (from, size * 8);
        }
        Ok(found.unwrap_or(Wrote::Begin))
    }

    /// The same among these instructions, for which others have been looked through. Whole runs of instructions are looked at, stretch by
    /// stretch.
    fn wrote_long_ago(
        &self,
        thread: ThreadId,
        (begin, mut until): (u64, u64),
        register: Register,
    ) -> Result<Wrote> {
        let mut runs = self.timeline.runs(thread, self.cancel.clone())?;
        let starts = runs.starts()?;
        let mut writers = Writers::new(register);
        while until > begin {
            let n = starts.partition_point(|s| *s < until);
            let from = n.checked_sub(1).map_or(begin, |n| starts[n].max(begin));
            let mut found = None;
            runs.play((from, until), |e, taken| {
                if !e.entries.is_empty() && e.count > begin {
                    found = Some(Wrote::Kernel(e.count));
                }
                let mut count = e.count;
                for run in taken {
                    if let Some(n) = writers.last_of(e, run) {
                        found = Some(Wrote::At(count + n));
                    }
                    count += run.instructions();
                }
                true
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            until = from;
        }
        Ok(Wrote::Begin)
    }

    /// The last instruction before an instant that may have changed these flags.
    pub fn wrote_flags(&self, thread: ThreadId, count: u64, flags: u32) -> Option<u64> {
        let changes = |s: &&Step| s.instruction.rflags_modified() & flags != 0;
        self.before(thread, count).find(changes).map(|s| s.count)
    }

    /// The last instruction before an instant that wrote any of these bytes, and the bytes that it wrote, if it is among those that are kept and neither the
    /// kernel nor anybody else can have written there since.
    pub fn stored(
        &self,
        thread: ThreadId,
        count: u64,
        at: u64,
        len: u64,
    ) -> Option<(u64, (u64, u64))> {
        for s in self.before(thread, count) {
            let writes = |t: &&Touch| t.access.write && t.access.touches(at, len);
            if let Some(t) = s.touches.iter().find(writes) {
                return Some((s.count, (t.access.address, t.access.len)));
            }
            if s.entered || s.instruction.mnemonic() == Mnemonic::Syscall {
                return None;
            }
        }
        None
    }
}

/// Which runs of instructions write a register.
struct Writers {
    register: Register,
    info: InstructionInfoFactory,
    epoch: Option<u64>,
    /// For each run that was met, by its number: the last of its instructions that writes the register. Another run with the same
    /// place in the table takes it over.
    known: Vec<(u64, Option<u64>)>,
    code: Vec<u8>,
}

/// Places in the table, a power of 2.
const PLACES: usize = 1 << 14;

impl Writers {
    fn new(register: Register) -> Writers {
        Writers {
            register,
            info: InstructionInfoFactory::new(),
            epoch: None,
            known: Vec::new(),
            code: Vec::new(),
        }
    }

    /// The last instruction of a run that writes the register, counted from 0.
    fn last_of(&mut self, executed: &Executed, run: Run) -> Option<u64> {
        if self.epoch != Some(executed.epoch()) {
            self.epoch = Some(executed.epoch());
            // No run has this number.
            self.known = vec![(0, None); PLACES];
        }
        let place = (run.pc() ^ run.pc() >> 14 ^ run.instructions()) as usize % PLACES;
        let (id, last) = self.known[place];
        if id == run.id() {
            return last;
        }
        let most = usize::try_from(run.instructions()).unwrap_or(0) * LONGEST;
        self.code.resize(most, 0);
        let n = executed.code(run.pc(), &mut self.code);
        let mut decoder = Decoder::with_ip(64, &self.code[..n], run.pc(), DecoderOptions::NONE);
        let mut last = None;
        for k in 0..run.instructions() {
            if writes(&mut self.info, &decoder.decode(), self.register) {
                last = Some(k);
            }
        }
        self.known[place] = (run.id(), last);
        last
    }
}

fn decode(code: &[u8], pc: u64) -> Instruction {
    Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode()
}

/// Whether an instruction writes a register or a part of it.
fn writes(info: &mut InstructionInfoFactory, i: &Instruction, register: Register) -> bool {
    let full = register.full_register();
    // The kernel writes the result.
    if i.mnemonic() == Mnemonic::Syscall && full == Register::RAX {
        return true;
    }
    let used = info.info(i);
    used.used_registers().iter().any(|r| {
        use iced_x86::OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
        let written = matches!(r.access(), Write | CondWrite | ReadWrite | ReadCondWrite);
        written && r.register().full_register() == full
    })
}
