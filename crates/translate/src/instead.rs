//! Instructions of AVX-512 for which those of AVX2 stand, in a replay on a machine that has AVX2, but not AVX-512. They are the ones that
//! the C library's functions for memory and strings are made of. Which these are stands here; `emit_instead.rs` emits them.
//!
//! The registers that such a machine does not have are in [`hindsight_isa::Ctx::high`].

use hindsight_isa::Lacking;
use iced_x86::{Code, CpuidFeature, Instruction, Mnemonic, OpKind, Register};

/// Instructions of AVX2 for 16 and for 32 bytes.
pub type Both = [Code; 2];

/// What stands for an instruction.
#[derive(Clone, Copy)]
pub enum Way {
    /// A vector is copied.
    Move,
    /// So many bytes of a general purpose register become a vector.
    FromGeneral(usize),
    /// The reverse.
    ToGeneral(usize),
    /// So many bytes of a general purpose register, in all elements.
    Broadcast(usize, Both),
    /// Computed from two vectors.
    Pair(Both),
    /// The first operation takes two of the three operands with these numbers, the second one its result and the other.
    Triple([(Both, usize); 2], usize),
    /// A mask of the elements of which something holds.
    Compare(Compare),
    /// So many bytes of a mask register, to another register.
    MaskToGeneral(usize),
    MaskFromGeneral(usize),
    MaskMove(usize),
    /// Computed from two mask registers of so many bytes.
    MaskPair(Code, usize),
    /// The low halves of two mask registers side by side.
    MaskUnpack(Code, usize),
    /// Flags of what two mask registers of so many bytes have in common (`ktest`), or of both together.
    MaskTest(bool, usize),
}

/// A comparison of two vectors.
#[derive(Clone, Copy)]
pub struct Compare {
    /// Whether an element equals that of the first vector, or zero.
    pub equal: Both,
    /// What is compared: the second vector, or what this makes of both.
    pub of: Option<Both>,
    /// With zero.
    pub zero: bool,
    /// The elements of which it does not hold.
    pub negated: bool,
    /// Elements to bits.
    pub bits: Both,
}

/// Whether the machine that lacks this has AVX2, but not AVX-512. Translated code then has the registers of AVX-512 in the context
/// block.
pub fn keeps_registers(lacking: &Lacking) -> bool {
    let lacks = |f| lacking.features.has(f);
    lacks(CpuidFeature::AVX512F) && !lacks(CpuidFeature::AVX2)
}

/// Whether the machine that lacks this cannot execute an instruction, and no other instructions of it can stand for that one.
pub fn lacks(lacking: &Lacking, i: &Instruction) -> bool {
    !lacking.is_empty() && lacking.concerns(i) && way(lacking, i).is_none()
}

/// What stands for an instruction that the machine at hand cannot execute.
pub fn way(lacking: &Lacking, i: &Instruction) -> Option<Way> {
    let lacks = |f| lacking.features.has(f);
    if !keeps_registers(lacking) || !lacking.concerns(i) {
        return None;
    }
    let registers = || {
        let all = (0..i.op_count()).filter(|n| i.op_kind(*n) == OpKind::Register);
        all.map(|n| i.op_register(n))
    };
    let known = (0..i.op_count()).all(|n| match i.op_kind(n) {
        OpKind::Register | OpKind::Immediate8 => true,
        OpKind::Memory => !i.memory_index().is_vector_register(),
        _ => false,
    });
    // The upper half of another register would have no place.
    let large = registers().any(|r| r.is_zmm());
    if !known || i.is_broadcast() || registers().any(|r| r.is_zmm() && r.number() < 16) {
        return None;
    }
    let way = of_vectors(i).or_else(|| of_masks(i))?;
    let masked = i.op_mask() != Register::None;
    let good = match way {
        Way::Compare(_) => !large,
        Way::Triple(..) => !large && !masked,
        Way::Pair(_) | Way::Move => {
            !masked || element(i.mnemonic()).is_some() && !lacks(CpuidFeature::BMI2)
        }
        _ => !masked,
    };
    good.then_some(way)
}

/// How a mask selects elements.
#[derive(Clone, Copy)]
pub struct Element {
    /// Bytes of one.
    pub size: u32,
    /// What selects those whose highest bit is set.
    pub blend: Both,
}

/// The elements of a masked instruction. `None` for those of two bytes, which nothing selects.
pub fn element(m: Mnemonic) -> Option<Element> {
    use Code::*;
    use Mnemonic::*;
    let (size, blend) = match m {
        Vmovdqu8 | Vpaddb | Vpsubb | Vpminub | Vpmaxub => (
            1,
            [
                VEX_Vpblendvb_xmm_xmm_xmmm128_xmm,
                VEX_Vpblendvb_ymm_ymm_ymmm256_ymm,
            ],
        ),
        Vmovdqu32 | Vmovdqa32 | Vmovups | Vmovaps | Vpaddd | Vpsubd | Vpminud | Vpmaxud
        | Vpandd | Vpandnd | Vpord | Vpxord => (
            4,
            [
                VEX_Vblendvps_xmm_xmm_xmmm128_xmm,
                VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
            ],
        ),
        Vmovdqu64 | Vmovdqa64 | Vmovupd | Vmovapd | Vpaddq | Vpsubq | Vpandq | Vpandnq | Vporq
        | Vpxorq => (
            8,
            [
                VEX_Vblendvpd_xmm_xmm_xmmm128_xmm,
                VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
            ],
        ),
        _ => return None,
    };
    Some(Element { size, blend })
}

