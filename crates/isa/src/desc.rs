//! Exit descriptors: small records that the translator places next to each exit stub. A stub
//! stores the descriptor's offset from the cache base in [`crate::Ctx::desc`] and jumps to the
//! exit trampoline.

/// Why translated code was left.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescKind {
    /// Direct exit to guest address `pc`; the 32-bit displacement at cache offset `patch` may
    /// be redirected to the translation of `pc`.
    Exit = 0,
    /// Indirect branch whose target, in `Ctx::rip`, was not known ([`Desc::NOT_FOUND`]).
    Indirect = 1,
    /// A read of `size` bytes at `Ctx::ea` differs from the predictor; after the line has been
    /// brought up to date, resume.
    Surprise = 2,
    /// The same where the value that was read (`Ctx::value`, `size` at most 8) is no longer in memory.
    SurpriseValue = 3,
    /// The runtime executes the instruction in `bytes` at `pc`, then resumes. `size` is not zero if it is a
    /// repeated string instruction that translated code has begun: `Ctx::spill` has the count at first.
    Slow = 4,
    /// The runtime brings the predictor up to date for everything that the instruction in `bytes`
    /// at `pc` reads, and proves what it writes writable; then resumes.
    PreCheck = 5,
    /// System call; `pc` is the address of the instruction, `size` its length.
    Syscall = 6,
    /// The instruction at `pc` raises the exception in `size` (see [`raise`]).
    Raise = 7,
    /// Replay: the segment at `pc` may not run in full within the limit. No instruction of it
    /// has run and the counter stands before it.
    Budget = 8,
    /// The code from which the block at `pc` was translated has changed.
    Stale = 9,
    /// An atomic operation at `Ctx::ea` comes next: its place among the atomic operations of all
    /// threads is to be fixed and recorded; then resume.
    Order = 10,
    /// Replay: the instruction at `pc` may write to a place that is watched.
    Watch = 11,
}

impl DescKind {
    #[inline]
    fn is_long(self) -> bool {
        matches!(self, DescKind::Slow | DescKind::PreCheck)
    }

    #[inline]
    fn from_u8(v: u8) -> DescKind {
        use DescKind::*;
        [
            Exit,
            Indirect,
            Surprise,
            SurpriseValue,
            Slow,
            PreCheck,
            Syscall,
            Raise,
            Budget,
            Stale,
            Order,
            Watch,
        ][(v as usize).min(11)]
    }
}

/// Exceptions of [`DescKind::Raise`].
pub mod raise {
    /// Undefined instruction: SIGILL.
    pub const UD: u8 = 1;
    /// Breakpoint (`int3`): SIGTRAP after the instruction.
    pub const BP: u8 = 2;
    /// Privileged instruction or bad interrupt: SIGSEGV.
    pub const GP: u8 = 3;
    /// An instruction that the translator does not support; ends the recording.
    pub const UNSUPPORTED: u8 = 4;
    /// The code at `pc` cannot be read: SIGSEGV.
    pub const FETCH: u8 = 5;
}

/// One exit descriptor. `resume` and `patch` are offsets from the cache base.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    kind: u8,
    /// Operand size in bytes, or as the kind says.
    pub size: u8,
    /// Instructions that have been counted but not executed: the position of the instruction at
    /// hand is the counter minus this.
    pub ahead: u16,
    /// Where to continue in the cache.
    pub resume: u32,
    /// Guest address, as the kind says.
    pub pc: u64,
    /// Cache offset of the displacement to redirect ([`DescKind::Exit`]).
    pub patch: u32,
    /// Length of the instruction in `bytes`, or 0.
    pub ilen: u8,
    /// The guest instruction ([`DescKind::Slow`], [`DescKind::PreCheck`]).
    pub bytes: [u8; 15],
}

/// What a descriptor says of where it leads.
pub struct Leads {
    pub kind: DescKind,
    /// Length of the stored form.
    pub len: usize,
    pub resume: u32,
    pub patch: u32,
    /// Length that it claims for the instruction that it carries.
    pub ilen: u8,
}

impl Desc {
    /// Descriptor size without instruction bytes.
    pub const SHORT: usize = 20;
    /// Offset of the guest address in the stored form.
    pub const PC: usize = 8;
    /// Full descriptor size.
    pub const LONG: usize = 36;
    /// What stands in `Ctx::desc` after the one exit that has no descriptor in the cache: that of an indirect
    /// branch ([`DescKind::Indirect`]).
    pub const NOT_FOUND: u64 = u32::MAX as u64;

