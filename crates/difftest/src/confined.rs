//! The code check reads translated code before it runs, as in recorder and replay.

use hindsight_confine::{Checker, Code as Parts, Kind, Marks, Refusal, Rules, Wrong};
use hindsight_isa::{Features, Lacking, Predictor};
use hindsight_translate::{Input, Mode, Policy, Translator};
use iced_x86::{CpuidFeature, Decoder, DecoderOptions, Mnemonic};

/// Where the code of [`Way::check`] lies in the program.
pub const PC: u64 = 0x5123_9876_5120;
/// Where the code cache begins, and where both parts of a block lie in it.
pub const BASE: u64 = 0x6800_0000_0000;
pub const HOT: u32 = 0x1000;
pub const COLD: u32 = 0x20_0000;
/// Where a table of watched memory might be.
const TABLE: u64 = 0x7e12_3456_7000;

/// What code of this translator may do.
pub fn rules(t: &Translator) -> Rules {
    Rules {
        kind: match t.policy.mode {
            Mode::Replay => Kind::Replay,
            Mode::Record => Kind::Record,
            Mode::Plain => Kind::Plain,
        },
        bits: t.policy.predictor.bits,
        marks: match (t.observe, t.near, t.runs) {
            (false, _, false) => Marks::None,
            (false, _, true) => Marks::Runs,
            (true, false, _) => Marks::Beside,
            (true, true, _) => Marks::Near,
        },
        watch: t.watch,
    }
}

/// Has the code check read the translator's block, which is placed at these offsets from the code
/// cache's base.
pub fn check(t: &Translator, hot_at: u32, cold_at: u32) -> Result<(), Refusal> {
    let code = Parts {
        hot: &t.block.hot,
        cold: &t.block.cold,
        hot_at,
        cold_at,
    };
    Checker::new().check(&rules(t), &code)
}

/// Whether a block was refused for an instruction that no translated code has, although the
/// translator knows it. These are undocumented ones, and some that do nothing on any of today's
/// processors.
pub fn is_unlisted(refusal: &Refusal) -> bool {
    let i = Decoder::with_ip(64, refusal.bytes(), 0, DecoderOptions::NONE).decode();
    use Mnemonic::*;
    let unlisted = matches!(
        i.mnemonic(),
        Femms
            | Fndisi
            | Fneni
            | Fnsetpm
            | Fstpnce
            | Mcommit
            | Undoc
            | Xabort
            | Xend
            | Xresldtrk
            | Xsusldtrk
    );
    refusal.what == Wrong::Instruction && unlisted
}

/// A way to translate.
pub struct Way {
    pub name: String,
    pub translator: Translator,
    pub checker: Checker,
}

/// What a machine lacks that has AVX2, but not AVX-512.
pub fn without_avx512() -> Lacking {
    let mut features = Features::default();
    for f in CpuidFeature::values().filter(|f| format!("{f:?}").starts_with("AVX512")) {
        features.add(f);
    }
    Lacking {
        features,
        ..Lacking::default()
    }
}

/// All ways in which recorder and replayer translate.
pub fn ways() -> Vec<Way> {
    let mut all = Vec::new();
    for mode in [Mode::Replay, Mode::Record, Mode::Plain] {
        for bits in [32, 16, 12, 20] {
            for k in 0..8 {
                let policy = Policy {
                    mode,
                    predictor: Predictor { bits },
                    wide_checks: mode == Mode::Record && k & 1 != 0,
                };
                let mut t = Translator::new(policy);
                match mode {
                    Mode::Replay => {
                        t.count = k == 4;
                        t.runs = k == 6;
                        if k == 7 {
                            t.lacking = without_avx512();
                        }
                        (t.observe, t.near) = (bits == 32 && matches!(k, 1 | 2 | 5), k == 2);
                        if matches!(k, 3 | 5) {
                            (t.atomics, t.watch) = (true, Some(TABLE));
                        }
                    }
                    _ => (t.ordered, t.fuse) = (k & 2 != 0, k & 4 == 0),
                }
                all.push(Way {
                    name: format!("{mode:?}, 2^{bits} cells, {k}"),
                    translator: t,
                    checker: Checker::new(),
                });
            }
        }
    }
    all
}

impl Way {
    /// Translates at most `max` instructions of code, places them, and has them checked. Code that cannot be translated
    /// is not refused. `odd`: the code checks itself, where recordings do that.
    ///
    /// # Errors
    /// What the code check does not allow.
    pub fn check(&mut self, code: &[u8], max: u32, odd: bool) -> Result<(), Refusal> {
        let t = &mut self.translator;
        let input = Input {
            pc: PC,
            code,
            max_instrs: max,
            self_check: odd && t.policy.mode != Mode::Replay,
            peeked: &[],
        };
        if t.translate(&input, &mut |_| &[0x9c, 0x90]).is_err() {
            return Ok(());
        }
        t.relocate(BASE + HOT as u64, BASE + COLD as u64, BASE);
        let (rules, b) = (rules(t), &t.block);
        read(&mut self.checker, &rules, &b.hot, &b.cold)
    }
}

/// Has both parts of a block read, which lie at [`HOT`] and [`COLD`].
///
/// # Errors
/// What the code check does not allow.
pub fn read(checker: &mut Checker, rules: &Rules, hot: &[u8], cold: &[u8]) -> Result<(), Refusal> {
    let parts = Parts {
        hot,
        cold,
        hot_at: HOT,
        cold_at: COLD,
    };
    checker.check(rules, &parts)
}
