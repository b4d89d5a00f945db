//! The host's XSAVE area (standard format), and its conversion to [`VecState`].
//!
//! Source: Intel SDM volume 1, chapter 13. Leaf 0Dh of CPUID tells where the components are.

use crate::VecState;
use crate::state::VEC_STATE_LEN;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};

/// The state components of the guest: x87, SSE, AVX, and the three of AVX-512.
pub const COMPONENTS: u64 = 0xe7;

/// The components of AVX, and of AVX-512.
pub const AVX: u64 = 1 << 2;
pub const AVX512: u64 = 7 << 5;

/// Bytes of the legacy region and the header of an area.
pub const HEADED: usize = 576;

/// The components behind the header up to the last one that programs see, with their lengths: AVX, the two of the bounds
/// registers, and the three of AVX-512.
pub const LENGTHS: [(u32, usize); 6] = [(2, 256), (3, 64), (4, 64), (5, 64), (6, 512), (7, 1024)];

/// Those that programs see.
pub const EXTENDED: [(u32, usize); 4] = [LENGTHS[0], LENGTHS[3], LENGTHS[4], LENGTHS[5]];

/// Where a component is in a compacted area that has room for these ones.
pub fn compact_offset(has: u64, component: u32) -> usize {
    let before = LENGTHS
        .iter()
        .filter(|(n, _)| *n < component && has >> n & 1 != 0);
    HEADED + before.map(|(_, len)| len).sum::<usize>()
}

/// Bytes of an [`Area`].
pub const AREA_LEN: usize = 4096;

/// An XSAVE area in standard format. It is large enough for [`COMPONENTS`] on all known processors.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Area(pub [u8; AREA_LEN]);

impl Default for Area {
    fn default() -> Self {
        let mut a = Area([0; AREA_LEN]);
        a.0[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
        a.0[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        a
    }
}

/// Where this host has each component in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Components to save and restore: those of [`COMPONENTS`] that the system has enabled.
    pub mask: u64,
    ymm: usize,
    opmask: usize,
    zmm_hi: usize,
    hi16: usize,
}

impl Layout {
    /// Asks this processor. `None` if it has no XSAVE, or has a component behind the end of
    /// [`Area`].
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Layout> {
        Layout::detect_with(__cpuid_count)
    }

    /// Other processors have no such area.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Layout> {
        None
    }

    /// The one of Intel's processors with AVX-512.
    pub const INTEL: Layout = Layout {
        mask: COMPONENTS,
        ymm: 576,
        opmask: 1088,
        zmm_hi: 1152,
        hi16: 1664,
    };

    /// For recordings that do not say it: as on this machine. Where it has no XSAVE, [`Layout::INTEL`].
    pub fn usual() -> Layout {
        Layout::detect().unwrap_or(Layout::INTEL)
    }

    /// A layout with these components of [`COMPONENTS`], and these offsets of AVX and the three of AVX-512. The offsets of
    /// components that it does not have do not count. `None` if a component would not lie between the header and the end of an
    /// area.
    pub fn of(mask: u64, offsets: [usize; 4]) -> Option<Layout> {
        let l = Layout {
            mask: mask & COMPONENTS,
            ymm: offsets[0],
            opmask: offsets[1],
            zmm_hi: offsets[2],
            hi16: offsets[3],
        }
        .only(COMPONENTS);
        let fits = |(component, len): &(u32, usize)| {
            (l.offset(*component))
                .is_none_or(|at| at >= HEADED && at.saturating_add(*len) <= AREA_LEN)
        };
        EXTENDED.iter().all(fits).then_some(l)
    }

    /// The same with those components only that are in `mask`.
    pub fn only(self, mask: u64) -> Layout {
        let mask = self.mask & mask;
        let kept = |component: u32, at: usize| if mask & 1 << component != 0 { at } else { 0 };
        Layout {
            mask,
            ymm: kept(2, self.ymm),
            opmask: kept(5, self.opmask),
            zmm_hi: kept(6, self.zmm_hi),
            hi16: kept(7, self.hi16),
        }
    }

