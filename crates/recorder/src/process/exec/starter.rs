//! The file that is executed when a recorded process goes on with another program.
//!
//! The recorder's image is in the control file. So the next program image maps it from there,
//! instead of having a copy of its own. What is executed is a file of a few pages. It has a
//! *starter*, a list of the mappings that make the image, and the configuration.

use super::{Fd, NO_MEMORY};
use crate::stream::ring;
use crate::sys::{self, PAGE, arena, config, resources};
use alloc::vec::Vec;
use core::arch::global_asm;
use hindsight_events::config::Config;
use hindsight_events::ring::IMAGE;
use linux_raw_sys::elf::*;
use linux_raw_sys::general::*;

/// Address of the starter: behind the image, and below everything else in the recorder's part of
/// the address space.
const STARTER: u64 = arena::START + (256 << 20);

// The kernel enters here, at any address. Behind the code stand, in words:
//
// 1. the arguments of each `mmap`, six words each, and a zero;
// 2. start and length of what has to be cleared;
// 3. where to go on.
//
// Then follows the configuration.
global_asm!(
    ".globl hindsight_starter, hindsight_starter_end",
    ".balign 16",
    "hindsight_starter:",
    "lea rbx, [rip + hindsight_starter_end]",
    "2:",
    "mov rdi, [rbx]",
    "test rdi, rdi",
    "jz 3f",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "mov r8, [rbx + 32]",
    "mov r9, [rbx + 40]",
    "mov eax, {mmap}",
    "syscall",
    "cmp rax, [rbx]",
    "jne 4f",
    "add rbx, 48",
    "jmp 2b",
    "3:",
    "mov rdi, [rbx + 8]",
    "mov rcx, [rbx + 16]",
    "xor eax, eax",
    "rep stosb",
    "lea rsi, [rbx + 32]",
    "jmp qword ptr [rbx + 24]",
    "4:",
    "mov edi, 2",
    "lea rsi, [rip + 5f]",
    "lea rdx, [rip + 6f]",
    "sub rdx, rsi",
    "mov eax, {write}",
    "syscall",
    "mov edi, {status}",
    "mov eax, {exit}",
    "syscall",
    "ud2",
    "5:",
    ".ascii \"hindsight: the program that was executed leaves no address space for the recorder; it ends\\n\"",
    "6:",
    ".balign 8",
    "hindsight_starter_end:",
    mmap = const __NR_mmap,
    write = const __NR_write,
    exit = const __NR_exit_group,
    status = const crate::sys::fail::STATUS,
);

unsafe extern "C" {
    static hindsight_starter: u8;
    static hindsight_starter_end: u8;
    static hindsight_configured: u8;
}

/// Makes the file that starts the recorder with this configuration. The error says why that failed.
pub fn make(c: &Config) -> Result<Fd, &'static str> {
    let file = sys::memfd_create(c"hindsight").map_err(|_| "no file descriptor is free")?;
    let file = Fd(file);
    let done = match ring::recorder() {
        Some(_) if c.ctl_fd >= 0 => {
            let bytes = starter(c);
            fits(bytes.len() as u64)?;
            sys::pwrite(file.0, &bytes, 0)
        }
        _ => {
            let offset = config_offset().ok_or("the recorder's image has an unknown form")?;
            copy_own(file.0)?;
            sys::pwrite(file.0, c.as_bytes(), offset)
        }
    };
    if done { Ok(file) } else { Err(NO_MEMORY) }
}

/// The program headers of the recorder's image.
fn headers() -> &'static [Elf_Phdr] {
    // SAFETY: the image is loaded at `START`, is never unmapped, and begins with its ELF header and
    // program headers.
    unsafe {
        let eh = &*(arena::START as *const Elf_Ehdr);
        let ph = (arena::START + eh.e_phoff as u64) as *const Elf_Phdr;
        core::slice::from_raw_parts(ph, eh.e_phnum as usize)
    }
}

