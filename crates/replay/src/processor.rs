//! Where instructions are executed: the interface behind which the native translator stands.
//!
//! A [`Machine`](crate::Machine) reads the stream and applies its events to a [`Cpu`]. Between two events it has the
//! instructions executed by its processor. It knows nothing of how.

use crate::Error;
use crate::code::Code;
use crate::cpu::Cpu;
use crate::features;
use crate::library::Library;
use crate::queue::Queue;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Approximations, Executed, Finer, LeftOpen, Predictor, VecState};
use hindsight_trace::{Header, Saves};
use std::sync::Arc;

/// Which processor a machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// Translates code into instructions of the host, which is x86-64.
    #[cfg_attr(target_arch = "x86_64", default)]
    Native,
    /// Executes instructions one by one, and needs no feature of the host.
    #[cfg_attr(not(target_arch = "x86_64"), default)]
    Interpreter,
}

/// What plays, and what the program's processor was like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    pub choice: Choice,
    /// How that processor lays out what `xsave` saves.
    pub saves: Layout,
    /// What it gives for approximations of reciprocals. `None`: nobody knows.
    pub approximations: Option<Arc<Approximations>>,
    /// The same for the finer ones of AVX-512.
    pub finer: Option<Arc<Finer>>,
    /// What it does where manuals leave results open.
    pub left_open: LeftOpen,
    /// The recording has what transcendental instructions of the x87 gave.
    pub transcendental: bool,
}

impl Model {
    /// For what a recording with this header has.
    pub fn of(choice: Choice, header: &Header) -> Model {
        let saves = header.machine.xsave.as_ref().and_then(Saves::layout);
        Model {
            choice,
            saves: saves.unwrap_or_else(Layout::usual),
            approximations: header.machine.approximations.clone().map(|g| g.0),
            finer: header.machine.finer.clone().map(|f| f.0),
            left_open: header.machine.left_open.known(),
            transcendental: header.transcendental,
        }
    }

    /// What this machine, which lays out saved registers like this, lacks of it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn lacking(&self, here: &Layout) -> hindsight_isa::Lacking {
        hindsight_isa::Lacking {
            features: features::lacking(),
            areas: *here != self.saves,
            approximations: self.other_guesses(),
            rules: self.other_rules(),
        }
    }

    /// Which of this machine's approximations are others than those that the program got.
    #[cfg(target_arch = "x86_64")]
    fn other_guesses(&self) -> hindsight_isa::features::Guesses {
        let coarse =
            self.approximations.is_some() && self.approximations != features::approximations();
        hindsight_isa::features::Guesses {
            coarse,
            // An older recording does not say them. They are taken to differ if the others do.
            finer: match &self.finer {
                Some(_) => self.finer != features::finer(),
                None => coarse,
            },
            transcendental: coarse && !self.transcendental,
            other: coarse,
        }
    }

    /// Where this machine follows other rules than the program's one. A recording that does not say them may have any.
    #[cfg(target_arch = "x86_64")]
    fn other_rules(&self) -> hindsight_isa::features::Rules {
        let (there, here) = (self.left_open, LeftOpen::here());
        hindsight_isa::features::Rules {
            double_shift: there.double_shift.is_some() && there.double_shift != here.double_shift,
            dot_product: there.dot_product.is_some() && there.dot_product != here.dot_product,
        }
    }
}

/// For programs of this machine.
impl From<Choice> for Model {
    fn from(choice: Choice) -> Model {
        Model {
            choice,
            saves: Layout::usual(),
            approximations: features::approximations(),
            finer: features::finer(),
            left_open: LeftOpen::here(),
            transcendental: true,
        }
    }
}

impl Model {
    /// Makes one for a machine with this window.
    pub(crate) fn make(
        self,
        predictor: Predictor,
        cpu: &mut Cpu,
    ) -> Result<Box<dyn Processor>, Error> {
        match self.choice {
            #[cfg(target_arch = "x86_64")]
            Choice::Native => {
                let native = crate::native::Native::new(predictor, &self, cpu)?;
                Ok(Box::new(native))
            }
            #[cfg(not(target_arch = "x86_64"))]
            Choice::Native => {
                let _ = predictor;
                Err(cpu.unsupported("this machine is no x86-64: `--processor interpreter`"))
            }
            Choice::Interpreter => Ok(Box::new(crate::interpreted::Interpreted::new(&self))),
        }
    }
}

/// Whether this machine can run the native processor at all.
pub fn is_native_possible() -> bool {
    Layout::detect().is_some()
}

/// Executes the instructions of a thread. The vector and x87 registers are here, all other state is in the [`Cpu`].
/// All methods get the same one.
pub(crate) trait Processor: Send {
    /// To be called before [`Processor::run`], once for several runs in the same thread of the host.
    fn enter(&mut self, cpu: &mut Cpu) -> Result<(), Error>;

    /// Ends what [`Processor::enter`] began.
    fn leave(&mut self);

    /// Makes many short runs cheaper, until [`Processor::release`] in the same thread of the host.
    fn hold(&mut self, cpu: &mut Cpu) -> Result<(), Error>;

    /// Ends what [`Processor::hold`] began.
    fn release(&mut self);

    /// Runs until position `target`, an event that is not a patch, or the end of the prepared entries. Applies
    /// patches on the way. Stops before the instructions of [`Cpu::breaks`]. `false`: it stopped near the target,
    /// which [`Cpu::near`] allowed.
    fn run(&mut self, cpu: &mut Cpu, queue: &mut Queue, target: u64) -> Result<bool, Error>;

    /// The vector, mask and x87 registers.
    fn vectors(&self) -> VecState;

    /// Continues with these vector, mask and x87 registers.
    fn set_vectors(&mut self, v: &VecState);

    /// From here on, executes the code of this epoch.
    fn set_epoch(&mut self, cpu: &mut Cpu, epoch: u64);

    /// From here on, executes this code.
    fn set_code(&mut self, cpu: &mut Cpu, code: Arc<Code>);

    /// Stops before instructions at these addresses (ascending) from now on.
    fn set_breaks(&mut self, cpu: &mut Cpu, breaks: Vec<u64>);

    /// See [`Machine::watch`](crate::Machine::watch).
    fn watch(&mut self, table: Option<u64>);

    /// See [`Machine::count`](crate::Machine::count).
    fn count(&mut self);

    /// What all runs have executed, if it was counted.
    fn counted(&self, cpu: &Cpu) -> Executed;

    /// Shares with other machines what was made of code.
    fn share(&mut self, cpu: &Cpu, library: Arc<Library>);
}
