//! CPUID of the virtual processor: which features the guest sees.

/// The processor that the guest sees, as `--cpu` selects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// All features of this machine that the virtual processor supports.
    Host,
    /// x86-64-v2: up to SSE4.2 and POPCNT.
    V2,
    /// x86-64-v3: adds AVX2, BMI and FMA.
    V3,
    /// x86-64-v4: adds AVX-512 F, DQ, CD, BW and VL.
    V4,
}

impl Baseline {
    /// The names that `--cpu` takes, in the order of the variants.
    pub const NAMES: [&'static str; 4] = ["host", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

    /// The baseline of this name, or `None` if there is no such name in [`Baseline::NAMES`].
    pub fn parse(s: &str) -> Option<Baseline> {
        use Baseline::*;
        let i = Self::NAMES.iter().position(|n| *n == s)?;
        Some([Host, V2, V3, V4][i])
    }

    /// The name that [`Baseline::parse`] takes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// XCR0 as the guest sees it, through `xgetbv` and leaf 0Dh. `host` is the host's XCR0.
    pub fn xcr0(self, host: u64) -> u64 {
        host & match self {
            Baseline::V2 => 0x3,
            Baseline::V3 => 0x7,
            Baseline::Host | Baseline::V4 => 0xe7,
        }
    }

    /// Turns the host's answer to `cpuid` into the guest's.
    ///
    /// `r` is the host's answer for `leaf` and `sub`: eax, ebx, ecx, edx. `xsave_size` is the
    /// number of bytes of an XSAVE area with all components of [`Self::xcr0`]. The leaves and bits
    /// are those of the Intel SDM, volume 2, CPUID.
    pub fn filter(
        self,
        leaf: u32,
        sub: u32,
        r: [u32; 4],
        host_xcr0: u64,
        xsave_size: u32,
    ) -> [u32; 4] {
        let [mut a, mut b, mut c, mut d] = r;
        let bits = |list: &[u32]| list.iter().fold(0u32, |m, n| m | 1 << n);
        match (leaf, sub) {
            (1, _) => {
                // Hidden: DTES64, MONITOR, VMX, SMX, EST, TM2, SDBG, PDCM, PCID, DCA, x2APIC and
                // the TSC deadline. The hypervisor bit stays.
                c &= !bits(&[2, 3, 5, 6, 7, 8, 11, 15, 17, 18, 21, 24]);
                match self {
                    // SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT, XSAVE, OSXSAVE, hypervisor.
                    Baseline::V2 => c &= bits(&[0, 9, 13, 19, 20, 23, 26, 27, 31]),
                    // The same, and FMA, MOVBE, AVX, F16C.
                    Baseline::V3 | Baseline::V4 => {
                        c &= bits(&[0, 9, 12, 13, 19, 20, 22, 23, 26, 27, 28, 29, 31])
                    }
                    Baseline::Host => {}
                }
                // The initial APIC id depends on the core that the thread happens to run on.
                b &= 0x00ff_ffff;
            }
            (7, 0) => {
                a = a.min(1);
                // EBX: FSGSBASE BMI1 AVX2 BMI2 ERMS AVX512F DQ RDSEED ADX IFMA CLFLUSHOPT CLWB CD
                // SHA BW VL.
                b &= bits(&[0, 3, 5, 8, 9, 16, 17, 18, 19, 21, 23, 24, 28, 29, 30, 31]);
                // ECX: VBMI VBMI2 GFNI VAES VPCLMUL VNNI BITALG VPOPCNTDQ RDPID.
                c &= bits(&[1, 6, 8, 9, 10, 11, 12, 14, 22]);
                // EDX: FSRM and AVX512_FP16. VP2INTERSECT is hidden.
                d &= bits(&[4, 23]);
                match self {
                    Baseline::V2 => (b, c, d) = (b & bits(&[0]), 0, 0),
                    Baseline::V3 => (b, c, d) = (b & bits(&[0, 3, 5, 8, 9]), 0, d & 1 << 4),
                    Baseline::V4 => {
                        (b, c, d) = (
                            b & bits(&[0, 3, 5, 8, 9, 16, 17, 28, 30, 31]),
                            0,
                            d & 1 << 4,
                        )
                    }
                    Baseline::Host => {}
                }
            }
            // Only AVX_VNNI and AVX512_BF16.
            (7, 1) => {
                (a, b, c, d) = (a & bits(&[4, 5]), 0, 0, 0);
                if self != Baseline::Host {
                    a = 0;
                }
            }
            (7, _) => (a, b, c, d) = (0, 0, 0, 0),
            (0xd, 0) => {
                let x = self.xcr0(host_xcr0);
                (a, b, c, d) = (x as u32, xsave_size, xsave_size, (x >> 32) as u32);
            }
            // XSAVEOPT, XSAVEC and XGETBV(1). Supervisor state and XFD are hidden.
            (0xd, 1) => (a, b, c, d) = (a & 0x7, xsave_size, 0, 0),
            // Also of components that are hidden, where they are enabled. A dynamic linker computes
            // from this how much room XSAVEC needs. It goes on natively where the recorder leaves
            // the program, and there XSAVEC stores them.
            (0xd, n) if n >= 63 || host_xcr0 & (1 << n) == 0 => (a, b, c, d) = (0, 0, 0, 0),
            // All hidden: monitoring, resource direction, SGX, processor trace, AMX tiles, key
            // locker.
            (0x5 | 0xa | 0xf | 0x10 | 0x12 | 0x14 | 0x19 | 0x1d | 0x1e | 0x20..=0x24, _) => {
                (a, b, c, d) = (0, 0, 0, 0)
            }
            // The x2APIC id depends on the current core.
            (0xb | 0x1f, _) => d = 0,
            (0x8000_0001, _) => {
                // LAHF, LZCNT (ABM) and PREFETCHW. Hidden: SVM, XOP, FMA4, TBM, MONITORX.
                c &= bits(&[0, 5, 8]);
                if self == Baseline::V2 {
                    c &= bits(&[0]);
                }
            }
            // Shown: that FXSAVE and FXRSTOR always handle the x87's error pointers. Hidden:
            // CLZERO, RDPRU, MCOMMIT and what only a kernel uses.
            (0x8000_0008, _) => b &= bits(&[2]),
            // AMD: virtualization, sampling, profiling.
            (0x8000_000a | 0x8000_001b | 0x8000_001c, _) => (a, b, c, d) = (0, 0, 0, 0),
            // AMD: numbers of the current core.
            (0x8000_001e, _) => (a, b, c) = (0, b & !0xff, c & !0xff),
            (0x8000_0026, _) => d = 0,
            _ => {}
        }
        [a, b, c, d]
    }
}
