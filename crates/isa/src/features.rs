//! Features of processors, and which instructions need them.

use crate::approximate::{self, Kind};
use crate::left_open::{self, Rule};
use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Features([u64; 4]);

impl Features {
    /// Adds a feature.
    pub fn add(&mut self, feature: CpuidFeature) {
        let n = feature as usize;
        self.0[n / 64] |= 1 << (n % 64);
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, others: Features) {
        let words = self.0.iter_mut().zip(others.0);
        words.for_each(|(to, from)| *to |= from);
    }

    pub fn has(&self, feature: CpuidFeature) -> bool {
        let n = feature as usize;
        self.0[n / 64] & 1 << (n % 64) != 0
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

/// What the machine at hand lacks of the processor that a program ran on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lacking {
    /// Features that it does not have. Instructions that need one would fault, or do something else.
    pub features: Features,
    /// It lays out saved registers in another way ([`crate::xsave::Layout`]), so `xrstor` would restore others.
    pub areas: bool,
    /// Which of its approximations are others.
    pub approximations: Guesses,
    /// Where manuals leave results open, it follows other rules ([`crate::LeftOpen`]).
    pub rules: Rules,
}

/// Kinds of results that manuals leave open ([`left_open::Rule`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    pub double_shift: bool,
    pub dot_product: bool,
}

impl Rules {
    /// Whether it has the kind of this instruction.
    fn concern(&self, i: &Instruction) -> bool {
        left_open::rule(i).is_some_and(|rule| match rule {
            Rule::DoubleShift => self.double_shift,
            Rule::DotProduct => self.dot_product,
        })
    }
}

/// Kinds of approximations ([`approximate::Kind`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Guesses {
    pub coarse: bool,
    pub finer: bool,
    pub transcendental: bool,
    pub other: bool,
}

impl Guesses {
    /// Whether it has the kind of this instruction.
    fn concern(&self, m: Mnemonic) -> bool {
        approximate::kind(m).is_some_and(|kind| match kind {
            Kind::Coarse => self.coarse,
            Kind::Finer => self.finer,
            Kind::Transcendental => self.transcendental,
            Kind::Other => self.other,
        })
    }
}

impl Lacking {
    /// Whether it lacks nothing that any instruction may need.
    pub fn is_empty(&self) -> bool {
        *self == Lacking::default()
    }

    /// Whether the machine at hand cannot execute this instruction as the other processor did.
    pub fn concerns(&self, i: &Instruction) -> bool {
        let restores = || matches!(i.mnemonic(), Mnemonic::Xrstor | Mnemonic::Xrstor64);
        i.cpuid_features().iter().any(|f| self.features.has(*f))
            || self.areas && restores()
            || self.approximations.concern(i.mnemonic())
            || self.rules.concern(i)
    }

    /// Whether an instruction uses no registers but general purpose registers and flags, and does not depend on how numbers are
    /// rounded. It may also use mask registers and zmm16 to zmm31 if the machine at hand has none. The machine need not hand over
    /// its vector registers to whoever executes it.
    pub fn is_apart(&self, i: &Instruction) -> bool {
        use CpuidFeature::*;
        let general = |f: &CpuidFeature| {
            matches!(
                f,
                INTEL8086
                    | INTEL186
                    | INTEL286
                    | INTEL386
                    | INTEL486
                    | X64
                    | CMOV
                    | MULTIBYTENOP
                    | CET_IBT
                    | BMI1
                    | BMI2
                    | LZCNT
                    | POPCNT
                    | MOVBE
                    | ADX
            )
        };
        if i.cpuid_features().iter().all(general) {
            return true;
        }
        let high = |r: Register| r.is_zmm() || r.is_ymm() || r.is_xmm();
        let apart = |r: Register| match high(r) {
            true => r.number() >= 16,
            false => r.is_gpr() || r.is_k() || r == Register::None,
        };
        let mut registers = (0..i.op_count()).filter(|n| i.op_kind(*n) == OpKind::Register);
        self.features.has(AVX512F)
            && computes_integers(i.mnemonic())
            && registers.all(|n| apart(i.op_register(n)))
            && apart(i.memory_index())
            && apart(i.memory_base())
    }
}

/// The instructions of AVX-512 that the C library's functions for memory and strings are made of.
fn computes_integers(m: Mnemonic) -> bool {
    moves_integers(m) || compares_integers(m) || uses_masks(m)
}

fn moves_integers(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let moves = matches!(
        m,
        Vmovdqu8
            | Vmovdqu16
            | Vmovdqu32
            | Vmovdqu64
            | Vmovdqa32
            | Vmovdqa64
            | Vmovups
            | Vmovaps
            | Vmovupd
            | Vmovapd
            | Vmovd
            | Vmovq
    );
    moves || matches!(m, Vpbroadcastb | Vpbroadcastw | Vpbroadcastd | Vpbroadcastq)
}