    /// Bytes of an area up to the end of the components of `asked` that this layout has. It is not more: programs have other data
    /// right behind. `compact`: as `xsavec` lays them out.
    pub fn len(&self, asked: u64, compact: bool) -> usize {
        let there = EXTENDED
            .iter()
            .filter(|(c, _)| self.mask & asked & 1 << c != 0);
        match compact {
            true => HEADED + there.map(|(_, len)| len).sum::<usize>(),
            false => there
                .filter_map(|(c, len)| Some(self.offset(*c)? + len))
                .fold(HEADED, usize::max),
        }
    }

    /// The same as [`Layout::detect`]. `ask` answers what `cpuid` answers on this processor, given leaf and subleaf.
    #[cfg(target_arch = "x86_64")]
    pub fn detect_with(ask: impl Fn(u32, u32) -> CpuidResult) -> Option<Layout> {
        // Leaf 1 exists on every x86-64 processor.
        let l1 = ask(1, 0);
        if l1.ecx & (1 << 27) == 0 {
            return None;
        }
        // SAFETY: OSXSAVE is set, so xgetbv exists and is enabled.
        let mask = unsafe { xcr0() } & COMPONENTS;
        let offset = |i: u32| {
            if mask & (1 << i) == 0 {
                return 0;
            }
            ask(0xd, i).ebx as usize
        };
        let l = Layout {
            mask,
            ymm: offset(2),
            opmask: offset(5),
            zmm_hi: offset(6),
            hi16: offset(7),
        };
        let ends = [
            (l.ymm, 256),
            (l.opmask, 64),
            (l.zmm_hi, 512),
            (l.hi16, 1024),
        ];
        ends.iter().all(|(o, n)| o + n <= AREA_LEN).then_some(l)
    }

    /// Offset of a component in an area of standard format. `component` is its number in XCR0: AVX
    /// or one of AVX-512. `None` for others, and if the system has not enabled it.
    pub fn offset(&self, component: u32) -> Option<usize> {
        let at = match component {
            2 => self.ymm,
            5 => self.opmask,
            6 => self.zmm_hi,
            7 => self.hi16,
            _ => return None,
        };
        (self.mask & 1 << component != 0).then_some(at)
    }

    /// Sets zmm31 and k7 in an area that XSAVE wrote. XSAVE stored the recorder's values of these
    /// registers.
    pub fn set_wide(&self, a: &mut Area, zmm31: &[u8; 64], k7: u64) {
        let bv = u64::from_le_bytes(core::array::from_fn(|i| a.0[512 + i]));
        // XSAVE does not write a component in its initial state. What the area has of it is stale.
        if bv & 0x80 == 0 {
            a.0[self.hi16..self.hi16 + 1024].fill(0);
        }
        if bv & 0x20 == 0 {
            a.0[self.opmask..self.opmask + 64].fill(0);
        }
        a.0[self.hi16 + 960..self.hi16 + 1024].copy_from_slice(zmm31);
        a.0[self.opmask + 56..self.opmask + 64].copy_from_slice(&k7.to_le_bytes());
        a.0[512..520].copy_from_slice(&(bv | 0xa0).to_le_bytes());
    }

    /// zmm31 and k7 of an area.
    pub fn wide(&self, a: &Area) -> ([u8; 64], u64) {
        let bv = u64::from_le_bytes(core::array::from_fn(|i| a.0[512 + i]));
        let (mut zmm31, mut k7) = ([0; 64], [0; 8]);
        if bv & 0x80 != 0 {
            zmm31.copy_from_slice(&a.0[self.hi16 + 960..self.hi16 + 1024]);
        }
        if bv & 0x20 != 0 {
            k7.copy_from_slice(&a.0[self.opmask + 56..self.opmask + 64]);
        }
        (zmm31, u64::from_le_bytes(k7))
    }