/// An executable file that maps the recorder's image from the control file `c.ctl_fd`.
fn starter(c: &Config) -> Vec<u8> {
    const EHDR: usize = size_of::<Elf_Ehdr>();
    const PHDR: usize = size_of::<Elf_Phdr>();
    let code = {
        let (start, end) = (
            &raw const hindsight_starter,
            &raw const hindsight_starter_end,
        );
        // SAFETY: both symbols are in the image's code, the second one behind the first.
        unsafe { core::slice::from_raw_parts(start, end as usize - start as usize) }
    };
    let entry = (EHDR + 2 * PHDR).next_multiple_of(16);
    let mut out = Vec::with_capacity(4 * PAGE as usize);
    out.resize(entry, 0);
    out.extend_from_slice(code);
    let mut word = |v: u64| out.extend_from_slice(&v.to_le_bytes());
    let mut clear = (0, 0);
    for p in headers().iter().filter(|p| p.p_type == PT_LOAD) {
        let [start, file, memory] = [p.p_vaddr, p.p_filesz, p.p_memsz].map(|v| v as u64);
        let skip = start % PAGE;
        let end = start + file;
        let file_end = end.next_multiple_of(PAGE);
        let prot = [(PF_R, PROT_READ), (PF_W, PROT_WRITE), (PF_X, PROT_EXEC)]
            .into_iter()
            .filter(|(flag, _)| p.p_flags & flag != 0)
            .fold(0, |all, (_, prot)| all | prot) as u64;
        let fixed = (MAP_PRIVATE | MAP_FIXED) as u64;
        let offset = IMAGE as u64 + p.p_offset as u64 - skip;
        let of_file = [
            start - skip,
            file_end - (start - skip),
            prot,
            fixed,
            c.ctl_fd as u64,
            offset,
        ];
        of_file.into_iter().for_each(&mut word);
        if memory > file {
            clear = (end, file_end - end);
        }
        if start + memory > file_end {
            let (len, fresh) = (start + memory - file_end, fixed | MAP_ANONYMOUS as u64);
            [
                file_end,
                len.next_multiple_of(PAGE),
                prot,
                fresh,
                u64::MAX,
                0,
            ]
            .into_iter()
            .for_each(&mut word);
        }
    }
    let go_on = &raw const hindsight_configured as u64;
    [0, clear.0, clear.1, go_on].into_iter().for_each(&mut word);
    out.extend_from_slice(c.as_bytes());
    let len = out.len() as u64;
    // SAFETY: the recorder's image is loaded at `START` and begins with its ELF header.
    let mut eh = unsafe { (arena::START as *const Elf_Ehdr).read() };
    eh.e_entry = (STARTER + entry as u64) as _;
    eh.e_phoff = EHDR as _;
    eh.e_phnum = 2;
    (eh.e_shoff, eh.e_shnum, eh.e_shstrndx) = (0, 0, 0);
    // SAFETY: the structures consist of integers, for which zero is valid.
    let (mut load, mut stack): (Elf_Phdr, Elf_Phdr) = unsafe { core::mem::zeroed() };
    load.p_type = PT_LOAD;
    load.p_flags = PF_R | PF_X;
    load.p_vaddr = STARTER as _;
    (load.p_filesz, load.p_memsz) = (len as _, len as _);
    load.p_align = PAGE as _;
    stack.p_type = PT_GNU_STACK;
    stack.p_flags = PF_R | PF_W;
    stack.p_align = 16;
    // SAFETY: `out` is longer than `entry`, which leaves room for the header and two program
    // headers. They are structures of integers without padding.
    unsafe {
        let at = out.as_mut_ptr();
        at.cast::<Elf_Ehdr>().write_unaligned(eh);
        at.add(EHDR)
            .cast::<[Elf_Phdr; 2]>()
            .write_unaligned([load, stack]);
    }
    out
}

/// Copies the recorder's image, as it was executed, to the file `to`.
fn copy_own(to: i32) -> Result<(), &'static str> {
    let own = sys::open_read(c"/proc/self/exe").map_err(|_| "/proc is out of reach")?;
    let own = Fd(own);
    let len = sys::fstat(own.0).map_or(0, |s| s.st_size as u64);
    fits(len)?;
    if sys::copy_file(own.0, to, len) {
        Ok(())
    } else {
        Err(NO_MEMORY)
    }
}

fn fits(len: u64) -> Result<(), &'static str> {
    match len <= resources::get(RLIMIT_FSIZE).0 {
        true => Ok(()),
        false => Err("the limit on the size of files is too low"),
    }
}

/// Offset of the configuration in the recorder's file.
fn config_offset() -> Option<u64> {
    let at = core::ptr::from_ref(config::get()) as usize;
    headers()
        .iter()
        .filter(|p| p.p_type == PT_LOAD)
        .find(|p| (p.p_vaddr..p.p_vaddr + p.p_filesz).contains(&at))
        .map(|p| (at - p.p_vaddr + p.p_offset) as u64)
}

/// Stands for what the crate `image` has, so that tests can be linked.
#[cfg(test)]
mod image {
    #[unsafe(no_mangle)]
    static hindsight_configured: u8 = 0;
}
