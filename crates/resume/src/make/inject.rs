//! System calls that the process makes for us, before it is itself.

use super::layout::KERNELS;
use crate::received::{PAGE, TOP};
use crate::{During, Result};
use hindsight_inspect::state::MappedRange;
use hindsight_remote::{Process, Thread};
use std::io;

/// Pages of our own in the process: one of code, the others for what calls read.
const PAGES: u64 = 5;
/// Where they may be.
const LOWEST: u64 = 0x1000_0000;
/// This kernel's code and data may take more room than the recorded kernel's.
const NEAR: u64 = 64 * PAGE;
/// `syscall`.
const CODE: [u8; 2] = [0x0f, 0x05];

/// A process that makes system calls for us.
pub struct Injector {
    pub process: Process,
    /// The process's first thread.
    pub first: Thread,
    at: u64,
}

impl Injector {
    /// Makes room in a process that was just started, where nothing will be mapped. The process is killed if that fails.
    pub fn new(process: Process, ranges: &[MappedRange]) -> Result<Injector> {
        let first = process.threads()[0];
        match room(&process, first, ranges) {
            Ok(at) => Ok(Injector { process, first, at }),
            Err(e) => {
                // Before it is let go.
                hindsight_remote::end(process.pid());
                Err(e).during(|| "making room in the process".into())
            }
        }
    }

    /// Makes the process do a call.
    pub fn call(&self, nr: i64, args: &[u64]) -> io::Result<u64> {
        self.call_by(self.first, nr, args)
    }

    /// The same by one of its threads.
    pub fn call_by(&self, thread: Thread, nr: i64, args: &[u64]) -> io::Result<u64> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.process.call(thread, self.at, (nr, all))
    }

    /// Makes another thread, with this id if that is possible.
    pub fn thread(&mut self, tid: i32) -> io::Result<Thread> {
        let (maker, room) = ((self.first, self.at), self.data());
        self.process.make_thread(maker, room, tid)
    }

    /// Where calls find what [`Injector::put`] has put.
    pub fn data(&self) -> u64 {
        self.at + PAGE
    }

    /// Puts bytes where calls find them: at most four pages.
    pub fn put(&self, bytes: &[u8]) -> Result<()> {
        let fits = &bytes[..bytes.len().min(((PAGES - 1) * PAGE) as usize)];
        self.process
            .write(self.data(), fits)
            .during(|| "writing into the process".into())
    }

    /// Our own pages.
    pub fn own(&self) -> (u64, u64) {
        (self.at, self.at + PAGES * PAGE)
    }

    /// Takes our pages away. No call can be made then.
    pub fn leave(&self) -> Result<()> {
        let (start, end) = self.own();
        let done = self.call(libc::SYS_munmap, &[start, end - start]);
        done.map(drop).during(|| "leaving the process".into())
    }
}

/// Maps our pages; their address.
fn room(process: &Process, first: Thread, ranges: &[MappedRange]) -> io::Result<u64> {
    // Signals that come meanwhile wait.
    first.set_mask(!0)?;
    let own = process.mappings()?;
    let taken = own.iter().map(|m| (m.start, m.end));
    let kernels = ranges.iter().filter(|m| KERNELS.contains(&m.name.as_str()));
    let near = kernels.map(|m| (m.start.saturating_sub(NEAR), m.end.saturating_add(NEAR)));
    let mut taken: Vec<(u64, u64)> = taken
        .chain(ranges.iter().map(|m| (m.start, m.end)))
        .chain(near)
        .collect();
    taken.sort_unstable();
    let mut at = LOWEST;
    for (start, end) in taken {
        if at + PAGES * PAGE <= start {
            break;
        }
        at = at.max(end);
    }
    if at > TOP - PAGES * PAGE {
        return Err(io::Error::other("its memory leaves no room"));
    }
    let syscall = process.syscall_instruction()?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let args = [at, PAGES * PAGE, prot as u64, flags as u64, u64::MAX, 0];
    process.call(first, syscall, (libc::SYS_mmap, args))?;
    process.write(at, &CODE)?;
    Ok(at)
}
