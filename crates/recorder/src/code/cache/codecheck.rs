//! The code check. Translated code is read before it may run, whether it was made just now or left
//! by other images and recordings.

use super::{Cache, base};
use crate::line;
use crate::sys::fail;
use alloc::vec::Vec;
use hindsight_confine::{Checker, Code, Kind, Marks, Refusal, Rules};
use hindsight_translate::{FileTranslation, FileTranslationBuilder, Input, Mode};

/// What the code check needs.
pub struct CodeCheck {
    checker: Checker,
    /// The next block has to be translated, and not taken from the shared cache.
    pub anew: bool,
}

impl CodeCheck {
    /// Has refused nothing yet.
    pub fn new() -> CodeCheck {
        CodeCheck {
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

    /// Whether the translator's block may run, when placed at these addresses.
    pub(super) fn read(&mut self, hot: u64, cold: u64) -> Result<(), Refusal> {
        let rules = self.rules(self.translator.policy.mode == Mode::Plain);
        let block = &self.translator.block;
        let code = Code {
            hot: &block.hot,
            cold: &block.cold,
            hot_at: (hot - base()) as u32,
            cold_at: (cold - base()) as u32,
        };
        self.codecheck.checker.check(&rules, &code)
    }

    /// Whether the blocks of a set may run. The set's code has its origin at `origin`.
    ///
    /// A set is read once, when it is made. Images that take it check only its checksum, since
    /// reading it takes half as long as all else that a short program does. A set does not outlive
    /// the recording, and is in memory of the recorded processes alone.
    pub(super) fn may_leave(
        &mut self,
        made: &FileTranslationBuilder,
        origin: u64,
        plain: bool,
    ) -> bool {
        let mut content = Vec::with_capacity(made.len());
        made.save(|parts| parts.iter().for_each(|p| content.extend_from_slice(p)));
        let Some(set) = FileTranslation::read(&content) else {
            return false;
        };
        let (hot_len, cold_len) = set.sizes();
        let (mut hot, mut cold) = (alloc::vec![0; hot_len], alloc::vec![0; cold_len]);
        let hot_at = 4096;
        let cold_at = hot_at + hot_len.next_multiple_of(4096);
        let place = |at: usize| base() + at as u64;
        let hot_place = (&mut hot[..], place(hot_at));
        let cold_place = (&mut cold[..], place(cold_at));
        if set
            .relocate(origin, hot_place, cold_place, base())
            .is_none()
        {
            return false;
        }
        let code = Code {
            hot: &hot,
            cold: &cold,
            hot_at: hot_at as u32,
            cold_at: cold_at as u32,
        };
        let rules = self.rules(plain);
        let checker = &mut self.codecheck.checker;
        checker.check(&rules, &code).is_ok() && set.members().all(|m| checker.is_entry(m.hot))
    }

    /// Makes sure that a refused translation of `source` at `pc` is made again. If it was made just
    /// now, the next one leaves out the instruction at fault. The recording ends if the program
    /// comes to that instruction.
    pub(super) fn refuse(
        &mut self,
        pc: u64,
        source: &[u8],
        self_check: bool,
        restored: bool,
        refusal: &Refusal,
    ) {
        log!(
            Warn,
            "the code check refuses the block at {pc:#x}: {refusal}"
        );
        self.codecheck.anew = true;
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