    /// The guest's state in an area that XSAVE wrote. Components in their initial state have their
    /// bit in XSTATE_BV clear.
    pub fn to_state(&self, a: &Area) -> VecState {
        let a = &a.0;
        let u16at = |o: usize| u16::from_le_bytes([a[o], a[o + 1]]);
        let bv = u64::from_le_bytes(core::array::from_fn(|i| a[512 + i])) & self.mask;
        let mut v = VecState {
            // XSAVE stores it with SSE or AVX, whatever XSTATE_BV says.
            mxcsr: u32::from_le_bytes([a[24], a[25], a[26], a[27]]),
            ..VecState::default()
        };
        if bv & 1 != 0 {
            v.fcw = u16at(0);
            v.fsw = u16at(2);
            v.ftw = a[4];
            for i in 0..8 {
                v.st[i][..10].copy_from_slice(&a[32 + 16 * i..42 + 16 * i]);
            }
        }
        for i in 0..16 {
            if bv & 2 != 0 {
                v.zmm[i][..16].copy_from_slice(&a[160 + 16 * i..176 + 16 * i]);
            }
            if bv & 4 != 0 {
                v.zmm[i][16..32].copy_from_slice(&a[self.ymm + 16 * i..self.ymm + 16 * i + 16]);
            }
            if bv & 0x40 != 0 {
                v.zmm[i][32..].copy_from_slice(&a[self.zmm_hi + 32 * i..self.zmm_hi + 32 * i + 32]);
            }
            if bv & 0x80 != 0 {
                v.zmm[16 + i].copy_from_slice(&a[self.hi16 + 64 * i..self.hi16 + 64 * i + 64]);
            }
        }
        if bv & 0x20 != 0 {
            for i in 0..8 {
                let o = self.opmask + 8 * i;
                v.k[i] = u64::from_le_bytes(core::array::from_fn(|j| a[o + j]));
            }
        }
        v
    }

    /// Where an area has AVX, the mask registers, the upper halves of zmm0 to zmm15, and zmm16 to zmm31.
    pub fn offsets(&self) -> [usize; 4] {
        [self.ymm, self.opmask, self.zmm_hi, self.hi16]
    }

    /// Compares the states of two areas by parts (see [`crate::state::change`]). Writes the parts
    /// of `to` that differ from `from` to `out`. Returns their mask and the number of bytes
    /// written.
    pub fn changes(&self, from: &Area, to: &Area, out: &mut [u8; VEC_STATE_LEN]) -> (u64, usize) {
        let bits = |a: &Area| u64::from_le_bytes(core::array::from_fn(|i| a.0[512 + i]));
        let (old, new) = (bits(from) & self.mask, bits(to) & self.mask);
        // Components that are in their initial state in both areas are not compared.
        let of = |i: u32, at: usize, size: usize| Component {
            at,
            size,
            old: old >> i & 1 != 0,
            new: new >> i & 1 != 0,
        };
        let [xmm, ymm, zmm, hi16, k] = [
            of(1, 160, 16),
            of(2, self.ymm, 16),
            of(6, self.zmm_hi, 32),
            of(7, self.hi16, 64),
            of(5, self.opmask, 64),
        ];
        let (mut mask, mut len) = (0, 0);
        // Called in the order of the parts, and appends.
        let mut part = |number: usize, components: &[(&Component, usize)]| {
            if components.iter().any(|(c, i)| c.differs(from, to, *i, 1)) {
                mask |= 1 << number;
                for (c, i) in components {
                    c.put(to, *i, &mut out[len..len + c.size]);
                    len += c.size;
                }
            }
        };
        let differ = |c: &Component| c.differs(from, to, 0, 16);
        if differ(&xmm) {
            (0..16).for_each(|i| part(i, &[(&xmm, i)]));
        }
        if differ(&ymm) || differ(&zmm) {
            (0..16).for_each(|i| part(16 + i, &[(&ymm, i), (&zmm, i)]));
        }
        if differ(&hi16) {
            (0..16).for_each(|i| part(32 + i, &[(&hi16, i)]));
        }
        part(48, &[(&k, 0)]);
        // The x87's registers and the control words seldom change, and are stored differently.
        let x87 = of(0, 0, 160).differs(from, to, 0, 1);
        let mxcsr = from.0[24..28] != to.0[24..28];
        if x87 || mxcsr {
            let (a, b) = (self.to_state(from), self.to_state(to));
            if a.st != b.st {
                mask |= 1 << 49;
                for s in &b.st {
                    out[len..len + 16].copy_from_slice(s);
                    len += 16;
                }
            }
            let words = |v: &VecState| (v.mxcsr, v.fcw, v.fsw, v.ftw);
            if words(&a) != words(&b) {
                mask |= 1 << 50;
                out[len..len + 9].copy_from_slice(&b.to_bytes()[VEC_STATE_LEN - 9..]);
                len += 9;
            }
        }
        (mask, len)
    }

