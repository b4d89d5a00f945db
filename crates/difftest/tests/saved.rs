//! A saved block that is restored for another address equals what the translator makes there.

use hindsight_difftest::confined;
use hindsight_difftest::generate::{encode, generate, is_tested};
use hindsight_difftest::memory::Region;
use hindsight_isa::Predictor;
use hindsight_random::Rng;
use hindsight_translate::{
    FileTranslation, FileTranslationBuilder, Input, Mode, Policy, Saved, Translator,
};
use iced_x86::{Code, Instruction};

/// The block at `pc`: its saved form, and its parts as text.
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
    // Placed somewhere, so that the fixups count.
    t.relocate(0x10_1000, 0x20_2000, 0x10_0000);
    let b = &t.block;
    format!(
        "{:02x?} {:02x?} {:?} {:?} {} {}",
        b.hot, b.cold, b.peeked, b.looks, b.instrs, b.src_len
    )
}

/// The instruction of `code` at `pc`, a conditional jump, and a call.
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
fn saved_blocks_are_the_same_elsewhere() {
    const FROM: u64 = 0x5123_9876_5120;
    // One is where an addition to the low half of an address carries.
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
            for c in Code::values().filter(|c| is_tested(*c)) {
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
    // All but those that hold an address of their own.
    assert!(served * 10 > made * 3 * 9, "{served} of three times {made}");
}

/// An operand in a segment does not depend on where the block is. Many blocks have one, for stack
/// protectors and thread-local variables.
#[test]
fn operands_in_segments_serve_elsewhere() {
    const FROM: u64 = 0x5123_9876_5120;
    const TO: u64 = 0x7f12_fff0_0120;
    // mov rax, fs:[0x28]; sub rdx, gs:[0x10]; ret
    let code = [
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0][..],
        &[0x65, 0x48, 0x2b, 0x14, 0x25, 0x10, 0, 0, 0, 0xc3],
    ]
    .concat();
    for mode in [Mode::Record, Mode::Plain] {
        let policy = Policy {
            mode,
            predictor: Predictor { bits: 32 },
            wide_checks: false,
        };
        let [mut first, mut second] = [Translator::new(policy), Translator::new(policy)];
        let (saved, _) = translate(&mut first, FROM, &code, &[]);
        let saved = Saved::read(&saved).unwrap();
        assert!(saved.serves(TO));
        let (_, there) = translate(&mut first, TO, &code, &[]);
        second.restore(TO, &saved).unwrap();
        assert_eq!(parts(&mut second), there);
    }
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
                t.relocate(0x10_1000, 0x20_2000, 0x10_0000);
            }
        }
    }
}

/// A saved set of blocks of some instructions, and the saved form of each block. The blocks begin
/// 256 bytes apart, from the set's origin on.
fn set(t: &mut Translator, origin: u64, rng: &mut Rng) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut gathered = FileTranslationBuilder::new(origin);
    let mut all = Vec::new();
    for c in Code::values()
        .filter(|c| is_tested(*c))
        .step_by(7)
        .take(100)
    {
        let pc = origin + 256 * all.len() as u64;
        let Some((_, code)) = block(c, rng, pc) else {
            continue;
        };
        let (saved, _) = translate(t, pc, &code, &[0x48, 0x85, 0xc0, 0xc3]);
        // At the addresses where `parts` has placed it.
        if confined::check(t, 0x1000, 0x10_2000).is_err() {
            continue;
        }
        let number = gathered.add(pc, &Saved::read(&saved).unwrap());
        if let Some((number, _)) = number {
            assert_eq!(number as usize, all.len());
            all.push(saved);
        }
    }
    gathered.page(0, 12345, &[0, 2]);
    gathered.page(1, 67890, &[1]);
    let mut bytes = Vec::new();
    gathered.save(|parts| bytes = parts.concat());
    assert_eq!(bytes.len(), gathered.len());
    (bytes, all)
}

