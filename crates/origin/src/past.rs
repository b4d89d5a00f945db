//! The last instructions before an instant, with everything that they found.

use crate::Result;
use hindsight_timeline::{Cancel, CpuState, ThreadId, Timeline, Touch, Walk};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, Register};
use std::collections::HashMap;

/// Instructions that are kept with all that they found.
const KEPT: u64 = 1024;
/// Instructions that are looked through for the one that wrote a register. Each next time more are.
const FIRST: u64 = 1 << 14;
const MOST: u64 = 1 << 22;

/// An instruction that was executed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instructions completed before.
    pub count: u64,
    /// The instruction.
    pub instruction: Instruction,
    /// The registers that it found.
    pub cpu: CpuState,
    /// What it accessed.
    pub touches: Vec<Touch>,
    /// The kernel let the thread go on here.
    pub entered: bool,
}

/// Looks back in one recording.
pub struct Past {
    timeline: Timeline,
    walk: Option<(ThreadId, Walk)>,
    /// Of this thread, up to this count.
    thread: ThreadId,
    until: u64,
    /// In the order of their counts, without gaps but those of the recording.
    steps: Vec<Step>,
}

impl Past {
    /// Of a recording.
    pub fn new(timeline: &Timeline) -> Past {
        Past {
            timeline: timeline.clone(),
            walk: None,
            thread: ThreadId(0),
            until: 0,
            steps: Vec::new(),
        }
    }

    fn walk(&mut self, thread: ThreadId) -> Result<&mut Walk> {
        let walk = match self.walk.take().filter(|w| w.0 == thread) {
            Some(walk) => walk,
            // One has the memory of the thread's program, so only one is kept.
            None => (thread, self.timeline.walk(thread, Cancel::new())?),
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

    /// The last instruction before an instant that wrote a register, of which the 64 bits or more are meant.
    pub fn wrote(
        &mut self,
        thread: ThreadId,
        count: u64,
        register: Register,
    ) -> Result<Option<u64>> {
        let mut info = InstructionInfoFactory::new();
        let mut wrote = |i: &Instruction| writes(&mut info, i, register);
        let kept = self.before(thread, count).find(|s| wrote(&s.instruction));
        if let Some(step) = kept {
            return Ok(Some(step.count));
        }
        let first = self.before(thread, count).last().map(|s| s.count);
        let mut until = first.unwrap_or(count);
        let mut size = FIRST;
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut found = None;
        while found.is_none() && until > 0 && size <= MOST {
            let from = until.saturating_sub(size);
            self.walk(thread)?.run((from, until), false, &mut |w| {
                let is = known
                    .entry(w.pc)
                    .or_insert_with(|| writes(&mut info, &decode(w.code, w.pc), register));
                if *is {
                    found = Some(w.count);
                }
                true
            })?;
            (until, size) = (from, size * 8);
        }
        Ok(found)
    }

    /// The last instruction before an instant that may have changed these flags.
    pub fn wrote_flags(&self, thread: ThreadId, count: u64, flags: u32) -> Option<u64> {
        let changes = |s: &&Step| s.instruction.rflags_modified() & flags != 0;
        self.before(thread, count).find(changes).map(|s| s.count)
    }

    /// The last instruction before an instant that wrote any of these bytes, if it is among those that are kept and neither the
    /// kernel nor anybody else can have written there since.
    pub fn stored(&self, thread: ThreadId, count: u64, at: u64, len: u64) -> Option<u64> {
        for s in self.before(thread, count) {
            let writes = |t: &Touch| t.access.write && t.access.touches(at, len);
            if s.touches.iter().any(writes) {
                return Some(s.count);
            }
            if s.entered || s.instruction.mnemonic() == Mnemonic::Syscall {
                return None;
            }
        }
        None
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
