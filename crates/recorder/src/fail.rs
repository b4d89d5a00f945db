//! Ends that are not the program's own.

use crate::thread::Thread;
use crate::{attach, birth, ring, sys};
use core::fmt::Write;
use hindsight_events::{EndKind, Event};

/// Exit status of a recording that could not go on.
pub const STATUS: i32 = 125;

/// A line of text without an allocator.
pub struct Line {
    buf: [u8; 512],
    len: usize,
}

impl Line {
    pub fn new() -> Line {
        Line {
            buf: [0; 512],
            len: 0,
        }
    }

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

/// Formats into a [`Line`].
#[macro_export]
macro_rules! line {
    ($($a:tt)*) => {{
        let mut l = $crate::fail::Line::new();
        let _ = core::fmt::Write::write_fmt(&mut l, format_args!($($a)*));
        l
    }};
}

/// Writes `hindsight: ` and the message to descriptor 2.
pub fn say(message: &[u8]) {
    let mut out = [0u8; 560];
    let mut n = 0;
    for part in [b"hindsight: ", message, b"\n"] {
        out[n..n + part.len()].copy_from_slice(part);
        n += part.len();
    }
    sys::write(2, &out[..n]);
}

/// Ends the process before the program has begun, or where no trace can be written any more.
pub fn die(status: i32, message: &Line) -> ! {
    attach::give_up(message);
    say(message.as_bytes());
    sys::exit_group(status)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let l = match info.location() {
        Some(at) => line!(
            "internal error at {}:{}: {}",
            at.file(),
            at.line(),
            info.message()
        ),
        None => line!("internal error: {}", info.message()),
    };
    ring::abandon();
    die(STATUS, &l)
}

/// The prebuilt core library mentions it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::exit_group(STATUS)
}

/// Writes the last event of a thread that ends its process, and ends all streams that no other
/// thread may be writing; the collector sees that the process is gone.
pub fn finish(t: &mut Thread, kind: EndKind, code: u32, message: &[u8]) {
    t.event(&Event::End {
        kind,
        code,
        message,
    });
    t.publish();
    t.ring.store(-1, core::sync::atomic::Ordering::Release);
    t.emit.end();
    if !t.borrows && birth::threads() == 1 {
        ring::end_process();
    }
}

/// Ends the recording, and the program with it, where the recorder cannot go on. The command
/// line shows the message.
pub fn unsupported(t: &mut Thread, message: &Line) -> ! {
    finish(t, EndKind::Unsupported, 0, message.as_bytes());
    if t.emit.ctl().is_none() {
        say(message.as_bytes());
    }
    sys::exit_group(STATUS)
}

/// Ends the recording because of an error of the recorder's own.
pub fn internal(t: &mut Thread, message: &Line) -> ! {
    say(message.as_bytes());
    finish(t, EndKind::Unsupported, 0, message.as_bytes());
    sys::exit_group(STATUS)
}
