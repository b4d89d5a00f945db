//! Short sequences of instructions in one block: flags that live from one to another, faults in
//! the middle, positions.

use hindsight_difftest::case::Rig;
use hindsight_difftest::generate::wanted;
use hindsight_difftest::native::watchdog;
use hindsight_difftest::rng::Rng;
use hindsight_difftest::setting;
use iced_x86::{Code, EncodingKind, FlowControl, Instruction};
use std::time::{Duration, Instant};

#[test]
fn sequences_do_what_the_processor_does() {
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(8));
    let mut rig = Rig::new();
    let all: Vec<Code> = Code::values().filter(|c| wanted(*c)).collect();
    let plain = |c: &Code| c.op_code().encoding() == EncodingKind::Legacy;
    let next = |c: &Code| {
        let mut i = Instruction::default();
        i.set_code(*c);
        i.flow_control() == FlowControl::Next
    };
    let common: Vec<Code> = all
        .iter()
        .copied()
        .filter(|c| plain(c) && next(c))
        .collect();
    let any: Vec<Code> = all.iter().copied().filter(next).collect();
    let last: Vec<Code> = all.iter().copied().filter(plain).collect();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(2));
    let single = setting("HINDSIGHT_DIFF_CASE");
    let (mut cases, mut failures) = (0u64, Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < budget && failures.len() < 20 {
        let seed = single.unwrap_or_else(|| rng.u64());
        let mut choice = Rng(seed ^ 0x5555);
        let n = 2 + choice.below(5);
        let mut codes: Vec<Code> = (1..n)
            .map(|_| {
                let list = if choice.one_in(3) { &any } else { &common };
                choice.pick(list)
            })
            .collect();
        codes.push(choice.pick(&last));
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
