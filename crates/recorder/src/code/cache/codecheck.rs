//! The code check. Translated code is read before it may run, whether it was made just now or left
//! by other images and recordings.

use super::{Cache, base, mode};
use crate::line;
use crate::sys::fail;
use alloc::vec::Vec;
use hindsight_confine::{Code, Kind, Marks, Refusal, Rules};
use hindsight_translate::{FileTranslation, FileTranslationBuilder, Input, Mode, Policy};

/// What translated code may do under a policy.
pub(super) fn rules(policy: &Policy) -> Rules {
    let plain = policy.mode == Mode::Plain;
    Rules {
        kind: if plain { Kind::Plain } else { Kind::Record },
        bits: policy.predictor.bits,
        marks: Marks::None,
        watch: None,
    }
}

impl Cache {
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
        let rules = rules(&Policy {
            mode: mode(plain),
            ..self.translator.policy
        });
        let checker = &mut self.checker;
        checker.check(&rules, &code).is_ok() && set.members().all(|m| checker.is_entry(m.hot))
    }

    /// A translation that was made just now from `input` is refused. The next one leaves out the
    /// instruction at fault. The recording ends if the program comes to that instruction.
    pub(super) fn refuse(&mut self, input: &Input, plain: bool, refusal: &Refusal) {
        let pc = input.pc;
        self.change();
        self.mapped = None;
        self.translator.policy.mode = mode(plain);
        self.translator.want_map = true;
        let made = self.translator.translate(input, &mut |_| &[]);
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
