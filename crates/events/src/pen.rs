//! Where a stream's next event is written. Translated code appends order numbers through it.

use crate::Encoder;
use core::mem::offset_of;

/// The writing end of a ring.
#[repr(C)]
#[derive(Default, Debug)]
pub struct Pen {
    /// Address of the next event.
    pub at: u64,
    /// An event at or behind this address must not be written until the runtime has made room.
    pub limit: u64,
    /// Address of the ring's [`crate::ring::Ctl::head`].
    pub head: u64,
    pub encoder: Encoder,
}

/// Offsets of the fields, for assembly.
pub mod offset {
    use super::*;
    pub const AT: usize = offset_of!(Pen, at);
    pub const LIMIT: usize = offset_of!(Pen, limit);
    pub const HEAD: usize = offset_of!(Pen, head);
    pub const POS: usize = offset_of!(Pen, encoder) + offset_of!(Encoder, pos);
    pub const NUMBER: usize = offset_of!(Pen, encoder) + offset_of!(Encoder, number);
}
