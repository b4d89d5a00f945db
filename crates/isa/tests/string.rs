//! The string instructions against the real processor.

use hindsight_isa::string::{Kind, Regs, Repeat, SegmentRegister, StringMemory, StringOp};
use std::arch::asm;

const ARENA: usize = 5 * 4096;
const FLAGS: u64 = 0xcd5;

/// Executable and data memory below 4 GiB, so that 32-bit addresses reach it.
struct Low {
    base: *mut u8,
    len: usize,
}

impl Low {
    fn new(len: usize, exec: bool) -> Low {
        let prot = libc::PROT_READ | libc::PROT_WRITE | if exec { libc::PROT_EXEC } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: a fresh anonymous mapping.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(p, libc::MAP_FAILED);
        Low {
            base: p.cast(),
            len,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as self and is not otherwise borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl Drop for Low {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Runs `code`, which ends with `ret`, with these registers.
fn run_native(code: *const u8, r: &mut Regs) {
    // SAFETY: the code is one string instruction, and its operands lie in the test's arena.
    // Direction and arithmetic flags are restored.
    unsafe {
        asm!(
            "push rbx",
            "mov rbx, r9",
            "pushfq",
            "pop r10",
            "and r10, -0xcd6",
            "or r8, r10",
            "push r8",
            "popfq",
            "call rbx",
            "pushfq",
            "pop r8",
            "cld",
            "pop rbx",
            in("r9") code,
            inout("r8") r.rflags,
            inout("rax") r.rax,
            inout("rcx") r.rcx,
            inout("rsi") r.rsi,
            inout("rdi") r.rdi,
            out("r10") _,
        );
    }
    r.rflags &= FLAGS;
}

/// A copy of the arena, and the chunk boundaries that were seen.
struct Copy {
    base: u64,
    bytes: Vec<u8>,
    fail_after: u64,
    accesses: u64,
    last_done: Option<u64>,
    /// A chunk begins here, if the instruction has more iterations.
    cut_at: Option<u64>,
}

impl Copy {
    fn at(&mut self, addr: u64, len: usize) -> Result<&mut [u8], ()> {
        self.accesses += 1;
        if self.accesses > self.fail_after {
            return Err(());
        }
        assert!(len <= 4096);
        assert!(
            addr % 4096 + len as u64 <= 4096 || len <= 8,
            "chunk crosses a page"
        );
        let at = (addr - self.base) as usize;
        Ok(&mut self.bytes[at..at + len])
    }
}

impl StringMemory for Copy {
    type Stop = ();
    fn chunk(&mut self, done: u64) -> Result<u64, ()> {
        assert!(self.last_done.is_none_or(|l| done > l), "no progress");
        self.last_done = Some(done);
        Ok(match self.cut_at.filter(|at| *at > done) {
            Some(at) => at - done,
            None => u64::MAX,
        })
    }
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), ()> {
        buf.copy_from_slice(self.at(addr, buf.len())?);
        Ok(())
    }
    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), ()> {
        self.at(addr, buf.len())?.copy_from_slice(buf);
        Ok(())
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

/// One random instruction with its encoding.
fn instruction(r: &mut Rng) -> Vec<u8> {
    let mut code = Vec::new();
    match r.below(4) {
        0 => {}
        1 => code.push(0xf2),
        _ => code.push(0xf3),
    }
    if r.below(4) == 0 {
        code.push(0x66);
    }
    if r.below(4) == 0 {
        code.push(0x67);
    }
    if r.below(3) == 0 {
        code.push(0x40 | r.below(16) as u8);
    }
    code.push([0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf][r.below(10) as usize]);
    code
}

/// Random operands that stay inside the arena.
fn operands(r: &mut Rng, op: &StringOp, base: u64) -> Regs {
    let size = op.size as u64;
    let max = match r.below(3) {
        0 => 8,
        1 => 700,
        _ => 6000,
    } / size;
    let mut count = r.below(max + 1);
    if op.repeat == Repeat::No {
        count = r.next();
    }
    let run = if op.repeat == Repeat::No {
        1
    } else {
        count.max(1)
    };
    let down = r.below(3) == 0;
    let mut place =
        || base + r.below(ARENA as u64 - run * size) + if down { (run - 1) * size } else { 0 };
    let src = place();
    let mut dst = place();
    if r.below(2) == 0 {
        // Close to the source, and overlapping it.
        let near = (src + r.below(24)).wrapping_sub(12);
        let lowest = if down {
            near.wrapping_sub((run - 1) * size)
        } else {
            near
        };
        if lowest >= base && lowest + run * size <= base + ARENA as u64 {
            dst = near;
        }
    }
    let junk = |r: &mut Rng| {
        if op.addr32 && r.below(2) == 0 {
            r.next() << 32
        } else {
            0
        }
    };
    let mut regs = Regs {
        rax: r.next(),
        rcx: count,
        rsi: src,
        rdi: dst,
        rflags: (r.next() & 0x8d5) | if down { 0x400 } else { 0 },
    };
    if !(op.repeat != Repeat::No && count == 0) {
        // Processors differ in the upper halves if there is no iteration.
        regs.rsi |= junk(r);
        regs.rdi |= junk(r);
        if op.repeat != Repeat::No {
            regs.rcx |= junk(r);
        }
    }
    if op.addr32 && op.repeat == Repeat::No {
        regs.rcx &= 0xffff_ffff;
    }
    regs
}

#[test]
#[cfg_attr(miri, ignore = "asks the processor")]
fn agrees_with_the_processor() {
    let mut code = Low::new(4096, true);
    let mut arena = Low::new(ARENA, false);
    let base = arena.base as u64;
    let mut r = Rng(0x9e37_79b9_7f4a_7c15);
    for round in 0..30_000 {
        let bytes = instruction(&mut r);
        let op = StringOp::decode(&bytes).unwrap();
        assert_eq!(op.len as usize, bytes.len());
        let regs = operands(&mut r, &op, base);
        // Few distinct values: comparisons go on for a while.
        let alphabet = [1, 2, 256][r.below(3) as usize];
        let rare = r.below(2000) + 1;
        for b in arena.bytes() {
            *b = if alphabet == 256 || r.below(rare) == 0 {
                r.next() as u8
            } else {
                r.below(alphabet) as u8
            };
        }
        let mut copy = Copy {
            base,
            bytes: arena.bytes().to_vec(),
            fail_after: u64::MAX,
            accesses: 0,
            last_done: None,
            cut_at: None,
        };
        code.bytes()[..bytes.len()].copy_from_slice(&bytes);
        code.bytes()[bytes.len()] = 0xc3;

        let mut native = regs;
        run_native(code.base, &mut native);
        let mut ours = regs;
        op.execute(&mut ours, 0, 0, &mut copy).unwrap();
        ours.rflags &= FLAGS;
        assert_eq!(
            ours, native,
            "round {round}: {op:?} {bytes:x?} with {regs:x?}"
        );
        assert!(
            copy.bytes == arena.bytes(),
            "round {round}: memory after {op:?} with {regs:x?}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the processor")]
fn stops_between_iterations() {
    let mut r = Rng(77);
    for _ in 0..3_000 {
        let bytes = instruction(&mut r);
        let op = StringOp::decode(&bytes).unwrap();
        let base = 0x10000;
        let regs = operands(&mut r, &op, base);
        let image: Vec<u8> = (0..ARENA).map(|_| r.below(2) as u8).collect();
        let copy = |n| Copy {
            base,
            bytes: image.clone(),
            fail_after: n,
            accesses: 0,
            last_done: None,
            cut_at: None,
        };
        let mut whole = copy(u64::MAX);
        let mut end = regs;
        op.execute(&mut end, 0, 0, &mut whole).unwrap();
        if whole.accesses == 0 {
            continue;
        }
        // Interrupted at any access and then continued, the instruction ends in the same state.
        let mut cut = copy(r.below(whole.accesses));
        cut.cut_at = Some(r.below(100));
        let mut part = regs;
        op.execute(&mut part, 0, 0, &mut cut).unwrap_err();
        let done = if op.repeat == Repeat::No {
            0
        } else {
            (regs.rcx as u32).wrapping_sub(part.rcx as u32) as u64
        };
        assert_eq!(cut.last_done, Some(done), "{op:?} {regs:x?}");
        cut.fail_after = u64::MAX;
        cut.last_done = None;
        op.execute(&mut part, 0, done, &mut cut).unwrap();
        assert_eq!(part, end, "{op:?} {regs:x?}");
        assert!(cut.bytes == whole.bytes);
    }
}

#[test]
fn decodes_prefixes() {
    let op = StringOp::decode(&[0x64, 0xf3, 0x48, 0xa5]).unwrap();
    assert_eq!(
        (op.kind, op.size, op.repeat, op.segment, op.len),
        (Kind::Movs, 8, Repeat::Equal, SegmentRegister::Fs, 4)
    );
    // A REX prefix has no effect if another prefix follows it.
    let op = StringOp::decode(&[0x48, 0x66, 0xaf]).unwrap();
    assert_eq!((op.kind, op.size), (Kind::Scas, 2));
    assert_eq!(StringOp::decode(&[0x0f, 0xa4]), None);
    assert_eq!(StringOp::decode(&[0xf3]), None);
    assert_eq!(StringOp::decode(&[0x66; 20]), None);
}

#[test]
fn adds_the_segment_base_to_the_source_only() {
    struct Seen(Vec<(bool, u64)>);
    impl StringMemory for Seen {
        type Stop = ();
        fn chunk(&mut self, _: u64) -> Result<u64, ()> {
            Ok(u64::MAX)
        }
        fn read(&mut self, addr: u64, _: &mut [u8]) -> Result<(), ()> {
            self.0.push((false, addr));
            Ok(())
        }
        fn write(&mut self, addr: u64, _: &[u8]) -> Result<(), ()> {
            self.0.push((true, addr));
            Ok(())
        }
    }
    let op = StringOp::decode(&[0x64, 0x67, 0xf3, 0xa4]).unwrap();
    let mut seen = Seen(Vec::new());
    let mut regs = Regs {
        rcx: 4,
        rsi: 0xffff_fffe,
        rdi: 0x2000,
        ..Regs::default()
    };
    op.execute(&mut regs, 0x7000_0000_1800, 0, &mut seen)
        .unwrap();
    let base = 0x7000_0000_1800;
    assert_eq!(
        seen.0,
        [
            (false, base + 0xffff_fffe),
            (true, 0x2000),
            (false, base),
            (true, 0x2002)
        ]
    );
    assert_eq!((regs.rsi, regs.rdi, regs.rcx), (2, 0x2004, 0));
}
