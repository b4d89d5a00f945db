//! Every encoding that a 64-bit program may meet, in random states: in the interpreter and on the bare processor. The
//! variables of the environment are those of `instructions.rs`.

use hindsight_difftest::case::Rig;
use hindsight_difftest::interpret::Third;
use hindsight_difftest::native::watchdog;
use hindsight_difftest::setting;
use hindsight_isa::approximate::{self, Kind};
use hindsight_isa::{Approximations, Finer, LeftOpen};
use hindsight_random::Rng;
use iced_x86::Code;
use iced_x86::Mnemonic;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How many of the encodings that this processor has are not supported, without approximations. It may only become less.
/// These are `sldt`, `str`, `sgdt`, `sidt` and `smsw`, which the recorder does not support either, and `xtest`.
const UNSUPPORTED: usize = 12;

/// Whether the manual leaves the result open for some operands, and this processor follows no rule that is known here.
fn is_open(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let here = LeftOpen::here();
    match m {
        Shld | Shrd => here.double_shift.is_none(),
        Dpps | Vdpps | Dppd | Vdppd => here.dot_product.is_none(),
        _ => false,
    }
}

/// Whether makers of processors differ in the results of an instruction, and nothing here tells them.
fn is_untold(m: Mnemonic) -> bool {
    match approximate::kind(m) {
        Some(Kind::Coarse) => Approximations::here().is_none(),
        Some(Kind::Finer) => Finer::here().is_none(),
        kind => kind.is_some(),
    }
}

#[test]
fn interpreted_instructions_do_what_the_processor_does() {
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(15));
    let mut rig = Rig::new();
    let codes = hindsight_difftest::chosen();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(5));
    let single = setting("HINDSIGHT_DIFF_CASE");
    let mut failures: BTreeMap<Code, (u64, String)> = BTreeMap::new();
    let (mut same, mut compared) = (0u64, BTreeSet::new());
    let mut unsupported: BTreeSet<Code> = BTreeSet::new();
    let mut approximate: BTreeSet<Code> = BTreeSet::new();
    let begin = Instant::now();
    loop {
        for c in &codes {
            let seed = single.unwrap_or_else(|| rng.u64());
            watchdog(20);
            match rig.interpret(&[*c], seed) {
                Ok(Some(Third::Same)) => {
                    same += 1;
                    compared.insert(*c);
                }
                Ok(Some(Third::Unsupported(_))) => {
                    unsupported.insert(*c);
                }
                Ok(Some(Third::Approximate)) => {
                    approximate.insert(*c);
                }
                Ok(_) => {}
                Err(e) => failures.entry(*c).or_insert((0, e)).0 += 1,
            }
        }
        if single.is_some() || begin.elapsed() > budget {
            break;
        }
    }
    watchdog(0);
    println!(
        "{same} cases are the same; {} of {} encodings compared, {} not supported, {} approximate",
        compared.len(),
        codes.len(),
        unsupported.len(),
        approximate.len()
    );
    println!("not supported: {unsupported:?}");
    for (c, (n, e)) in &failures {
        println!("==== {c:?} ({n} times): {e}\n");
    }
    assert!(failures.is_empty(), "{} encodings differ", failures.len());
    let listed = |c: &&Code| is_untold(c.mnemonic());
    let open = |c: &Code| is_open(c.mnemonic());
    let other: Vec<&Code> = (approximate.iter())
        .filter(|c| !listed(c) && !open(c))
        .collect();
    assert!(other.is_empty(), "{other:?} are no approximations");
    let known = compared.union(&unsupported).find(listed);
    assert_eq!(known, None, "it is no approximation to the interpreter");
    assert!(
        unsupported.len() <= UNSUPPORTED,
        "{} encodings are not supported, more than before",
        unsupported.len()
    );
}