fn of_vectors(i: &Instruction) -> Option<Way> {
    use Mnemonic::*;
    let general = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_gpr();
    let size = match i.mnemonic() {
        Vpbroadcastq | Vmovq => 8,
        _ => 4,
    };
    Some(match i.mnemonic() {
        Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Vmovdqa32 | Vmovdqa64 | Vmovups
        | Vmovaps | Vmovupd | Vmovapd | Vmovntdq => Way::Move,
        Vmovd | Vmovq if general(0) => Way::ToGeneral(size),
        Vmovd | Vmovq if general(1) => Way::FromGeneral(size),
        m @ (Vpbroadcastb | Vpbroadcastw | Vpbroadcastd | Vpbroadcastq) if general(1) => {
            Way::Broadcast(size, broadcast(m)?)
        }
        Vpternlogd | Vpternlogq => match i.immediate8() {
            // a | b | c
            0xfe => Way::Triple([(OR, 1), (OR, 2)], 0),
            // (a ^ c) | b
            0xde => Way::Triple([(XOR, 2), (OR, 1)], 0),
            // (b ^ c) | a
            0xf6 => Way::Triple([(XOR, 2), (OR, 0)], 1),
            _ => return None,
        },
        m => match compare(m, i) {
            Some(compare) => Way::Compare(compare),
            None => Way::Pair(pair(m)?),
        },
    })
}

pub const AND: Both = [
    Code::VEX_Vpand_xmm_xmm_xmmm128,
    Code::VEX_Vpand_ymm_ymm_ymmm256,
];
pub const OR: Both = [
    Code::VEX_Vpor_xmm_xmm_xmmm128,
    Code::VEX_Vpor_ymm_ymm_ymmm256,
];
pub const XOR: Both = [
    Code::VEX_Vpxor_xmm_xmm_xmmm128,
    Code::VEX_Vpxor_ymm_ymm_ymmm256,
];
pub const EQUAL_BYTES: Both = [
    Code::VEX_Vpcmpeqb_xmm_xmm_xmmm128,
    Code::VEX_Vpcmpeqb_ymm_ymm_ymmm256,
];

fn broadcast(m: Mnemonic) -> Option<Both> {
    use Code::*;
    Some(match m {
        Mnemonic::Vpbroadcastb => [VEX_Vpbroadcastb_xmm_xmmm8, VEX_Vpbroadcastb_ymm_xmmm8],
        Mnemonic::Vpbroadcastw => [VEX_Vpbroadcastw_xmm_xmmm16, VEX_Vpbroadcastw_ymm_xmmm16],
        Mnemonic::Vpbroadcastd => [VEX_Vpbroadcastd_xmm_xmmm32, VEX_Vpbroadcastd_ymm_xmmm32],
        Mnemonic::Vpbroadcastq => [VEX_Vpbroadcastq_xmm_xmmm64, VEX_Vpbroadcastq_ymm_xmmm64],
        _ => return None,
    })
}

fn pair(m: Mnemonic) -> Option<Both> {
    use Code::*;
    Some(match m {
        Mnemonic::Vpandd | Mnemonic::Vpandq => AND,
        Mnemonic::Vpandnd | Mnemonic::Vpandnq => {
            [VEX_Vpandn_xmm_xmm_xmmm128, VEX_Vpandn_ymm_ymm_ymmm256]
        }
        Mnemonic::Vpord | Mnemonic::Vporq => OR,
        Mnemonic::Vpxord | Mnemonic::Vpxorq => XOR,
        Mnemonic::Vpaddb => [VEX_Vpaddb_xmm_xmm_xmmm128, VEX_Vpaddb_ymm_ymm_ymmm256],
        Mnemonic::Vpaddd => [VEX_Vpaddd_xmm_xmm_xmmm128, VEX_Vpaddd_ymm_ymm_ymmm256],
        Mnemonic::Vpaddq => [VEX_Vpaddq_xmm_xmm_xmmm128, VEX_Vpaddq_ymm_ymm_ymmm256],
        Mnemonic::Vpsubb => [VEX_Vpsubb_xmm_xmm_xmmm128, VEX_Vpsubb_ymm_ymm_ymmm256],
        Mnemonic::Vpsubd => [VEX_Vpsubd_xmm_xmm_xmmm128, VEX_Vpsubd_ymm_ymm_ymmm256],
        Mnemonic::Vpsubq => [VEX_Vpsubq_xmm_xmm_xmmm128, VEX_Vpsubq_ymm_ymm_ymmm256],
        Mnemonic::Vpminub => [VEX_Vpminub_xmm_xmm_xmmm128, VEX_Vpminub_ymm_ymm_ymmm256],
        Mnemonic::Vpmaxub => [VEX_Vpmaxub_xmm_xmm_xmmm128, VEX_Vpmaxub_ymm_ymm_ymmm256],
        Mnemonic::Vpminud => [VEX_Vpminud_xmm_xmm_xmmm128, VEX_Vpminud_ymm_ymm_ymmm256],
        Mnemonic::Vpmaxud => [VEX_Vpmaxud_xmm_xmm_xmmm128, VEX_Vpmaxud_ymm_ymm_ymmm256],
        _ => return None,
    })
}

