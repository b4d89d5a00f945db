//! Every encoding that a 64-bit program may meet, in random states. Variables of the environment:
//!
//! - `HINDSIGHT_DIFF_SECONDS`: the duration;
//! - `HINDSIGHT_DIFF_SEED`: the seed from which all is made;
//! - `HINDSIGHT_DIFF_CODE`: only encodings whose names begin with this;
//! - `HINDSIGHT_DIFF_CASE`: the seed of a single case for each encoding.

use hindsight_difftest::case::{Rig, Verdict};
use hindsight_difftest::native::watchdog;
use hindsight_difftest::setting;
use hindsight_random::Rng;
use iced_x86::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Encodings of which the recorder supports no form.
const UNSUPPORTED: &[&str] = &[
    "Call_m",
    "Clzero",
    "Jmp_m",
    "Enqcmd",
    // Programs are shown a processor without it.
    "EVEX_Vp2intersect",
    // These are not on the code check's list.
    "Femms",
    "Fndisi",
    "Fneni",
    "Fnsetpm",
    "Fstpnce",
    "Mcommit",
    "Via_undoc",
    "Xend",
    "Xresldtrk",
    "Xsusldtrk",
    "Movdir64b",
    "Sgdt",
    "Sidt",
    "Sldt",
    "Smsw",
    "Str_",
    "VEX_Sttilecfg",
    "VEX_Tile",
    "Xtest",
];

#[test]
fn translated_instructions_do_what_the_processor_does() {
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(20));
    let mut rig = Rig::new();
    let codes = hindsight_difftest::chosen();
    let mut seen: BTreeMap<Verdict, BTreeMap<Code, u64>> = BTreeMap::new();
    let mut failures: BTreeMap<Code, (u64, String)> = BTreeMap::new();
    let mut cases = 0u64;
    let begin = Instant::now();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(1));
    let single = setting("HINDSIGHT_DIFF_CASE");
    loop {
        for c in &codes {
            let seed = single.unwrap_or_else(|| rng.u64());
            watchdog(20);
            match rig.run(&[*c], seed) {
                Ok(v) => *seen.entry(v).or_default().entry(*c).or_insert(0) += 1,
                Err(e) => failures.entry(*c).or_insert((0, e)).0 += 1,
            }
            cases += 1;
        }
        if single.is_some() || begin.elapsed() > budget {
            break;
        }
    }
    watchdog(0);
    let class = |v| -> BTreeSet<Code> {
        seen.get(&v)
            .map(|s| s.keys().copied().collect())
            .unwrap_or_default()
    };
    let good = &class(Verdict::Same) | &class(Verdict::UnsupportedHere);
    println!(
        "{cases} cases; {} of {} encodings compared",
        good.len(),
        codes.len()
    );
    let never = &class(Verdict::Unsupported) - &good;
    let partly = &class(Verdict::Unsupported) & &good;
    println!("no form supported: {never:?}");
    println!("some forms not supported: {partly:?}");
    println!(
        "only under the shadow window: {:?}",
        class(Verdict::UnsupportedHere)
    );
    println!("left to the runtime: {:?}", class(Verdict::Slow));
    let made: BTreeSet<Code> = seen
        .iter()
        .filter(|s| *s.0 != Verdict::NotMade)
        .flat_map(|s| s.1.keys().copied())
        .collect();
    println!("not generated: {:?}", &class(Verdict::NotMade) - &made);
    for (c, (n, e)) in &failures {
        println!("==== {c:?} ({n} times): {e}\n");
    }
    assert!(failures.is_empty(), "{} encodings differ", failures.len());
    // Only encodings of which enough forms were tried.
    let sure = |c: &&Code| {
        seen.get(&Verdict::Unsupported)
            .is_some_and(|s| s.get(c) > Some(&12))
    };
    for c in never.iter().filter(sure) {
        let name = format!("{c:?}");
        assert!(
            UNSUPPORTED.iter().any(|u| name.starts_with(u)),
            "{name} is not supported"
        );
    }
}
