//! The features of the processor at hand, for the native processor. Machines that are not x86-64 have none of them.

use hindsight_isa::xsave::{AVX, AVX512, Layout};
use hindsight_isa::{Approximations, Features, Finer};
use iced_x86::CpuidFeature;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as has;
use std::sync::{Arc, OnceLock};

#[cfg(not(target_arch = "x86_64"))]
macro_rules! has {
    ($name:tt) => {
        false
    };
}

/// A feature: its name for users, whether this machine has it, and the one that it needs.
struct Known {
    feature: CpuidFeature,
    name: &'static str,
    is_here: bool,
    needs: Option<CpuidFeature>,
}

macro_rules! known {
    ($($feature:ident $name:tt $($needs:ident)?;)*) => {
        [$(Known {
            feature: CpuidFeature::$feature,
            name: $name,
            is_here: has!($name),
            needs: [$(CpuidFeature::$needs,)?].first().copied(),
        },)*]
    };
}

/// Registers of the answer of `cpuid`.
const EBX: usize = 1;
const ECX: usize = 2;

/// The same for features for which the standard library has no name: leaf, register and bit of `cpuid`.
fn unnamed() -> [Known; 6] {
    use CpuidFeature::*;
    [
        (MOVDIRI, "movdiri", None, (7, ECX, 27)),
        (AESKLE, "kl", None, (0x19, EBX, 0)),
        (WIDE_KL, "widekl", None, (0x19, EBX, 2)),
        (FMA4, "fma4", Some(AVX), (0x8000_0001, ECX, 16)),
        (XOP, "xop", Some(AVX), (0x8000_0001, ECX, 11)),
        (AVX512ER, "avx512er", Some(AVX512F), (7, EBX, 27)),
    ]
    .map(|(feature, name, needs, (leaf, register, bit))| Known {
        feature,
        name,
        is_here: answer(leaf)[register] >> bit & 1 != 0,
        needs,
    })
}

/// What `cpuid` answers. Zeros: it does not know the leaf.
#[cfg(target_arch = "x86_64")]
fn answer(leaf: u32) -> [u32; 4] {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(leaf & 0x8000_0000).eax < leaf {
        return [0; 4];
    }
    let a = __cpuid_count(leaf, 0);
    [a.eax, a.ebx, a.ecx, a.edx]
}

#[cfg(not(target_arch = "x86_64"))]
fn answer(_: u32) -> [u32; 4] {
    [0; 4]
}

/// All that instructions of the virtual processor may need, behind what each x86-64 has. A feature comes behind the one that it needs.
fn known() -> impl Iterator<Item = Known> {
    named().into_iter().chain(unnamed())
}

fn named() -> impl IntoIterator<Item = Known> {
    known! {
        SSE3 "sse3"; SSSE3 "ssse3"; SSE4_1 "sse4.1"; SSE4_2 "sse4.2"; SSE4A "sse4a";
        POPCNT "popcnt"; LZCNT "lzcnt"; BMI1 "bmi1"; BMI2 "bmi2"; ADX "adx"; MOVBE "movbe"; TBM "tbm";
        CMPXCHG16B "cmpxchg16b"; AES "aes"; PCLMULQDQ "pclmulqdq"; SHA "sha"; GFNI "gfni";
        XSAVEOPT "xsaveopt"; XSAVEC "xsavec";
        AVX "avx"; AVX2 "avx2" AVX; FMA "fma" AVX; F16C "f16c" AVX;
        VAES "vaes" AVX; VPCLMULQDQ "vpclmulqdq" AVX;
        AVX_VNNI "avxvnni" AVX2; AVX_IFMA "avxifma" AVX2;
        AVX_NE_CONVERT "avxneconvert" AVX2; AVX_VNNI_INT8 "avxvnniint8" AVX2; AVX_VNNI_INT16 "avxvnniint16" AVX2;
        SHA512 "sha512" AVX2; SM3 "sm3" AVX; SM4 "sm4" AVX2;
        AVX512F "avx512f" AVX; AVX512CD "avx512cd" AVX512F; AVX512BW "avx512bw" AVX512F;
        AVX512DQ "avx512dq" AVX512F; AVX512VL "avx512vl" AVX512F; AVX512_IFMA "avx512ifma" AVX512F;
        AVX512_VBMI "avx512vbmi" AVX512F; AVX512_VBMI2 "avx512vbmi2" AVX512F; AVX512_VNNI "avx512vnni" AVX512F;
        AVX512_BITALG "avx512bitalg" AVX512F; AVX512_VPOPCNTDQ "avx512vpopcntdq" AVX512F;
        AVX512_BF16 "avx512bf16" AVX512F; AVX512_VP2INTERSECT "avx512vp2intersect" AVX512F;
        AVX512_FP16 "avx512fp16" AVX512F;
    }
}

