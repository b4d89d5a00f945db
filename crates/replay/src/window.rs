//! The memory of a virtual processor: the context block and the cells of the shadow memory.
//!
//! [`shared`] has what all windows share. Where the cells are is another matter: [`mapped`] has them in one stretch of address
//! space, which translated code needs. [`paged`] takes a page when it is written to, and serves hosts without that much address space.

#[cfg(unix)]
pub(crate) mod mapped;
mod marking;
#[cfg(any(test, not(unix)))]
pub(crate) mod paged;
pub(crate) mod shared;
pub(crate) mod store;

use crate::Error;
#[cfg(unix)]
use hindsight_isa::Ctx;
#[cfg(target_arch = "x86_64")]
pub(crate) use mapped::touched;
use shared::WindowOf;
pub use store::AccessKind;

#[cfg(unix)]
use mapped::Mapped as Chosen;
#[cfg(not(unix))]
use paged::Paged as Chosen;

/// A window as this host has it.
pub type Window = WindowOf<Chosen>;

#[cfg(unix)]
impl Window {
    /// Like [`WindowOf::observed`]. If no other window of the process does it, writes are marked at
    /// [`observe::NEAR`], which takes less code.
    pub fn observed_near() -> Result<Window, Error> {
        let mut w = Window::observed()?;
        w.store.go_near();
        Ok(w)
    }

    /// Asks the kernel for large pages. That is of use where the program has much memory: cells and marks then cause few
    /// page faults. All pages of a large one look accessed, so marks are looked for in all of them.
    pub fn large_pages(&mut self) {
        self.store.large_pages();
    }

    /// Whether the marks of writes are at [`observe::NEAR`].
    pub fn is_near(&self) -> bool {
        self.store.is_near()
    }

    /// Address of the first cell, from which the GS base is computed.
    pub fn base(&self) -> u64 {
        self.store.base()
    }

    /// The FS base for code that sets marks.
    pub fn read_marks_base(&self) -> u64 {
        self.store.read_marks_base()
    }

    pub fn ctx_ptr(&self) -> *mut Ctx {
        self.store.ctx_ptr()
    }

    /// The same as [`WindowOf::give_word`], without a call: for a thread that is prepared to run translated code.
    #[inline(always)]
    pub fn give_word_prepared(&mut self, addr: u64, value: u64) {
        self.store.give_word_prepared(addr, value);
    }

    /// The same as [`WindowOf::give_bytes`], without a call: for a thread that is prepared to run translated code.
    #[inline(always)]
    pub fn give_bytes_prepared(&mut self, addr: u64, len: u8, value: u64) {
        self.store.give_bytes_prepared(addr, len, value);
    }
}

/// What serves translated code only.
#[cfg(not(unix))]
impl Window {
    /// The same as [`WindowOf::observed`].
    pub fn observed_near() -> Result<Window, Error> {
        Window::observed()
    }

    /// Does nothing.
    pub fn large_pages(&mut self) {}

    /// Never.
    pub fn is_near(&self) -> bool {
        false
    }
}

/// Runs a test with each kind of window.
#[cfg(test)]
macro_rules! in_each_window {
    ($test:ident) => {
        $test::<$crate::window::mapped::Mapped>();
        $test::<$crate::window::paged::Paged>();
    };
}
#[cfg(test)]
pub(crate) use in_each_window;

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::Predictor;
    use store::Marks;

    #[test]
    fn wraps_and_empties() {
        in_each_window!(wraps_and_empties_in);
    }

    fn wraps_and_empties_in<C: Marks>() {
        let mut w = WindowOf::<C>::new(Predictor { bits: 14 }).unwrap();
        let size = 1 << 14;
        w.write(size - 3, &[1, 2, 3, 4, 5]);
        let mut b = [0; 2];
        w.read(7 * size, &mut b);
        assert_eq!(b, [4, 5]);
        w.give_bytes(size - 1, 2, 0xbbaa);
        w.read(size - 1, &mut b);
        assert_eq!(b, [0xaa, 0xbb]);

        let all: Vec<u8> = (0..size).map(|i| i as u8 | 1).collect();
        let check = |w: &WindowOf<C>, zero: &dyn Fn(u64) -> bool| {
            let mut got = vec![0; size as usize];
            w.read(0, &mut got);
            for i in 0..size {
                let expect = if zero(i) { 0 } else { all[i as usize] };
                assert_eq!(got[i as usize], expect, "cell {i}");
            }
        };
        w.write(0, &all);
        w.zero(5, 3).unwrap();
        check(&w, &|i| (5..8).contains(&i));
        w.write(0, &all);
        w.zero(10, 3 * 4096).unwrap();
        check(&w, &|i| (10..10 + 3 * 4096).contains(&i));
        w.write(0, &all);
        w.zero(3 * 4096 - 1, 4096 + 100).unwrap();
        check(&w, &|i| !(99..3 * 4096 - 1).contains(&i));
        w.zero(1, u64::MAX).unwrap();
        check(&w, &|_| true);
    }
}
