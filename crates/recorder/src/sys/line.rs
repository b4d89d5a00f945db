//! Lines of text, and saying them, without an allocator.

use crate::sys;
use core::fmt::Write;

/// A line of text that needs no allocator. What is longer than 512 bytes is cut.
pub struct Line {
    buf: [u8; 512],
    len: usize,
}

impl Line {
    /// An empty line.
    pub fn new() -> Line {
        Line {
            buf: [0; 512],
            len: 0,
        }
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.buf.len() - self.len);
        self.buf[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Formats into a line of text, without an allocator.
#[macro_export]
macro_rules! line {
    ($($a:tt)*) => {{
        let mut l = $crate::sys::line::Line::new();
        let _ = core::fmt::Write::write_fmt(&mut l, format_args!($($a)*));
        l
    }};
}

/// Writes `hindsight: ` and the message to descriptor 2. The message has 512 bytes at most.
pub fn say(message: &[u8]) {
    let mut out = [0u8; 560];
    let mut n = 0;
    for part in [b"hindsight: ", message, b"\n"] {
        out[n..n + part.len()].copy_from_slice(part);
        n += part.len();
    }
    sys::write(2, &out[..n]);
}
