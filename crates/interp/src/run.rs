//! Runs code block by block.

use crate::block::Blocks;
use crate::core::Core;
use crate::fault::Fault;
use crate::op::Flow;
use crate::{Code, Memory};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{CpuState, VecState};

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ran {
    /// All instructions that it was to execute are done.
    Done,
    /// The instruction at the instruction pointer cannot be executed.
    Fault(Fault),
}

/// Executes the instructions of one thread.
pub struct Interpreter<M> {
    core: Core,
    blocks: Blocks<M>,
}

impl<M: Memory> Default for Interpreter<M> {
    fn default() -> Self {
        Interpreter {
            core: Core::default(),
            blocks: Blocks::default(),
        }
    }
}

impl<M: Memory> Interpreter<M> {
    /// An interpreter for a thread whose registers are zero.
    pub fn new() -> Interpreter<M> {
        Interpreter::default()
    }

    /// General purpose registers, flags and segment bases.
    pub fn registers(&self) -> CpuState {
        self.core.registers()
    }

    /// The instruction pointer.
    pub fn rip(&self) -> u64 {
        self.core.rip
    }

    /// Continues with these registers.
    pub fn set_registers(&mut self, s: &CpuState) {
        self.core.set_registers(s);
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&self) -> VecState {
        self.core.vectors()
    }

    /// Continues with these vector, mask and x87 registers.
    pub fn set_vectors(&mut self, v: &VecState) {
        self.core.set_vectors(v);
    }

    /// How the processor that the program ran on lays out what `xsave` saves.
    pub fn set_layout(&mut self, layout: Layout) {
        self.core.saves = layout;
    }

    /// Forgets what was decoded from the page (of 4096 bytes) at this address.
    pub fn forget_page(&mut self, page: u64) {
        self.blocks.forget_page(page);
    }

    /// Forgets all that was decoded from pages of which `keep` does not hold.
    pub fn keep_pages(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        self.blocks.keep_pages(keep);
    }

    /// Executes at most `most` instructions. Returns how many are done, and why it ended.
    pub fn run(&mut self, memory: &mut M, code: &dyn Code, most: u64) -> (u64, Ran) {
        let core = &mut self.core;
        let mut left = most;
        while left > 0 {
            let id = match self.blocks.find(core.rip) {
                Some(id) => id,
                None => match self.blocks.make(core.rip, code) {
                    Ok(id) => id,
                    Err(fault) => return (most - left, Ran::Fault(fault)),
                },
            };
            let block = self.blocks.get(id);
            let ops = match block.ops.get(..left.min(u16::MAX as u64) as usize) {
                Some(first) => first,
                None => &block.ops[..],
            };
            let mut done = ops.len();
            let mut flow = Flow::Next;
            for (i, op) in ops.iter().enumerate() {
                flow = (op.run)(core, memory, op);
                if flow != Flow::Next {
                    done = i;
                    break;
                }
            }
            match flow {
                Flow::Next => core.rip = ops[done - 1].next,
                Flow::Leave => done += 1,
                Flow::Fault => {
                    core.rip = match done {
                        0 => block.pc,
                        n => ops[n - 1].next,
                    };
                    let fault = core.fault.take().unwrap_or(Fault::NoInstruction);
                    return (most - left + done as u64, Ran::Fault(fault));
                }
            }
            left -= done as u64;
        }
        (most, Ran::Done)
    }
}
