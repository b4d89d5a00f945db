//! Memory for translated code that is not writable where it runs.
//!
//! The memory is mapped twice: once to be executed and once to be written. No address is both writable and
//! executable. Only this process's own data has the address of the writable mapping.

use crate::Error;
use crate::memory::Mapping;
use std::ptr::null_mut;

/// Memory for code. It is zero at first, and pages that are never written take no memory.
pub struct Executable {
    /// Address of the executable mapping.
    run: *mut u8,
    /// The writable mapping.
    write: Mapping,
}

// SAFETY: the mappings are ordinary memory, and only the owner writes them.
unsafe impl Send for Executable {}

impl Executable {
    /// Maps `len` bytes. Does not use a memory file, whose size would count against the limit on file sizes.
    pub fn new(len: usize) -> Result<Executable, Error> {
        let exec = libc::PROT_READ | libc::PROT_EXEC;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let run = unsafe { libc::mmap(null_mut(), len, exec, flags, -1, 0) };
        if run == libc::MAP_FAILED {
            return Err(Error::address_space(len));
        }
        // SAFETY: maps the same memory a second time; a length of 0 moves nothing.
        let write = unsafe { libc::mremap(run, 0, len, libc::MREMAP_MAYMOVE) };
        if write == libc::MAP_FAILED {
            let error = Error::address_space(len);
            // SAFETY: our own mapping, and nobody uses it.
            unsafe { libc::munmap(run, len) };
            return Err(error);
        }
        // SAFETY: nobody else uses this mapping.
        let write = unsafe { Mapping::of(write.cast(), len) };
        let code = Executable {
            run: run.cast(),
            write,
        };
        // SAFETY: our own mappings. The advice may fail without harm.
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

    /// Address at which the code runs.
    pub fn base(&self) -> u64 {
        self.run as u64
    }

    pub fn len(&self) -> usize {
        self.write.len()
    }

    /// Writes code at `offset`. No code of this memory may run meanwhile.
    pub fn put(&mut self, offset: usize, code: &[u8]) {
        assert!(
            offset
                .checked_add(code.len())
                .is_some_and(|end| end <= self.len())
        );
        // SAFETY: the range lies within the mapping, to which no references exist.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.write.base().add(offset), code.len());
        }
    }

    /// Replaces the four bytes at `offset` and returns the old ones. `None` if they are not all in this
    /// memory. Makes no calls.
    #[inline(always)]
    pub fn replace(&mut self, offset: usize, new: i32) -> Option<i32> {
        let end = offset.checked_add(4)?;
        if end > self.len() {
            return None;
        }
        // SAFETY: the range lies within the mapping, to which no references exist.
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

/// Makes the processor forget code that it fetched before it was written through the other mapping. The
/// manuals demand a serializing instruction for that. This one is a return from an interrupt to the next
/// instruction. Changes no vector registers.
#[inline(always)]
pub fn code_was_written() {
    // SAFETY: continues at the next instruction with the same stack, flags and segments.
    unsafe {
        std::arch::asm!(
            // The program may have left the nested-task flag set; with it, `iretq` is another operation.
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

    /// The access rights of the mapping that begins at `at`, from /proc.
    fn rights(at: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|l| l.starts_with(&format!("{at:x}-")));
        line.and_then(|l| l.split(' ').nth(1)).unwrap().to_string()
    }

    #[test]
    fn nothing_is_writable_where_it_runs() {
        let mut code = Executable::new(1 << 20).unwrap();
        for (at, value) in [(0, 41), (8192, 42)] {
            // The code is `mov eax, value; ret`.
            code.put(at, &[0xb8, value, 0, 0, 0, 0xc3]);
            code_was_written();
            // SAFETY: a function without arguments that changes only eax.
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
