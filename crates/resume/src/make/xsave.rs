//! Vector registers in the form in which this machine's XSAVE stores them.

use crate::{Error, Result};
use hindsight_inspect::state::ThreadState;
use std::arch::x86_64::__cpuid_count;

/// Where the area says which components it has.
const HEADER: usize = 512;
/// Where the kernel says which components there are.
const KERNEL: usize = 464;
/// Components: high halves of ymm0 to 15, k0 to k7, high halves of zmm0 to 15, zmm16 to 31.
const YMM: u32 = 2;
const MASKS: u32 = 5;
const ZMM: u32 = 6;
const HIGH: u32 = 7;

/// Puts a thread's registers into an area that was got from the kernel.
pub fn fill(area: &mut [u8], s: &ThreadState) -> Result<()> {
    let short = || Error::Refused("this kernel shows no vector registers".into());
    if area.len() < HEADER + 64 {
        return Err(short());
    }
    let mut word = [0; 8];
    word.copy_from_slice(&area[KERNEL..KERNEL + 8]);
    let there = u64::from_le_bytes(word) | 3;
    let [mxcsr, fcw, fsw, ftw] = s.control;
    area[..2].copy_from_slice(&(fcw as u16).to_le_bytes());
    area[2..4].copy_from_slice(&(fsw as u16).to_le_bytes());
    area[4] = ftw as u8;
    area[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    for (n, st) in s.x87.chunks(16).enumerate() {
        area[32 + 16 * n..42 + 16 * n].copy_from_slice(&st[..10]);
    }
    let mut components = 3;
    let zmm = |n: usize| &s.zmm[64 * n..64 * n + 64];
    for n in 0..16 {
        area[160 + 16 * n..176 + 16 * n].copy_from_slice(&zmm(n)[..16]);
    }
    let mut put = |component: u32, parts: &[&[u8]]| {
        if there & 1 << component == 0 {
            let used = parts.iter().any(|p| p.iter().any(|b| *b != 0));
            return match used {
                true => Err(Error::Refused(
                    "the process uses vector registers that this processor has not".into(),
                )),
                false => Ok(()),
            };
        }
        let mut at = __cpuid_count(0xd, component).ebx as usize;
        for p in parts {
            area.get_mut(at..at + p.len())
                .ok_or_else(short)?
                .copy_from_slice(p);
            at += p.len();
        }
        components |= 1u64 << component;
        Ok(())
    };
    let low: Vec<&[u8]> = (0..16).map(|n| &zmm(n)[16..32]).collect();
    put(YMM, &low)?;
    let masks: Vec<u8> = s.masks.iter().flat_map(|k| k.to_le_bytes()).collect();
    put(MASKS, &[&masks])?;
    let upper: Vec<&[u8]> = (0..16).map(|n| &zmm(n)[32..]).collect();
    put(ZMM, &upper)?;
    let high: Vec<&[u8]> = (16..32).map(zmm).collect();
    put(HIGH, &high)?;
    let mut had = [0; 8];
    had.copy_from_slice(&area[HEADER..HEADER + 8]);
    let all = u64::from_le_bytes(had) | components;
    area[HEADER..HEADER + 8].copy_from_slice(&all.to_le_bytes());
    Ok(())
}