    /// Copies what this layout has no component for.
    pub fn copy_missing(&self, from: &VecState, to: &mut VecState) {
        let has = |component: u32| self.mask & 1 << component != 0;
        for i in 0..16 {
            if !has(2) {
                to.zmm[i][16..32].copy_from_slice(&from.zmm[i][16..32]);
            }
            if !has(6) {
                to.zmm[i][32..].copy_from_slice(&from.zmm[i][32..]);
            }
        }
        if !has(7) {
            to.zmm[16..].copy_from_slice(&from.zmm[16..]);
        }
        if !has(5) {
            to.k = from.k;
        }
    }

    /// Writes `v` into an area that XRSTOR can load with [`Layout::mask`]. Drops what the host does
    /// not have.
    pub fn from_state(&self, v: &VecState, area: &mut Area) {
        *area = Area::default();
        let a = &mut area.0;
        a[0..2].copy_from_slice(&v.fcw.to_le_bytes());
        a[2..4].copy_from_slice(&v.fsw.to_le_bytes());
        a[4] = v.ftw;
        a[24..28].copy_from_slice(&v.mxcsr.to_le_bytes());
        a[512..520].copy_from_slice(&self.mask.to_le_bytes());
        for i in 0..8 {
            a[32 + 16 * i..42 + 16 * i].copy_from_slice(&v.st[i][..10]);
            if self.opmask != 0 {
                let o = self.opmask + 8 * i;
                a[o..o + 8].copy_from_slice(&v.k[i].to_le_bytes());
            }
        }
        for i in 0..16 {
            a[160 + 16 * i..176 + 16 * i].copy_from_slice(&v.zmm[i][..16]);
            if self.ymm != 0 {
                a[self.ymm + 16 * i..self.ymm + 16 * i + 16].copy_from_slice(&v.zmm[i][16..32]);
            }
            if self.zmm_hi != 0 {
                a[self.zmm_hi + 32 * i..self.zmm_hi + 32 * i + 32].copy_from_slice(&v.zmm[i][32..]);
            }
            if self.hi16 != 0 {
                a[self.hi16 + 64 * i..self.hi16 + 64 * i + 64].copy_from_slice(&v.zmm[16 + i]);
            }
        }
    }
}

/// The registers of one component in two areas.
struct Component {
    at: usize,
    /// Bytes of one register.
    size: usize,
    /// Whether the old area holds the component. If not, all its registers are zero.
    old: bool,
    /// The same of the new area.
    new: bool,
}

impl Component {
    fn slice<'a>(&self, a: &'a Area, i: usize, n: usize) -> &'a [u8] {
        let at = self.at + i * self.size;
        &a.0[at..at + n * self.size]
    }

    /// Whether any of `n` registers differs, from register `i` on.
    fn differs(&self, from: &Area, to: &Area, i: usize, n: usize) -> bool {
        let (a, b) = (self.slice(from, i, n), self.slice(to, i, n));
        let word = |w: &[u8; 8]| u64::from_le_bytes(*w);
        let (a, b) = (a.as_chunks().0.iter(), b.as_chunks().0.iter());
        0 != match (self.old, self.new) {
            (false, false) => 0,
            (true, true) => a.zip(b).fold(0, |d, (a, b)| d | (word(a) ^ word(b))),
            (true, false) => a.fold(0, |d, a| d | word(a)),
            (false, true) => b.fold(0, |d, b| d | word(b)),
        }
    }

    /// Copies register `i` of the new area.
    fn put(&self, to: &Area, i: usize, out: &mut [u8]) {
        if self.new {
            out.copy_from_slice(self.slice(to, i, 1));
        } else {
            out.fill(0);
        }
    }
}

