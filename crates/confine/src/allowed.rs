//! The instructions of which translated code may consist, by opcode. Whatever is not here is refused.
//!
//! An entry says which forms are allowed. Some forms have further rules in `operand` and `sweep`. Instructions whose
//! memory is not named by a ModRM byte are [`STACK`], [`STRING`] and [`MASKED`].

mod evex;
mod legacy;
mod vex;

pub(crate) use evex::{EVEX_0F, EVEX_3A, EVEX_5, EVEX_6, EVEX_38};
pub(crate) use legacy::{MAP_0F, MAP_3A, MAP_38};
pub(crate) use vex::{VEX_0F, VEX_3A, VEX_38};

/// What is allowed of each opcode. Zero: nothing.
pub(crate) type Table = [u32; 256];

/// Allows a memory operand if the bit of the ModRM byte's register field is set in `digits`.
pub(crate) const fn mem(digits: u8) -> u32 {
    digits as u32
}

/// The same for a register instead of the memory operand.
pub(crate) const fn reg(digits: u8) -> u32 {
    (digits as u32) << 8
}

pub(crate) const MEM: u32 = mem(0xff);
pub(crate) const REG: u32 = reg(0xff);
pub(crate) const BOTH: u32 = MEM | REG;

/// Allowed values of the prefix's W.
pub(crate) const W0: u32 = 1 << 16;
pub(crate) const W1: u32 = 2 << 16;
pub(crate) const WIG: u32 = W0 | W1;
/// Allowed vector lengths.
pub(crate) const L0: u32 = 1 << 18;
pub(crate) const L01: u32 = 3 << 18;
pub(crate) const L2: u32 = 4 << 18;
pub(crate) const L12: u32 = 6 << 18;
pub(crate) const L012: u32 = 7 << 18;
const L1: u32 = 2 << 18;
/// The index is a vector register.
pub(crate) const VSIB: u32 = 1 << 21;
/// The instruction changes a general register: that of the ModRM byte's register field, that of its other field, or
/// any.
pub(crate) const SETS_REG: u32 = 1 << 22;
pub(crate) const SETS_RM: u32 = 2 << 22;
pub(crate) const SETS_ANY: u32 = 4 << 22;

/// The immediate operand of a one-byte opcode:
///
/// - `IB`: one byte;
/// - `IZ`: four bytes or two;
/// - `IV`: eight, four or two bytes;
/// - `IWB`: two bytes and one;
/// - `TEST`: a group in which only `test` has one.
pub(crate) const IMMEDIATE: u32 = 7 << 25;
pub(crate) const IB: u32 = 1 << 25;
pub(crate) const IZ: u32 = 2 << 25;
pub(crate) const IV: u32 = 3 << 25;
pub(crate) const IWB: u32 = 4 << 25;
pub(crate) const TEST: u32 = 5 << 25;
/// There is no ModRM byte.
pub(crate) const BARE: u32 = 1 << 28;
/// It uses the stack, through an operand that is not written anywhere.
pub(crate) const STACK: u32 = 1 << 29;
/// It is a string instruction.
pub(crate) const STRING: u32 = 1 << 30;
/// It jumps by a distance.
pub(crate) const JUMP: u32 = 1 << 31;

const fn table(rows: &[(u32, &[u8])]) -> Table {
    let mut t = [0; 256];
    let mut i = 0;
    while i < rows.len() {
        let (what, opcodes) = rows[i];
        let mut k = 0;
        while k < opcodes.len() {
            t[opcodes[k] as usize] = what;
            k += 1;
        }
        i += 1;
    }
    t
}

