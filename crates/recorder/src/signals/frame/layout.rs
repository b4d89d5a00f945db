//! What a signal frame looks like in memory.

use crate::sys::context::{Context, Info};
use crate::sys::guard;
use hindsight_isa::xsave::{AREA_LEN, Area};

/// Return address, context, information.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SignalFrame {
    pub restorer: u64,
    pub uc: Context,
    pub info: Info,
}

/// Bytes of a frame.
pub const FRAME: usize = size_of::<SignalFrame>();
const _: () = assert!(FRAME == 440);

const MAGIC1: u32 = 0x4650_5853;
/// What stands in the word behind an XSAVE area.
pub const MAGIC2: u32 = 0x4650_5845;
/// Offset of the software bytes in the XSAVE area: magic, size with trailer, components, size.
pub const SOFTWARE: usize = 464;
/// Offset of the area's header, which begins with the components that are not in their initial state.
pub const HEADER: usize = 512;
/// Bytes. A larger area in a frame is not taken for one.
const LARGEST: usize = 16 << 10;
/// The components that an area without software bytes has.
pub const X87_AND_SSE: u64 = 3;
/// Flags of the context: there is an XSAVE area, and ss is valid and has to be restored.
pub const UC_FLAGS: u64 = 7;

impl SignalFrame {
    /// The frame as it stands in memory.
    pub fn bytes(&self) -> [u8; FRAME] {
        // SAFETY: plain integers without padding, as the assertion on `FRAME` checks.
        unsafe { core::mem::transmute(*self) }
    }

    /// The frame with these bytes.
    pub fn from_bytes(bytes: &[u8; FRAME]) -> SignalFrame {
        // SAFETY: plain integers, which are valid whatever their bytes.
        unsafe { bytes.as_ptr().cast::<SignalFrame>().read_unaligned() }
    }
}

/// Where the kernel puts an XSAVE area of `size` bytes and the frame below it, if `sp` is the first address above both.
pub fn addresses(sp: u64, size: usize) -> (u64, u64) {
    let area = sp.wrapping_sub(size as u64 + 4) & !63;
    (
        area,
        (area.wrapping_sub(FRAME as u64) & !15).wrapping_sub(8),
    )
}

