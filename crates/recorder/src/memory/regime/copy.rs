//! Key frames that a copy of the process makes, while the process goes on (see [`hindsight_events::copied`]).
//!
//! The kernel copies a page only when either of both writes to it, so the program stands for as long as the kernel needs to
//! copy its page tables. The copy finds what has changed, and writes it to a file in memory for the collector.
//!
//! The program hardly sees the copy. It finds it where it looks for processes.
//!
//! - It is a child that sends no signal when it ends, and for which only `wait` with `__WALL` or `__WCLONE` looks. Before
//!   such a call, before the program ends and before it executes another one, the copy is waited for.
//! - It shares the program's descriptors until it has a table of its own, which is empty. It has a session of its own.
//! - No tracer is told of it.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::frame::{self, Say};
use super::pages::Pages;
use crate::memory::backing;
use crate::stream::{handing, ring};
use crate::sys::{self, resources};
use crate::thread::Thread;
use crate::thread::signal_state::SYNCHRONOUS;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::*};
use hindsight_events::copied::{Copied, stage};
use hindsight_events::{Encoder, Event, MAX_EVENT};
use linux_raw_sys::errno::{EAGAIN, ENOMEM};
use linux_raw_sys::general::*;

/// Nanoseconds. A key frame that costs less is made by the process itself.
const WORTH: u64 = 5_000_000;

/// Bytes that are written to the file at once.
const PIECE: usize = 1 << 20;

/// No copy can be made of this process, or a copy would not have the same memory.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Notes that a copy of the process does not have the same memory from here on.
pub fn never() {
    NEVER.store(true, Relaxed);
}

/// Whether a call shows a copy to the program or to others: as a child that has ended, or whose parent has.
pub fn shows(nr: u32, a: &[u64; 6]) -> bool {
    let all = |options: u64| options as u32 & (__WALL | __WCLONE) != 0;
    match nr {
        __NR_wait4 => all(a[2]),
        __NR_waitid => all(a[3]),
        __NR_exit | __NR_exit_group | __NR_execve | __NR_execveat => true,
        _ => false,
    }
}

/// The last copy that was made.
pub struct Copy {
    pid: i32,
    /// It has ended, and the kernel has forgotten it.
    reaped: bool,
}

/// What became of a key frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nobody knows yet.
    Open,
    /// It is in the stream.
    Placed,
    /// It is not, and will not be.
    Dropped,
}

impl Copy {
    /// Waits until it has ended. False if it had before, as far as was known.
    pub fn reap(&mut self) -> bool {
        if self.reaped {
            return false;
        }
        sys::wait_for(self.pid);
        self.reaped = true;
        true
    }

    /// What became of its key frame. With `wait` that is known.
    pub fn fate(&mut self, t: &mut Thread, wait: bool) -> Fate {
        let Some(ctl) = t.emit.ctl() else {
            return Fate::Dropped;
        };
        let fate = || match ctl.copied.stage() {
            stage::AWAITED | stage::HANDED | stage::FAILED => Fate::Open,
            stage::PLACED => Fate::Placed,
            _ => Fate::Dropped,
        };
        if wait {
            t.emit.wait_while(|| fate() == Fate::Open);
        }
        let fate = fate();
        if fate != Fate::Open {
            self.reap();
            ctl.copied.clear();
        }
        fate
    }
}

/// Whether a copy should make a key frame that takes the process that many nanoseconds. `bytes`: so much memory will have
/// been restated, and been written by the program meanwhile.
pub fn suits(t: &Thread, cost: u64, bytes: u64) -> bool {
    cost >= WORTH
        && !NEVER.load(Relaxed)
        && !ring::foreign()
        && ring::file_box().is_some()
        && !t.gaps.is_open()
        && sys::closes_ranges()
        && sys::stays_in_namespace()
        && backing::is_as_mapped()
        && sys::available_memory().is_some_and(|n| bytes.saturating_mul(2) < n)
}

