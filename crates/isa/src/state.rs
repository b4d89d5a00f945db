//! The guest's registers, independent of how a host stores them, and digests of them.

use crate::regs;
use xxhash_rust::xxh3::Xxh3Default;

/// The RFLAGS bits that are part of a program's state: CF PF AF ZF SF DF OF, AC and ID.
pub const RFLAGS_MASK: u64 = 0x24_0cd5;

/// The status flags: CF PF AF ZF SF OF.
pub const STATUS_FLAGS: u64 = 0x8d5;

/// General purpose registers, flags and segment bases.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuState {
    /// In hardware order: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub gpr: [u64; 16],
    /// The instruction pointer.
    pub rip: u64,
    /// Only the bits in [`RFLAGS_MASK`].
    pub rflags: u64,
    /// The FS base.
    pub fs_base: u64,
    /// The GS base.
    pub gs_base: u64,
}

/// Bytes of a serialized [`CpuState`].
pub const CPU_STATE_LEN: usize = 20 * 8;

/// What the words of a state are called, in the order of [`CpuState::words`].
pub const CPU_WORDS: [&str; 20] = {
    let mut out = ["rip"; 20];
    let mut n = 0;
    while n < 16 {
        out[n] = regs::NAMES[n];
        n += 1;
    }
    (out[17], out[18], out[19]) = ("rflags", "fs_base", "gs_base");
    out
};

impl CpuState {
    /// The general purpose registers in hardware order, then `rip`, `rflags` and the segment bases, by their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let general = crate::regs::NAMES.into_iter().zip(self.gpr);
        general.chain([
            ("rip", self.rip),
            ("rflags", self.rflags),
            ("fs_base", self.fs_base),
            ("gs_base", self.gs_base),
        ])
    }

    /// The registers in hardware order, then rip, rflags, fs_base, gs_base.
    pub fn words(&self) -> [u64; 20] {
        let mut out = [0; 20];
        out[..16].copy_from_slice(&self.gpr);
        out[16..].copy_from_slice(&[self.rip, self.rflags, self.fs_base, self.gs_base]);
        out
    }

    /// [`CpuState::words`], little-endian.
    pub fn to_bytes(&self) -> [u8; CPU_STATE_LEN] {
        let mut out = [0; CPU_STATE_LEN];
        for (i, w) in self.words().iter().enumerate() {
            out[i * 8..i * 8 + 8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    /// Inverse of [`CpuState::to_bytes`].
    pub fn from_bytes(b: &[u8; CPU_STATE_LEN]) -> CpuState {
        let w = |i: usize| {
            let mut x = [0; 8];
            x.copy_from_slice(&b[i * 8..i * 8 + 8]);
            u64::from_le_bytes(x)
        };
        CpuState {
            gpr: core::array::from_fn(w),
            rip: w(16),
            rflags: w(17),
            fs_base: w(18),
            gs_base: w(19),
        }
    }

    /// The state without the status flags, which is how recording and replay are compared. Where no
    /// instruction needs a status flag, the recorder's checks may change it.
    pub fn comparable(&self) -> CpuState {
        CpuState {
            rflags: self.rflags & RFLAGS_MASK & !STATUS_FLAGS,
            ..*self
        }
    }

    /// 64-bit digest of [`CpuState::comparable`].
    pub fn digest(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.comparable().to_bytes())
    }
}

/// Registers that only AVX-512 has.
#[repr(C, align(32))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct High {
    /// zmm16 to zmm31.
    pub zmm: [[u8; 64]; 16],
    /// Mask registers k0 to k7.
    pub k: [u64; 8],
}

/// Vector, mask and x87 registers. Unused parts are zero.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VecState {
    /// zmm0 to zmm31, low bytes first.
    pub zmm: [[u8; 64]; 32],
    /// Mask registers k0 to k7.
    pub k: [u64; 8],
    /// st(0) to st(7): 80 bits each, zero-extended to 16 bytes.
    pub st: [[u8; 16]; 8],
    /// Control and status of SSE.
    pub mxcsr: u32,
    /// Control word of the x87.
    pub fcw: u16,
    /// Status word of the x87.
    pub fsw: u16,
    /// Abridged tag word of the x87, as `fxsave` stores it. A set bit: the register is not empty.
    pub ftw: u8,
}

/// Bytes of a serialized [`VecState`].
pub const VEC_STATE_LEN: usize = 32 * 64 + 64 + 128 + 4 + 2 + 2 + 1;

