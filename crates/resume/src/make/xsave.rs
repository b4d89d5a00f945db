//! Vector registers in the form in which this machine's XSAVE stores them.

use crate::received::Received;
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

/// The dynamic loader's code that saves registers where a function is called first, up to the distance of the word that says how much
/// room that needs: `push %rbx; mov %rsp, %rbx; and $-64, %rsp; sub WORD(%rip), %rsp`.
const SAVES: [u8; 11] = [
    0x53, 0x48, 0x89, 0xe3, 0x48, 0x83, 0xe4, 0xc0, 0x48, 0x2b, 0x25,
];
/// What it saves: SSE, AVX, MPX's bounds, AVX-512. Besides it keeps general registers there.
const SAVED: [u32; 5] = [2, 3, 5, 6, 7];
const GENERAL: u64 = 64;
/// No processor needs more.
const MOST_ROOM: u64 = 1 << 15;

/// Where the recorded dynamic loader leaves too little room for this processor's registers, which may have more than the program
/// was shown: addresses of the words, and what they must be.
pub fn too_little_room(r: &Received) -> Result<Vec<(u64, u64)>> {
    let parts = SAVED.map(|n| u64::from(__cpuid_count(0xd, n).eax));
    let needed = (GENERAL + 576 + parts.iter().sum::<u64>()).next_multiple_of(64);
    let mut out = Vec::new();
    for m in r
        .state
        .mappings
        .iter()
        .filter(|m| m.prot & 4 != 0 && m.end - m.start < 1 << 20)
    {
        let code = r.memory_at(m.start, m.end - m.start)?;
        for (at, w) in code.windows(SAVES.len() + 4).enumerate() {
            if !w.starts_with(&SAVES) {
                continue;
            }
            let far = i32::from_le_bytes([w[11], w[12], w[13], w[14]]);
            let next = m.start + at as u64 + 15;
            let word = next.wrapping_add_signed(far.into());
            let mut is = [0; 8];
            is.copy_from_slice(&r.memory_at(word, 8)?);
            let is = u64::from_le_bytes(is);
            if (576..needed).contains(&is) && needed < MOST_ROOM && !out.contains(&(word, needed)) {
                out.push((word, needed));
            }
        }
    }
    Ok(out)
}
