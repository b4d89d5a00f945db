//! AES, SHA, carry-less multiplication and Galois fields.

use super::element::{Element, make};
use super::form::{lane_operations, lanes, lanewise};
use crate::Memory;
use crate::core::Core;
use crate::op::{Op, Run};
use crate::word::Lane;
use iced_x86::{Instruction, Mnemonic};

/// The product in the field of AES.
const fn times(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut r) = (a as u16, b, 0u16);
    while b != 0 {
        if b & 1 != 0 {
            r ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x11b;
        }
        b >>= 1;
    }
    r as u8
}

/// The inverse in the field of AES, 0 for 0.
const fn inverse(a: u8) -> u8 {
    // a^254
    let (mut r, mut n) = (1, 0);
    while n < 254 {
        r = times(r, a);
        n += 1;
    }
    if a == 0 { 0 } else { r }
}

const SUBSTITUTION: [u8; 256] = {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        let v = inverse(i as u8);
        t[i] = v ^ v.rotate_left(1) ^ v.rotate_left(2) ^ v.rotate_left(3) ^ v.rotate_left(4) ^ 0x63;
        i += 1;
    }
    t
};

const BACK: [u8; 256] = {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        t[SUBSTITUTION[i] as usize] = i as u8;
        i += 1;
    }
    t
};

/// Rows of the state are shifted and bytes substituted.
fn forward(a: Lane) -> Lane {
    make::<u8>(|i| SUBSTITUTION[a[(i + 4 * (i % 4)) % 16] as usize])
}

fn backward(a: Lane) -> Lane {
    make::<u8>(|i| BACK[a[(i + 12 * (i % 4)) % 16] as usize])
}

/// Columns of the state times a matrix whose first row this is.
fn mix(a: Lane, row: [u8; 4]) -> Lane {
    make::<u8>(|i| {
        let column = i & !3;
        (0..4).fold(0, |s, k| s ^ times(a[column + k], row[(k + 4 - i % 4) % 4]))
    })
}

fn xor(a: Lane, b: Lane) -> Lane {
    make::<u8>(|i| a[i] ^ b[i])
}

const MIX: [u8; 4] = [2, 3, 1, 1];
const UNMIX: [u8; 4] = [14, 11, 13, 9];

fn substitute(v: u32) -> u32 {
    u32::from_le_bytes(v.to_le_bytes().map(|b| SUBSTITUTION[b as usize]))
}

fn word(l: &Lane, i: usize) -> u32 {
    u32::get(l, i)
}

/// A lane of these words, the lowest first.
fn words(w: [u32; 4]) -> Lane {
    make::<u32>(|i| w[i])
}

fn choose(e: u32, f: u32, g: u32) -> u32 {
    e & f ^ !e & g
}

fn majority(a: u32, b: u32, c: u32) -> u32 {
    a & b ^ a & c ^ b & c
}

/// Four rounds of SHA-1.
fn sha1_rounds(a: Lane, b: Lane, imm: u8) -> Lane {
    let [mut x, mut y, mut z, mut w] = [3, 2, 1, 0].map(|i| word(&a, i));
    let mut e = 0;
    for i in 0..4 {
        let (f, k) = match imm & 3 {
            0 => (choose(y, z, w), 0x5a82_7999),
            1 => (y ^ z ^ w, 0x6ed9_eba1),
            2 => (majority(y, z, w), 0x8f1b_bcdc),
            _ => (y ^ z ^ w, 0xca62_c1d6u32),
        };
        let n = f
            .wrapping_add(x.rotate_left(5))
            .wrapping_add(word(&b, 3 - i))
            .wrapping_add(e)
            .wrapping_add(k);
        (e, w, z, y, x) = (w, z, y.rotate_left(30), x, n);
    }
    words([w, z, y, x])
}

/// Two rounds of SHA-256. The words with constants are in xmm0.
fn sha256_rounds(c: &Core, a: Lane, b: Lane) -> Lane {
    let wk = c.zmm[0][0];
    // a b e f are in `b`, c d g h in `a`.
    let [mut va, mut vb, mut ve, mut vf] = [3, 2, 1, 0].map(|i| word(&b, i));
    let [mut vc, mut vd, mut vg, mut vh] = [3, 2, 1, 0].map(|i| word(&a, i));
    for i in 0..2 {
        let s1 = ve.rotate_right(6) ^ ve.rotate_right(11) ^ ve.rotate_right(25);
        let s0 = va.rotate_right(2) ^ va.rotate_right(13) ^ va.rotate_right(22);
        let t1 = choose(ve, vf, vg)
            .wrapping_add(s1)
            .wrapping_add(word(&wk, i))
            .wrapping_add(vh);
        let t2 = majority(va, vb, vc).wrapping_add(s0);
        (vh, vg, vf, ve) = (vg, vf, ve, t1.wrapping_add(vd));
        (vd, vc, vb, va) = (vc, vb, va, t1.wrapping_add(t2));
    }
    words([vf, ve, vb, va])
}

fn small0(v: u32) -> u32 {
    v.rotate_right(7) ^ v.rotate_right(18) ^ v >> 3
}

fn small1(v: u32) -> u32 {
    v.rotate_right(17) ^ v.rotate_right(19) ^ v >> 10
}

