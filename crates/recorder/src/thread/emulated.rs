//! What the recorder keeps of a thread in the kernel's place.

use crate::sys::config;
use crate::sys::lock::Lock;
use crate::sys::resources;
use crate::thread::filter_list::Filters;
use crate::thread::rseq::Rseq;
use alloc::sync::Arc;

/// What the recorder keeps of a thread in the kernel's place. The thread's system calls write it. A
/// thread's parent fills it in.
pub struct Emulated {
    /// Limits that the kernel is not told, in bytes. All threads of a process share them.
    pub limits: resources::Shared,
    /// Instructions that the program has forbidden the thread.
    pub forbidden: Forbidden,
    /// Filters of system calls that the program has set. Other threads may add some.
    pub filters: Filters,
    /// The area of restartable sequences that the program has registered.
    pub rseq: Option<Rseq>,
    /// System calls that the thread wants to have as signals.
    pub dispatch: Option<Dispatch>,
}

impl Emulated {
    /// The state of a program's first thread.
    pub(super) fn new() -> Emulated {
        Emulated {
            limits: Arc::new(Lock::new(config::get().limits)),
            forbidden: Forbidden::default(),
            filters: Filters::new(),
            rseq: None,
            dispatch: None,
        }
    }
}

/// Instructions that the program has forbidden a thread. Its children inherit it.
#[derive(Clone, Copy, Default)]
pub struct Forbidden {
    /// `cpuid` faults.
    pub cpuid: bool,
    /// `rdtsc` and `rdtscp` fault.
    pub tsc: bool,
}

/// Which system calls a thread wants to have as signals. Nobody inherits it.
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// First address of a range that may wrap. Calls are made if the next instruction is in it.
    pub start: u64,
    /// Bytes of the range.
    pub len: u64,
    /// Address of the byte that says whether other calls are signals. 0: they are.
    pub selector: u64,
}
