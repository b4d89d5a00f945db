//! String instructions, with the events that belong to them.

use crate::Error;
use crate::cpu::Cpu;
use crate::queue::{Op, Queue};
use crate::window::AccessKind;
use hindsight_events::Event;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::string::{Regs, StringMemory, StringOp};

/// Most bytes that one string instruction can process in a recorded program.
const LONGEST: u64 = 1 << 36;
/// No program has memory at this address or above.
const USER_END: u64 = 1 << 56;

/// Executes the string instruction at the current position with the events that belong to it. `false`:
/// something interrupts it, and the next event says what.
pub(crate) fn string(
    cpu: &mut Cpu,
    op: &StringOp,
    queue: Option<&mut Queue>,
) -> Result<bool, Error> {
    let c = cpu.window.ctx();
    let base = op.segment.base(c.fs_base, c.gs_base);
    let mut regs = Regs::of(&c.gpr, c.rflags & RFLAGS_MASK);
    let mut cells = Cells {
        cpu,
        queue,
        most: LONGEST / op.size as u64,
    };
    let result = op.execute(&mut regs, base, 0, &mut cells);
    let c = cpu.window.ctx_mut();
    regs.store(&mut c.gpr);
    c.rflags = regs.rflags;
    match result {
        Ok(()) => Ok(true),
        Err(Stop::Interrupted) => Ok(false),
        Err(Stop::Failed(e)) => Err(e),
    }
}

/// The window's cells, brought up to date between the chunks of a string instruction.
struct Cells<'a, 'q> {
    cpu: &'a mut Cpu,
    queue: Option<&'a mut Queue<'q>>,
    /// The recorded program cannot have completed more iterations than this.
    most: u64,
}

impl Cells<'_, '_> {
    /// Fails for an address at which the recorded program would have had a fault. The fault would be an
    /// event.
    fn check(&self, addr: u64) -> Result<(), Stop> {
        if addr < USER_END {
            return Ok(());
        }
        Err(self
            .cpu
            .difference(
                "no event",
                format!("a string instruction at {addr:#x}, where no memory can be"),
            )
            .into())
    }
}

enum Stop {
    Interrupted,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

impl StringMemory for Cells<'_, '_> {
    type Stop = Stop;

    fn chunk(&mut self, done: u64) -> Result<u64, Stop> {
        if done > self.most {
            return Err(self
                .cpu
                .difference(
                    "no event",
                    format!("a string instruction after {done} iterations"),
                )
                .into());
        }
        let Some(queue) = self.queue.as_deref_mut() else {
            return Ok(u64::MAX);
        };
        let mut ours = false;
        let mut most = u64::MAX;
        while let Some(next) = queue.prepare()? {
            if next.pos != self.cpu.pos {
                break;
            }
            match next.op {
                // A patch belongs to this chunk only behind the chunk's own event.
                Op::Word(..) | Op::Bytes(..) if !ours => break,
                Op::Word(addr, value) => {
                    self.cpu.window.give_word(addr, value);
                }
                Op::Bytes(addr, len, value) => {
                    self.cpu.window.give_bytes(addr, len, value);
                }
                Op::BadNumber(_) => return Err(Stop::Interrupted),
                Op::Other(at) => match queue.event(at)? {
                    Event::RepChunk { iterations } if iterations == done => ours = true,
                    // The recorder may have begun a chunk at any iteration.
                    Event::RepChunk { iterations } if iterations > done => {
                        most = iterations - done;
                        break;
                    }
                    Event::RepChunk { iterations } => {
                        let found = format!("{done} with none at {iterations}");
                        return Err(self
                            .cpu
                            .difference(
                                format!("{iterations} iterations of a string instruction"),
                                found,
                            )
                            .into());
                    }
                    _ => return Err(Stop::Interrupted),
                },
            }
            queue.advance();
        }
        Ok(most)
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Stop> {
        self.check(addr)?;
        self.cpu.window.read(addr, buf);
        self.cpu.mark(AccessKind::Reads, addr, buf.len());
        Ok(())
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Stop> {
        self.check(addr)?;
        self.cpu.window.write(addr, buf);
        self.cpu.mark(AccessKind::Writes, addr, buf.len());
        Ok(())
    }
}
