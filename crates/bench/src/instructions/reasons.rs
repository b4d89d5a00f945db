//! Why instructions are not supported: the only list of it.

use hindsight_isa::approximate;
use iced_x86::CpuidFeature::{self, *};
use iced_x86::Mnemonic::{self, *};
use iced_x86::{Instruction, OpKind};

const RECORDER: &str = "the recorder executes it, and a recording has what it did";
const KERNEL: &str = "it shows what belongs to the kernel, which hides it from programs";
const HIDDEN: &str = "programs are shown a processor without it";
const UNTOLD: &str = "makers of processors differ in the result, and nothing tells it";
const ABSENT: &str = "no processor has it with which results could be compared";
const LEGACY: &str = "the kernel takes it for a call of 32-bit programs";

/// Features that `cpuid` does not show to a recorded program (`isa/src/cpuid.rs`).
fn is_hidden(feature: CpuidFeature) -> bool {
    matches!(
        feature,
        RTM | PKU
            | MPX
            | AMX_TILE
            | AMX_INT8
            | AMX_BF16
            | AMX_FP16
            | AMX_COMPLEX
            | MONITOR
            | MONITORX
            | WAITPKG
            | MOVDIR64B
            | ENQCMD
            | PTWRITE
            | CET_SS
            | CLZERO
            | UINTR
            | SGX1
            | RDPRU
            | HRESET
            | SERIALIZE
            | AVX512_VP2INTERSECT
            | XSAVES
            | XOP
            | FMA4
            | TBM
            | LWP
            | D3NOW
            | D3NOWEXT
            | AESKLE
            | WIDE_KL
            | SVM
            | VMX
            | SMX
            | MCOMMIT
            | RAO_INT
            | CMPCCXADD
            | MSRLIST
            | TSXLDTRK
            | PADLOCK_RNG
            | PADLOCK_ACE
            | PADLOCK_PHE
            | PADLOCK_PMM
    )
}

/// Features that have never been at hand.
fn is_absent(feature: CpuidFeature) -> bool {
    matches!(
        feature,
        AVX512_FP16
            | AVX512ER
            | AVX512PF
            | AVX512_4FMAPS
            | AVX512_4VNNIW
            | AVX_IFMA
            | AVX_NE_CONVERT
            | AVX_VNNI_INT8
            | AVX_VNNI_INT16
            | SHA512
            | SM3
            | SM4
            | KNC
    )
}

/// Why an instruction is not supported, if it is not. `None`: nobody knows why.
pub fn of(i: &Instruction) -> Option<&'static str> {
    let segment = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_segment_register();
    let segments = (0..i.op_count()).any(segment);
    Some(match i.mnemonic() {
        Int if i.immediate8() == 0x80 => LEGACY,
        Sysenter | Sysexit => LEGACY,
        Int | Int1 | Iret | Iretd | Iretq | Retf => RECORDER,
        Push | Pop | Mov if segments => RECORDER,
        _ if i.is_jmp_far_indirect() || i.is_call_far_indirect() => RECORDER,
        Lfs | Lgs | Lss => "the program would have to have segments of its own",
        Sgdt | Sidt | Sldt | Str | Smsw => KERNEL,
        Mnemonic::Xabort | Xbegin | Xend | Xtest => HIDDEN,
        m if approximate::kind(m) == Some(approximate::Kind::Other) => UNTOLD,
        _ if i.cpuid_features().iter().any(|f| is_hidden(*f)) => HIDDEN,
        _ if i.cpuid_features().iter().any(|f| is_absent(*f)) => ABSENT,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn reason(code: &[u8]) -> Option<&'static str> {
        of(&Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode())
    }

    #[test]
    fn what_is_supported_has_no_reason() {
        // mov eax, ebx; addps xmm0, xmm1; vpaddd zmm0, zmm1, zmm2
        for code in [
            &[0x89, 0xd8][..],
            &[0x0f, 0x58, 0xc1],
            &[0x62, 0xf1, 0x75, 0x48, 0xfe, 0xc2],
        ] {
            assert_eq!(reason(code), None, "{code:x?}");
        }
        // mov ds, eax; int 80h; xbegin
        assert_eq!(reason(&[0x8e, 0xd8]), Some(RECORDER));
        assert_eq!(reason(&[0xcd, 0x80]), Some(LEGACY));
        assert_eq!(reason(&[0xc7, 0xf8, 0, 0, 0, 0]), Some(HIDDEN));
    }
}
