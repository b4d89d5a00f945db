//! A thread's shadow memory, as far as the runtime itself touches it.

use super::slot::SHARED;
use crate::sys;
use crate::thread::Thread;
use hindsight_isa::Predictor;
use hindsight_isa::ctx::{APART, CTX_SIZE};

/// Where a thread's cells are. Only the thread uses them: translated code by way of the GS base,
/// the runtime by way of this.
pub struct Window {
    /// Address of the first cell. It stays the same while the thread lives.
    start: u64,
    predictor: Predictor,
    /// No cell has been written to since the window was made. Always false after the first key
    /// frame.
    pub(super) untouched: bool,
}

impl Window {
    /// The window whose zeroed cells begin at `start`.
    pub(super) fn new(start: u64, predictor: Predictor) -> Window {
        Window {
            start,
            predictor,
            untouched: true,
        }
    }

    /// Address of the first cell.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Which cell an address has, and how many cells there are.
    pub fn predictor(&self) -> Predictor {
        self.predictor
    }

    /// The GS base of the thread while it is recorded.
    pub fn gs_base(&self) -> u64 {
        self.start + APART as u64
    }

    /// Address of the cell of guest address `a`.
    pub fn cell(&self, a: u64) -> *mut u8 {
        (self.start + self.predictor.cell(a)) as *mut u8
    }

    /// Makes the cells at offsets `start..start + len` zero. None of them is mapped to a file.
    fn zero(&mut self, start: u64, len: u64) {
        let (start, end) = (self.start + start, self.start + start + len);
        // The first pages are shared with their alias, so they must be written. The rest can be
        // given back.
        let shared = self.start + SHARED;
        let whole = (start.max(shared).next_multiple_of(4096), end & !4095);
        let clear = |a: u64, b: u64| {
            if a < b {
                // SAFETY: callers below pass parts of `start..end`, which lies in the window. The
                // window is writable and no reference points into it.
                unsafe { core::ptr::write_bytes(a as *mut u8, 0, (b - a) as usize) }
            }
        };
        if whole.0 < whole.1 {
            clear(start, whole.0.min(end));
            sys::madvise_dontneed(whole.0, whole.1 - whole.0);
            clear(whole.1, end);
        } else {
            clear(start, end);
        }
    }
}

impl Thread {
    /// Address of the cell of guest address `a`.
    pub fn cell(&self, a: u64) -> *mut u8 {
        self.window.cell(a)
    }

    /// Makes the cells at offsets `start..start + len` in the window zero.
    pub fn zero_cells(&mut self, start: u64, len: u64) {
        self.shared_pages
            .drop_cells(self.window.start, start..start + len);
        self.window.zero(start, len);
    }

    /// Empties the whole window. The key frame in the stream says so.
    pub fn empty_window(&mut self) {
        self.zero_cells(0, self.window.predictor.size());
    }

    /// Gives the thread's slot, zeroed, to the next thread. That one waits until
    /// [`super::ThreadSlot::taken`] is 0.
    pub fn give_back_slot(&mut self) {
        self.empty_window();
        let ctx = self.window.start - CTX_SIZE as u64;
        let whole = (ctx.next_multiple_of(4096), self.window.start);
        // SAFETY: these bytes lie in the context block, below its first whole page. The thread has
        // ended, so nothing uses the block now.
        unsafe { core::ptr::write_bytes(ctx as *mut u8, 0, (whole.0 - ctx) as usize) };
        sys::madvise_dontneed(whole.0, whole.1 - whole.0);
        self.slot.give_back();
    }
}
