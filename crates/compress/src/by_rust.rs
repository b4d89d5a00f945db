//! By a library in Rust. It has one level.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{self, Read};

/// Makes frames.
pub struct Compressor;

impl Compressor {
    /// # Errors
    /// None.
    pub fn new(_level: i32) -> io::Result<Compressor> {
        Ok(Compressor)
    }

    /// Appends one frame with all of `raw`.
    ///
    /// # Errors
    /// None.
    pub fn append(&mut self, raw: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(&compress_to_vec(raw, CompressionLevel::Fastest));
        Ok(())
    }
}

/// Reads frames.
pub struct Decompressor(FrameDecoder);

/// Bytes that are unpacked before they are put where they belong.
const STEP: usize = 1 << 20;
/// A window that every frame may have, in bytes.
const COMMON_WINDOW: u64 = 1 << 20;

impl Decompressor {
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Decompressor> {
        Ok(Decompressor(FrameDecoder::new()))
    }

    /// Puts what a frame stands for into `out`, and returns its length in bytes.
    ///
    /// # Errors
    /// The frame is damaged, or `out` is too short.
    pub fn unpack(&mut self, mut frame: &[u8], out: &mut [u8]) -> io::Result<usize> {
        // The decoder keeps that much, and can say so only when it is too late.
        if window(frame).is_none_or(|w| w > COMMON_WINDOW.max(out.len() as u64)) {
            return Err(io::Error::other("the window of a frame is too large"));
        }
        let decoder = &mut self.0;
        decoder.reset(&mut frame).map_err(io::Error::other)?;
        let mut done = 0;
        loop {
            let step = BlockDecodingStrategy::UptoBytes(STEP);
            decoder
                .decode_blocks(&mut frame, step)
                .map_err(io::Error::other)?;
            done += decoder.read(&mut out[done..])?;
            if decoder.can_collect() != 0 {
                return Err(io::Error::other("a frame stands for more than it may"));
            }
            if decoder.is_finished() {
                break;
            }
        }
        match frame {
            [] => Ok(done),
            _ => Err(io::Error::other("something follows a frame")),
        }
    }
}

/// The bytes that the decoder of this frame keeps, by its header (RFC 8878, 3.1.1.1).
fn window(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    if descriptor & 0x20 == 0 {
        let w = *frame.get(5)?;
        let base = 1u64 << (10 + (w >> 3));
        return Some(base + base / 8 * (w & 7) as u64);
    }
    // No window is stated: it is the whole content.
    let at = 5 + [0, 1, 2, 4][descriptor as usize & 3];
    let len = [1, 2, 4, 8][descriptor as usize >> 6];
    let mut size = [0; 8];
    size[..len].copy_from_slice(frame.get(at..at + len)?);
    let more = if len == 2 { 256 } else { 0 };
    u64::from_le_bytes(size).checked_add(more)
}