impl Default for VecState {
    /// The state when a process begins.
    fn default() -> Self {
        VecState {
            zmm: [[0; 64]; 32],
            k: [0; 8],
            st: [[0; 16]; 8],
            mxcsr: 0x1f80,
            fcw: 0x37f,
            fsw: 0,
            ftw: 0,
        }
    }
}

impl VecState {
    /// The state as bytes: zmm, k, st, mxcsr, fcw, fsw, ftw. Little-endian, no padding.
    pub fn to_bytes(&self) -> [u8; VEC_STATE_LEN] {
        let mut out = [0; VEC_STATE_LEN];
        let mut at = 0;
        let mut put = |b: &[u8]| {
            out[at..at + b.len()].copy_from_slice(b);
            at += b.len();
        };
        self.zmm.iter().for_each(|z| put(z));
        self.k.iter().for_each(|k| put(&k.to_le_bytes()));
        self.st.iter().for_each(|s| put(s));
        put(&self.mxcsr.to_le_bytes());
        put(&self.fcw.to_le_bytes());
        put(&self.fsw.to_le_bytes());
        put(&[self.ftw]);
        out
    }

    /// Inverse of [`VecState::to_bytes`].
    pub fn from_bytes(b: &[u8; VEC_STATE_LEN]) -> VecState {
        let mut at = 0;
        let mut take = |n: usize| {
            at += n;
            &b[at - n..at]
        };
        let mut v = VecState::default();
        v.zmm.iter_mut().for_each(|z| z.copy_from_slice(take(64)));
        for k in v.k.iter_mut() {
            let mut x = [0; 8];
            x.copy_from_slice(take(8));
            *k = u64::from_le_bytes(x);
        }
        v.st.iter_mut().for_each(|s| s.copy_from_slice(take(16)));
        let m = take(4);
        v.mxcsr = u32::from_le_bytes([m[0], m[1], m[2], m[3]]);
        let c = take(4);
        v.fcw = u16::from_le_bytes([c[0], c[1]]);
        v.fsw = u16::from_le_bytes([c[2], c[3]]);
        v.ftw = take(1)[0];
        v
    }

    /// Changes the status word of the x87. It says which register is st(0), so all may get another number.
    pub fn set_status(&mut self, fsw: u16) {
        let top = |fsw: u16| (fsw >> 11 & 7) as usize;
        self.st.rotate_left((top(fsw) + 8 - top(self.fsw)) & 7);
        self.fsw = fsw;
    }

    /// 64-bit digest of the state.
    pub fn digest(&self) -> u64 {
        let mut h = Xxh3Default::new();
        h.update(&self.to_bytes());
        h.digest()
    }
}

/// Number of parts of a serialized [`VecState`], for [`change`].
pub const VEC_PARTS: usize = 51;

/// First byte and end of part `i`.
///
/// - 0 to 15: the low 16 bytes of zmm0 to zmm15;
/// - 16 to 31: the other bytes of zmm0 to zmm15;
/// - 32 to 47: zmm16 to zmm31;
/// - 48: the mask registers;
/// - 49: the x87 registers;
/// - 50: control and status words.
const fn vec_part(i: usize) -> (usize, usize) {
    match i {
        0..16 => (64 * i, 64 * i + 16),
        16..32 => (64 * (i - 16) + 16, 64 * (i - 16) + 64),
        32..48 => (64 * (i - 16), 64 * (i - 16) + 64),
        48 => (2048, 2112),
        49 => (2112, 2240),
        _ => (2240, VEC_STATE_LEN),
    }
}

/// Changes the parts in `mask` of a serialized state. `bytes` holds them one after the other, as
/// [`crate::xsave::Layout::changes`] made them. Returns false if `bytes` do not fit `mask`.
pub fn change(state: &mut [u8; VEC_STATE_LEN], mask: u64, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for i in (0..64).filter(|i| mask >> i & 1 != 0) {
        let (a, b) = vec_part(i);
        let Some((part, more)) = rest.split_at_checked(b - a).filter(|_| i < VEC_PARTS) else {
            return false;
        };
        state[a..b].copy_from_slice(part);
        rest = more;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        let mut c = CpuState::default();
        for (i, g) in c.gpr.iter_mut().enumerate() {
            *g = 0x0101_0101_0101_0101 * i as u64;
        }
        c.rip = 1;
        c.gs_base = 2;
        assert_eq!(CpuState::from_bytes(&c.to_bytes()), c);
        let mut v = VecState::default();
        v.zmm[31][63] = 7;
        v.k[7] = 9;
        v.st[7][9] = 3;
        v.ftw = 0x80;
        assert_eq!(VecState::from_bytes(&v.to_bytes()), v);
        assert_ne!(v.digest(), VecState::default().digest());
    }
}
