//! Random register state, and aiming an instruction's operand at an address.

use crate::memory::{DATA, Region};
use hindsight_isa::{CpuState, VecState};
use hindsight_random::Rng;
use iced_x86::{Instruction, Mnemonic, Register};

/// Value of general purpose register `r`, or of the part that `r` names. `None` for other
/// registers.
///
/// This and [`aim`] say anew what `hindsight_translate::effective` says. The tests compare that with
/// the processor, so they must not rest on it.
pub fn gpr_value(gpr: &[u64; 16], r: Register) -> Option<u64> {
    if !r.is_gpr() {
        return None;
    }
    let v = gpr[r.full_register().number()];
    Some(match r.size() {
        8 => v,
        4 => v as u32 as u64,
        2 => v as u16 as u64,
        _ if matches!(r, Register::AH | Register::BH | Register::CH | Register::DH) => v >> 8 & 255,
        _ => v & 255,
    })
}

/// Whether the host has AVX-512 registers. `layout_mask` is the mask of its XSAVE layout.
pub fn has_wide(layout_mask: u64) -> bool {
    layout_mask & 0xe0 == 0xe0
}

/// The bits of a number: an everyday one, one of any size, or one at an edge.
fn single(rng: &mut Rng) -> u32 {
    let sign = (rng.below(2) as u32) << 31;
    match rng.below(8) {
        0 => rng.u64() as u32,
        // Edges of half precision.
        1 => sign | (127 - 26 + rng.below(44) as u32) << 23 | rng.u64() as u32 & 0x7f_ffff,
        2 => sign | rng.pick(&[0, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff]),
        3 => sign | rng.pick(&[0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff]),
        _ => ((rng.below(2000) as f32 - 1000.0) / 16.0).to_bits(),
    }
}

/// The same with 64 bits.
fn double(rng: &mut Rng) -> u64 {
    let sign = rng.below(2) << 63;
    match rng.below(8) {
        0 => rng.u64(),
        // Edges of single precision.
        1 => sign | (1023 - 152 + rng.below(304)) << 52 | rng.u64() >> 12,
        2 => sign | rng.pick(&[0, 1, (1 << 52) - 1, 1 << 52, 0x3ff << 52, (0x7ff << 52) - 1]),
        3 => sign | 0x7ff << 52 | rng.pick(&[0, 1, 1 << 51, (1 << 52) - 1]),
        _ => ((rng.below(2000) as f64 - 1000.0) / 16.0).to_bits(),
    }
}

/// The same with 80 bits: significand, and sign with exponent.
fn extended(rng: &mut Rng) -> (u64, u16) {
    let sign = (rng.below(2) as u16) << 15;
    let lead = 1 << 63;
    match rng.below(8) {
        0 => (rng.u64() | lead, rng.u64() as u16),
        // Zero and denormals, infinities and NaNs, and what no number is.
        1 => (
            rng.value(),
            sign | rng.pick(&[0, 1, 0x3fff, 0x7ffe, 0x7fff]),
        ),
        2 => (
            rng.pick(&[0, lead, lead | 1, 3 << 62]),
            sign | rng.pick(&[0, 0x3fff, 0x7fff]),
        ),
        3 => (rng.u64() | lead, sign | (16383 + rng.below(70) as u16)),
        _ => (
            rng.value() | lead,
            sign | (16383 - 40 + rng.below(100) as u16),
        ),
    }
}

/// A word with one or two numbers.
pub fn number(rng: &mut Rng) -> u64 {
    match rng.one_in(2) {
        true => double(rng),
        false => (single(rng) as u64) << 32 | single(rng) as u64,
    }
}

/// Random vector state, of the components in `mask`.
pub fn random_vec(rng: &mut Rng, mask: u64) -> VecState {
    let mut v = VecState::default();
    let wide = has_wide(mask);
    for (n, z) in v.zmm.iter_mut().enumerate() {
        if n >= 16 && !wide {
            break;
        }
        let kind = rng.below(4);
        for (i, word) in z.chunks_mut(8).enumerate() {
            if i >= 4 && !wide {
                break;
            }
            let w = match kind {
                0 => (single(rng) as u64) << 32 | single(rng) as u64,
                1 => double(rng),
                _ => rng.value(),
            };
            word.copy_from_slice(&w.to_le_bytes());
        }
    }
    if wide {
        for k in v.k.iter_mut() {
            *k = if rng.one_in(3) {
                rng.value()
            } else {
                rng.u64()
            };
        }
    }
    v.mxcsr = 0x1f80 | (rng.below(4) as u32) << 13 | rng.below(64) as u32;
    if rng.one_in(4) {
        v.mxcsr |= 0x8040;
    }
    if rng.one_in(24) {
        v.mxcsr &= !0x1f80;
    }
    v.fcw = 0x37f & !(0x300 * rng.one_in(4) as u16) | (rng.below(4) as u16) << 10;
    v.fsw = (rng.below(8) as u16) << 11 | (rng.below(16) as u16 & 7) << 8;
    v.ftw = if rng.one_in(3) { rng.u64() as u8 } else { 0xff };
    for s in v.st.iter_mut() {
        let (significand, head) = extended(rng);
        s[..8].copy_from_slice(&significand.to_le_bytes());
        s[8..10].copy_from_slice(&head.to_le_bytes());
    }
    v
}

