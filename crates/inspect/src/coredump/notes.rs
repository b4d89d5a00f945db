//! The notes of a core dump: what it says besides memory. Their layout is the kernel's, for x86-64.

use crate::siginfo::{SIGNAL_INFO_LEN, SignalInfo};
use hindsight_timeline::regs::*;
use hindsight_timeline::{CpuState, VecState};
use object::elf::{
    NT_AUXV, NT_FILE, NT_PRFPREG, NT_PRPSINFO, NT_PRSTATUS, NT_SIGINFO, NT_X86_XSTATE,
};

/// Segment selectors of 64-bit programs.
const CODE: u64 = 0x33;
const STACK: u64 = 0x2b;
/// Interrupts are enabled, and bit 1 is always set.
const ALWAYS: u64 = 0x202;
/// What the kernel has for the number of the system call where a thread is in none.
const NO_CALL: u64 = u64::MAX;

/// Bytes of `struct elf_prstatus`, and where its parts are.
const STATUS_LEN: usize = 336;
const STATUS_SIGNAL: usize = 12;
const STATUS_PID: usize = 32;
const STATUS_REGISTERS: usize = 112;
const STATUS_HAS_FP: usize = 328;

/// Bytes of `struct elf_prpsinfo`, and where its parts are.
const INFO_LEN: usize = 136;
const INFO_PID: usize = 24;
const INFO_NAME: usize = 40;
const INFO_NAME_LEN: usize = 16;
const INFO_ARGUMENTS: usize = 56;
const INFO_ARGUMENTS_LEN: usize = 80;

/// Bytes of the area of FXSAVE.
const FXSAVE_LEN: usize = 512;
/// The bits of MXCSR that may be set.
const MXCSR_MASK: u32 = 0xffff;
/// The area of XSAVE in the layout of processors with AVX-512, by which readers know it. Its parts are: high halves of
/// ymm0 to ymm15, k0 to k7, high halves of zmm0 to zmm15, zmm16 to zmm31.
const XSAVE_LEN: usize = 2688;
const XSAVE_YMM: usize = 576;
const XSAVE_MASKS: usize = 1088;
const XSAVE_ZMM: usize = 1152;
const XSAVE_HIGH: usize = 1664;
/// Where the area says which components it has. First for programs, as the kernel does, then for the processor.
const XSAVE_KERNEL: usize = 464;
const XSAVE_HEADER: usize = 512;
/// x87, SSE, AVX, and the three components of AVX-512.
const COMPONENTS: u64 = 0xe7;

/// A thread at the instant of a core dump.
pub struct Thread {
    pub tid: i32,
    pub cpu: CpuState,
    pub vectors: Box<VecState>,
}

/// The process.
#[derive(Default)]
pub struct Process {
    pub pid: i32,
    /// 0: not known.
    pub parent: i32,
    pub name: String,
    pub arguments: String,
}

/// A mapping of a file.
pub struct FileMapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

/// Notes, one after the other.
#[derive(Default)]
pub struct Notes(pub Vec<u8>);

impl Notes {
    fn add(&mut self, owner: &str, kind: u32, content: &[u8]) {
        let out = &mut self.0;
        for n in [owner.len() as u32 + 1, content.len() as u32, kind] {
            out.extend(n.to_le_bytes());
        }
        for part in [owner.as_bytes(), &[0]] {
            out.extend_from_slice(part);
        }
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(4), 0);
    }

    /// What is known of the first thread, in the kernel's order: the notes of the process are among its notes.
    pub fn first(
        &mut self,
        thread: &Thread,
        process: &Process,
        signal: Option<(SignalInfo, [u8; SIGNAL_INFO_LEN])>,
        auxv: &[u8],
        files: &[FileMapping],
    ) {
        let number = signal.map(|s| s.0);
        self.add("CORE", NT_PRSTATUS, &status(thread, process, number));
        self.add("CORE", NT_PRPSINFO, &info(process));
        if let Some((_, whole)) = signal {
            self.add("CORE", NT_SIGINFO, &whole);
        }
        self.add("CORE", NT_AUXV, auxv);
        self.add("CORE", NT_FILE, &mapped(files));
        self.vectors(&thread.vectors);
    }

    /// The same of another thread.
    pub fn other(&mut self, thread: &Thread, process: &Process, signal: Option<SignalInfo>) {
        self.add("CORE", NT_PRSTATUS, &status(thread, process, signal));
        self.vectors(&thread.vectors);
    }

    fn vectors(&mut self, v: &VecState) {
        let area = xsave(v);
        let mut legacy = area[..FXSAVE_LEN].to_vec();
        legacy[XSAVE_KERNEL..].fill(0);
        self.add("CORE", NT_PRFPREG, &legacy);
        self.add("LINUX", NT_X86_XSTATE, &area);
    }
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

