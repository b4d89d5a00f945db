//! The stack that the kernel made for the process. It becomes the program's. Arguments, environment
//! and most of the auxiliary vector are the program's already.

use core::ops::Range;
use linux_raw_sys::auxvec::{
    AT_BASE_PLATFORM, AT_EXECFN, AT_IGNORE, AT_NULL, AT_PLATFORM, AT_RANDOM,
};

/// The initial stack.
pub struct Stack {
    sp: *mut u64,
    aux: *mut [u64; 2],
}

impl Stack {
    /// The stack at `sp`.
    /// # Safety
    /// `sp` is the stack pointer at process start, and nothing has changed what is above it.
    pub unsafe fn new(sp: *mut u64) -> Stack {
        // SAFETY: at `sp` the kernel has put the number of arguments, as many pointers and a zero.
        // Then come the environment's pointers and a zero, then the pairs of the auxiliary vector
        // up to `AT_NULL`. The caller promises that nothing has changed that. The loop stops at the
        // zero behind the environment.
        unsafe {
            let mut p = sp.add(2 + sp.read() as usize);
            while p.read() != 0 {
                p = p.add(1);
            }
            Stack {
                sp,
                aux: p.add(1).cast(),
            }
        }
    }

    /// The stack pointer with which the program begins.
    pub fn pointer(&self) -> u64 {
        self.sp as u64
    }

    /// The arguments as the kernel has put them there, each with its zero, one behind the other.
    pub fn arguments(&mut self) -> &'static [u8] {
        // Behind them is the text of the environment, and behind that the file's name.
        let name = self.aux(AT_EXECFN);
        // SAFETY: behind the number of arguments stand their addresses and a zero, then those of
        // the environment and a zero. The strings stay there at least until the program runs.
        unsafe {
            let n = self.sp.read() as usize;
            let (first, variable) = (self.sp.add(1).read(), self.sp.add(n + 2).read());
            let end = if variable != 0 { Some(variable) } else { name };
            let len = end.unwrap_or(0).saturating_sub(first);
            if n == 0 {
                return &[];
            }
            core::slice::from_raw_parts(first as *const u8, len as usize)
        }
    }

    fn entry(&mut self, key: u32) -> Option<&mut [u64; 2]> {
        let mut p = self.aux;
        loop {
            // SAFETY: `p` is an entry: the loop stops at `AT_NULL`. The vector is reached through
            // `self` only.
            let e = unsafe { &mut *p };
            match e[0] {
                k if k == key as u64 => return Some(e),
                k if k == AT_NULL as u64 => return None,
                // SAFETY: this entry is not `AT_NULL`, so there is another one.
                _ => p = unsafe { p.add(1) },
            }
        }
    }

    /// Start and end of the arguments' text, and of the environment's. Valid only until `AT_EXECFN`
    /// is changed.
    pub fn strings(&mut self) -> [(u64, u64); 2] {
        let end = self.aux(AT_EXECFN).unwrap_or(0);
        // SAFETY: behind the number of arguments stand that many addresses and a zero, then those
        // of the environment and a zero. The strings lie one behind the other, and behind them the
        // name of the file.
        unsafe {
            let arguments = self.sp.add(1);
            let environment = arguments.add(self.sp.read() as usize + 1);
            let first = |list: *const u64| match list.read() {
                0 => end,
                p => p,
            };
            let middle = first(environment);
            let start = match arguments.read() {
                0 => middle,
                p => p,
            };
            [(start, middle), (middle, end)]
        }
    }

    /// The auxiliary vector as it is now.
    pub fn aux_bytes(&self) -> &[u8] {
        let mut n = 1;
        // SAFETY: the loop stops at `AT_NULL`, which counts. So `n` entries are there.
        unsafe {
            while (*self.aux.add(n - 1))[0] != AT_NULL as u64 {
                n += 1;
            }
            core::slice::from_raw_parts(self.aux.cast(), n * size_of::<[u64; 2]>())
        }
    }

    /// A value of the auxiliary vector.
    pub fn aux(&mut self, key: u32) -> Option<u64> {
        self.entry(key).map(|e| e[1])
    }

    /// Changes a value that the kernel has put there. Does nothing if there is none.
    pub fn set_aux(&mut self, key: u32, value: u64) {
        if let Some(e) = self.entry(key) {
            e[1] = value;
        }
    }

    /// Follows a move of the memory at `old` by `by` bytes, modulo 2^64. Corrects all pointers into
    /// it.
    pub fn moved(&mut self, old: &Range<u64>, by: u64) {
        let place = |p: u64| match old.contains(&p) {
            true => p.wrapping_add(by),
            false => p,
        };
        self.sp = place(self.sp as u64) as *mut u64;
        self.aux = place(self.aux as u64) as *mut [u64; 2];
        // SAFETY: the memory is at its new place already, and `sp` and `aux` point there. Between
        // the number of arguments and `aux` stand pointers and zeros. From `aux` on stand pairs,
        // and the loop stops at `AT_NULL`. Nobody else has references to them.
        unsafe {
            let mut p = self.sp.add(1);
            while p < self.aux.cast() {
                p.write(place(p.read()));
                p = p.add(1);
            }
            let mut e = self.aux;
            while (*e)[0] != AT_NULL as u64 {
                if [AT_PLATFORM, AT_BASE_PLATFORM, AT_RANDOM, AT_EXECFN]
                    .map(u64::from)
                    .contains(&(*e)[0])
                {
                    (*e)[1] = place((*e)[1]);
                }
                e = e.add(1);
            }
        }
    }

    /// Makes the program overlook an entry.
    pub fn remove_aux(&mut self, key: u32) {
        if let Some(e) = self.entry(key) {
            *e = [AT_IGNORE as u64, 0];
        }
    }
}
