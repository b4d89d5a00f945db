//! By the C library.

use std::io;
use zstd::bulk;
use zstd::zstd_safe::compress_bound;

/// Makes frames, and reuses its memory.
pub struct Compressor(bulk::Compressor<'static>);

impl Compressor {
    /// # Errors
    /// There is not enough memory.
    pub fn new(level: i32) -> io::Result<Compressor> {
        bulk::Compressor::new(level).map(Compressor)
    }

    /// Appends one frame with all of `raw`.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn append(&mut self, raw: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.reserve(compress_bound(raw.len()));
        let mut end = io::Cursor::new(out);
        end.set_position(end.get_ref().len() as u64);
        self.0.compress_to_buffer(raw, &mut end)?;
        Ok(())
    }
}

/// Reads frames, and reuses its memory.
pub struct Decompressor(bulk::Decompressor<'static>);

impl Decompressor {
    /// # Errors
    /// There is not enough memory.
    pub fn new() -> io::Result<Decompressor> {
        bulk::Decompressor::new().map(Decompressor)
    }

    /// Puts what a frame stands for into `out`, and returns its length in bytes. It needs no window: it is one call.
    ///
    /// # Errors
    /// The frame is damaged, or `out` is too short.
    pub fn unpack(&mut self, frame: &[u8], out: &mut [u8]) -> io::Result<usize> {
        self.0.decompress_to_buffer(frame, out)
    }
}
