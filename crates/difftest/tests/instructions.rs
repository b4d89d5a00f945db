//! Every encoding that a 64-bit program may meet, in random states.

use hindsight_difftest::case::{Rig, Verdict};
use hindsight_difftest::generate::wanted;
use hindsight_difftest::native::watchdog;
use hindsight_difftest::rng::Rng;
use hindsight_difftest::setting;
use iced_x86::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[test]
fn translated_instructions_do_what_the_processor_does() {
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(20));
    let only = std::env::var("HINDSIGHT_DIFF_CODE").ok();
    let mut rig = Rig::new();
    let codes: Vec<Code> = Code::values()
        .filter(|c| wanted(*c))
        .filter(|c| only.as_ref().is_none_or(|o| format!("{c:?}").starts_with(o.as_str())))
        .collect();
    let mut seen: BTreeMap<Code, BTreeMap<String, u64>> = BTreeMap::new();
    let mut failures: BTreeMap<Code, (u64, String)> = BTreeMap::new();
    let mut cases = 0u64;
    let begin = Instant::now();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(1));
    let single = setting("HINDSIGHT_DIFF_CASE");
    'all: loop {
        for c in &codes {
            let seed = single.unwrap_or_else(|| rng.u64());
            watchdog(20);
            let key = match rig.run(&[*c], seed) {
                Ok(v) => format!("{v:?}"),
                Err(e) => {
                    let f = failures.entry(*c).or_insert((0, e));
                    f.0 += 1;
                    "Failed".into()
                }
            };
            *seen.entry(*c).or_default().entry(key).or_default() += 1;
            cases += 1;
        }
        if single.is_some() || begin.elapsed() > budget {
            break 'all;
        }
    }
    watchdog(0);
    let class = |v: Verdict| {
        let name = format!("{v:?}");
        seen.iter().filter(|(_, s)| s.contains_key(&name)).map(|(c, _)| *c).collect::<BTreeSet<_>>()
    };
    let same = class(Verdict::Same);
    println!("{cases} cases of {} encodings, {} compared", codes.len(), same.len());
    for v in [Verdict::Slow, Verdict::Unsupported, Verdict::UnsupportedHere, Verdict::NotMade] {
        let list = class(v);
        println!("{v:?}: {} {list:?}", list.len());
    }
    println!("{} encodings fail", failures.len());
    for (c, (n, e)) in failures.iter().take(400) {
        println!("==== {c:?} = {} ({n} times): {e}\n", *c as u32);
    }
    assert!(failures.is_empty());
}