/// Features that are left out, as if this machine had none of them.
static LEFT_OUT: OnceLock<Features> = OnceLock::new();

/// The names that [`leave_out`] knows.
pub fn features() -> Vec<&'static str> {
    known().map(|k| k.name).collect()
}

/// Whether [`lacking`] tells if this machine has a feature.
pub fn is_looked_for(feature: CpuidFeature) -> bool {
    known().any(|k| k.feature == feature)
}

/// From now on, the native processor works as on a machine without these features and what needs them. For tests: machines differ. To be called before
/// anything is played; only the first call counts.
///
/// # Errors
/// The name that is unknown.
pub fn leave_out<'a>(list: &[&'a str]) -> Result<(), &'a str> {
    let mut out = Features::default();
    for name in list {
        let one = known().find(|k| k.name == *name);
        out.add(one.ok_or(*name)?.feature);
    }
    for k in known() {
        if k.needs.is_some_and(|n| out.has(n)) {
            out.add(k.feature);
        }
    }
    let _ = LEFT_OUT.set(out);
    Ok(())
}

fn left_out() -> Features {
    LEFT_OUT.get().copied().unwrap_or_default()
}

/// What this machine lacks of the features above.
pub fn lacking() -> Features {
    let mut out = left_out();
    for k in known().filter(|k| !k.is_here) {
        out.add(k.feature);
    }
    out
}

/// How this machine lays out saved registers. `None` if it has no XSAVE.
pub fn layout() -> Option<Layout> {
    // A machine may have room for registers that none of its instructions names.
    let out = lacking();
    let mut mask = !0;
    if out.has(CpuidFeature::AVX) {
        mask &= !(AVX | AVX512);
    }
    if out.has(CpuidFeature::AVX512F) {
        mask &= !AVX512;
    }
    Some(Layout::detect()?.only(mask))
}

/// What this machine gives for approximations of reciprocals.
pub fn approximations() -> Option<Arc<Approximations>> {
    static HERE: OnceLock<Option<Arc<Approximations>>> = OnceLock::new();
    let here = HERE.get_or_init(|| Approximations::here().map(Arc::new));
    here.clone()
}

/// The same for the finer ones of AVX-512.
pub fn finer() -> Option<Arc<Finer>> {
    static HERE: OnceLock<Option<Arc<Finer>>> = OnceLock::new();
    let here = HERE.get_or_init(|| Finer::here().map(Arc::new));
    here.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A feature that is left out takes along all that needs it, so each must stand behind what it needs.
    #[test]
    fn a_feature_stands_behind_what_it_needs() {
        let all: Vec<Known> = known().collect();
        for (i, k) in all.iter().enumerate() {
            let before = &all[..i];
            assert!(
                k.needs
                    .is_none_or(|n| before.iter().any(|b| b.feature == n)),
                "{}",
                k.name
            );
        }
        assert_eq!(leave_out(&["avx", "mmx"]), Err("mmx"));
    }
}