/// Opcodes of one byte.
pub(crate) static ONE: Table = table(&[
    // add, or, adc, sbb, and, sub, xor
    (
        BOTH | SETS_RM,
        &[
            0x00, 0x01, 0x08, 0x09, 0x10, 0x11, 0x18, 0x19, 0x20, 0x21, 0x28, 0x29, 0x30, 0x31,
        ],
    ),
    (
        BOTH | SETS_REG,
        &[
            0x02, 0x03, 0x0a, 0x0b, 0x12, 0x13, 0x1a, 0x1b, 0x22, 0x23, 0x2a, 0x2b, 0x32, 0x33,
        ],
    ),
    (
        BARE | IB | SETS_ANY,
        &[0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34],
    ),
    (
        BARE | IZ | SETS_ANY,
        &[0x05, 0x0d, 0x15, 0x1d, 0x25, 0x2d, 0x35],
    ),
    // cmp, test
    (BOTH, &[0x38, 0x39, 0x3a, 0x3b, 0x84, 0x85]),
    (BARE | IB, &[0x3c, 0xa8]),
    (BARE | IZ, &[0x3d, 0xa9]),
    // The same with immediate operands.
    (BOTH | SETS_RM | IB, &[0x80, 0x83]),
    (BOTH | SETS_RM | IZ, &[0x81]),
    // movsxd, imul
    (BOTH | SETS_REG, &[0x63]),
    (BOTH | SETS_REG | IZ, &[0x69]),
    (BOTH | SETS_REG | IB, &[0x6b]),
    // xchg, mov
    (BOTH | SETS_REG | SETS_RM, &[0x86, 0x87]),
    (BOTH | SETS_RM, &[0x88, 0x89]),
    (BOTH | SETS_REG, &[0x8a, 0x8b]),
    // mov from a segment register; lea
    (mem(0x3f) | reg(0x3f) | SETS_RM, &[0x8c]),
    (MEM | SETS_REG, &[0x8d]),
    // nop, pause, xchg with rax, cwde, cdq
    (
        BARE | SETS_ANY,
        &[0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99],
    ),
    // wait, sahf, cmc, clc, stc, cld, std
    (BARE, &[0x9b, 0x9e, 0xf5, 0xf8, 0xf9, 0xfc, 0xfd]),
    // lahf
    (BARE | SETS_ANY, &[0x9f]),
    // mov of a constant
    (
        BARE | IB | SETS_ANY,
        &[0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7],
    ),
    (
        BARE | IV | SETS_ANY,
        &[0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf],
    ),
    (mem(1) | reg(1) | SETS_RM | IB, &[0xc6]),
    (mem(1) | reg(1) | SETS_RM | IZ, &[0xc7]),
    // rol, ror, rcl, rcr, shl, shr, sal, sar
    (BOTH | SETS_RM | IB, &[0xc0, 0xc1]),
    (BOTH | SETS_RM, &[0xd0, 0xd1, 0xd2, 0xd3]),
    // x87; those with registers only are in `X87`.
    (BOTH, &[0xd8, 0xda, 0xdc, 0xde]),
    (mem(0xbd) | REG, &[0xd9]),
    (mem(0xaf) | REG, &[0xdb]),
    (mem(0x9f) | REG, &[0xdd]),
    (BOTH | SETS_ANY, &[0xdf]),
    // test, not, neg, mul, imul, div, idiv
    (BOTH | SETS_ANY | TEST, &[0xf6, 0xf7]),
    // inc, dec; jmp to an address in memory, push
    (mem(3) | reg(3) | SETS_RM, &[0xfe]),
    (mem(0x53) | reg(0x43) | SETS_RM, &[0xff]),
    // push, pop, pushf, popf, enter, leave
    (
        BARE | STACK | SETS_ANY,
        &[
            0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d,
            0x5e, 0x5f, 0x9c, 0x9d, 0xc9,
        ],
    ),
    (BARE | STACK | SETS_ANY | IZ, &[0x68]),
    (BARE | STACK | SETS_ANY | IB, &[0x6a]),
    (BARE | STACK | SETS_ANY | IWB, &[0xc8]),
    (mem(1) | reg(1) | STACK | SETS_ANY, &[0x8f]),
    // movs, stos, lods
    (
        BARE | STRING | SETS_ANY,
        &[0xa4, 0xa5, 0xaa, 0xab, 0xac, 0xad],
    ),
    // jcc, loop, jrcxz, jmp
    (
        BARE | JUMP | IB | SETS_ANY,
        &[
            0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7c, 0x7d,
            0x7e, 0x7f, 0xe0, 0xe1, 0xe2, 0xe3, 0xeb,
        ],
    ),
    (BARE | JUMP | IZ, &[0xe9]),
]);

/// The x87 instructions without memory operand, for opcodes from D8 on. Each has a bit for each ModRM byte from C0 on.
///
/// These are the documented ones, and the aliases that processors execute as `fcom`, `fcomp`, `fxch` or `fstp`: DC D0 to
/// DF, DD C8 to CF, DE D0 to D7, DF C8 to DF. D9 D8 to DF (`fstpnce`) are left out: they are no `fstp`, as an empty
/// st(0) is no fault there.
pub(crate) static X87: [u64; 8] = [
    u64::MAX,
    0xffff_7f33_0001_ffff,
    0x0000_0200_ffff_ffff,
    0x00ff_ff0c_ffff_ffff,
    u64::MAX,
    0x0000_ffff_ffff_ffff,
    0xffff_ffff_02ff_ffff,
    0x00ff_ff01_ffff_ffff,
];

/// maskmovq, maskmovdqu and vmaskmovdqu: their operand is at rdi.
pub(crate) const MASKED: u32 = REG | WIG | L0;

/// Opcodes after 0F that the tables do not have. `pp` is the mandatory prefix.
pub(crate) const fn special_0f(opcode: u8, pp: u8) -> u32 {
    match opcode {
        // prefetcht0, nop
        0x18 => mem(2),
        0x1f => mem(1) | reg(1),
        // emms
        0x77 if pp == 0 => BARE,
        // jcc
        0x80..=0x8f => BARE | JUMP | IZ,
        // bswap
        0xc8..=0xcf => BARE | SETS_ANY,
        0xf7 if pp < 2 => MASKED,
        _ => 0,
    }
}

/// Whether an opcode after 0F has an immediate byte. The same holds in map 1 of the other prefixes.
pub(crate) const fn immediate_0f(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6)
}
