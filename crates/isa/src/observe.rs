//! Where an observing replay marks what is accessed, relative to the GS base.
//!
//! Two stretches of as many bytes as the window has cells: the byte at `READS + cell` is not 0 when
//! the cell has been read, that at `WRITES + cell` when it has been written. Behind each are 64 bytes
//! for what begins in the last cells; they stand for the first ones.

/// Marks of reads: behind the window, its alias page and its guard.
pub const READS: i64 = (4 << 30) + (1 << 20);

/// Marks of writes: below the context block.
pub const WRITES: i64 = -((4 << 30) + (16 << 20));

/// Bytes behind a stretch.
pub const SLACK: usize = 64;

/// A mark that translated code makes.
pub const MARK: u8 = 0xff;

/// A mark of a write whose value replay does not know.
pub const UNKNOWN: u8 = 1;

const _: () = assert!(crate::ctx::CTX_SIZE + SLACK <= 16 << 20);
