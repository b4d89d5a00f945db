//! Compression: zstd frames ([RFC 8878](https://www.rfc-editor.org/rfc/rfc8878)).
//!
//! On x86-64, where programs are recorded, the C library does it, since recording waits for it. Everywhere else a library
//! in Rust does: a build for such a machine needs no C compiler for it. Its frames are larger: those of the index, and of what `cut`
//! writes there.
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

/// What a frame stands for, which is at most `most` bytes. By the C library, it takes memory in proportion to `most`, whatever the
/// frame is. The one in Rust unpacks a block of the frame before it sees that it is too long. A hostile block of some kilobytes
/// can take as much memory as the process may have. So the process must be limited.
///
/// # Errors
/// The frame is damaged, or stands for more.
pub fn unpack(frame: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; most];
    let len = Decompressor::new()?.unpack(frame, &mut out)?;
    out.truncate(len);
    Ok(out)
}
