//! A thread's last events: how its process ends.

use crate::stream::ring;
use crate::sys;
use crate::sys::fail::STATUS;
use crate::sys::line::{Line, say};
use crate::thread::{Thread, ThreadSlot, threads};
use core::sync::atomic::Ordering::Acquire;
use hindsight_events::{EndKind, Event};

/// Writes the last event of a thread that ends its process. Also ends all streams that no other
/// thread may be writing. The collector notices that the process is gone.
pub fn finish(t: &mut Thread, kind: EndKind, code: u32, message: &[u8]) {
    t.event(&Event::End {
        kind,
        code,
        message,
    });
    t.publish();
    t.task.end_stream();
    t.emit.end();
    if !t.task.borrows && threads::count() == 1 {
        ring::end_process();
    }
}

/// Ends the recording and the program, because the recorder cannot go on. The command line shows
/// the message.
pub fn unsupported(t: &mut Thread, message: &Line) -> ! {
    finish(t, EndKind::Unsupported, 0, message.as_bytes());
    if t.emit.ctl().is_none() {
        say(message.as_bytes());
    }
    sys::exit_group(STATUS)
}

/// The calling thread, by the stack that it is on. `None`: it is not recorded, or has not begun.
///
/// # Safety
/// The caller never returns to what used the thread before.
pub unsafe fn present() -> Option<&'static mut Thread> {
    let here = 0u8;
    let slot = ThreadSlot::at(&raw const here as u64)?;
    // SAFETY: the thread is the one that lives here, so it is this one's own; the caller answers for the rest.
    unsafe { slot.thread.load(Acquire).as_mut() }
}

/// Ends the recording because of an error of the recorder's own, which has been told. Takes no lock: whoever is in error
/// may hold them all.
pub fn broken(t: Option<&mut Thread>, message: &Line) -> ! {
    let alone = threads::is_alone();
    if let Some(t) = t {
        // Even if positions are what is wrong.
        t.pos = t.pos.max(t.emit.position());
        t.event(&Event::End {
            kind: EndKind::Unsupported,
            code: 0,
            message: message.as_bytes(),
        });
        t.publish();
        t.task.end_stream();
        t.emit.end();
    }
    if alone {
        // Others may be writing to theirs; the collector sees that the process is gone.
        ring::abandon();
    }
    sys::exit_group(STATUS)
}
