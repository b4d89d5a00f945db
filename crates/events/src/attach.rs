//! What the command line and the recorder tell each other when a process that already runs is
//! taken over, and when it is given back. The command line reads and writes the process's memory.
//!
//! Taking over: the command line maps the recorder's image, and behind it one [`Block`] and an
//! [`Entry`] for each thread at [`BLOCK`], and runs `hindsight_attach` in one thread, which makes
//! everything ready and then waits at `hindsight_parked`. Then each thread is sent to
//! [`Block::enter`] on a stack of its own.
//!
//! Giving back: the command line sets `HINDSIGHT_DETACH`. Each thread comes to rest between two
//! instructions of the program, at `hindsight_parked` with the address of its [`Handoff`] in rbx.
//! One thread then runs `hindsight_detach_finish`.

/// Where the block is, in the recorder's part of the address space.
pub const BLOCK: u64 = 0x6800_4000_0000;

/// Bytes of a message.
pub const MESSAGE: usize = 512;

/// Values of [`Block::status`].
pub mod status {
    /// The recorder is not ready yet.
    pub const BUSY: u32 = 0;
    /// The threads may enter.
    pub const READY: u32 = 1;
    /// It cannot be done; [`super::Block::message`] says why.
    pub const FAILED: u32 = 2;
}

/// What concerns the process.
#[repr(C)]
#[derive(Clone)]
pub struct Block {
    /// Number of entries that follow.
    pub threads: u32,
    /// `AT_HWCAP2` of this machine.
    pub hwcap2: u32,
    /// See [`status`]; set by the recorder.
    pub status: u32,
    /// Bytes of the message.
    pub message_len: u32,
    /// Where the threads are to go; set by the recorder.
    pub enter: u64,
    /// Why it has failed.
    pub message: [u8; MESSAGE],
}

/// One thread as the command line found it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    /// As `CpuState::to_bytes`.
    pub cpu: [u64; 20],
    /// Blocked signals.
    pub mask: u64,
    /// Area of restartable sequences; 0: none.
    pub rseq: u64,
    pub rseq_len: u32,
    pub rseq_sig: u32,
    pub tid: u32,
    /// 0.
    pub zero: u32,
    /// End of the thread's stack in the recorder; set by the recorder.
    pub stack: u64,
    /// To be passed in rdi; set by the recorder.
    pub thread: u64,
}

/// Why a process is left: what the command line stores in the recorder's `HINDSIGHT_DETACH`.
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
    /// Address of the vector state, as XSAVE stores it.
    pub area: u64,
    /// As `CpuState::to_bytes`.
    pub cpu: [u64; 20],
    /// Signals that the program has blocked.
    pub mask: u64,
    /// The heap, where the kernel's is not the program's (0 otherwise): start and end.
    pub heap: [u64; 2],
    /// Threads that the recorder knows of in this memory.
    pub threads: u64,
}

/// Types that consist of plain integers without padding.
///
/// # Safety
/// Any bytes are a valid value, and a value has no bytes that are not initialized.
pub unsafe trait Plain: Sized {
    /// The value's bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: no padding, by the trait's contract.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// The value with these bytes, if there are enough.
    fn from_bytes(b: &[u8]) -> Option<Self> {
        // SAFETY: long enough; any bytes are valid.
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