/// A set, placed at once, equals its blocks placed one by one.
#[test]
fn a_set_is_its_blocks() {
    const FROM: u64 = 0x5123_9876_5000;
    const TO: u64 = 0x7f12_fff0_0000;
    let (hot_at, cold_at, base) = (0x6800_1000_0000, 0x6800_2000_0000, 0x6800_0000_0000);
    for mode in [Mode::Record, Mode::Plain] {
        let mut t = Translator::new(Policy {
            mode,
            predictor: Predictor { bits: 32 },
            wide_checks: mode == Mode::Record,
        });
        let (bytes, blocks) = set(&mut t, FROM, &mut Rng(11));
        let set = FileTranslation::read(&bytes).unwrap();
        assert!(blocks.len() > 50 && set.count() == blocks.len());
        let pages: Vec<_> = set
            .pages()
            .map(|(n, hash, users)| (n, hash, users.collect::<Vec<_>>()))
            .collect();
        assert_eq!(pages, [(0, 12345, vec![0, 2]), (1, 67890, vec![1])]);
        for to in [FROM, TO] {
            assert!(set.serves(to));
            let (mut hot, mut cold) = (vec![0; set.sizes().0], vec![0; set.sizes().1]);
            set.relocate(to, (&mut hot, hot_at), (&mut cold, cold_at), base)
                .unwrap();
            let code = hindsight_confine::Code {
                hot: &hot,
                cold: &cold,
                hot_at: (hot_at - base) as u32,
                cold_at: (cold_at - base) as u32,
            };
            let mut checker = hindsight_confine::Checker::new();
            checker.check(&confined::rules(&t), &code).unwrap();
            assert!(set.members().all(|m| checker.is_entry(m.hot)));
            let mut own_cold = 0;
            for ((m, saved), i) in set.members().zip(&blocks).zip(0..) {
                let pc = to + m.pc as u64;
                assert_eq!(m.pc, 256 * i);
                t.restore(pc, &Saved::read(saved).unwrap()).unwrap();
                t.relocate(hot_at + m.hot as u64, cold_at + own_cold as u64, base);
                let b = &t.block;
                assert_eq!(hot[m.hot as usize..][..m.hot_len as usize], b.hot);
                assert_eq!(cold[own_cold..][..b.cold.len()], b.cold);
                assert_eq!((m.src_len as u32, m.instrs as u32), (b.src_len, b.instrs));
                assert_eq!(m.takes_flags, b.takes_flags);
                own_cold = (own_cold + b.cold.len()).next_multiple_of(8);
            }
        }
    }
}

/// A jump in a set leads to the block that it was linked to.
#[test]
fn jumps_in_a_set_are_linked() {
    const PC: u64 = 0x5000_0000_0000;
    let mut t = Translator::new(Policy {
        mode: Mode::Plain,
        predictor: Predictor { bits: 32 },
        wide_checks: false,
    });
    // nop; jmp
    let (saved, _) = translate(&mut t, PC, &[0x90, 0xe9, 0, 1, 0, 0], &[]);
    let saved = Saved::read(&saved).unwrap();
    let mut gathered = FileTranslationBuilder::new(PC);
    let (_, first) = gathered.add(PC, &saved).unwrap();
    let (_, second) = gathered.add(PC, &saved).unwrap();
    let end = first + saved.hot_len() as u32;
    gathered.link(end - 4, second);
    let mut bytes = Vec::new();
    gathered.save(|parts| bytes = parts.concat());
    let set = FileTranslation::read(&bytes).unwrap();
    let (mut hot, mut cold) = (vec![0; set.sizes().0], vec![0; set.sizes().1]);
    set.relocate(PC, (&mut hot, 0x1000), (&mut cold, 0x9000), 0)
        .unwrap();
    let distance = hot[end as usize - 4..].first_chunk().unwrap();
    assert_eq!(u32::from_le_bytes(*distance), second - end);
}

#[test]
fn any_bytes_are_a_set_or_none() {
    let mut t = Translator::new(Policy {
        mode: Mode::Record,
        predictor: Predictor { bits: 32 },
        wide_checks: false,
    });
    let mut rng = Rng(5);
    let (bytes, _) = set(&mut t, 0x5123_9876_5000, &mut rng);
    for len in (0..bytes.len()).step_by(13) {
        assert!(FileTranslation::read(&bytes[..len]).is_none());
    }
    for _ in 0..2000 {
        let mut b = bytes.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(b.len() as u64) as usize;
            b[at] = rng.u64() as u8;
        }
        let Some(set) = FileTranslation::read(&b) else {
            continue;
        };
        let _users: usize = set.pages().map(|(_, _, users)| users.count()).sum();
        let (mut hot, mut cold) = (vec![0; set.sizes().0], vec![0; set.sizes().1]);
        let origin = 0x6000_0000_0000;
        let _ = set.relocate(origin, (&mut hot, 0x1000), (&mut cold, 0x9000), 0);
    }
}
