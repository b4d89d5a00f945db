//! The recorded thread, as the recorder's modules see it.

use hindsight_events::Event;
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{Ctx, Predictor, VecState};
use hindsight_recorder::shadow::Shadow;

/// Why a case ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The instruction is not supported.
    Unsupported,
}

/// One recorded event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patch {
    /// A word of a line: address and value.
    Word(u64, u64),
    /// Address, length, value.
    Bytes(u64, u8, u64),
    /// The number of iterations that a string instruction has completed.
    Chunk(u64),
}

/// A thread with its events.
pub struct Thread {
    /// The context block.
    pub ctx: &'static mut Ctx,
    /// Address of the first cell.
    pub window: u64,
    /// Geometry of the window.
    pub predictor: Predictor,
    /// Whether zmm31 and k7 are the translator's. The guest's values of both are then in the
    /// context block.
    pub wide_checks: bool,
    /// Number of mispredictions.
    pub mispredictions: u64,
    /// Number of completed instructions.
    pub pos: u64,
    /// Positions and events.
    pub events: Vec<(u64, Patch)>,
    /// Vector state outside translated code.
    pub area: Box<Area>,
    /// Where the host has each component in `area`.
    pub layout: Layout,
}

impl Shadow for Thread {
    fn ctx(&self) -> &Ctx {
        self.ctx
    }

    fn predictor(&self) -> Predictor {
        self.predictor
    }

    fn is_plain(&self) -> bool {
        false
    }

    fn vec(&mut self) -> VecState {
        let mut area = self.area.clone();
        if self.wide_checks {
            self.layout
                .set_wide(&mut area, &self.ctx.zmm31, self.ctx.k7);
        }
        self.layout.to_state(&area)
    }

    fn cell(&self, a: u64) -> *mut u8 {
        (self.window + self.predictor.cell(a)) as *mut u8
    }

    fn event(&mut self, e: &Event) {
        match *e {
            Event::Patch { line, mask, words } => {
                for (i, w) in words
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| mask & (1 << i) != 0)
                {
                    self.events
                        .push((self.pos, Patch::Word(line + 8 * i as u64, *w)));
                }
            }
            Event::PatchBytes { addr, len, value } => {
                self.events.push((self.pos, Patch::Bytes(addr, len, value)))
            }
            Event::RepChunk { iterations } => {
                self.events.push((self.pos, Patch::Chunk(iterations)))
            }
            _ => unreachable!("no other event comes from here"),
        }
    }

    fn count_misprediction(&mut self) {
        self.mispredictions += 1;
    }

    /// Ends the case.
    fn unsupported(&mut self, _: u64) -> ! {
        std::panic::resume_unwind(Box::new(Stop::Unsupported))
    }
}
