//! Exit descriptors: small records beside the exit stubs, which tell why translated code was left.
//!
//! A stub stores the offset of its descriptor in [`crate::Ctx::desc`], and jumps to the exit
//! trampoline. The offset counts from the code cache's base.

/// Why translated code was left.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescKind {
    /// A direct branch to guest address `pc`. The runtime may link it: it redirects the 32-bit
    /// displacement at cache offset `patch` to the translation of `pc`.
    Exit = 0,
    /// An indirect branch to the address in `Ctx::rip`, whose translation was not found
    /// ([`Desc::NOT_FOUND`]).
    Indirect = 1,
    /// A misprediction: a read of `size` bytes at `Ctx::ea` differs from the shadow memory. The
    /// runtime records it, brings the cells up to date, and resumes.
    Mispredicted = 2,
    /// A misprediction whose value may no longer be in memory. `Ctx::value` has it, in at most 8
    /// bytes (`size`).
    MispredictedValue = 3,
    /// The runtime executes the instruction in `bytes` at `pc`, then resumes.
    ///
    /// `size` is not zero where translated code has begun a repeated string instruction.
    /// `Ctx::spill` then has the count from before it began.
    Slow = 4,
    /// The runtime prepares the instruction in `bytes` at `pc`, then resumes. It brings the cells
    /// of all that the instruction reads up to date. It also proves that the instruction may write
    /// what it writes.
    PreCheck = 5,
    /// A system call. `pc` is the address of the instruction, `size` its length in bytes.
    Syscall = 6,
    /// The instruction at `pc` raises the exception in `size` (see [`raise`]).
    Raise = 7,
    /// Replay: the segment at `pc` has more instructions than the limit leaves. None of them has
    /// run, and the counter stands before the segment.
    Budget = 8,
    /// The guest code of the block at `pc` has changed since it was translated.
    Stale = 9,
    /// An atomic operation at `Ctx::ea` comes next. The runtime gives it an order number, records
    /// that, and resumes.
    Sequence = 10,
    /// Replay: the instruction at `pc` may write to watched memory.
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
            Mispredicted,
            MispredictedValue,
            Slow,
            PreCheck,
            Syscall,
            Raise,
            Budget,
            Stale,
            Sequence,
            Watch,
        ][(v as usize).min(11)]
    }
}

/// The exceptions of [`DescKind::Raise`].
pub mod raise {
    /// Undefined instruction: SIGILL.
    pub const UD: u8 = 1;
    /// Breakpoint (`int3`): SIGTRAP after the instruction.
    pub const BP: u8 = 2;
    /// Privileged instruction or bad interrupt: SIGSEGV.
    pub const GP: u8 = 3;
    /// The translator does not support the instruction. The recording ends.
    pub const UNSUPPORTED: u8 = 4;
    /// The code at `pc` cannot be read: SIGSEGV.
    pub const FETCH: u8 = 5;
}

/// One exit descriptor. `resume` and `patch` are offsets from the code cache's base.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    kind: u8,
    /// Operand size in bytes, or what the kind says.
    pub size: u8,
    /// Instructions that have been counted but not executed. So the current instruction's position
    /// is the counter minus this.
    pub ahead: u16,
    /// Where to continue in the code cache.
    pub resume: u32,
    /// A guest address: what the kind says.
    pub pc: u64,
    /// Offset of the displacement that a link redirects ([`DescKind::Exit`]).
    pub patch: u32,
    /// Length of the instruction in `bytes`, or 0.
    pub ilen: u8,
    /// The guest instruction ([`DescKind::Slow`], [`DescKind::PreCheck`]).
    pub bytes: [u8; 15],
}

/// Where a descriptor leads.
pub struct Leads {
    /// Why translated code is left.
    pub kind: DescKind,
    /// Bytes of the stored form.
    pub len: usize,
    /// [`Desc::resume`].
    pub resume: u32,
    /// [`Desc::patch`].
    pub patch: u32,
    /// Length of its instruction as it claims, unchecked. 0 if it has none.
    pub ilen: u8,
}

impl Desc {
    /// Bytes of a stored descriptor without instruction.
    pub const SHORT: usize = 20;
    /// Offset of the guest address in the stored form.
    pub const PC: usize = 8;
    /// Bytes of a stored descriptor with instruction.
    pub const LONG: usize = 36;
    /// What `Ctx::desc` holds after the one exit that has no descriptor in the cache:
    /// [`DescKind::Indirect`].
    pub const NOT_FOUND: u64 = u32::MAX as u64;

    /// A descriptor of this kind at guest address `pc`, with `ahead` instructions counted but not
    /// executed. The other fields are zero.
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

    /// Why translated code was left.
    #[inline]
    pub fn kind(&self) -> DescKind {
        DescKind::from_u8(self.kind)
    }

    /// Whether the stored form has an instruction.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.kind().is_long()
    }

    /// The stored form. Only the first [`Desc::SHORT`] or [`Desc::LONG`] bytes count.
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

    /// Reads where the stored form at the start of `bytes` leads. `None` if the bytes are too few or
    /// the kind is unknown.
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

    /// Reads the stored form at the start of `bytes`. `None` if the bytes are too few or the kind
    /// is unknown.
    pub fn decode(bytes: &[u8]) -> Option<Desc> {
        let short: &[u8; Desc::SHORT] = bytes.first_chunk()?;
        if short[0] > DescKind::Watch as u8 {
            return None;
        }
        // SAFETY: SHORT bytes are there; `read` happens only if a long kind has its LONG bytes.
        unsafe {
            let long = Desc::new(DescKind::from_u8(short[0]), 0, 0).is_long();
            (!long || bytes.len() >= Desc::LONG).then(|| Desc::read(bytes.as_ptr()))
        }
    }

    /// The descriptor of the exit that left `offset` in `Ctx::desc`.
    ///
    /// # Safety
    /// `base` is the code cache's base. A descriptor stands at `offset` from it, or `offset` is
    /// [`Desc::NOT_FOUND`].
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
    /// `p` points to a descriptor that [`Desc::encode`] made. All its 20 or 36 bytes are readable.
    #[inline]
    pub unsafe fn read(p: *const u8) -> Desc {
        // SAFETY: SHORT bytes are readable, and LONG for kinds that have them: the caller
        // guarantees it.
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
