//! String instructions: `movs`, `stos`, `lods`, `cmps` and `scas`, with and without repetition.
//!
//! They are executed in chunks. Recorder and replay cut the chunks at exactly the same iterations.
//! The caller provides memory ([`StringMemory`]): the recorder real memory and the shadow memory, a
//! replay only the window.

use crate::Predictor;
use crate::regs::{RAX, RCX, RDI, RSI};

/// Bytes of a page. No chunk crosses a page boundary.
const PAGE: u64 = 4096;
/// Most bytes of one chunk of `cmps` or `scas`. These may end early, and have then read the bytes
/// behind the end for nothing.
const COMPARE: u64 = 256;

/// Carry, parity, auxiliary carry, zero, sign and overflow.
const ARITHMETIC: u64 = 0x8d5;
const DF: u64 = 0x400;
const ZF: u64 = 0x40;

/// The instruction without its size and prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Copies from the source to the destination.
    Movs,
    /// Stores the accumulator.
    Stos,
    /// Loads the accumulator.
    Lods,
    /// Compares the source with the destination.
    Cmps,
    /// Compares the accumulator with the destination.
    Scas,
}

/// Repetition prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// None: one iteration.
    No,
    /// F3: repeats while the count lasts. `cmps` and `scas` also end when the operands differ.
    Equal,
    /// F2: the same, but `cmps` and `scas` end when the operands are equal.
    NotEqual,
}

/// The segment whose base is added to the source address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentRegister {
    /// One whose base is zero.
    Flat,
    /// FS.
    Fs,
    /// GS.
    Gs,
}

impl SegmentRegister {
    /// The segment's base, given those of FS and GS.
    pub fn base(self, fs: u64, gs: u64) -> u64 {
        match self {
            SegmentRegister::Flat => 0,
            SegmentRegister::Fs => fs,
            SegmentRegister::Gs => gs,
        }
    }
}

/// A decoded string instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StringOp {
    /// What it does.
    pub kind: Kind,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u8,
    /// Its repetition prefix.
    pub repeat: Repeat,
    /// Addresses and count have 32 bits.
    pub addr32: bool,
    /// Segment of the source address.
    pub segment: SegmentRegister,
    /// Bytes of the instruction.
    pub len: u8,
}

/// The registers that string instructions use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Regs {
    /// The value of `stos` and `scas`, the result of `lods`.
    pub rax: u64,
    /// The iterations that are left.
    pub rcx: u64,
    /// Address of the source.
    pub rsi: u64,
    /// Address of the destination, or of the second operand of a comparison.
    pub rdi: u64,
    /// The direction flag tells the direction. Comparisons set the status flags.
    pub rflags: u64,
}

impl Regs {
    /// Those of a thread: its general registers by hardware number, and its flags.
    pub fn of(gpr: &[u64; 16], rflags: u64) -> Regs {
        Regs {
            rax: gpr[RAX],
            rcx: gpr[RCX],
            rsi: gpr[RSI],
            rdi: gpr[RDI],
            rflags,
        }
    }

    /// Puts them back. The flags are the caller's concern.
    pub fn store(&self, gpr: &mut [u64; 16]) {
        gpr[RAX] = self.rax;
        gpr[RCX] = self.rcx;
        gpr[RSI] = self.rsi;
        gpr[RDI] = self.rdi;
    }
}

/// Memory as a string instruction sees it. An error stops the instruction. Its registers are then
/// as the completed iterations have left them.
pub trait StringMemory {
    type Stop;
    /// Is called before each chunk, with the number of completed iterations. Returns the most
    /// iterations that the chunk may have, which is at least one. So the caller can begin a new
    /// chunk where it must.
    fn chunk(&mut self, done: u64) -> Result<u64, Self::Stop>;
    /// Reads at most 4096 bytes. They lie in one page, unless they are a single element.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Self::Stop>;
    /// Writes under the same limits. On an error nothing has been written.
    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Self::Stop>;
}

