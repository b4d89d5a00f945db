//! Compares the short cuts with the rules.

use super::*;
use crate::decode::{among, prefix};
use crate::facts::{Facts, always_jumps};
use crate::{Map, operand};
extern crate std;
use std::vec::Vec;

/// Random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }
}

fn rules() -> Vec<Rules> {
    let mut all = Vec::new();
    for kind in [Kind::Replay, Kind::Record, Kind::Plain] {
        for bits in [32, 16] {
            let marks = if bits == 32 && kind == Kind::Replay {
                Marks::Beside
            } else {
                Marks::None
            };
            all.push(Rules {
                kind,
                bits,
                marks,
                watch: None,
            });
        }
    }
    all.push(Rules {
        kind: Kind::Replay,
        bits: 32,
        marks: Marks::Runs,
        watch: None,
    });
    all
}

/// The length of an instruction by the rules. `None`: it is not allowed, or only on a condition, or execution does not
/// continue after it.
fn by_the_rules(rules: &Rules, code: &[u8; WINDOW]) -> Option<usize> {
    let i = among(code, WINDOW)?;
    let allowed = operand::check(rules, &Facts::new(), &i, code)?.is_none();
    let leaves = i.is(Map::One, 0xff) && i.digit() == 4 && i.has(prefix::GS);
    (allowed && i.entry & JUMP == 0 && !leaves).then_some(i.len as usize)
}

/// Random bytes that begin with an instruction, or nearly so.
fn code(r: &mut Random, opcode: u8, modrm: u8) -> [u8; WINDOW] {
    const PREFIXES: [&[u8]; 18] = [
        &[],
        &[],
        &[],
        &[0x65, 0x67],
        &[0x65, 0x67],
        &[0x65],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x65, 0x66, 0x67],
        &[0x65, 0x67, 0x66],
        &[0x65, 0x67, 0xf3],
        &[0x64, 0x67],
        &[0x64, 0x66, 0x67],
        &[0x67],
        &[0xf0],
        &[0x64],
        &[0x2e],
    ];
    const BEGINNINGS: [&[u8]; 8] = [
        &[],
        &[],
        &[0x0f],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc5],
        &[0xc4],
    ];
    let mut c = Vec::from(r.one(&PREFIXES));
    match r.next() % 12 {
        0 => {
            let bytes = r.next();
            c.extend([
                0x62,
                bytes as u8 & 0xf7,
                (bytes >> 8) as u8 | 4,
                (bytes >> 16) as u8,
            ]);
        }
        k => {
            let begin = r.one(&BEGINNINGS);
            if k < 8 && !begin.starts_with(&[0xc4]) && !begin.starts_with(&[0xc5]) {
                let rex = 0x40 | r.next() as u8 & 15;
                c.extend((k & 1 != 0).then_some(rex));
            }
            c.extend(begin);
            match begin {
                [0xc5] => c.push(r.next() as u8),
                [0xc4] => c.extend([r.next() as u8 & 0xe0 | (1 + (k % 3) as u8), r.next() as u8]),
                _ => {}
            }
        }
    }
    // Without this there would be few marks.
    let marks = c.starts_with(&[0x64]) && r.next().is_multiple_of(4);
    match marks {
        true => c.extend([0xc6 | opcode & 1, modrm & 0xcf]),
        false => c.extend([opcode, modrm]),
    }
    // Some of what follows are displacements of fields, and constants of marks.
    let field = hindsight_isa::ctx::d::SPILL as u64 + r.next() % 256;
    let rest = match r.next() % 4 {
        0 => (field & 0xffff_ffff) << 8 | r.next() & 0xff,
        1 => u64::MAX << 8 | r.next() & 0xff,
        _ => r.next() << 8 ^ r.next(),
    };
    c.extend(rest.to_le_bytes());
    c.extend(r.next().to_le_bytes());
    *c.first_chunk().unwrap()
}

/// Whatever a short cut finds, the rules find too.
#[test]
fn short_cuts_lead_to_the_same() {
    let mut r = Random(88172645463325252);
    let all = rules();
    let quick: Vec<Quick> = all.iter().map(Quick::new).collect();
    let mut found = [0u64; 4];
    for n in 0..20 * 65536u64 {
        let c = code(&mut r, n as u8, (n >> 8) as u8);
        let word = u64::from_le_bytes(*c.first_chunk().unwrap());
        for (rules, quick) in all.iter().zip(&quick) {
            let wanted = by_the_rules(rules, &c);
            found[3] += wanted.is_some() as u64;
            let cuts = [quick.len(word, c[8]), usual(rules, &c), mark(rules, &c)];
            for (cut, found) in cuts.into_iter().zip(&mut found) {
                // The search for a target is recognized by its first bytes, before the short cuts.
                assert!(
                    cut.is_none() || cut == wanted,
                    "{rules:?} {c:02x?}: {cut:?}, {wanted:?}"
                );
                *found += cut.is_some() as u64;
            }
        }
    }
    let [quick, usual, mark, wanted] = found;
    assert!(
        quick > 250_000 && usual > 500_000 && mark > 500,
        "{found:?}"
    );
    assert!(usual > wanted / 2, "{found:?}");
}