/// Reads XCR0.
///
/// # Safety
/// CPUID must report OSXSAVE.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller checked OSXSAVE.
    unsafe { _xgetbv(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::change;

    #[test]
    fn layouts_of_other_processors() {
        let offsets = [576, 832, 896, 1408];
        let amd = Layout::of(!0, offsets).unwrap();
        assert_eq!((amd.mask, amd.offsets()), (COMPONENTS, offsets));
        // Up to the last component that is asked for.
        let intel = Layout::of(COMPONENTS, Layout::INTEL.offsets()).unwrap();
        assert_eq!(intel, Layout::INTEL);
        let lens = |l: Layout| [3, 7, 0x27, 0xe7, !0].map(|asked| l.len(asked, false));
        assert_eq!(lens(amd), [576, 832, 896, 2432, 2432]);
        assert_eq!(lens(intel), [576, 832, 1152, 2688, 2688]);
        assert_eq!(intel.len(0xe7, true), 576 + 256 + 64 + 512 + 1024);
        // Without AVX-512, its offsets do not count.
        let narrow = Layout::of(7, [576, 5, 1 << 40, 0]).unwrap();
        assert_eq!(narrow, intel.only(7));
        assert_eq!((narrow.offset(2), narrow.offset(6)), (Some(576), None));
        assert_eq!(narrow.len(!0, false), 832);
        for wrong in [
            [0, 832, 896, 1408],
            [576, 832, 896, AREA_LEN - 1023],
            [576, usize::MAX, 896, 1408],
        ] {
            assert_eq!(Layout::of(COMPONENTS, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the processor")]
    fn changes_of_vector_state_round_trip() {
        let Some(layout) = Layout::detect() else {
            return;
        };
        // Drops what this processor does not have: an area cannot hold it.
        let reduce = |v: &VecState| {
            let mut area = Area::default();
            layout.from_state(v, &mut area);
            (layout.to_state(&area), area)
        };
        let (start, from) = reduce(&VecState::default());
        for at in 0..VEC_STATE_LEN {
            let mut bytes = start.to_bytes();
            bytes[at] ^= 5;
            bytes[(at * 7) % VEC_STATE_LEN] ^= 1;
            let (want, to) = reduce(&VecState::from_bytes(&bytes));
            let mut out = [0; VEC_STATE_LEN];
            for (a, b, first, last) in [(&from, &to, &start, &want), (&to, &from, &want, &start)] {
                // Components in their initial state need not be stored.
                for (bits, other) in [(!0, !0), (3, !0), (!0, 3)] {
                    let clear = |a: &Area, v: &VecState, bits: u64| {
                        let mut a = a.clone();
                        let mut v = *v;
                        if bits != !0 {
                            a.0[512..520].copy_from_slice(&bits.to_le_bytes());
                            v = layout.to_state(&a);
                        }
                        (a, v)
                    };
                    let ((a, first), (b, last)) = (clear(a, first, bits), clear(b, last, other));
                    let (mask, len) = layout.changes(&a, &b, &mut out);
                    let mut made = first.to_bytes();
                    assert!(change(&mut made, mask, &out[..len]), "{at}");
                    assert_eq!(VecState::from_bytes(&made), last, "{at} {mask:x}");
                    assert_eq!(mask == 0, first == last, "{at}");
                    if len > 0 {
                        assert!(!change(&mut made, mask, &out[..len - 1]));
                    }
                    assert!(!change(&mut made, mask, &out[..len + 1]));
                }
            }
        }
        assert!(!change(&mut start.to_bytes(), 1 << 51, &[]));
    }
}
