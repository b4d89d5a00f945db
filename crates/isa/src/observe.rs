//! Where an observing replay marks what is accessed, relative to the GS base.
//!
//! Two stretches of as many bytes as the window has cells: the byte at `READS + cell` is not 0 when
//! the cell has been read, that at `WRITES + cell` when it has been written. Behind each are some bytes
//! for what begins in the last cells; they stand for the first ones. While translated code runs, the FS base
//! is that of the marks of reads, which so are made by one instruction.
//!
//! Neither begins at a page: a processor that finds a store before a load in the same place of another page
//! first takes them for the same memory, and what is read is marked before it is read.

/// Marks of reads: behind the window, its alias page and its guard.
pub const READS: i64 = (4 << 30) + (1 << 20) + 21 * 64;

/// How far the FS base is below the marks of reads (above them, if negative); the displacement of the instruction that marks
/// makes up for it. A processor that guesses by base, index and the low bits of the displacement, without the segment, that a load
/// takes what a store before it has written (AMD's since Zen 2) would otherwise do so for each load after its own mark, and be
/// wrong: the index of sqlite took four times as long. Few accesses have a distance of 44 from another by the same register.
/// Negative, since most displacements are positive, and up to 127 take one byte.
///
/// Marks of the first cells, from which it cannot be taken, so are behind those of the last one.
pub const APART: i32 = -44;

/// Marks of writes: below the context block.
pub const WRITES: i64 = -((4 << 30) + (16 << 20)) + 43 * 64;

/// Where, in one machine of a process, marks of writes are instead: at an absolute address that a displacement of 32 bits
/// has, which takes two instructions less. In the same place of a page as the others.
pub const NEAR: i32 = (1 << 30) + 43 * 64;

/// Bytes behind a stretch; they end in the page in which the stretch does.
pub const SLACK: usize = 512;

/// A mark that translated code makes.
pub const MARK: u8 = 0xff;

/// A mark of a write whose value replay does not know.
pub const UNKNOWN: u8 = 1;

const _: () = {
    assert!(WRITES + (4 << 30) + (SLACK as i64) < -(crate::ctx::CTX_SIZE as i64));
    assert!(READS.rem_euclid(4096) + SLACK as i64 <= 4096);
    // With the longest operand.
    assert!(-APART as usize + 64 <= SLACK);
    assert!(WRITES.rem_euclid(4096) + SLACK as i64 <= 4096);
    assert!(NEAR as i64 % 4096 == WRITES.rem_euclid(4096));
    assert!(NEAR.checked_add(SLACK as i32).is_some());
};
