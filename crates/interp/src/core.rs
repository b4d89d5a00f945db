//! The registers of a virtual processor, as instructions use them.

pub mod x87;

use crate::fault::Fault;
use crate::flags::Flags;
use crate::word::Lane;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Approximations, Finer, LeftOpen};
use std::sync::Arc;
use x87::X87;

/// Slots of [`Core::gpr`] besides the general purpose registers, which have their hardware numbers.
pub mod slot {
    /// Always zero: no base, no index, a segment without a base.
    pub const ZERO: u8 = 16;
    pub const FS: u8 = 17;
    pub const GS: u8 = 18;
}

/// The registers.
pub struct Core {
    /// The general purpose registers, and what else an address may be made of (see [`slot`]).
    pub gpr: [u64; 32],
    pub rip: u64,
    pub flags: Flags,
    /// RFLAGS without the status flags.
    pub other_flags: u64,
    pub zmm: [[Lane; 4]; 32],
    pub k: [u64; 8],
    pub mxcsr: u32,
    pub x87: X87,
    /// Why the last instruction faulted.
    pub fault: Option<Fault>,
    /// How the processor lays out what `xsave` saves. Makers of processors differ in that.
    pub saves: Layout,
    /// The processor's approximations, if they are known.
    pub approximations: Option<Arc<Approximations>>,
    pub finer: Option<Arc<Finer>>,
    /// What the processor does where manuals leave results open.
    pub left_open: LeftOpen,
}

impl Default for Core {
    fn default() -> Core {
        Core {
            gpr: [0; 32],
            rip: 0,
            flags: Flags::default(),
            other_flags: 0,
            zmm: [[[0; 16]; 4]; 32],
            k: [0; 8],
            mxcsr: 0x1f80,
            x87: X87::default(),
            fault: None,
            saves: Layout::INTEL,
            approximations: None,
            finer: None,
            left_open: LeftOpen::default(),
        }
    }
}
