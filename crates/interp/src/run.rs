//! Runs code block by block.

use crate::block::{Blocks, Traits};
use crate::core::Core;
use crate::fault::Fault;
use crate::op::{Flow, Op};
use crate::{Code, Memory};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Approximations, CpuState, Finer, High, LeftOpen, VecState};
use std::sync::Arc;

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ran {
    /// All instructions that it was to execute are done.
    Done,
    /// The instruction at the instruction pointer cannot be executed.
    Fault(Fault),
}

/// How far a run is behind the last instruction that the machine at hand cannot execute itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Near {
    /// It ends behind so many others.
    pub patience: u64,
    since: u64,
}

impl Near {
    /// A run that ends behind so many others.
    pub fn new(patience: u64) -> Near {
        Near { patience, since: 0 }
    }

    /// Whether the run is to end.
    pub fn is_over(&self) -> bool {
        self.since >= self.patience
    }

    /// So many instructions were executed, which need a feature where `needy` has a bit.
    fn pass(&mut self, needy: u64, done: u64) {
        let needy = match done {
            64.. => needy,
            n => needy & ((1 << n) - 1),
        };
        self.since = match needy {
            0 => self.since.saturating_add(done),
            _ => done - (64 - needy.leading_zeros() as u64),
        };
    }
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

/// Executes instructions that follow each other, the first of them at `pc`. Returns how many are done, and how the last one ended. The
/// instruction pointer is behind them.
#[inline(always)]
fn execute<M: Memory>(core: &mut Core, memory: &mut M, pc: u64, ops: &[Op<M>]) -> (usize, Flow) {
    let mut done = ops.len();
    let mut flow = Flow::Next;
    for (i, op) in ops.iter().enumerate() {
        flow = (op.run)(core, memory, op);
        if flow != Flow::Next {
            done = i;
            break;
        }
    }
    if flow == Flow::Leave {
        // It has set the instruction pointer.
        return (done + 1, flow);
    }
    core.rip = match done {
        0 => pc,
        n => ops[n - 1].next,
    };
    (done, flow)
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

    /// What the processor that the program ran on gives for approximations. `None`: they are not known.
    pub fn set_approximations(&mut self, approximations: Option<Arc<Approximations>>) {
        self.core.approximations = approximations;
    }

    /// The same for the finer approximations of AVX-512.
    pub fn set_finer(&mut self, finer: Option<Arc<Finer>>) {
        self.core.finer = finer;
    }

    /// What the processor that the program ran on does where manuals leave results open.
    pub fn set_left_open(&mut self, left_open: LeftOpen) {
        self.core.left_open = left_open;
    }

    /// Forgets what was decoded from the page (of 4096 bytes) at this address.
    pub fn forget_page(&mut self, page: u64) {
        self.blocks.forget_page(page);
    }

    /// Forgets all that was decoded from pages of which `keep` does not hold.
    pub fn keep_pages(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        self.blocks.keep_pages(keep);
    }

    /// What [`Interpreter::run_near`] and [`Interpreter::run_apart`] have to know of instructions.
    pub fn set_traits(&mut self, traits: Traits) {
        self.blocks = Blocks::on(Some(traits));
    }

    /// The registers that only AVX-512 has.
    pub fn high(&self) -> High {
        let mut high = High {
            zmm: [[0; 64]; 16],
            k: self.core.k,
        };
        for (to, from) in high.zmm.iter_mut().zip(&self.core.zmm[16..]) {
            to.copy_from_slice(from.as_flattened());
        }
        high
    }

    /// Continues with these.
    pub fn set_high(&mut self, high: &High) {
        self.core.k = high.k;
        for (to, from) in self.core.zmm[16..].iter_mut().zip(&high.zmm) {
            to.as_flattened_mut().copy_from_slice(from);
        }
    }

    /// Whether one of zmm0 to zmm15 has a bit set beyond its low 32 bytes.
    pub fn has_upper_halves(&self) -> bool {
        let zmm = &self.core.zmm[..16];
        zmm.iter()
            .flat_map(|z| &z[2..])
            .any(|lane| *lane != [0; 16])
    }

    /// Executes at most `most` instructions. Returns how many are done, and why it ended.
    pub fn run(&mut self, memory: &mut M, code: &dyn Code, most: u64) -> (u64, Ran) {
        self.go::<false>(memory, code, most, &mut Near::default())
    }

    /// The same, but ends when so many instructions as `near` allows have followed the last one that the machine at hand cannot
    /// execute itself.
    pub fn run_near(
        &mut self,
        memory: &mut M,
        code: &dyn Code,
        most: u64,
        near: &mut Near,
    ) -> (u64, Ran) {
        self.go::<true>(memory, code, most, near)
    }

    /// Whether [`Interpreter::run_apart`] executes the next instruction, and the machine at hand cannot.
    #[inline]
    pub fn is_apart(&mut self, rip: u64) -> bool {
        let found = self.blocks.find(rip).map(|id| self.blocks.get(id));
        found.is_some_and(|b| b.needy & b.apart & 1 != 0)
    }

    /// The same as [`Interpreter::run_near`], for known code, and only as long as instructions use few registers. Returns how many
    /// are done, but not what is wrong with the next one.
    pub fn run_apart(&mut self, memory: &mut M, most: u64, near: &mut Near) -> u64 {
        let core = &mut self.core;
        let mut left = most;
        while left > 0 && !near.is_over() {
            let Some(id) = self.blocks.find(core.rip) else {
                break;
            };
            let block = self.blocks.get(id);
            let mut here = (block.apart.trailing_ones() as u64).min(left);
            if block.needy == 0 {
                here = here.min(near.patience - near.since);
            }
            let ops = block.ops.get(..here as usize).unwrap_or(&block.ops);
            let (done, flow) = execute(core, memory, block.pc, ops);
            left -= done as u64;
            near.pass(block.needy, done as u64);
            // Whoever executes the instruction again finds out what is wrong with it.
            core.fault = None;
            if flow == Flow::Fault || (done as u64) < here || done == 0 {
                break;
            }
        }
        most - left
    }

    fn go<const NEAR: bool>(
        &mut self,
        memory: &mut M,
        code: &dyn Code,
        most: u64,
        near: &mut Near,
    ) -> (u64, Ran) {
        let core = &mut self.core;
        let mut left = most;
        while left > 0 && !(NEAR && near.is_over()) {
            let id = match self.blocks.find(core.rip) {
                Some(id) => id,
                None => match self.blocks.make(core.rip, code) {
                    Ok(id) => id,
                    Err(fault) => return (most - left, Ran::Fault(fault)),
                },
            };
            let block = self.blocks.get(id);
            let mut most_here = left;
            if NEAR && block.needy == 0 {
                most_here = left.min(near.patience - near.since);
            }
            let ops = match block.ops.get(..most_here.min(u16::MAX as u64) as usize) {
                Some(first) => first,
                None => &block.ops[..],
            };
            let (done, flow) = execute(core, memory, block.pc, ops);
            if flow == Flow::Fault {
                let fault = core.fault.take().unwrap_or(Fault::NoInstruction);
                return (most - left + done as u64, Ran::Fault(fault));
            }
            left -= done as u64;
            if NEAR {
                near.pass(block.needy, done as u64);
            }
        }
        (most - left, Ran::Done)
    }
}