fn compares_integers(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let order = matches!(
        m,
        Vpcmpb
            | Vpcmpub
            | Vpcmpw
            | Vpcmpuw
            | Vpcmpd
            | Vpcmpud
            | Vpcmpeqb
            | Vpcmpeqw
            | Vpcmpeqd
            | Vpminub
            | Vpminud
            | Vpmaxub
            | Vpmaxud
            | Vpsubb
            | Vpsubd
            | Vpaddb
            | Vpaddd
    );
    let bits = matches!(
        m,
        Vptestmb
            | Vptestmw
            | Vptestmd
            | Vptestnmb
            | Vptestnmw
            | Vptestnmd
            | Vpxord
            | Vpxorq
            | Vpord
            | Vporq
            | Vpandd
            | Vpandq
            | Vpandnd
            | Vpandnq
            | Vpternlogd
            | Vpternlogq
    );
    order || bits
}

fn uses_masks(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let moves = matches!(m, Kmovb | Kmovw | Kmovd | Kmovq);
    let tests = matches!(
        m,
        Kortestb | Kortestw | Kortestd | Kortestq | Ktestb | Ktestw | Ktestd | Ktestq
    );
    let others = matches!(
        m,
        Korb | Korw
            | Kord
            | Korq
            | Kandd
            | Kandq
            | Kandnd
            | Kandnq
            | Kxord
            | Kxorq
            | Knotd
            | Knotq
            | Kunpckbw
            | Kunpckwd
            | Kunpckdq
            | Kshiftld
            | Kshiftlq
            | Kshiftrd
            | Kshiftrq
    );
    moves || tests || others
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn instructions_apart_from_other_registers() {
        let mut lacking = Lacking::default();
        let apart = |lacking: &Lacking, code: &[u8]| {
            let i = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
            assert!(!i.is_invalid());
            lacking.is_apart(&i)
        };
        // Where the machine has mask registers, they are among those that are handed over: kmovd eax, k0
        assert!(!apart(&lacking, &[0xc5, 0xfb, 0x93, 0xc0]));
        lacking.features.add(CpuidFeature::AVX512F);
        // vmovdqu64 ymm16, [rsi]; kmovd eax, k0; tzcnt eax, eax; je +2; push rax
        for code in [
            &[0x62, 0xe1, 0xfe, 0x28, 0x6f, 0x06][..],
            &[0xc5, 0xfb, 0x93, 0xc0],
            &[0xf3, 0x0f, 0xbc, 0xc0],
            &[0x74, 2],
            &[0x50],
        ] {
            assert!(apart(&lacking, code), "{code:x?}");
        }
        // vmovdqu64 ymm1, [rsi]; vaddps zmm16, zmm16, zmm16; movd eax, xmm0; fld1; emms; ldmxcsr [rax]; xrstor [rax]
        for code in [
            &[0x62, 0xf1, 0xfe, 0x28, 0x6f, 0x0e][..],
            &[0x62, 0xa1, 0x7c, 0x40, 0x58, 0xc0],
            &[0x66, 0x0f, 0x7e, 0xc0],
            &[0xd9, 0xe8],
            &[0x0f, 0x77],
            &[0x0f, 0xae, 0x10],
            &[0x0f, 0xae, 0x28],
        ] {
            assert!(!apart(&lacking, code), "{code:x?}");
        }
    }

    #[test]
    fn every_feature_has_a_place() {
        for feature in CpuidFeature::values() {
            let mut all = Features::default();
            all.add(feature);
            assert!(all.has(feature) && !all.is_empty());
        }
    }

    #[test]
    fn instructions_that_need_what_is_lacking() {
        let mut lacking = Lacking::default();
        lacking.features.add(CpuidFeature::AVX512F);
        lacking.features.add(CpuidFeature::BMI1);
        let one = |lacking: &Lacking, code: &[u8]| {
            let i = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
            assert!(!i.is_invalid());
            lacking.concerns(&i)
        };
        // vmovdqu64 ymm16, [rsi]; tzcnt eax, eax
        assert!(one(&lacking, &[0x62, 0xe1, 0xfe, 0x28, 0x6f, 0x06]));
        assert!(one(&lacking, &[0xf3, 0x0f, 0xbc, 0xc0]));
        // bsf eax, eax; vmovdqu ymm0, [rsi]; xrstor [rax]
        assert!(!one(&lacking, &[0x0f, 0xbc, 0xc0]));
        assert!(!one(&lacking, &[0xc5, 0xfe, 0x6f, 0x06]));
        assert!(!one(&lacking, &[0x0f, 0xae, 0x28]));
        lacking.areas = true;
        assert!(one(&lacking, &[0x0f, 0xae, 0x28]));
        assert!(!lacking.is_empty() && Lacking::default().is_empty());
    }
}
