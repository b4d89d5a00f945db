//! Many sequences of instructions, compared one by one.

use crate::case::Rig;
use crate::generate::is_tested;
use crate::native::watchdog;
use crate::setting;
use hindsight_random::Rng;
use iced_x86::{Code, EncodingKind, FlowControl, Instruction};
use std::time::{Duration, Instant};

/// An instruction of this encoding, without operands yet.
pub fn named(c: Code) -> Instruction {
    let mut i = Instruction::default();
    i.set_code(c);
    i
}

/// All encodings that the tests cover and that `f` holds for.
pub fn select(f: impl Fn(&Code) -> bool) -> Vec<Code> {
    Code::values().filter(|c| is_tested(*c) && f(c)).collect()
}

/// Whether it is a legacy encoding: no VEX, EVEX and the like.
pub fn plain(c: &Code) -> bool {
    c.op_code().encoding() == EncodingKind::Legacy
}

/// Whether the next instruction in memory follows it.
pub fn next(c: &Code) -> bool {
    named(*c).flow_control() == FlowControl::Next
}

/// Runs sequences that `choose` makes, and panics if some differ. Only once in a process.
///
/// - `HINDSIGHT_DIFF_SECONDS` replaces `seconds`, the duration.
/// - `HINDSIGHT_DIFF_SEED` replaces `seed`, from which all is made.
pub fn compare(seconds: u64, seed: u64, choose: impl Fn(&mut Rng) -> Vec<Code>) {
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(seconds));
    let mut rig = Rig::new();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(seed));
    let single = setting("HINDSIGHT_DIFF_CASE");
    let (mut cases, mut failures) = (0u64, Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < budget && failures.len() < 20 {
        let seed = single.unwrap_or_else(|| rng.u64());
        let codes = choose(&mut Rng(seed ^ 0x5555));
        watchdog(20);
        if let Err(e) = rig.run(&codes, seed) {
            failures.push(e);
        }
        cases += 1;
        if single.is_some() {
            break;
        }
    }
    watchdog(0);
    println!("{cases} sequences");
    for e in &failures {
        println!("==== {e}\n");
    }
    assert!(failures.is_empty(), "{} sequences differ", failures.len());
}