impl StringOp {
    /// Decodes the instruction at the start of `code`. `None` if that is not a string instruction,
    /// or reads or writes a port.
    pub fn decode(code: &[u8]) -> Option<StringOp> {
        let (mut repeat, mut addr32, mut segment, mut word, mut wide) =
            (Repeat::No, false, SegmentRegister::Flat, false, false);
        for (i, &b) in code.iter().enumerate().take(15) {
            // A REX prefix counts only directly before the opcode.
            let rex_w = core::mem::take(&mut wide);
            match b {
                0xf2 => repeat = Repeat::NotEqual,
                0xf3 => repeat = Repeat::Equal,
                0x66 => word = true,
                0x67 => addr32 = true,
                0x64 => segment = SegmentRegister::Fs,
                0x65 => segment = SegmentRegister::Gs,
                // CS, DS, ES and SS have base 0 and do not undo an earlier FS or GS.
                0x26 | 0x2e | 0x36 | 0x3e => {}
                0x40..=0x4f => wide = b & 8 != 0,
                0xa4..=0xa7 | 0xaa..=0xaf => {
                    let kind = match b & 0xfe {
                        0xa4 => Kind::Movs,
                        0xa6 => Kind::Cmps,
                        0xaa => Kind::Stos,
                        0xac => Kind::Lods,
                        _ => Kind::Scas,
                    };
                    let size = match (b & 1, rex_w, word) {
                        (0, _, _) => 1,
                        (_, true, _) => 8,
                        (_, _, true) => 2,
                        _ => 4,
                    };
                    return Some(StringOp {
                        kind,
                        size,
                        repeat,
                        addr32,
                        segment,
                        len: i as u8 + 1,
                    });
                }
                _ => return None,
            }
        }
        None
    }

    /// Whether the two operands of a `cmps` may share cells of `predictor` although their addresses
    /// differ. One cell cannot hold both values. So the recorder then records the outcome in place
    /// of what was read.
    pub fn operands_collide(&self, regs: &Regs, source_base: u64, predictor: Predictor) -> bool {
        if self.kind != Kind::Cmps {
            return false;
        }
        let src = source_base.wrapping_add(self.offset(regs.rsi));
        let delta = self.offset(regs.rdi).wrapping_sub(src) as i64;
        let unused = 64 - predictor.bits as u32;
        let cells = (delta << unused) >> unused;
        // The reads of a chunk, widened to whole lines.
        cells != delta && cells.unsigned_abs() < COMPARE + 256
    }

    /// Executes the instruction. `from` iterations have been executed already; it is zero without a
    /// repetition. `source_base` is the base of [`StringOp::segment`].
    pub fn execute<M: StringMemory>(
        &self,
        regs: &mut Regs,
        source_base: u64,
        from: u64,
        mem: &mut M,
    ) -> Result<(), M::Stop> {
        // Most are short. Clearing a large buffer would cost more than executing them.
        let total = self.left(regs).saturating_mul(self.size as u64);
        if total <= COMPARE {
            self.run::<M, { COMPARE as usize }>(regs, source_base, from, mem)
        } else {
            self.run::<M, { PAGE as usize }>(regs, source_base, from, mem)
        }
    }

    /// Iterations that are left, if the instruction has not ended.
    fn left(&self, regs: &Regs) -> u64 {
        match self.repeat {
            Repeat::No => 1,
            _ => self.offset(regs.rcx),
        }
    }

    /// Like `execute`, with chunks of at most `BUF` bytes.
    fn run<M: StringMemory, const BUF: usize>(
        &self,
        regs: &mut Regs,
        source_base: u64,
        mut done: u64,
        mem: &mut M,
    ) -> Result<(), M::Stop> {
        let mut buf = [0; BUF];
        let mut other = [0; COMPARE as usize];
        loop {
            let left = self.left(regs);
            if left == 0 {
                return Ok(());
            }
            let src = source_base.wrapping_add(self.offset(regs.rsi));
            let dst = self.offset(regs.rdi);
            let most = mem.chunk(done)?;
            let n = left.min(self.chunk_len(regs, src, dst)).min(most);
            let bytes = n as usize * self.size as usize;
            let down = regs.rflags & DF != 0;
            // The lowest address of the chunk.
            let low = |a: u64| {
                if down {
                    a.wrapping_sub((n - 1) * self.size as u64)
                } else {
                    a
                }
            };
            let mut ended = false;
            let mut completed = n;
            match self.kind {
                Kind::Movs => {
                    mem.read(low(src), &mut buf[..bytes])?;
                    mem.write(low(dst), &buf[..bytes])?;
                }
                Kind::Stos => {
                    let word = match self.size {
                        1 => regs.rax as u8 as u64 * 0x0101_0101_0101_0101,
                        2 => regs.rax as u16 as u64 * 0x0001_0001_0001_0001,
                        4 => regs.rax as u32 as u64 * 0x0000_0001_0000_0001,
                        _ => regs.rax,
                    };
                    for e in buf[..bytes.next_multiple_of(8)].chunks_exact_mut(8) {
                        e.copy_from_slice(&word.to_le_bytes());
                    }
                    mem.write(low(dst), &buf[..bytes])?;
                }
                Kind::Lods => {
                    mem.read(low(src), &mut buf[..bytes])?;
                    let v = self.element(&buf[..bytes], n - 1, down);
                    regs.rax = match self.size {
                        1 => regs.rax & !0xff | v,
                        2 => regs.rax & !0xffff | v,
                        _ => v,
                    };
                }
                Kind::Cmps | Kind::Scas => {
                    if self.kind == Kind::Cmps {
                        mem.read(low(src), &mut buf[..bytes])?;
                    }
                    mem.read(low(dst), &mut other[..bytes])?;
                    for i in 0..n {
                        let a = match self.kind {
                            Kind::Cmps => self.element(&buf[..bytes], i, down),
                            _ => regs.rax,
                        };
                        let b = self.element(&other[..bytes], i, down);
                        let equal = (a ^ b) << (64 - 8 * self.size as u32) == 0;
                        ended = equal == (self.repeat == Repeat::NotEqual);
                        if ended || i == n - 1 {
                            completed = i + 1;
                            regs.rflags =
                                regs.rflags & !ARITHMETIC | compare_flags(a, b, self.size);
                            break;
                        }
                    }
                }
            }
            self.advance(regs, completed, down);
            done += completed;
            if ended || self.repeat == Repeat::No {
                return Ok(());
            }
        }
    }

