//! Translated code is read before it may run: what was made just now, and what other images or recordings have left.

use super::{Cache, base};
use crate::{fail, line};
use hindsight_confine::{Checker, Code, Kind, Marks, Refusal, Rules};
use hindsight_translate::{Input, Mode, Set};

/// What reading it takes.
pub struct Confined {
    checker: Checker,
    /// The block that is made next is not to be what somebody has left.
    pub anew: bool,
}

impl Confined {
    pub fn new() -> Confined {
        Confined {
            checker: Checker::new(),
            anew: false,
        }
    }
}

impl Cache {
    fn rules(&self, plain: bool) -> Rules {
        Rules {
            kind: if plain { Kind::Plain } else { Kind::Record },
            bits: self.translator.policy.predictor.bits,
            marks: Marks::None,
            watch: None,
        }
    }

    /// Whether the translator's block, placed at these addresses, may run.
    pub(super) fn read(&mut self, hot: u64, cold: u64) -> Result<(), Refusal> {
        let rules = self.rules(self.translator.policy.mode == Mode::Plain);
        let block = &self.translator.block;
        let code = Code {
            hot: &block.hot,
            cold: &block.cold,
            hot_at: (hot - base()) as u32,
            cold_at: (cold - base()) as u32,
        };
        self.confined.checker.check(&rules, &code)
    }

    /// Whether the blocks of a set, placed so, may run.
    pub(super) fn read_set(&mut self, set: &Set, plain: bool, code: &Code) -> bool {
        let rules = self.rules(plain);
        let checker = &mut self.confined.checker;
        checker.check(&rules, code).is_ok() && set.members().all(|m| checker.is_entry(m.hot))
    }

    /// Has the refused translation of `source` at `pc` made anew; if it was made just now, without the instruction at
    /// fault, at which the recording ends if the program comes to it.
    pub(super) fn refuse(
        &mut self,
        pc: u64,
        source: &[u8],
        self_check: bool,
        restored: bool,
        refusal: &Refusal,
    ) {
        self.confined.anew = true;
        if restored {
            return;
        }
        let peeked = self.translator.block.peeked.clone();
        let input = Input {
            pc,
            code: source,
            max_instrs: u32::MAX,
            self_check,
            peeked: &peeked,
        };
        self.translator.want_map = true;
        let made = self.translator.translate(&input, &mut |_| &[]);
        self.translator.want_map = false;
        let map = self.translator.block.map.iter().rev();
        let at = |e: &&hindsight_translate::MapEntry| match refusal.cold {
            false => e.hot <= refusal.at,
            true => e.cold <= refusal.at,
        };
        let known = made.ok().and_then(|()| Some(map.clone().find(at)?.pc));
        match known {
            Some(at) if !self.translator.refused.contains(&at) => self.translator.refused.push(at),
            _ => fail::die(
                fail::STATUS,
                &line!("unsupported code at {pc:#x}: {refusal}"),
            ),
        }
    }
}