/// Random general purpose state. Some registers point into `region`.
pub fn random_cpu(rng: &mut Rng, region: &Region, pc: u64, fs_base: u64) -> CpuState {
    let mut c = CpuState {
        rip: pc,
        fs_base,
        gs_base: 0,
        ..CpuState::default()
    };
    for g in c.gpr.iter_mut() {
        *g = if rng.one_in(4) {
            region.data + rng.below(DATA as u64)
        } else {
            rng.value()
        };
    }
    c.gpr[4] = match rng.below(12) {
        0 => region.data + rng.below(DATA as u64),
        1 => region.data + rng.below(3) * 8,
        2 => region.data + DATA as u64 - 8 * rng.below(3),
        3 => region.data + DATA as u64 / 2 - 16 + rng.below(32),
        _ => region.data + 256 + 8 * rng.below(DATA as u64 / 8 - 64),
    };
    c.rflags = rng.u64() & 0x8d5 | (0x400 * rng.one_in(8) as u64);
    c
}

/// An address for an operand of `size` bytes, in `region` or across its edges.
pub fn random_target(rng: &mut Rng, region: &Region, size: u64) -> u64 {
    let size = size.max(1);
    let last = DATA as u64 - size.min(4096);
    match rng.below(16) {
        0..=7 => region.data + (rng.below(last) & !63),
        8..=9 => region.data + rng.below(last) / size * size,
        10..=12 => region.data + rng.below(last),
        13 => region.data + DATA as u64 / 2 - rng.below(size + 1),
        14 => region.data + DATA as u64 - rng.below(size + 1),
        _ => region.data.wrapping_sub(rng.below(size + 1)),
    }
}

/// Sets registers so that the memory operand of `i` lies at `target`, as nearly as possible.
pub fn aim(i: &Instruction, cpu: &mut CpuState, vec: &mut VecState, target: u64, rng: &mut Rng) {
    let (base, index) = (i.memory_base(), i.memory_index());
    let scale = i.memory_index_scale() as u64;
    let disp = i.memory_displacement64();
    if base == Register::RIP || base == Register::EIP {
        return;
    }
    let seg = match i.segment_prefix() {
        Register::FS => cpu.fs_base,
        Register::GS => cpu.gs_base,
        _ => 0,
    };
    let mut want = target.wrapping_sub(seg).wrapping_sub(disp);
    let fs_base = cpu.fs_base;
    let mut set = |r: Register, v: u64, rng: &mut Rng| {
        let n = r.full_register().number();
        cpu.gpr[n] = if r.size() == 4 {
            v as u32 as u64 | rng.u64() << 32
        } else {
            v
        };
    };
    if index.is_vector_register() {
        let dwords = vsib32(i.mnemonic());
        let n = index.number();
        let near = base != Register::None;
        for lane in 0..if dwords { 16 } else { 8 } {
            let mut v = (rng.below(400) as i64 - 200) as u64;
            if !near {
                v = (want / scale).wrapping_add(v & 63);
            }
            if rng.one_in(40) && target >> 40 != fs_base >> 40 {
                v = rng.value();
            }
            let size = if dwords { 4 } else { 8 };
            vec.zmm[n][lane * size..(lane + 1) * size].copy_from_slice(&v.to_le_bytes()[..size]);
        }
        if near {
            set(base, want, rng);
        }
        return;
    }
    if base != Register::None && base.full_register() == index.full_register() {
        return set(base, want / (1 + scale), rng);
    }
    if base != Register::None {
        if index != Register::None {
            if rng.one_in(2) {
                set(index, rng.clone().below(200), rng);
            }
            let x = gpr_value(&cpu.gpr, index).unwrap_or(0);
            want = want.wrapping_sub(x.wrapping_mul(scale));
        }
        let n = base.full_register().number();
        cpu.gpr[n] = if base.size() == 4 {
            want as u32 as u64 | rng.u64() << 32
        } else {
            want
        };
        return;
    }
    if index != Register::None {
        if index.size() == 4 {
            want &= 0xffff_ffff;
        }
        set(index, want / scale, rng);
    }
}

/// Whether the vector index has elements of 32 bits.
pub fn vsib32(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Vgatherdps
            | Vpgatherdd
            | Vgatherdpd
            | Vpgatherdq
            | Vscatterdps
            | Vpscatterdd
            | Vscatterdpd
            | Vpscatterdq
    )
}