/// Makes a copy that makes a key frame behind the instruction at which the thread stands. `key` is that of the hashes of pages.
/// `None`: there is no copy, and the thread has to make the key frame itself.
pub fn begin(t: &mut Thread, pages: &mut Pages, key: u64) -> Option<Copy> {
    let (ctl, to) = (t.emit.ctl()?, ring::file_box()?);
    // The copy needs room for the table, and so does this process.
    if !pages.is_there() {
        return None;
    }
    ctl.copied.expect(ctl.head.load(Relaxed));
    let mask = sys::set_signal_mask(!0);
    let made = sys::clone_apart(&ctl.copied.pid);
    if made == Ok(0) {
        make(t, pages, key, &ctl.copied, to);
    }
    sys::set_signal_mask(mask);
    let pid = match made {
        Ok(pid) => pid,
        Err(e) => {
            log!(Warn, "no copy of the process can be made (error {e})");
            ctl.copied.fail();
            if !matches!(e as u32, EAGAIN | ENOMEM) {
                never();
            }
            return None;
        }
    };
    log!(Debug, "process {pid} makes a key frame");
    t.begin_frame();
    frame::unsteady(&frame::unsteady_memory(), &mut |e| t.event(e));
    Some(Copy { pid, reaped: false })
}

/// What the copy does.
fn make(t: &mut Thread, pages: &mut Pages, key: u64, copied: &Copied, to: ring::FileBoxName) -> ! {
    sys::set_signal_mask(!SYNCHRONOUS);
    let ring = t.emit.ring();
    let encoder = t.emit.encoder();
    // The streams belong to the process.
    t.emit.release();
    ring::become_copy();
    // Until then its descriptors are those of the process.
    let apart = sys::stand_apart();
    match apart
        .then(|| frame_file(t, pages, key, encoder, to))
        .flatten()
    {
        Some([device, inode]) => copied.hand(device, inode),
        None => copied.fail(),
    }
    if let Some(i) = ring {
        ring::attend(i);
    }
    sys::exit_group(0)
}

/// Makes the file with the key frame, and hands it to the collector. Its device and inode.
fn frame_file(
    t: &mut Thread,
    pages: &mut Pages,
    key: u64,
    encoder: Encoder,
    to: ring::FileBoxName,
) -> Option<[u64; 2]> {
    let _raised = resources::Raised::new();
    let mut file = FrameFile::new(t.pos, encoder)?;
    if !file.fill(t, pages, key) {
        return None;
    }
    file.hand(to)
}

/// A file in memory with the events of a key frame.
struct FrameFile {
    fd: i32,
    position: u64,
    encoder: Encoder,
    /// What is not yet in the file.
    bytes: Vec<u8>,
    len: usize,
    /// Bytes in the file.
    written: u64,
    /// All could be written so far.
    good: bool,
}

impl FrameFile {
    fn new(position: u64, encoder: Encoder) -> Option<FrameFile> {
        Some(FrameFile {
            fd: sys::memfd_to_seal(c"frame").ok()?,
            position,
            encoder,
            bytes: vec![0; PIECE],
            len: 0,
            written: 0,
            good: true,
        })
    }

    /// Writes the key frame. False if that cannot be done.
    fn fill(&mut self, t: &mut Thread, pages: &mut Pages, key: u64) -> bool {
        let Some(plan) = frame::plan() else {
            return false;
        };
        if frame::look(&plan, pages, key).is_err() {
            return false;
        }
        let what = frame::what(pages);
        let say: &mut Say = &mut |e| self.say(e);
        t.tell_state(say);
        let whole = frame::restate(&plan, &what, pages.back(), say);
        pages.written(what.bytes);
        self.flush();
        // What nobody has written to shows what the file has now. It must be what it had when the copy was made.
        whole && self.good && backing::is_as_mapped()
    }

    fn say(&mut self, event: &Event) {
        if self.bytes.len() - self.len < MAX_EVENT {
            self.flush();
        }
        let out = &mut self.bytes[self.len..];
        self.len += self.encoder.encode(self.position, event, out);
    }

    fn flush(&mut self) {
        self.good = self.good && sys::pwrite(self.fd, &self.bytes[..self.len], self.written);
        (self.written, self.len) = (self.written + self.len as u64, 0);
    }

    /// Hands it to the collector. Its device and inode, if that has succeeded.
    fn hand(self, to: ring::FileBoxName) -> Option<[u64; 2]> {
        // The collector reads it while other programs may have it.
        sys::seal(self.fd).ok()?;
        let id = sys::fstat(self.fd).ok()?;
        handing::send(self.fd, to).then_some([id.st_dev, id.st_ino])
    }
}
