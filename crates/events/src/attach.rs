//! How the command line and the recorder cooperate when a running process is taken over, and when it is given
//! back. The command line reads and writes the process's memory.
//!
//! Taking over:
//!
//! 1. The command line maps the recorder's image. Behind it, at [`BLOCK`], it puts one [`Block`] and an
//!    [`Entry`] for each thread.
//! 2. It runs `hindsight_attach` in one thread. That function prepares everything and then waits at
//!    `hindsight_parked`.
//! 3. It sends each thread to [`Block::enter`], on a stack of the thread's own.
//!
//! Giving back:
//!
//! 1. The command line sets `HINDSIGHT_DETACH`.
//! 2. Each thread stops between two instructions of the program. It waits at `hindsight_parked`, with the
//!    address of its [`Handoff`] in rbx.
//! 3. One thread runs `hindsight_detach_finish`.

/// Address of the block, in the recorder's part of the address space.
pub const BLOCK: u64 = crate::arena::ARENA.start + (1 << 30);

/// Size of [`Block::message`] in bytes.
pub const MESSAGE: usize = 512;

/// Values of [`Block::status`].
pub mod status {
    /// The recorder is not ready yet.
    pub const BUSY: u32 = 0;
    /// The threads may enter.
    pub const READY: u32 = 1;
    /// It failed; [`super::Block::message`] says why.
    pub const FAILED: u32 = 2;
}

/// What the command line and the recorder exchange about the process as a whole.
#[repr(C)]
#[derive(Clone)]
pub struct Block {
    /// Number of entries that follow.
    pub threads: u32,
    /// `AT_HWCAP2` of this machine.
    pub hwcap2: u32,
    /// See [`status`]; set by the recorder.
    pub status: u32,
    /// Length of the message in bytes.
    pub message_len: u32,
    /// Address at which each thread enters the recorder; set by the recorder.
    pub enter: u64,
    /// Why taking over failed.
    pub message: [u8; MESSAGE],
}

/// One thread as the command line found it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    /// The registers, as `CpuState::to_bytes` stores them.
    pub cpu: [u64; 20],
    /// Blocked signals.
    pub mask: u64,
    /// Area of restartable sequences; 0 if there is none.
    pub rseq: u64,
    pub rseq_len: u32,
    pub rseq_sig: u32,
    pub tid: u32,
    /// Always 0.
    pub zero: u32,
    /// End of the thread's stack in the recorder; set by the recorder.
    pub stack: u64,
    /// The value that the thread gets in rdi; set by the recorder.
    pub thread: u64,
}

/// Why the recorder leaves a process: the value that the command line stores in `HINDSIGHT_DETACH`.
pub mod leave {
    /// Somebody asked for it.
    pub const ASKED: u32 = 1;
    /// A recorded process is about to trace it.
    pub const TRACED: u32 = 2;
}

/// One thread as the recorder leaves it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handoff {
    /// Address of the vector state, in the layout of XSAVE.
    pub area: u64,
    /// The registers, as `CpuState::to_bytes` stores them.
    pub cpu: [u64; 20],
    /// Signals that the program blocks.
    pub mask: u64,
    /// Start and end of the program's heap where the kernel has another one; otherwise 0.
    pub heap: [u64; 2],
    /// Number of threads that the recorder knows in this address space.
    pub threads: u64,
}

/// Types that consist of plain integers without padding.
///
/// # Safety
/// Any bytes are a valid value, and a value has no bytes that are not initialized.
pub unsafe trait Plain: Sized {
    /// The value's bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the trait promises that there is no padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// The value with these bytes. `None` if `b` is too short.
    fn from_bytes(b: &[u8]) -> Option<Self> {
        // SAFETY: `b` is long enough, and any bytes are a valid value.
        (b.len() >= size_of::<Self>())
            .then(|| unsafe { b.as_ptr().cast::<Self>().read_unaligned() })
    }
}

const _: () = assert!(size_of::<Block>() == 24 + MESSAGE);
const _: () = assert!(size_of::<Entry>() == 160 + 8 + 8 + 16 + 16);
const _: () = assert!(size_of::<Handoff>() == 8 + 160 + 8 + 16 + 8);

// SAFETY: integers only; the sizes above leave no room for padding.
unsafe impl Plain for Block {}
// SAFETY: as above.
unsafe impl Plain for Entry {}
// SAFETY: as above.
unsafe impl Plain for Handoff {}
