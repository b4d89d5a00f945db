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
    /// Memory of `len` bytes.
    pub fn new(len: usize) -> Result<Executable, Error> {
        let file = MemoryFile::new(len)?;
        let write = file.map(len, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: it is not used otherwise.
        let write = unsafe { Mapping::of(write, len) };
        let run = file.map(len, libc::PROT_READ | libc::PROT_EXEC)?;
        // SAFETY: advice about our own mappings; whether it is taken does not matter.
        unsafe {
            libc::madvise(run.cast(), len, libc::MADV_HUGEPAGE);
            libc::madvise(write.base().cast(), len, libc::MADV_HUGEPAGE);
        }
        Ok(Executable { run, write })
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

/// A file that is only in memory.
struct MemoryFile(libc::c_int);

impl MemoryFile {
    fn new(len: usize) -> Result<MemoryFile, Error> {
        // SAFETY: plain system calls.
        unsafe {
            let fd = libc::memfd_create(c"hindsight-code".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(Error::last_os("cannot create a memory file"));
            }
            let file = MemoryFile(fd);
            if libc::ftruncate(fd, len as libc::off_t) != 0 {
                return Err(Error::last_os("cannot size a memory file"));
            }
            Ok(file)
        }
    }

    fn map(&self, len: usize, prot: libc::c_int) -> Result<*mut u8, Error> {
        // SAFETY: a fresh mapping at an address of the system's choice.
        let p = unsafe { libc::mmap(null_mut(), len, prot, libc::MAP_SHARED, self.0, 0) };
        if p == libc::MAP_FAILED {
            return Err(Error::last_os("cannot map memory for code"));
        }
        Ok(p.cast())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What /proc says of the mappings with this part of a name.
    fn rights(name: &str) -> Vec<(u64, String)> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = maps.lines().filter(|l| l.contains(name));
        own.filter_map(|l| {
            let (range, rest) = l.split_once(' ')?;
            let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
            Some((start, rest.split(' ').next()?.to_string()))
        })
        .collect()
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
        let own = rights("memfd:hindsight-code");
        assert!(
            own.iter().any(|(at, r)| *at == code.base() && r == "r-xs"),
            "{own:?}"
        );
        assert!(
            own.iter()
                .all(|(_, r)| !(r.contains('w') && r.contains('x'))),
            "{own:?}"
        );
    }
}
