//! Lets an instruction take its vector operand from zmm31, where a check has loaded it. So memory
//! is read only once.
//!
//! Only EVEX encodings can name the registers from 16 on. Not every instruction has one.

use crate::kinds::with_register;
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use iced_x86::{Code, CpuidFeature, Encoder, EncodingKind, Instruction, Mnemonic, Register};

const UNKNOWN: u16 = 0;
const NONE: u16 = u16::MAX;

/// More than `iced_x86` has encodings.
const CODES: usize = 8192;

/// How far the EVEX encoding of an instruction may follow its VEX encoding in [`Code`].
const NEAR: usize = 16;

static FORMS: [AtomicU16; CODES] = [const { AtomicU16::new(UNKNOWN) }; CODES];

/// `i` with `held` in place of memory operand `op`. `held` is xmm31, ymm31 or zmm31, and has all
/// that the operand reads. `None` if no encoding does the same on every host with wide checks.
pub fn on_register(i: &Instruction, op: u32, held: Register) -> Option<Instruction> {
    if i.is_broadcast() || i.op_mask() != Register::None {
        return None;
    }
    let form = FORMS.get(i.code() as usize)?;
    let code = match form.load(Relaxed) {
        UNKNOWN => {
            let code = ask(i, op, held);
            form.store(code.map_or(NONE, |c| c as u16), Relaxed);
            code?
        }
        NONE => return None,
        known => Code::try_from(known as usize).ok()?,
    };
    Some(with_code(i, op, held, code))
}

fn with_code(i: &Instruction, op: u32, held: Register, code: Code) -> Instruction {
    let mut i = with_register(i, op, held);
    i.set_code(code);
    i
}

fn ask(i: &Instruction, op: u32, held: Register) -> Option<Code> {
    // Both kinds clear the destination above the result. The older SSE encodings leave that part as
    // it is.
    if !matches!(i.code().encoding(), EncodingKind::VEX | EncodingKind::EVEX) {
        return None;
    }
    let first = i.code() as usize;
    (first..first + NEAR)
        .filter_map(|n| Code::try_from(n).ok())
        .filter(|c| c.encoding() == EncodingKind::EVEX && same(i.mnemonic(), c.mnemonic()))
        .filter(|c| c.cpuid_features().iter().all(|f| everywhere(*f)))
        .find(|c| {
            Encoder::new(64)
                .encode(&with_code(i, op, held, *c), 0)
                .is_ok()
        })
}

/// Whether EVEX names the VEX instruction `a` `b`. In EVEX, bitwise operations have an element
/// size, for the mask.
fn same(a: Mnemonic, b: Mnemonic) -> bool {
    use Mnemonic::*;
    a == b
        || matches!(
            (a, b),
            (Vpand, Vpandd) | (Vpandn, Vpandnd) | (Vpor, Vpord) | (Vpxor, Vpxord)
        )
}

/// The features that every host with wide checks has.
fn everywhere(f: CpuidFeature) -> bool {
    matches!(
        f,
        CpuidFeature::AVX512F
            | CpuidFeature::AVX512BW
            | CpuidFeature::AVX512DQ
            | CpuidFeature::AVX512VL
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The register form of the instruction `code`, encoded and decoded again.
    fn form(code: &[u8], op: u32, held: Register) -> Option<Instruction> {
        let i = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        assert_eq!(i.op_kind(op), iced_x86::OpKind::Memory);
        // Asked twice, because the first answer is remembered.
        assert_eq!(
            on_register(&i, op, held).is_some(),
            on_register(&i, op, held).is_some()
        );
        let mut encoder = Encoder::new(64);
        encoder.encode(&on_register(&i, op, held)?, 0).unwrap();
        let bytes = encoder.take_buffer();
        Some(Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode())
    }

    #[test]
    fn arithmetic_takes_the_register() {
        // vfmadd213pd ymm1, ymm3, [rcx-40h]
        let i = form(&[0xc4, 0xe2, 0xe5, 0xa8, 0x49, 0xc0], 2, Register::YMM31).unwrap();
        assert_eq!(i.code(), Code::EVEX_Vfmadd213pd_ymm_k1z_ymm_ymmm256b64);
        assert_eq!(
            [i.op_register(0), i.op_register(1), i.op_register(2)],
            [Register::YMM1, Register::YMM3, Register::YMM31]
        );
        assert_eq!(i.op_mask(), Register::None);
        // vpshufd ymm1, [rax], 1bh
        let i = form(&[0xc5, 0xfd, 0x70, 0x08, 0x1b], 1, Register::YMM31).unwrap();
        assert_eq!(i.code(), Code::EVEX_Vpshufd_ymm_k1z_ymmm256b32_imm8);
        assert_eq!(i.immediate8(), 0x1b);
    }

    #[test]
    fn operations_on_bits_have_another_name() {
        // vpand, vpandn, vpor, vpxor xmm1, xmm2, [rax]
        for (opcode, code) in [
            (0xdb, Code::EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32),
            (0xdf, Code::EVEX_Vpandnd_xmm_k1z_xmm_xmmm128b32),
            (0xeb, Code::EVEX_Vpord_xmm_k1z_xmm_xmmm128b32),
            (0xef, Code::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32),
        ] {
            let i = form(&[0xc5, 0xe9, opcode, 0x08], 2, Register::XMM31).unwrap();
            assert_eq!(i.code(), code);
        }
    }

    #[test]
    fn what_differs_has_no_form() {
        // addpd xmm1, [rax] leaves the upper halves alone.
        assert!(form(&[0x66, 0x0f, 0x58, 0x08], 1, Register::XMM31).is_none());
        // vptest ymm1, [rax] and vpcmpeqb ymm1, ymm2, [rax] have no such form.
        assert!(form(&[0xc4, 0xe2, 0x7d, 0x17, 0x08], 1, Register::YMM31).is_none());
        assert!(form(&[0xc5, 0xed, 0x74, 0x08], 2, Register::YMM31).is_none());
        // vaesenc xmm1, xmm2, [rax] in EVEX needs another feature.
        assert!(form(&[0xc4, 0xe2, 0x69, 0xdc, 0x08], 2, Register::XMM31).is_none());
        // vaddpd zmm1, zmm2, [rax]{1to8} reads only one element.
        let broadcast = [0x62, 0xf1, 0xed, 0x58, 0x58, 0x08];
        assert!(form(&broadcast, 2, Register::ZMM31).is_none());
    }
}