/// Writes the bytes by which the kernel recognises an XSAVE area of `size` bytes. The caller writes
/// a trailing word behind the area.
pub fn mark_area(image: &mut [u8; AREA_LEN], components: u64, size: usize) {
    image[SOFTWARE..HEADER].fill(0);
    image[SOFTWARE..SOFTWARE + 4].copy_from_slice(&MAGIC1.to_le_bytes());
    image[SOFTWARE + 4..SOFTWARE + 8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    image[SOFTWARE + 8..SOFTWARE + 16].copy_from_slice(&components.to_le_bytes());
    image[SOFTWARE + 16..SOFTWARE + 20].copy_from_slice(&(size as u32).to_le_bytes());
}

/// Bytes of an area by its software bytes, if it has some. A frame of the kernel's own has room for components
/// that the recorder does not know.
pub fn size_of_area(a: &Area) -> Option<usize> {
    let size = word(a, SOFTWARE + 16) as usize;
    (word(a, SOFTWARE) == MAGIC1 && (HEADER + 64..=LARGEST).contains(&size)).then_some(size)
}

/// Whether the word stands behind an area of `size` bytes at `addr` that belongs there.
pub fn has_trailer(addr: u64, size: usize) -> bool {
    let mut trailer = [0; 4];
    guard::read(addr.wrapping_add(size as u64), &mut trailer).is_ok()
        && u32::from_le_bytes(trailer) == MAGIC2
}

/// The components that an area has and that are not in their initial state.
pub fn components(a: &Area) -> u64 {
    let bits = |at: usize| word(a, at) as u64 | (word(a, at + 4) as u64) << 32;
    bits(HEADER) & bits(SOFTWARE + 8)
}

/// The word at an offset in an area.
pub fn word(a: &Area, at: usize) -> u32 {
    u32::from_le_bytes([a.0[at], a.0[at + 1], a.0[at + 2], a.0[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::handler;
    use crate::sys::{self, SigAction};
    use core::mem::offset_of;
    use core::sync::atomic::{AtomicU64, Ordering::*};
    use linux_raw_sys::general::{SA_RESTORER, SA_SIGINFO, SIGWINCH};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn area_and_frame_are_aligned_and_below_the_stack(sp in 1u64 << 20..1 << 47, size in 576usize..LARGEST) {
            let (area, frame) = addresses(sp, size);
            prop_assert_eq!(area % 64, 0);
            prop_assert!(area + size as u64 + 4 <= sp && sp - (area + size as u64 + 4) < 64);
            // As behind a call.
            prop_assert_eq!(frame % 16, 8);
            prop_assert!(frame + FRAME as u64 <= area);
        }

        #[test]
        fn what_was_marked_is_recognised(components in any::<u64>(), present in any::<u64>(), size in HEADER + 64..=LARGEST) {
            let mut a = Area::default();
            prop_assert_eq!(size_of_area(&a), None);
            mark_area(&mut a.0, components, size);
            a.0[HEADER..HEADER + 8].copy_from_slice(&present.to_le_bytes());
            prop_assert_eq!(size_of_area(&a), Some(size));
            prop_assert_eq!(super::components(&a), components & present);
        }
    }

    #[test]
    fn sizes_that_no_area_has_are_not_believed() {
        for size in [0, HEADER + 63, LARGEST + 1, u32::MAX as usize - 4] {
            let mut a = Area::default();
            mark_area(&mut a.0, 7, size);
            assert_eq!(size_of_area(&a), None, "{size}");
        }
    }

    /// What the kernel's own frame of a handler looks like, as far as that can be compared.
    #[derive(Default)]
    struct Kernels {
        /// Where the context is; 0: no handler has run.
        uc: AtomicU64,
        info: AtomicU64,
        restorer: AtomicU64,
        flags: AtomicU64,
        signo: AtomicU64,
        area: AtomicU64,
        software: [AtomicU64; 6],
        trailer: AtomicU64,
    }

    static KERNELS: Kernels = Kernels {
        uc: AtomicU64::new(0),
        info: AtomicU64::new(0),
        restorer: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        signo: AtomicU64::new(0),
        area: AtomicU64::new(0),
        software: [const { AtomicU64::new(0) }; 6],
        trailer: AtomicU64::new(0),
    };

    extern "C" fn look(signo: i32, info: &Info, uc: &Context) {
        let k = &KERNELS;
        let at = core::ptr::from_ref(uc) as u64;
        k.info.store(core::ptr::from_ref(info) as u64, Relaxed);
        k.signo
            .store((info.signo == signo) as u64 * signo as u64, Relaxed);
        k.flags.store(uc.flags, Relaxed);
        k.area.store(uc.fpstate, Relaxed);
        // SAFETY: the return address stands below the context. The area has software bytes, which say where the
        // word behind it is.
        unsafe {
            k.restorer.store((at as *const u64).sub(1).read(), Relaxed);
            let software = (uc.fpstate + SOFTWARE as u64) as *const u64;
            for (i, to) in k.software.iter().enumerate() {
                to.store(software.add(i).read_unaligned(), Relaxed);
            }
            let size = software.add(2).read_unaligned() as u32;
            let trailer = (uc.fpstate + size as u64) as *const u32;
            k.trailer.store(trailer.read_unaligned() as u64, Relaxed);
        }
        k.uc.store(at, Release);
    }

    #[test]
    fn the_kernels_own_frame_has_this_layout() {
        let action = SigAction {
            handler: look as *const () as u64,
            flags: (SA_SIGINFO | SA_RESTORER) as u64,
            restorer: handler::restorer(),
            mask: 0,
        };
        let signo = SIGWINCH as i32;
        // SAFETY: `look` only reads its frame and writes atomics.
        let before = unsafe { sys::sigaction(signo, Some(&action)) }.unwrap();
        sys::raise(signo);
        // SAFETY: the action that was there before.
        unsafe { sys::sigaction(signo, Some(&before)) }.unwrap();
        let k = &KERNELS;
        let uc = k.uc.load(Acquire);
        assert_ne!(uc, 0, "the signal has not come");
        let frame = uc - offset_of!(SignalFrame, uc) as u64;
        assert_eq!(
            k.info.load(Relaxed),
            frame + offset_of!(SignalFrame, info) as u64
        );
        assert_eq!(k.restorer.load(Relaxed), handler::restorer());
        assert_eq!(k.signo.load(Relaxed), signo as u64);
        assert_eq!(k.flags.load(Relaxed), UC_FLAGS);
        let software = core::array::from_fn::<u64, 6, _>(|i| k.software[i].load(Relaxed));
        let size = software[2] as u32 as usize;
        assert_eq!(k.trailer.load(Relaxed), MAGIC2 as u64);
        let area = k.area.load(Relaxed);
        assert_eq!(addresses(area + size as u64 + 4, size), (area, frame));
        let mut marked = Area::default();
        mark_area(&mut marked.0, software[1], size);
        let words = marked.0[SOFTWARE..HEADER].as_chunks::<8>().0;
        assert!(words.iter().map(|w| u64::from_le_bytes(*w)).eq(software));
    }

    #[test]
    fn a_frame_comes_back_from_its_bytes() {
        let mut frame = SignalFrame {
            restorer: 1,
            ..SignalFrame::default()
        };
        (frame.uc.mask, frame.uc.regs[3]) = (7, 0x1234_5678_9abc);
        frame.info = Info::fault(11, 2, 0xdead_0000);
        let again = SignalFrame::from_bytes(&frame.bytes());
        assert_eq!(again.bytes(), frame.bytes());
        assert_eq!(
            (again.uc.mask, again.uc.regs[3], again.info.addr()),
            (7, 0x1234_5678_9abc, 0xdead_0000)
        );
    }
}