/// Accesses to fields of the context block. Random code has few.
#[test]
fn fields_are_those_of_the_rules() {
    let mut r = Random(1234567);
    let size = hindsight_isa::ctx::CTX_SIZE as i32;
    let (mut found, mut all) = (0, 0);
    for rules in rules() {
        let quick = Quick::new(&rules);
        let near = (0..2048).map(|at| at - size - hindsight_isa::ctx::APART);
        let others = (0..2000).map(|_| r.next() as i32);
        for disp in near.chain(others).collect::<Vec<_>>() {
            for (begin, rex) in [
                (0x89, 0x48),
                (0x8b, 0x4c),
                (0x89, 0x4c),
                (0x18, 0x0f),
                (0x8b, 0x40),
                (0x01, 0x48),
            ] {
                let modrm = if begin == 0x18 {
                    0x0c
                } else {
                    r.next() as u8 & 0x38 | 4
                };
                let mut c = [0x90; WINDOW];
                c[..5].copy_from_slice(&[0x65, rex, begin, modrm, 0x25]);
                c[5..9].copy_from_slice(&disp.to_le_bytes());
                let cut = quick.len(u64::from_le_bytes(*c.first_chunk().unwrap()), c[8]);
                let wanted = by_the_rules(&rules, &c);
                assert!(cut.is_none() || cut == wanted, "{rules:?} {c:02x?}");
                // The short cut finds all forms that translated code uses.
                let usual = rex != 0x40 && disp.wrapping_add(hindsight_isa::ctx::APART) % 8 == 0;
                assert!(
                    cut.is_some() || wanted.is_none() || !usual,
                    "{rules:?} {c:02x?}"
                );
                found += cut.is_some() as u32;
                all += 1;
            }
        }
    }
    assert!(found > 1000 && found < all / 4, "{found} of {all}");
}

/// What only fills space is allowed everywhere, and has the length that the rules find.
#[test]
fn what_fills_space_is_as_in_the_rules() {
    let mut r = Random(24681357);
    let mut found = 0;
    for n in 0..1 << 18 {
        let mut c = [0; WINDOW];
        c[..8].copy_from_slice(&r.next().to_le_bytes());
        c[8..16].copy_from_slice(&r.next().to_le_bytes());
        match n & 3 {
            0 => c[..2].copy_from_slice(&[0x66, 0x90]),
            1 => c[..2].copy_from_slice(&(r.next() as u16).to_le_bytes()),
            _ => c[..2].copy_from_slice(&[0x0f, 0x1f]),
        }
        if let Some(len) = pads(u64::from_le_bytes(*c.first_chunk().unwrap())) {
            for rules in rules() {
                assert_eq!(Some(len), by_the_rules(&rules, &c), "{rules:?} {c:02x?}");
            }
            found += 1;
        }
    }
    // All of the first kind, and a twelfth or more of those with an operand.
    assert!(found > 1 << 16, "{found}");
}

/// `sweep` recognizes jumps as the rules do.
#[test]
fn jumps_are_those_of_the_rules() {
    let mut r = Random(7654321);
    for n in 0..65536u32 {
        let mut c = [0; WINDOW];
        c[..8].copy_from_slice(&r.next().to_le_bytes());
        c[..2].copy_from_slice(&(n as u16).to_le_bytes());
        let (len, distance) = match (c[0], c[1]) {
            (0x0f, 0x80..=0x8f) => (6, 4),
            (0xe9, _) => (5, 4),
            (0xe3, _) => (2, 1),
            _ => continue,
        };
        let i = among(&c, WINDOW).unwrap();
        assert!(
            i.entry & JUMP != 0 && (i.len, i.imm_len) == (len, distance),
            "{c:02x?}"
        );
        assert_eq!(always_jumps(&i), len == 5, "{c:02x?}");
        for rules in rules() {
            assert_eq!(operand::check(&rules, &Facts::new(), &i, &c), Some(None));
        }
    }
}