/// Eight bits times a matrix of eight rows, the first in the highest byte.
fn affine(v: u8, matrix: u64) -> u8 {
    let row = |i: usize| matrix.to_be_bytes()[i];
    (0..8).fold(0, |r, i| r | ((row(i) & v).count_ones() as u8 & 1) << i)
}

lane_operations! {
    Encrypt: |c, a, b, imm| xor(mix(forward(a), MIX), b);
    EncryptLast: |c, a, b, imm| xor(forward(a), b);
    Decrypt: |c, a, b, imm| xor(mix(backward(a), UNMIX), b);
    DecryptLast: |c, a, b, imm| xor(backward(a), b);
    InverseMix: |c, a, b, imm| mix(b, UNMIX);
    KeyAssist: |c, a, b, imm| {
        let (x1, x3) = (substitute(word(&b, 1)), substitute(word(&b, 3)));
        let k = imm as u32;
        words([x1, x1.rotate_right(8) ^ k, x3, x3.rotate_right(8) ^ k])
    };
    CarryLess: |c, a, b, imm| {
        let (x, y) = (u64::get(&a, imm as usize & 1), u64::get(&b, imm as usize >> 4 & 1));
        let r = (0..64)
            .filter(|i| y >> i & 1 != 0)
            .fold(0u128, |r, i| r ^ (x as u128) << i);
        r.to_le_bytes()
    };
    Sha1Rounds: |c, a, b, imm| sha1_rounds(a, b, imm);
    Sha1Next: |c, a, b, imm| {
        let e = word(&a, 3).rotate_left(30);
        words([word(&b, 0), word(&b, 1), word(&b, 2), word(&b, 3).wrapping_add(e)])
    };
    Sha1Message1: |c, a, b, imm| words([
        word(&b, 2) ^ word(&a, 0),
        word(&b, 3) ^ word(&a, 1),
        word(&a, 0) ^ word(&a, 2),
        word(&a, 1) ^ word(&a, 3),
    ]);
    Sha1Message2: |c, a, b, imm| {
        let w16 = (word(&a, 3) ^ word(&b, 2)).rotate_left(1);
        let w17 = (word(&a, 2) ^ word(&b, 1)).rotate_left(1);
        let w18 = (word(&a, 1) ^ word(&b, 0)).rotate_left(1);
        let w19 = (word(&a, 0) ^ w16).rotate_left(1);
        words([w19, w18, w17, w16])
    };
    Sha256Rounds: |c, a, b, imm| sha256_rounds(c, a, b);
    Sha256Message1: |c, a, b, imm| {
        let w = |i: usize| if i < 4 { word(&a, i) } else { word(&b, 0) };
        make::<u32>(|i| w(i).wrapping_add(small0(w(i + 1))))
    };
    Sha256Message2: |c, a, b, imm| {
        let w16 = word(&a, 0).wrapping_add(small1(word(&b, 2)));
        let w17 = word(&a, 1).wrapping_add(small1(word(&b, 3)));
        let w18 = word(&a, 2).wrapping_add(small1(w16));
        let w19 = word(&a, 3).wrapping_add(small1(w17));
        words([w16, w17, w18, w19])
    };
    FieldProduct: |c, a, b, imm| make::<u8>(|i| times(a[i], b[i]));
    Affine: |c, a, b, imm| make::<u8>(|i| affine(a[i], u64::get(&b, i / 8)) ^ imm);
    AffineInverse: |c, a, b, imm| {
        make::<u8>(|i| affine(inverse(a[i]), u64::get(&b, i / 8)) ^ imm)
    };
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let run = match i.mnemonic() {
        Aesenc | Vaesenc => lanes::<M, Encrypt>(o),
        Aesenclast | Vaesenclast => lanes::<M, EncryptLast>(o),
        Aesdec | Vaesdec => lanes::<M, Decrypt>(o),
        Aesdeclast | Vaesdeclast => lanes::<M, DecryptLast>(o),
        Aesimc | Vaesimc => lanes::<M, InverseMix>(o),
        Aeskeygenassist | Vaeskeygenassist => lanes::<M, KeyAssist>(o),
        Pclmulqdq | Vpclmulqdq => lanes::<M, CarryLess>(o),
        Sha1rnds4 => lanes::<M, Sha1Rounds>(o),
        Sha1nexte => lanes::<M, Sha1Next>(o),
        Sha1msg1 => lanes::<M, Sha1Message1>(o),
        Sha1msg2 => lanes::<M, Sha1Message2>(o),
        Sha256rnds2 => {
            // xmm0 is named as an operand.
            (o.b, o.c) = (o.a, i.op1_register().number() as u8);
            Some(lanewise::<M, Sha256Rounds> as Run<M>)
        }
        Sha256msg1 => lanes::<M, Sha256Message1>(o),
        Sha256msg2 => lanes::<M, Sha256Message2>(o),
        Gf2p8mulb | Vgf2p8mulb => lanes::<M, FieldProduct>(o),
        Gf2p8affineqb | Vgf2p8affineqb => lanes::<M, Affine>(o),
        Gf2p8affineinvqb | Vgf2p8affineinvqb => lanes::<M, AffineInverse>(o),
        _ => Option::None,
    };
    // Masks of these select bytes.
    if run.is_some() {
        o.element = 1;
    }
    run
}