/// What compares elements of one byte, of four or of eight.
fn compare(m: Mnemonic, i: &Instruction) -> Option<Compare> {
    use Code::*;
    use Mnemonic::*;
    let (equal, bits) = match m {
        Vpcmpeqb | Vpcmpb | Vpcmpub | Vptestmb | Vptestnmb => {
            (EQUAL_BYTES, [VEX_Vpmovmskb_r32_xmm, VEX_Vpmovmskb_r32_ymm])
        }
        Vpcmpeqd | Vpcmpd | Vpcmpud | Vptestmd | Vptestnmd => (
            [VEX_Vpcmpeqd_xmm_xmm_xmmm128, VEX_Vpcmpeqd_ymm_ymm_ymmm256],
            [VEX_Vmovmskps_r32_xmm, VEX_Vmovmskps_r32_ymm],
        ),
        Vpcmpeqq | Vpcmpq | Vpcmpuq | Vptestmq | Vptestnmq => (
            [VEX_Vpcmpeqq_xmm_xmm_xmmm128, VEX_Vpcmpeqq_ymm_ymm_ymmm256],
            [VEX_Vmovmskpd_r32_xmm, VEX_Vmovmskpd_r32_ymm],
        ),
        _ => return None,
    };
    let holds = |of: Option<Both>, zero: bool, negated: bool| Compare {
        equal,
        of,
        zero,
        negated,
        bits,
    };
    let (least, most) = match m {
        Vpcmpub => (pair(Vpminub), pair(Vpmaxub)),
        Vpcmpud => (pair(Vpminud), pair(Vpmaxud)),
        _ => (None, None),
    };
    Some(match m {
        Vpcmpeqb | Vpcmpeqd | Vpcmpeqq => holds(None, false, false),
        Vptestnmb | Vptestnmd | Vptestnmq => holds(Some(AND), true, false),
        Vptestmb | Vptestmd | Vptestmq => holds(Some(AND), true, true),
        _ => match i.immediate8() {
            0 => holds(None, false, false),
            4 => holds(None, false, true),
            // The first one is less if it is not the larger one of the two.
            1 => holds(Some(most?), false, true),
            2 => holds(Some(least?), false, false),
            5 => holds(Some(most?), false, false),
            6 => holds(Some(least?), false, true),
            _ => return None,
        },
    })
}

fn of_masks(i: &Instruction) -> Option<Way> {
    use Mnemonic::*;
    let size = match i.mnemonic() {
        Kmovb | Korb | Kandb | Kandnb | Kxorb | Kortestb | Ktestb | Kunpckbw => 1,
        Kmovw | Korw | Kandw | Kandnw | Kxorw | Kortestw | Ktestw | Kunpckwd => 2,
        Kmovd | Kord | Kandd | Kandnd | Kxord | Kortestd | Ktestd | Kunpckdq => 4,
        Kmovq | Korq | Kandq | Kandnq | Kxorq | Kortestq | Ktestq => 8,
        _ => return None,
    };
    if (0..i.op_count()).any(|n| i.op_kind(n) != OpKind::Register) {
        return None;
    }
    let mask = |n| i.op_register(n).is_k();
    Some(match i.mnemonic() {
        Kmovb | Kmovw | Kmovd | Kmovq => match (mask(0), mask(1)) {
            (true, true) => Way::MaskMove(size),
            (true, false) => Way::MaskFromGeneral(size),
            _ => Way::MaskToGeneral(size),
        },
        Korb | Korw | Kord | Korq => Way::MaskPair(OR[0], size),
        Kandb | Kandw | Kandd | Kandq => Way::MaskPair(AND[0], size),
        Kxorb | Kxorw | Kxord | Kxorq => Way::MaskPair(XOR[0], size),
        Kandnb | Kandnw | Kandnd | Kandnq => Way::MaskPair(Code::VEX_Vpandn_xmm_xmm_xmmm128, size),
        Kunpckbw => Way::MaskUnpack(Code::VEX_Vpunpcklbw_xmm_xmm_xmmm128, size),
        Kunpckwd => Way::MaskUnpack(Code::VEX_Vpunpcklwd_xmm_xmm_xmmm128, size),
        Kunpckdq => Way::MaskUnpack(Code::VEX_Vpunpckldq_xmm_xmm_xmmm128, size),
        Kortestb | Kortestw | Kortestd | Kortestq => Way::MaskTest(false, size),
        _ => Way::MaskTest(true, size),
    })
}
