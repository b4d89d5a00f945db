//! Compression: zstd frames ([RFC 8878](https://www.rfc-editor.org/rfc/rfc8878)).
//!
//! On x86-64, where programs are recorded, the C library does it, since recording waits for it. Everywhere else a library
//! in Rust does: a build for such a machine needs no C compiler for it. Its frames are larger, and only the index has them.
//!
//! ```
//! let frame = hindsight_compress::pack(b"a a a a a a a a a a a a a a", 1).unwrap();
//! assert_eq!(hindsight_compress::unpack(&frame, 27).unwrap(), b"a a a a a a a a a a a a a a");
//! ```

#[cfg(target_arch = "x86_64")]
#[path = "by_c.rs"]
mod implementation;
#[cfg(not(target_arch = "x86_64"))]
#[path = "by_rust.rs"]
mod implementation;
#[cfg(test)]
mod tests;

pub use implementation::{Compressor, Decompressor};

use std::io;

/// One frame with all of `raw`, at a level of zstd: the higher, the smaller and slower. Negative ones are faster yet.
///
/// # Errors
/// There is not enough memory.
pub fn pack(raw: &[u8], level: i32) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    Compressor::new(level)?.append(raw, &mut out)?;
    Ok(out)
}

/// What a frame stands for, which is at most `most` bytes. Takes memory in proportion to `most`, whatever the frame is.
///
/// # Errors
/// The frame is damaged, or stands for more.
pub fn unpack(frame: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; most];
    let len = Decompressor::new()?.unpack(frame, &mut out)?;
    out.truncate(len);
    Ok(out)
}
