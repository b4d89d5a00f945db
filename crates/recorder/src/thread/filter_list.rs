//! The filters of system calls that a thread has.

use crate::sys;
use crate::sys::bpf::Instruction;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// A filter, and those that were there before it. Lives as long as the process.
pub struct Filter {
    /// Its program.
    pub code: Vec<Instruction>,
    /// The next older filter, or null.
    before: *const Filter,
    /// It stands for strict mode: only reading, writing, returning from handlers and ending are
    /// allowed.
    pub strict: bool,
}

/// Bits: what some thread has had that it would lose if the recorder left the process. The command
/// line reads it before that.
#[unsafe(no_mangle)]
static HINDSIGHT_FILTERED: AtomicU32 = AtomicU32::new(0);

/// Filters of system calls.
const SECCOMP: u32 = 1;
/// System calls that become signals.
pub const DISPATCHED: u32 = 2;

/// Notes that a thread has something that it would lose.
pub fn note(what: u32) {
    HINDSIGHT_FILTERED.fetch_or(what, Release);
}

/// The filters of a thread.
pub struct Filters(AtomicPtr<Filter>);

impl Filters {
    /// No filters.
    pub const fn new() -> Filters {
        Filters(AtomicPtr::new(null_mut()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Takes over the filters of another thread.
    pub fn copy(&self, other: &Filters) {
        self.0.store(other.0.load(Acquire), Release);
    }

    /// The filters, from the newest to the oldest.
    pub fn list(&self) -> impl Iterator<Item = &'static Filter> {
        let mut next = self.0.load(Acquire).cast_const();
        core::iter::from_fn(move || {
            // SAFETY: null, or a `Filter` that `add` leaked. None is ever freed or changed.
            let f = unsafe { next.as_ref() }?;
            next = f.before;
            Some(f)
        })
    }

    /// Adds a filter, which applies from now on.
    pub fn add(&self, code: Vec<Instruction>, strict: bool) {
        let before = self.0.load(Acquire);
        let f = Filter {
            code,
            before,
            strict,
        };
        self.0.store(Box::leak(Box::new(f)), Release);
        note(SECCOMP);
    }

    /// The kernel's number of the mode, and the number of filters.
    pub fn state(&self) -> (u32, usize) {
        match self.list().next() {
            None => (0, 0),
            Some(f) if f.strict => (STRICT_MODE, 0),
            Some(_) => (FILTER_MODE, self.list().count()),
        }
    }

    /// All filters from the oldest on, each with its length in instructions: for a program that is
    /// executed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all: Vec<_> = self.list().collect();
        all.reverse();
        let mut out = Vec::new();
        for f in all {
            out.extend_from_slice(&(f.code.len() as u32).to_le_bytes());
            for i in &f.code {
                out.extend_from_slice(&i.code.to_le_bytes());
                out.extend_from_slice(&i.jump);
                out.extend_from_slice(&i.k.to_le_bytes());
            }
        }
        out
    }

    /// Adds the filters that [`Filters::to_bytes`] has written.
    pub fn inherit(&self, mut bytes: &[u8]) {
        while let Some((len, rest)) = bytes.split_first_chunk() {
            let n = (u32::from_le_bytes(*len) as usize * 8).min(rest.len());
            self.add(instructions(&rest[..n]), false);
            bytes = &rest[n..];
        }
    }

    /// Makes the kernel apply them from now on, for a program that runs unrecorded.
    pub fn install(&self) {
        let mut all: Vec<_> = self.list().collect();
        all.reverse();
        for f in all {
            sys::install_filter(f.code.len() as u16, f.code.as_ptr() as u64);
        }
    }
}

/// `SECCOMP_MODE_STRICT`
pub const STRICT_MODE: u32 = 1;

/// `SECCOMP_MODE_FILTER`
pub const FILTER_MODE: u32 = 2;

/// Reads instructions of 8 bytes each. An incomplete last one is left out.
pub fn instructions(bytes: &[u8]) -> Vec<Instruction> {
    let one = |b: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([b[0], b[1]]),
        jump: [b[2], b[3]],
        k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
    };
    bytes.as_chunks().0.iter().map(one).collect()
}
