//! A replay looks for each feature that translated code may need. Otherwise code of a machine that has more would fail here, or do
//! something else.

use hindsight_confine::Checker;
use hindsight_difftest::confined::{BASE, COLD, HOT, PC, read, rules};
use hindsight_difftest::generate::{encode, generate, is_tested};
use hindsight_difftest::memory::Region;
use hindsight_isa::Predictor;
use hindsight_random::Rng;
use hindsight_replay::is_looked_for;
use hindsight_translate::{Input, Mode, Policy, Translator};
use iced_x86::{Code, CpuidFeature};
use std::collections::BTreeMap;

const REGION: Region = Region {
    data: PC + 0x20_3000,
    code: PC & !4095,
};

/// Attempts for each encoding.
const TRIES: usize = 12;

/// What each machine has that can replay: it is x86-64, and has XSAVE.
fn is_everywhere(f: CpuidFeature) -> bool {
    use CpuidFeature::*;
    matches!(
        f,
        INTEL8086
            | INTEL186
            | INTEL386
            | INTEL486
            | X64
            | CX8
            | CMOV
            | FPU
            | FPU287
            | FPU387
            | MMX
            | SSE
            | SSE2
            | FXSR
            | PAUSE
    )
}

/// What an instruction becomes. `None`: nothing that may run.
fn translated(t: &mut Translator, code: &[u8]) -> Option<Vec<u8>> {
    let input = Input {
        pc: PC,
        code,
        max_instrs: 1,
        self_check: false,
        peeked: &[],
    };
    // Then what stands in front of an instruction is the same for all.
    t.changing = true;
    t.translate(&input, &mut |_| &[]).ok()?;
    t.relocate(BASE + HOT as u64, BASE + COLD as u64, BASE);
    let b = &t.block;
    let good = read(&mut Checker::new(), &rules(t), &b.hot, &b.cold);
    good.is_ok().then(|| b.hot.clone())
}

/// Whether translated code executes an instruction. The runtime does all others, refuses them, or leaves them out.
fn is_executed(t: &mut Translator, code: &[u8]) -> bool {
    let [leaves, nothing] = [&[0x0f, 0x0b][..], &[0x90]].map(|c| translated(t, c));
    let Some((leaves, hot)) = leaves.zip(translated(t, code)) else {
        return false;
    };
    // It ends with a jump of five bytes.
    let front = leaves.len() - 5;
    hot[front] != leaves[front]
        && nothing.is_some_and(|n| n[front..front + 2] != hot[front..front + 2])
}

#[test]
fn every_feature_that_may_be_needed_is_looked_for() {
    let mut rng = Rng(3);
    let mut t = Translator::new(Policy {
        mode: Mode::Replay,
        predictor: Predictor::WINDOW,
        wide_checks: false,
    });
    let mut forgotten: BTreeMap<String, Vec<Code>> = BTreeMap::new();
    let mut accepted = 0;
    for code in Code::values().filter(|c| is_tested(*c)) {
        let made = (0..TRIES).filter_map(|_| generate(code, &mut rng, &REGION, PC));
        let all: Vec<Vec<u8>> = made.filter_map(|i| Some(encode(&i, PC)?.0)).collect();
        if !all.iter().any(|bytes| is_executed(&mut t, bytes)) {
            continue;
        }
        accepted += 1;
        for f in code.cpuid_features() {
            if !is_looked_for(*f) && !is_everywhere(*f) {
                forgotten.entry(format!("{f:?}")).or_default().push(code);
            }
        }
    }
    assert!(forgotten.is_empty(), "{forgotten:#?}");
    assert!(accepted > 2000, "{accepted}");
}
