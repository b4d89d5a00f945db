//! Where an observing replay keeps its access marks, counted from the first cell of the window.
//!
//! There are two access maps, each with a byte for every cell:
//!
//! - the byte at `READS + cell` is not 0 if the cell was read;
//! - the byte at `WRITES + cell` is not 0 if the cell was written.
//!
//! Behind each map are [`SLACK`] bytes, for operands that begin in the last cells. They stand for
//! the first cells. While translated code runs, the FS base points to the map of reads. So one
//! instruction marks a read.
//!
//! Neither map begins at a page. Otherwise a cell and its mark would have the same offset in their
//! pages. A processor that sees a load behind a store first compares only these offsets, and would
//! take the two for the same memory. And each read is marked just before it happens.

/// Map of reads: behind the window, its alias page and its guard.
pub const READS: i64 = (4 << 30) + (1 << 20) + 21 * 64;

/// Bytes from the FS base up to the map of reads. It is negative: the FS base is 44 above the map.
/// The displacement of the marking instruction makes up for that.
///
/// With equal displacements, some processors (AMD's since Zen 2) would be slow. They guess which
/// earlier store a load takes its value from, by base, index and the low bits of the displacement.
/// They leave out the segment. Each load would be given the mark that was stored just before it,
/// and be repeated: sqlite's index took four times as long. Two accesses by the same register are
/// seldom 44 bytes apart. The value is negative because most displacements are positive, and those
/// up to 127 take one byte.
///
/// The marks of the first cells, from which 44 cannot be taken, are thus behind those of the last
/// cell.
pub const APART: i32 = -44;

/// Map of writes: below the context block.
pub const WRITES: i64 = -((4 << 30) + (16 << 20)) + 43 * 64;

/// Absolute address at which one machine of a process has its map of writes instead. A displacement
/// of 32 bits can hold it, which saves two instructions for each mark. Its offset in a page is that
/// of [`WRITES`].
pub const NEAR: i32 = (1 << 30) + 43 * 64;

/// Bytes behind a map. They end in the same page as the map.
pub const SLACK: usize = 512;

/// An access mark that translated code makes.
pub const MARK: u8 = 0xff;

/// An access mark of a write whose value replay does not know.
pub const UNKNOWN: u8 = 1;

const _: () = {
    assert!(WRITES + (4 << 30) + (SLACK as i64) < -(crate::ctx::CTX_SIZE as i64));
    assert!(READS.rem_euclid(4096) + SLACK as i64 <= 4096);
    // An operand has at most 64 bytes.
    assert!(-APART as usize + 64 <= SLACK);
    assert!(WRITES.rem_euclid(4096) + SLACK as i64 <= 4096);
    assert!(NEAR as i64 % 4096 == WRITES.rem_euclid(4096));
    assert!(NEAR.checked_add(SLACK as i32).is_some());
};
