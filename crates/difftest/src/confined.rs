//! The code check reads translated code before it runs, as in recorder and replay.

use hindsight_confine::{Checker, Code as Parts, Kind, Marks, Refusal, Rules, Wrong};
use hindsight_translate::{Mode, Translator};
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic};

/// What code of this translator may do.
pub fn rules(t: &Translator) -> Rules {
    Rules {
        kind: match t.policy.mode {
            Mode::Replay => Kind::Replay,
            Mode::Record => Kind::Record,
            Mode::Plain => Kind::Plain,
        },
        bits: t.policy.predictor.bits,
        marks: match (t.observe, t.near) {
            (false, _) => Marks::None,
            (true, false) => Marks::Beside,
            (true, true) => Marks::Near,
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
    let mnemonic = matches!(
        i.mnemonic(),
        Femms | Fndisi | Fneni | Fnsetpm | Fstpnce | Mcommit | Undoc | Xend | Xresldtrk | Xsusldtrk
    );
    let code = matches!(
        i.code(),
        Code::Fcom_st0_sti_DCD0
            | Code::Fcomp_st0_sti_DCD8
            | Code::Fcomp_st0_sti_DED0
            | Code::Fstp_sti_DFD0
            | Code::Fstp_sti_DFD8
            | Code::Fxch_st0_sti_DDC8
            | Code::Fxch_st0_sti_DFC8
    );
    refusal.what == Wrong::Instruction && (mnemonic || code)
}
