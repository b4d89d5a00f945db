//! A block that was kept and is restored for another address is what the translator makes there.

use hindsight_difftest::generate::{encode, generate, wanted};
use hindsight_difftest::memory::Region;
use hindsight_difftest::rng::Rng;
use hindsight_isa::Predictor;
use hindsight_translate::{Input, Mode, Policy, Saved, Translator};
use iced_x86::{Code, Instruction};

/// The block at `pc`, saved and as its parts.
fn translate(t: &mut Translator, pc: u64, code: &[u8], exits: &[u8]) -> (Vec<u8>, String) {
    let input = Input {
        pc,
        code,
        max_instrs: u32::MAX,
        self_check: false,
        peeked: &[],
    };
    t.translate(&input, &mut |_| exits).unwrap();
    let mut saved = Vec::new();
    t.block
        .save(pc, &code[..t.block.src_len as usize], &mut saved);
    (saved, parts(t))
}

fn parts(t: &mut Translator) -> String {
    // At some place, so that the fixups count.
    t.place(0x10_1000, 0x20_2000, 0x10_0000);
    let b = &t.block;
    format!(
        "{:02x?} {:02x?} {:?} {:?} {} {}",
        b.hot, b.cold, b.peeked, b.looks, b.instrs, b.src_len
    )
}

/// The instruction of `code` at `pc` and a conditional jump, then a call.
fn block(code: Code, rng: &mut Rng, pc: u64) -> Option<(Instruction, Vec<u8>)> {
    let region = Region {
        data: pc + 0x20_3000,
        code: pc & !4095,
    };
    let i = generate(code, rng, &region, pc)?;
    let (mut bytes, i) = encode(&i, pc)?;
    bytes.extend_from_slice(&[0x0f, 0x84, 0x44, 0x33, 0x22, 0x01]);
    bytes.extend_from_slice(&[0xe8, 0x11, 0x22, 0x33, 0xf4]);
    Some((i, bytes))
}

#[test]
fn kept_blocks_are_the_same_elsewhere() {
    const FROM: u64 = 0x5123_9876_5120;
    // Also where adding to the low half carries.
    const TO: [u64; 3] = [0x7f12_fff0_0120, 0x7fff_0000_1120, 0x2_0000_4120];
    let exits = [0x48, 0x85, 0xc0, 0xc3];
    let mut rng = Rng(7);
    let (mut made, mut served) = (0, 0);
    for mode in [Mode::Record, Mode::Plain] {
        for (bits, wide_checks, ordered) in [
            (32, true, false),
            (32, false, true),
            (16, false, false),
            (12, true, true),
        ] {
            let policy = Policy {
                mode,
                predictor: Predictor { bits },
                wide_checks: wide_checks && mode == Mode::Record,
            };
            let mut translators = [Translator::new(policy), Translator::new(policy)];
            translators.iter_mut().for_each(|t| t.ordered = ordered);
            let [first, second] = &mut translators;
            for c in Code::values().filter(|c| wanted(*c)) {
                let Some((i, bytes)) = block(c, &mut rng, FROM) else {
                    continue;
                };
                made += 1;
                let (saved, here) = translate(first, FROM, &bytes, &exits);
                let saved = Saved::read(&saved).unwrap();
                assert!(saved.serves(FROM));
                second.restore(FROM, &saved).unwrap();
                assert_eq!(parts(second), here, "{i:?} at the same place");
                for to in TO.into_iter().filter(|to| saved.serves(*to)) {
                    served += 1;
                    let (_, there) = translate(first, to, &bytes, &exits);
                    second.restore(to, &saved).unwrap();
                    assert_eq!(parts(second), there, "{i:?} at {to:#x}");
                }
            }
        }
    }
    assert!(made > 20_000, "only {made} blocks");
    // All but those with an address of their own.
    assert!(served * 10 > made * 3 * 9, "{served} of three times {made}");
}

#[test]
fn any_bytes_are_a_block_or_none() {
    let policy = Policy {
        mode: Mode::Record,
        predictor: Predictor { bits: 32 },
        wide_checks: false,
    };
    let mut t = Translator::new(policy);
    let mut rng = Rng(3);
    let (_, code) = block(Code::Mov_r64_rm64, &mut rng, 0x5000_0000_0000).unwrap();
    let (saved, _) = translate(&mut t, 0x5000_0000_0000, &code, &[0x90; 20]);
    for len in 0..saved.len() {
        assert!(Saved::read(&saved[..len]).is_none());
    }
    for _ in 0..20_000 {
        let mut b = saved.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(b.len() as u64) as usize;
            b[at] = rng.u64() as u8;
        }
        if let Some(s) = Saved::read(&b) {
            s.looks().count();
            if t.restore(0x6000_0000_0000, &s).is_some() {
                t.place(0x10_1000, 0x20_2000, 0x10_0000);
            }
        }
    }
}
