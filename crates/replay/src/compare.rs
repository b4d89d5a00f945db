//! Compares the states of processors and shows them.

use crate::Error;
use crate::cpu::Cpu;
use hindsight_isa::state::CPU_WORDS;
use hindsight_isa::{CpuState, VecState};

/// All words of a state, as text for people.
pub fn show(s: &CpuState) -> String {
    let list: Vec<_> = s
        .words()
        .iter()
        .zip(CPU_WORDS)
        .map(|(w, n)| format!("{n}={w:x}"))
        .collect();
    list.join(" ")
}

/// The registers that differ between two states, without the status flags: those of the first, and those of the second.
pub fn differing(
    (want, want_vec): (&CpuState, &VecState),
    (found, found_vec): (&CpuState, &VecState),
) -> Option<(String, String)> {
    let (a, b) = (want.comparable().words(), found.comparable().words());
    let differ: Vec<usize> = (0..20).filter(|i| a[*i] != b[*i]).collect();
    if !differ.is_empty() {
        let list = |w: &[u64; 20]| {
            let all: Vec<_> = differ
                .iter()
                .map(|i| format!("{}={:x}", CPU_WORDS[*i], w[*i]))
                .collect();
            all.join(" ")
        };
        return Some((list(&a), list(&b)));
    }
    (want_vec != found_vec).then(|| vector_difference(want_vec, found_vec))
}

/// Compares the processor's state, with these vector registers, with the state in a key frame.
pub fn compare(
    cpu: &Cpu,
    found_vec: &VecState,
    want: &CpuState,
    want_vec: &VecState,
) -> Result<(), Error> {
    match differing((want, want_vec), (&cpu.registers(), found_vec)) {
        Some((want, found)) => Err(cpu.difference(want, found)),
        None => Ok(()),
    }
}

/// The first vector, mask or x87 register that differs, as text.
fn vector_difference(want: &VecState, found: &VecState) -> (String, String) {
    let hex = |b: &[u8]| {
        b.iter()
            .rev()
            .map(|b| format!("{b:02x}"))
            .collect::<String>()
    };
    for i in 0..32 {
        if want.zmm[i] != found.zmm[i] {
            return (
                format!("zmm{i}={}", hex(&want.zmm[i])),
                format!("zmm{i}={}", hex(&found.zmm[i])),
            );
        }
    }
    for i in 0..8 {
        if want.k[i] != found.k[i] {
            return (
                format!("k{i}={:x}", want.k[i]),
                format!("k{i}={:x}", found.k[i]),
            );
        }
        if want.st[i] != found.st[i] {
            return (
                format!("st{i}={}", hex(&want.st[i])),
                format!("st{i}={}", hex(&found.st[i])),
            );
        }
    }
    let control = |v: &VecState| {
        format!(
            "mxcsr={:x} fcw={:x} fsw={:x} ftw={:x}",
            v.mxcsr, v.fcw, v.fsw, v.ftw
        )
    };
    (control(want), control(found))
}