    pub fn new(kind: DescKind, pc: u64, ahead: u16) -> Desc {
        Desc {
            kind: kind as u8,
            size: 0,
            ahead,
            resume: 0,
            pc,
            patch: 0,
            ilen: 0,
            bytes: [0; 15],
        }
    }

    #[inline]
    pub fn kind(&self) -> DescKind {
        DescKind::from_u8(self.kind)
    }

    /// Whether the stored form carries instruction bytes.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.kind().is_long()
    }

    /// Stored form; the first [`Desc::SHORT`] or [`Desc::LONG`] bytes count.
    pub fn encode(&self) -> [u8; Desc::LONG] {
        let mut b = [0; Desc::LONG];
        b[0] = self.kind;
        b[1] = self.size;
        b[2..4].copy_from_slice(&self.ahead.to_le_bytes());
        b[4..8].copy_from_slice(&self.resume.to_le_bytes());
        b[8..16].copy_from_slice(&self.pc.to_le_bytes());
        b[16..20].copy_from_slice(&self.patch.to_le_bytes());
        b[20] = self.ilen;
        b[21..36].copy_from_slice(&self.bytes);
        b
    }

    /// What the stored form at the start of `bytes` says of where it leads; `None` if that is cut or of no kind.
    #[inline]
    pub fn leads(bytes: &[u8]) -> Option<Leads> {
        let short: &[u8; Desc::SHORT] = bytes.first_chunk()?;
        if short[0] > DescKind::Watch as u8 {
            return None;
        }
        let word = |at: usize| {
            u32::from_le_bytes([short[at], short[at + 1], short[at + 2], short[at + 3]])
        };
        let kind = DescKind::from_u8(short[0]);
        let long = kind.is_long();
        Some(Leads {
            kind,
            len: if long { Desc::LONG } else { Desc::SHORT },
            resume: word(4),
            patch: word(16),
            ilen: match long {
                true => *bytes.first_chunk::<{ Desc::LONG }>()?.get(Desc::SHORT)?,
                false => 0,
            },
        })
    }

    /// Takes apart the stored form at the start of `bytes`; `None` if that is cut or of no kind.
    pub fn decode(bytes: &[u8]) -> Option<Desc> {
        let short: &[u8; Desc::SHORT] = bytes.first_chunk()?;
        if short[0] > DescKind::Watch as u8 {
            return None;
        }
        // SAFETY: so many bytes are there, and as many more where the kind has them.
        unsafe {
            let long = Desc::new(DescKind::from_u8(short[0]), 0, 0).is_long();
            (!long || bytes.len() >= Desc::LONG).then(|| Desc::read(bytes.as_ptr()))
        }
    }

    /// The descriptor of an exit that has left `offset` in `Ctx::desc`.
    ///
    /// # Safety
    /// There is one at this offset from `base`, the cache's, or the offset is [`Desc::NOT_FOUND`].
    #[inline]
    pub unsafe fn of_exit(base: u64, offset: u64) -> Desc {
        if offset == Desc::NOT_FOUND {
            return Desc::new(DescKind::Indirect, 0, 0);
        }
        // SAFETY: as the caller guarantees.
        unsafe { Desc::read((base + offset) as *const u8) }
    }

    /// Reads the stored form at `p`.
    ///
    /// # Safety
    /// `p` points to a descriptor that [`Desc::encode`] produced, with its 20 or 36 bytes readable.
    #[inline]
    pub unsafe fn read(p: *const u8) -> Desc {
        // SAFETY: the caller guarantees at least SHORT readable bytes, and LONG for kinds that have them.
        unsafe {
            let mut b = [0u8; Desc::LONG];
            core::ptr::copy_nonoverlapping(p, b.as_mut_ptr(), Desc::SHORT);
            let mut d = Desc {
                kind: b[0],
                size: b[1],
                ahead: u16::from_le_bytes([b[2], b[3]]),
                resume: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
                pc: u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
                patch: u32::from_le_bytes([b[16], b[17], b[18], b[19]]),
                ilen: 0,
                bytes: [0; 15],
            };
            if d.is_long() {
                d.ilen = *p.add(20);
                core::ptr::copy_nonoverlapping(p.add(21), d.bytes.as_mut_ptr(), 15);
            }
            d
        }
    }
}
