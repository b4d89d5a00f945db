//! What the processor says of itself.
//!
//! Under a hypervisor each `cpuid` takes tens of microseconds, and each program asks dozens of
//! times in its dynamic linker. Answers that are the same on all cores are stored in the [shared
//! cache](hindsight_events::shared_cache), for all program images of the recording.

use crate::stream::ring;
use crate::sys::config;
use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use hindsight_events::shared_cache::{key, kind};
use hindsight_isa::cpuid::Baseline;
use xxhash_rust::xxh3::xxh3_64;

/// Leaves whose answers depend on a subleaf, and how many subleaves are stored.
const SUBLEAVES: [(u32, u32); 6] = [(4, 32), (7, 8), (0xb, 4), (0xd, 64), (0x14, 2), (0x1f, 8)];

/// Other leaves whose answers are stored. In the answers for 1, 0Bh and 1Fh only the number of the
/// core differs between cores. Programs are not shown that (see [`hindsight_isa::cpuid`]).
const LEAVES: [u32; 13] = [
    0,
    1,
    2,
    0x19,
    0x8000_0000,
    0x8000_0001,
    0x8000_0002,
    0x8000_0003,
    0x8000_0004,
    0x8000_0005,
    0x8000_0006,
    0x8000_0007,
    0x8000_0008,
];

/// Leaves about caches and the order of cores. They differ between the cores of hybrid processors.
const DIFFER: [u32; 4] = [2, 4, 0xb, 0x1f];

/// The answer of `cpuid` for a leaf and subleaf.
pub fn ask(leaf: u32, sub: u32) -> CpuidResult {
    if DIFFER.contains(&leaf) && ask(7, 0).edx & 1 << 15 != 0 {
        return __cpuid_count(leaf, sub);
    }
    match SUBLEAVES.iter().find(|(l, _)| *l == leaf) {
        Some((_, n)) if sub < *n => remembered(leaf, sub),
        None if LEAVES.contains(&leaf) => remembered(leaf, 0),
        _ => __cpuid_count(leaf, sub),
    }
}

fn remembered(leaf: u32, sub: u32) -> CpuidResult {
    let Some(shared) = ring::shared_cache() else {
        return __cpuid_count(leaf, sub);
    };
    let name = (leaf as u64) << 32 | sub as u64;
    let hash = xxh3_64(&name.to_le_bytes());
    // All answers are in one page of the index.
    let key = key(hash, hash % 512);
    for known in shared.find(kind::PROCESSOR, key) {
        if let ([a, b, c, d, l, s], []) = known.content.as_chunks::<4>()
            && u32::from_le_bytes(*l) == leaf
            && u32::from_le_bytes(*s) == sub
        {
            let [eax, ebx, ecx, edx] = [a, b, c, d].map(|w| u32::from_le_bytes(*w));
            return CpuidResult { eax, ebx, ecx, edx };
        }
    }
    let r = __cpuid_count(leaf, sub);
    let mut entry = [0; 24];
    for (to, word) in entry
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip([r.eax, r.ebx, r.ecx, r.edx, leaf, sub])
    {
        *to = word.to_le_bytes();
    }
    shared.put(kind::PROCESSOR, key, &entry);
    r
}

/// Mask of the state components that the program is shown.
pub fn xcr0() -> u64 {
    baseline().xcr0(host_xcr0())
}

/// Mask of the state components that the kernel has enabled.
pub fn host_xcr0() -> u64 {
    let (lo, hi): (u32, u32);
    // SAFETY: `xgetbv` exists, since the recorder starts only where XSAVE is enabled. It reads a
    // register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") lo, out("edx") hi, options(nomem, nostack)) };
    lo as u64 | (hi as u64) << 32
}

/// The baseline that `cpuid` shows.
pub fn baseline() -> Baseline {
    [Baseline::Host, Baseline::V2, Baseline::V3, Baseline::V4][config::get().baseline as usize & 3]
}