    /// The part of an address or count register that this address size uses.
    fn offset(&self, r: u64) -> u64 {
        if self.addr32 { r as u32 as u64 } else { r }
    }

    /// Element `i` in the order of execution.
    fn element(&self, bytes: &[u8], i: u64, down: bool) -> u64 {
        let size = self.size as usize;
        let i = i as usize * size;
        let at = if down { bytes.len() - size - i } else { i };
        let b = &bytes[at..at + size];
        match *b {
            [a] => a as u64,
            [a, b] => u16::from_le_bytes([a, b]) as u64,
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as u64,
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    /// The elements from `addr` on that lie in the page of the first one. 1 if the first one
    /// crosses the page's end.
    fn in_page(&self, addr: u64, down: bool) -> u64 {
        let at = addr % PAGE;
        let size = self.size as u64;
        let n = if at + size > PAGE {
            1
        } else if down {
            at / size + 1
        } else {
            (PAGE - at) / size
        };
        n.max(1)
    }

    /// Most elements of the next chunk.
    fn chunk_len(&self, regs: &Regs, src: u64, dst: u64) -> u64 {
        let size = self.size as u64;
        let down = regs.rflags & DF != 0;
        let (reads_src, uses_dst) = match self.kind {
            Kind::Movs | Kind::Cmps => (true, true),
            Kind::Lods => (true, false),
            Kind::Stos | Kind::Scas => (false, true),
        };
        let mut n = match self.kind {
            Kind::Cmps | Kind::Scas => COMPARE / size,
            _ => PAGE / size,
        };
        if reads_src {
            n = n.min(self.in_page(src, down));
            if self.addr32 {
                // The offset wraps at 4 GiB. With a segment base, that may be anywhere in a page.
                n = n.min(self.in_page(self.offset(regs.rsi), down));
            }
        }
        if uses_dst {
            n = n.min(self.in_page(dst, down));
        }
        if self.kind == Kind::Movs {
            // A chunk reads everything before it writes. So it must end before an element that it
            // would itself overwrite.
            let ahead = if down {
                src.wrapping_sub(dst)
            } else {
                dst.wrapping_sub(src)
            };
            if ahead != 0 && ahead < n * size {
                n = (ahead / size).max(1);
            }
        }
        n
    }

    fn advance(&self, regs: &mut Regs, n: u64, down: bool) {
        let step = n.wrapping_mul(self.size as u64);
        let step = if down { step.wrapping_neg() } else { step };
        if matches!(self.kind, Kind::Movs | Kind::Cmps | Kind::Lods) {
            regs.rsi = self.offset(regs.rsi.wrapping_add(step));
        }
        if self.kind != Kind::Lods {
            regs.rdi = self.offset(regs.rdi.wrapping_add(step));
        }
        if self.repeat != Repeat::No {
            regs.rcx = self.offset(regs.rcx.wrapping_sub(n));
        }
    }
}

/// The status flags of comparing the low `size` bytes of `a` with those of `b`.
fn compare_flags(a: u64, b: u64, size: u8) -> u64 {
    let shift = 64 - 8 * size as u32;
    let (x, y) = (a << shift, b << shift);
    let (r, carry) = x.overflowing_sub(y);
    let low = a.wrapping_sub(b);
    let mut f = carry as u64;
    f |= ((low as u8).count_ones() as u64 & 1 ^ 1) << 2;
    f |= (a ^ b ^ low) & 0x10;
    if r == 0 {
        f |= ZF;
    }
    f |= (r >> 63) << 7;
    f |= (((x ^ y) & (x ^ r)) >> 63) << 11;
    f
}
