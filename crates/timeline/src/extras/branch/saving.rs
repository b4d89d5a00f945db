//! Instructions that save the state of the processor. The recording does not need what they write, because it has what
//! a program reads of that. A branch must compute it. The dynamic linker saves the state each time it binds a function.

use hindsight_isa::regs::{RAX, RDX};
use hindsight_isa::xsave::{Layout, compact_offset};
use hindsight_isa::{CpuState, VecState};
use iced_x86::{Instruction, Mnemonic};
use std::ops::Range;

const COMPACT: u64 = 1 << 63;

/// What the instruction writes, by offset in the area, on a processor with this layout. `None`: that is not known for this kind of
/// instruction.
pub fn written(
    saves: &Layout,
    i: &Instruction,
    cpu: &CpuState,
    v: &VecState,
) -> Option<Vec<(usize, Vec<u8>)>> {
    if !matches!(i.mnemonic(), Mnemonic::Xsavec | Mnemonic::Xsavec64) {
        return None;
    }
    let asked = (cpu.gpr[RAX] & 0xffff_ffff | cpu.gpr[RDX] << 32) & saves.mask;
    let registers = |numbers: Range<usize>, bytes: Range<usize>| -> Vec<u8> {
        let one = |n: usize| v.zmm[n][bytes.clone()].to_vec();
        numbers.flat_map(one).collect()
    };
    let mut out = Vec::new();
    let mut put = |component: u32, at: usize, bytes: Vec<u8>| {
        if asked >> component & 1 != 0 {
            out.push((at, bytes));
        }
    };
    put(
        0,
        0,
        [v.fcw.to_le_bytes(), v.fsw.to_le_bytes(), [v.ftw, 0]].concat(),
    );
    put(0, 32, v.st.concat());
    put(1, 160, registers(0..16, 0..16));
    let masks = v.k.iter().flat_map(|k| k.to_le_bytes()).collect();
    for (component, bytes) in [
        (2, registers(0..16, 16..32)),
        (5, masks),
        (6, registers(0..16, 32..64)),
        (7, registers(16..32, 0..64)),
    ] {
        put(component, compact_offset(asked, component), bytes);
    }
    if asked & 6 != 0 {
        out.push((24, v.mxcsr.to_le_bytes().to_vec()));
    }
    let header = [asked, asked | COMPACT, 0, 0, 0, 0, 0, 0];
    out.push((512, header.iter().flat_map(|w| w.to_le_bytes()).collect()));
    Some(out)
}