/// `struct elf_prstatus`.
fn status(t: &Thread, process: &Process, signal: Option<SignalInfo>) -> [u8; STATUS_LEN] {
    let mut out = [0; STATUS_LEN];
    if let Some(s) = signal {
        put(&mut out, 0, &i32::from(s.number).to_le_bytes());
        put(&mut out, 4, &s.code.to_le_bytes());
        put(&mut out, STATUS_SIGNAL, &u16::from(s.number).to_le_bytes());
    }
    put(&mut out, STATUS_PID, &t.tid.to_le_bytes());
    put(&mut out, STATUS_PID + 4, &process.parent.to_le_bytes());
    let (c, g) = (&t.cpu, &t.cpu.gpr);
    // The order of `struct user_regs_struct`.
    let registers = [
        g[R15],
        g[R14],
        g[R13],
        g[R12],
        g[RBP],
        g[RBX],
        g[R11],
        g[R10],
        g[R9],
        g[R8],
        g[RAX],
        g[RCX],
        g[RDX],
        g[RSI],
        g[RDI],
        NO_CALL,
        c.rip,
        CODE,
        c.rflags | ALWAYS,
        g[RSP],
        STACK,
        c.fs_base,
        c.gs_base,
        0,
        0,
        0,
        0,
    ];
    for (i, r) in registers.iter().enumerate() {
        put(&mut out, STATUS_REGISTERS + 8 * i, &r.to_le_bytes());
    }
    out[STATUS_HAS_FP] = 1;
    out
}

/// `struct elf_prpsinfo`.
fn info(p: &Process) -> [u8; INFO_LEN] {
    let mut out = [0; INFO_LEN];
    // It runs.
    out[1] = b'R';
    put(&mut out, INFO_PID, &p.pid.to_le_bytes());
    put(&mut out, INFO_PID + 4, &p.parent.to_le_bytes());
    for (text, at, len) in [
        (&p.name, INFO_NAME, INFO_NAME_LEN),
        (&p.arguments, INFO_ARGUMENTS, INFO_ARGUMENTS_LEN),
    ] {
        let text = printable(text);
        // A zero ends it.
        put(&mut out, at, &text.as_bytes()[..text.len().min(len - 1)]);
    }
    out
}

/// Debuggers print these texts as they are, and they must not command a terminal.
fn printable(text: &str) -> String {
    let show = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(show).collect()
}

/// The list of mapped files: their number, the unit of offsets, places, and then all names.
fn mapped(files: &[FileMapping]) -> Vec<u8> {
    const PAGE: u64 = 4096;
    let places = files.iter().flat_map(|f| [f.start, f.end, f.offset / PAGE]);
    let words = [files.len() as u64, PAGE].into_iter().chain(places);
    let mut out: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    for f in files {
        out.extend(printable(&f.path).bytes());
        out.push(0);
    }
    out
}

/// The area that XSAVE stores. It begins with that of FXSAVE.
fn xsave(v: &VecState) -> [u8; XSAVE_LEN] {
    let mut out = [0; XSAVE_LEN];
    put(&mut out, 0, &v.fcw.to_le_bytes());
    put(&mut out, 2, &v.fsw.to_le_bytes());
    out[4] = v.ftw;
    put(&mut out, 24, &v.mxcsr.to_le_bytes());
    put(&mut out, 28, &MXCSR_MASK.to_le_bytes());
    for (i, st) in v.st.iter().enumerate() {
        put(&mut out, 32 + 16 * i, &st[..10]);
    }
    put(&mut out, XSAVE_KERNEL, &COMPONENTS.to_le_bytes());
    put(&mut out, XSAVE_HEADER, &COMPONENTS.to_le_bytes());
    for (i, mask) in v.k.iter().enumerate() {
        put(&mut out, XSAVE_MASKS + 8 * i, &mask.to_le_bytes());
    }
    let (low, high) = v.zmm.split_at(16);
    for (i, z) in low.iter().enumerate() {
        put(&mut out, 160 + 16 * i, &z[..16]);
        put(&mut out, XSAVE_YMM + 16 * i, &z[16..32]);
        put(&mut out, XSAVE_ZMM + 32 * i, &z[32..]);
    }
    for (i, z) in high.iter().enumerate() {
        put(&mut out, XSAVE_HIGH + 64 * i, z);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_harmless() {
        let p = Process {
            name: "a\x1b[2J".into(),
            arguments: "x".repeat(200),
            ..Process::default()
        };
        let out = info(&p);
        assert_eq!(&out[INFO_NAME..INFO_NAME + 6], b"a?[2J\0");
        assert_eq!(out[INFO_ARGUMENTS + 78..], [b'x', 0]);
    }

    #[test]
    fn notes_are_aligned() {
        let mut n = Notes::default();
        n.add("LINUX", 7, &[1, 2, 3]);
        let words = [6u32, 3, 7].map(u32::to_le_bytes).concat();
        assert_eq!(n.0[..12], words);
        assert_eq!(n.0[12..], *b"LINUX\0\0\0\x01\x02\x03\0");
    }

    #[test]
    fn a_list_of_files_has_all_places_before_all_names() {
        let file = |start, path: &str| FileMapping {
            start,
            end: start + 4096,
            offset: 8192,
            path: path.into(),
        };
        let out = mapped(&[file(4096, "/a"), file(8192, "/b")]);
        let words = [2u64, 4096, 4096, 8192, 2, 8192, 12288, 2].map(u64::to_le_bytes);
        assert_eq!(out[..64], words.concat());
        assert_eq!(out[64..], *b"/a\0/b\0");
    }
}
