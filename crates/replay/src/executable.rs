//! Memory for translated code, which nobody can write where it runs.
//!
//! It is mapped twice: to be executed, and elsewhere to be written. What is written through the second is executed
//! through the first, so neither is both; and where the second is nobody knows but this process's own memory.

use crate::Error;
use crate::memory::Mapping;
use std::ptr::null_mut;

/// Zeros at first, which take memory only where something is written.
pub struct Executable {
    /// Where it is executed.
    run: *mut u8,
    /// Where it is written.
    write: Mapping,
}

// SAFETY: the mappings are memory like any other; who writes them is up to their owner.
unsafe impl Send for Executable {}

impl Executable {
    /// Memory of `len` bytes. Not a file in memory, whose size would count against the limit of files.
    pub fn new(len: usize) -> Result<Executable, Error> {
        let exec = libc::PROT_READ | libc::PROT_EXEC;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let run = unsafe { libc::mmap(null_mut(), len, exec, flags, -1, 0) };
        if run == libc::MAP_FAILED {
            return Err(Error::address_space(len));
        }
        // SAFETY: a second mapping of the same memory, since none of the first is to be moved.
        let write = unsafe { libc::mremap(run, 0, len, libc::MREMAP_MAYMOVE) };
        if write == libc::MAP_FAILED {
            let error = Error::address_space(len);
            // SAFETY: our own mapping, which nobody has.
            unsafe { libc::munmap(run, len) };
            return Err(error);
        }
        // SAFETY: it is not used otherwise.
        let write = unsafe { Mapping::of(write.cast(), len) };
        let code = Executable {
            run: run.cast(),
            write,
        };
        // SAFETY: our own mappings; whether the advice is taken does not matter.
        let changed = unsafe {
            libc::madvise(run, len, libc::MADV_HUGEPAGE);
            let write = libc::PROT_READ | libc::PROT_WRITE;
            libc::mprotect(code.write.base().cast(), len, write)
        };
        match changed {
            0 => Ok(code),
            _ => Err(Error::last_os("cannot map memory for code")),
        }
    }

    /// Where it is executed.
    pub fn base(&self) -> u64 {
        self.run as u64
    }

    pub fn len(&self) -> usize {
        self.write.len()
    }

    /// Puts code at `offset`. No code of this memory runs meanwhile.
    pub fn put(&mut self, offset: usize, code: &[u8]) {
        assert!(
            offset
                .checked_add(code.len())
                .is_some_and(|end| end <= self.len())
        );
        // SAFETY: within the mapping, of which there are no references.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.write.base().add(offset), code.len());
        }
    }

    /// Replaces the four bytes at `offset`, and returns what was there; `None` if they are not in this memory. Calls nothing.
    #[inline(always)]
    pub fn replace(&mut self, offset: usize, new: i32) -> Option<i32> {
        let end = offset.checked_add(4)?;
        if end > self.len() {
            return None;
        }
        // SAFETY: within the mapping, of which there are no references.
        Some(unsafe {
            let p = self.write.base().add(offset).cast::<i32>();
            let old = p.read_unaligned();
            p.write_unaligned(new);
            old
        })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: our own mapping, no longer used.
        unsafe { libc::munmap(self.run.cast(), self.len()) };
    }
}

/// Has the processor forget what it has fetched of code that was written at another address than that where it runs,
/// which manuals demand: by a return from an interrupt to the next instruction. Changes no vector registers.
#[inline(always)]
pub fn code_was_written() {
    // SAFETY: goes on behind itself with the same stack, flags and segments.
    unsafe {
        std::arch::asm!(
            // A program may have left the flag of nested tasks, with which the return is another one.
            "push 0x202",
            "popfq",
            "mov {old}, rsp",
            "mov {s:e}, ss",
            "push {s}",
            "push {old}",
            "pushfq",
            "mov {s:e}, cs",
            "push {s}",
            "lea {s}, [rip + 2f]",
            "push {s}",
            "iretq",
            "2:",
            s = out(reg) _,
            old = out(reg) _,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What /proc says may be done with the memory that begins at an address.
    fn rights(at: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|l| l.starts_with(&format!("{at:x}-")));
        line.and_then(|l| l.split(' ').nth(1)).unwrap().to_string()
    }

    #[test]
    fn nothing_is_writable_where_it_runs() {
        let mut code = Executable::new(1 << 20).unwrap();
        for (at, value) in [(0, 41), (8192, 42)] {
            // mov eax, value; ret
            code.put(at, &[0xb8, value, 0, 0, 0, 0xc3]);
            code_was_written();
            // SAFETY: a function without arguments that changes eax.
            let run = |at: usize| unsafe {
                let f: extern "C" fn() -> i32 = std::mem::transmute(code.base() as usize + at);
                f()
            };
            assert_eq!(run(at), value as i32);
        }
        assert_eq!(code.replace(8193, 43), Some(42));
        assert_eq!(code.replace((1 << 20) - 3, 43), None);
        let written = code.write.base() as u64;
        assert_ne!(written, code.base());
        assert_eq!(rights(code.base()), "r-xs");
        assert_eq!(rights(written), "rw-s");
    }
}
