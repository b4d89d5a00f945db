//! Loads the program and its ELF interpreter as the kernel would.

use crate::line;
use crate::memory::maps::regions;
use crate::memory::{backing, placement};
use crate::process::stack::Stack;
use crate::sys::fail;
use crate::sys::line::Line;
use crate::sys::{
    self, PAGE, PROT_EXEC, PROT_READ, PROT_WRITE, arena, config, guard, program, quiet,
};
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::fmt::Write;
use core::ops::Range;
use linux_raw_sys::auxvec::*;
use linux_raw_sys::elf::*;
use linux_raw_sys::errno::{ELIBBAD, ENOEXEC};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE};

const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const EHDR: usize = size_of::<Elf_Ehdr>();
const PHDR: usize = size_of::<Elf_Phdr>();

/// Where the kernel puts position-independent programs if it does not randomise addresses.
const DYN_BASE: u64 = 0x5555_5555_4000;
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;

/// A loaded program.
pub struct Program {
    /// The first instruction: the interpreter's, if there is one.
    pub entry: u64,
    /// First address behind the program's data, where the heap begins.
    pub brk: u64,
    /// What was written into its memory, besides mapped files and the stack.
    pub written: Vec<Range<u64>>,
}

/// Why a file was not loaded.
enum Bad {
    Open(i32),
    Format(&'static str),
    /// It is for another architecture.
    Foreign(&'static str),
    Map(u64, i32),
}

struct LoadedElf {
    entry: u64,
    bias: u64,
    /// Lowest address.
    start: u64,
    phdr: u64,
    phnum: u16,
    end: u64,
    interp: Option<CString>,
    /// Whether the stack has to be executable.
    exec_stack: bool,
    path: Vec<u8>,
    extent: Extent,
    /// Ranges that were cleared behind the end of a segment's data.
    written: Vec<Range<u64>>,
}

/// Where a program's code and data lie, as `/proc` shows it.
#[derive(Clone, Copy)]
struct Extent {
    code: (u64, u64),
    data: (u64, u64),
}

impl Extent {
    const NONE: Extent = Extent {
        code: (u64::MAX, 0),
        data: (0, 0),
    };

    /// Adds a segment, in the way that the kernel counts them.
    fn add(&mut self, p: &Elf_Phdr, bias: u64) {
        let start = bias.wrapping_add(p.p_vaddr as u64);
        let end = start + p.p_filesz as u64;
        if p.p_flags & 1 != 0 {
            self.code = (self.code.0.min(start), self.code.1.max(end));
        }
        self.data = (self.data.0.max(start), self.data.1.max(end));
    }
}

/// Loads the program from `fd`, or from `exe` if that is -1. Makes stack and auxiliary vector fit.
/// Ends the process with a message if it cannot.
pub fn load(fd: i32, exe: &CStr, execfn: &CStr, stack: &mut Stack) -> Program {
    let fd = match fd {
        0.. => fd,
        _ => sys::open_read(exe).unwrap_or_else(|e| refuse(exe, Bad::Open(e))),
    };
    let image = load_fd(fd, Some(DYN_BASE)).unwrap_or_else(|e| refuse(exe, e));
    program::set(fd, &image.path, exe.to_bytes());
    sys::close(fd);
    placement::begin(image.start);
    if quiet::possible() {
        if let Some((old, by)) = placement::separate_stack(image.start, image.end) {
            stack.moved(&old, by);
        }
        if let Some(vdso) = placement::separate_vdso(image.start, image.end) {
            stack.set_aux(AT_SYSINFO_EHDR, vdso);
        }
    }
    let interp = image
        .interp
        .as_ref()
        .map(|p| load_file(p, None).unwrap_or_else(|e| refuse(p, e)));
    let [arguments, environment] = stack.strings();
    stack.set_aux(AT_PHDR, image.phdr);
    stack.set_aux(AT_PHENT, PHDR as u64);
    stack.set_aux(AT_PHNUM, image.phnum as u64);
    stack.set_aux(AT_BASE, interp.as_ref().map_or(0, |i| i.bias));
    stack.set_aux(AT_ENTRY, image.entry);
    let mut written = image.written;
    if let Some(i) = &interp {
        written.extend(i.written.iter().cloned());
    }
    if let Some(range) = place_string(execfn) {
        stack.set_aux(AT_EXECFN, range.start);
        written.push(range);
    }
    // The kernel would enter and abort restartable sequences without the recorder's knowledge.
    stack.remove_aux(AT_RSEQ_FEATURE_SIZE);
    stack.remove_aux(AT_RSEQ_ALIGN);
    if config::get().clock_throttle != 0 {
        stack.remove_aux(AT_SYSINFO_EHDR);
    }
    if image.exec_stack {
        make_stack_executable(stack.pointer());
    }
    let name = execfn.to_bytes();
    sys::set_name(name.rsplit(|b| *b == b'/').next().unwrap_or(name));
    let slide = if randomize() {
        random() % (0x200_0000 / PAGE) * PAGE
    } else {
        0
    };
    let brk = image.end.next_multiple_of(PAGE) + slide;
    let Extent { code, data } = image.extent;
    // Read only by others who look at the process, and for core dumps. If the kernel cannot set it,
    // nothing is lost.
    let limits = [code, data, (brk, brk), (stack.pointer(), arguments.0)];
    let [(a, b), (c, d), (e, f), (g, h)] = limits;
    let [i, j, k] = [arguments.1, environment.0, environment.1];
    sys::set_memory_map(&[a, b, c, d, e, f, g, h, i, j, k], stack.aux_bytes());
    Program {
        entry: interp.map_or(image.entry, |i| i.entry),
        brk,
        written,
    }
}

fn refuse(path: &CStr, e: Bad) -> ! {
    let name = core::str::from_utf8(path.to_bytes()).unwrap_or("the program");
    let mut l: Line = line!("{name}: ");
    let status = match e {
        Bad::Open(n) if n == linux_raw_sys::errno::ENOENT as i32 => {
            let _ = l.write_str("no such file");
            127
        }
        Bad::Open(n) => {
            let _ = l.write_fmt(format_args!("cannot be opened (error {n})"));
            126
        }
        Bad::Format(why) | Bad::Foreign(why) => {
            let _ = l.write_str(why);
            126
        }
        Bad::Map(at, n) => {
            let _ = l.write_fmt(format_args!("cannot be mapped at {at:#x} (error {n})"));
            126
        }
    };
    fail::die(status, &l)
}

fn randomize() -> bool {
    sys::personality() & ADDR_NO_RANDOMIZE == 0
}

fn random() -> u64 {
    let mut b = [0; 8];
    sys::getrandom(&mut b);
    u64::from_le_bytes(b)
}

/// Loads one file. A position-independent one goes to `base` or above it, or anywhere if there is
/// no `base`.
fn load_file(path: &CStr, base: Option<u64>) -> Result<LoadedElf, Bad> {
    let fd = sys::open_read(path).map_err(Bad::Open)?;
    let image = load_fd(fd, base);
    sys::close(fd);
    image
}

/// The kernel's answer to an `execve` of an ELF file, as far as it can be known before.
pub enum Verdict {
    /// The recorder can load it.
    Loads,
    /// The kernel would refuse it, with this errno.
    Fails(u32),
    /// The kernel could load it, the recorder cannot, for this reason.
    Native(&'static str),
}

/// Whether [`load`] can load the file.
pub fn check(fd: i32) -> Verdict {
    let (eh, phdrs) = match headers(fd) {
        Ok(h) => h,
        Err(Bad::Foreign(why)) => return Verdict::Native(why),
        Err(_) => return Verdict::Fails(ENOEXEC),
    };
    let fixed = eh.e_type == ET_EXEC;
    let takes = |p: &Elf_Phdr| {
        fixed && p.p_type == PT_LOAD && arena::overlaps(p.p_vaddr as u64, p.p_memsz as u64)
    };
    if phdrs.iter().any(takes) {
        return Verdict::Native("it asks for addresses that the recorder needs");
    }
    let Some(p) = phdrs.iter().find(|p| p.p_type == PT_INTERP) else {
        return Verdict::Loads;
    };
    let Ok(name) = read_interp(fd, p) else {
        return Verdict::Fails(ENOEXEC);
    };
    let interp = match sys::open_read(&name) {
        Ok(i) => i,
        Err(e) => return Verdict::Fails(e as u32),
    };
    let fine = headers(interp).is_ok();
    sys::close(interp);
    if fine {
        Verdict::Loads
    } else {
        Verdict::Fails(ELIBBAD)
    }
}

/// Header and program headers of a file that can be loaded.
fn headers(fd: i32) -> Result<(Elf_Ehdr, Vec<Elf_Phdr>), Bad> {
    let mut head = [0u8; EHDR];
    if sys::pread(fd, &mut head, 0) != Ok(EHDR) || head[..4] != *b"\x7fELF" {
        return Err(Bad::Format("not an ELF program"));
    }
    // SAFETY: `head` has the structure's length, which consists of integers, for which any bytes
    // are valid.
    let eh: Elf_Ehdr = unsafe { core::ptr::read_unaligned(head.as_ptr().cast()) };
    if head[4] != 2 || head[5] != 1 || eh.e_machine != EM_X86_64 {
        return Err(Bad::Foreign("not a program for 64-bit x86"));
    }
    if (eh.e_type != ET_EXEC && eh.e_type != ET_DYN)
        || eh.e_phentsize as usize != PHDR
        || eh.e_phnum == 0
    {
        return Err(Bad::Format("not an executable ELF file"));
    }
    let phdrs = program_headers(fd, &eh)?;
    Ok((eh, phdrs))
}

fn load_fd(fd: i32, base: Option<u64>) -> Result<LoadedElf, Bad> {
    let (eh, phdrs) = headers(fd)?;
    let mut im = LoadedElf {
        entry: 0,
        bias: 0,
        start: u64::MAX,
        phdr: 0,
        phnum: eh.e_phnum,
        end: 0,
        interp: None,
        exec_stack: false,
        path: sys::fd_path(fd),
        extent: Extent::NONE,
        written: Vec::new(),
    };
    for p in &phdrs {
        match p.p_type {
            PT_INTERP if base.is_some() => im.interp = Some(read_interp(fd, p)?),
            PT_GNU_STACK => im.exec_stack = p.p_flags & 1 != 0,
            _ => {}
        }
    }
    im.bias = bias(&eh, &phdrs, base)?;
    if quiet::possible() {
        backing::loaded(fd, &im.path);
    }
    for p in phdrs.iter().filter(|p| p.p_type == PT_LOAD) {
        let start = im.bias.wrapping_add(p.p_vaddr as u64);
        im.written.extend(map_segment(fd, p, im.bias, &im.path)?);
        im.start = im.start.min(start);
        im.extent.add(p, im.bias);
        im.end = im.end.max(start + p.p_memsz as u64);
        let file = p.p_offset..p.p_offset.saturating_add(p.p_filesz);
        if file.contains(&eh.e_phoff) {
            im.phdr = start + (eh.e_phoff - p.p_offset) as u64;
        }
    }
    if let Some(p) = phdrs.iter().find(|p| p.p_type == PT_PHDR) {
        im.phdr = im.bias.wrapping_add(p.p_vaddr as u64);
    }
    im.entry = im.bias.wrapping_add(eh.e_entry as u64);
    Ok(im)
}

fn program_headers(fd: i32, eh: &Elf_Ehdr) -> Result<Vec<Elf_Phdr>, Bad> {
    let mut bytes = vec![0; eh.e_phnum as usize * PHDR];
    if sys::pread(fd, &mut bytes, eh.e_phoff as u64) != Ok(bytes.len()) {
        return Err(Bad::Format("its program headers cannot be read"));
    }
    // SAFETY: each chunk has the length of a header, which consists of integers, for which any
    // bytes are valid.
    let all: Vec<Elf_Phdr> = bytes
        .chunks_exact(PHDR)
        .map(|c| unsafe { core::ptr::read_unaligned(c.as_ptr().cast()) })
        .collect();
    for p in all.iter().filter(|p| p.p_type == PT_LOAD) {
        let fits = p
            .p_vaddr
            .checked_add(p.p_memsz)
            .is_some_and(|e| e < 1 << 47)
            && p.p_filesz <= p.p_memsz;
        if !fits || !((p.p_vaddr ^ p.p_offset) as u64).is_multiple_of(PAGE) {
            return Err(Bad::Format("a segment of it cannot be mapped"));
        }
    }
    if !all.iter().any(|p| p.p_type == PT_LOAD) {
        return Err(Bad::Format("it has nothing to load"));
    }
    Ok(all)
}

fn read_interp(fd: i32, p: &Elf_Phdr) -> Result<CString, Bad> {
    let bad = Bad::Format("its interpreter's name cannot be read");
    if !(2..=4096).contains(&p.p_filesz) {
        return Err(bad);
    }
    let mut name = vec![0; p.p_filesz];
    if sys::pread(fd, &mut name, p.p_offset as u64) != Ok(name.len()) {
        return Err(bad);
    }
    CStr::from_bytes_until_nul(&name)
        .map(CString::from)
        .map_err(|_| bad)
}

/// The difference between the file's addresses and those in memory. `base` as in [`load_file`].
fn bias(eh: &Elf_Ehdr, phdrs: &[Elf_Phdr], base: Option<u64>) -> Result<u64, Bad> {
    if eh.e_type == ET_EXEC {
        return Ok(0);
    }
    let loads = || phdrs.iter().filter(|p| p.p_type == PT_LOAD);
    let low = loads().map(|p| p.p_vaddr as u64).min().unwrap_or(0) & !(PAGE - 1);
    let high = loads()
        .map(|p| (p.p_vaddr + p.p_memsz) as u64)
        .max()
        .unwrap_or(0);
    let align = loads()
        .map(|p| p.p_align as u64)
        .filter(|a| a.is_power_of_two())
        .max()
        .unwrap_or(PAGE)
        .max(PAGE);
    let len = (high - low).next_multiple_of(PAGE);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // The range is found by mapping it. It can be given back at once, since nothing else runs in
    // the process yet.
    let at = match base {
        Some(b) => {
            let randomize = randomize();
            let slide = |n: u64| match randomize {
                true => random() % (1 << 28) * PAGE,
                false => n << 24,
            };
            // The addresses of a quiet program must not meet those of its stack.
            let tries = if quiet::possible() { 256 } else { 1 };
            let mut all = (0..tries).map(|n| (b + slide(n)) & !(align - 1));
            let at = all.find(|at| tries == 1 || !placement::meets_any(*at, len));
            let at = at.unwrap_or(b);
            sys::mmap(at, len, 0, flags | MAP_FIXED_NOREPLACE, -1, 0)
        }
        None => match placement::choose(len, align) {
            Some(at) => sys::mmap(at, len, 0, flags | MAP_FIXED_NOREPLACE, -1, 0),
            None => sys::mmap(0, len, 0, flags, -1, 0),
        },
    };
    let at = at.map_err(|e| Bad::Map(0, e))?;
    let _ = sys::munmap(at, len);
    Ok(at.wrapping_sub(low))
}

/// Maps a segment. Returns the range that was cleared behind its data.
fn map_segment(fd: i32, p: &Elf_Phdr, bias: u64, path: &[u8]) -> Result<Option<Range<u64>>, Bad> {
    let mut prot = 0;
    for (flag, bit) in [(4, PROT_READ), (2, PROT_WRITE), (1, PROT_EXEC)] {
        prot |= if p.p_flags & flag != 0 { bit } else { 0 };
    }
    let start = bias.wrapping_add(p.p_vaddr as u64);
    let file_end = start + p.p_filesz as u64;
    let end = (start + p.p_memsz as u64).next_multiple_of(PAGE);
    let page = start & !(PAGE - 1);
    if end <= page {
        return Ok(None);
    }
    let mut cleared = None;
    if arena::overlaps(page, end - page) {
        return Err(Bad::Format("it asks for addresses that the recorder needs"));
    }
    let mut at = page;
    if p.p_filesz > 0 {
        let len = (file_end - page).next_multiple_of(PAGE);
        let offset = p.p_offset as u64 - (start - page);
        let flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
        sys::mmap(page, len, prot, flags, fd, offset).map_err(|e| Bad::Map(page, e))?;
        regions().add(page, len, prot, MAP_PRIVATE, offset, path);
        at = page + len;
        if p.p_memsz > p.p_filesz && prot & PROT_WRITE != 0 {
            let zeros = [0u8; PAGE as usize];
            // A fault means that the file is shorter than it says. The kernel ignores that, too.
            let _ = guard::write(file_end, &zeros[..(at - file_end) as usize]);
            cleared = Some(file_end..at);
        }
    }
    if at < end {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        sys::mmap(at, end - at, prot, flags, -1, 0).map_err(|e| Bad::Map(at, e))?;
        regions().add(at, end - at, prot, flags, 0, b"");
    }
    Ok(cleared)
}

/// Puts a string where the program can read it. `None` if there is no memory.
fn place_string(s: &CStr) -> Option<Range<u64>> {
    let bytes = s.to_bytes_with_nul();
    let len = (bytes.len() as u64).next_multiple_of(PAGE);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    let chosen = placement::choose(len, PAGE).map(|at| (at, flags | MAP_FIXED_NOREPLACE));
    let (at, how) = chosen.unwrap_or((0, flags));
    let at = sys::mmap(at, len, PROT_READ | PROT_WRITE, how, -1, 0).ok()?;
    guard::write(at, bytes).ok()?;
    regions().add(at, len, PROT_READ | PROT_WRITE, flags, 0, b"");
    Some(at..at + bytes.len() as u64)
}

fn make_stack_executable(sp: u64) {
    const PROT_GROWSDOWN: u32 = 0x0100_0000;
    let page = sp & !(PAGE - 1);
    let prot = PROT_READ | PROT_WRITE | PROT_EXEC;
    if sys::mprotect(page, PAGE, prot | PROT_GROWSDOWN).is_ok() {
        let mut r = regions();
        let found = r.find(sp).map(|r| (r.start, r.end));
        if let Some((start, end)) = found {
            r.protect(start, end - start, prot);
        }
    }
}
