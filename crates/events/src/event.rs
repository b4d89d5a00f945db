//! Events and their wire form.
//!
//! Wire form of one event: tag byte, LEB128 distance of its position from the previous event of
//! the stream, payload. Integers in payloads are LEB128 unless the field says otherwise.
//!
//! A *position* in a thread is the number of instructions it has completed. An event at position
//! `p` takes effect after instruction `p - 1` and before or in place of instruction `p`.

use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

/// Upper bound for the wire form of one event, in bytes.
pub const MAX_EVENT: usize = 8448;

/// Longest byte string in an event.
pub const MAX_BYTES: usize = 8192;

/// Bytes of a predictor line.
pub const LINE: u64 = 64;

/// How a thread's stream ended.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndKind {
    /// `exit` or `exit_group`; code is the status.
    Exit = 0,
    /// Killed by a signal; code is its number.
    Signal = 1,
    /// The recorder could not go on; code is 0 and the message says why.
    Unsupported = 2,
    /// `execve` replaced the program.
    Exec = 3,
    /// The recorder has left the process, which goes on by itself.
    Detached = 4,
}

/// Why a thread went on unrecorded.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GapReason {
    /// It came to code of a module that is not recorded: a small gap, with a known cause.
    Module = 0,
    /// Outside the stretch between the functions that were asked for: a big gap.
    Window = 1,
    /// The program asked for it, or has not yet asked for recording to begin: a big gap.
    Stopped = 2,
}

impl GapReason {
    /// All, in the order of their numbers.
    pub const ALL: [GapReason; 3] = [GapReason::Module, GapReason::Window, GapReason::Stopped];

    /// Whether nothing is known about what happened in the gap and how long it may be; otherwise
    /// it is a call (or return) into a module that is not recorded.
    pub fn is_big(self) -> bool {
        self != GapReason::Module
    }
}

/// Digest of the memory of [`Event::Passed`].
pub fn digest(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

/// One event. See the module for positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Predictor words that differ from memory: word `i` of the 64-byte line at guest address
    /// `line` for each bit `i` of `mask`. Words whose bit is clear are 0 here.
    Patch {
        line: u64,
        mask: u8,
        words: [u64; 8],
    },
    /// `len` (1 to 8) bytes at guest address `addr` hold the low bytes of `value`.
    PatchBytes { addr: u64, len: u8, value: u64 },
    /// The instruction is a system call with this number and these arguments.
    Syscall { nr: u64, args: [u64; 6] },
    /// It returned; rax is `ret`. Completes the instruction.
    SyscallRet { ret: u64 },
    /// In place of the instruction: registers of `mask` (bits 0 to 15 general purpose, 16 RFLAGS,
    /// 17 FS base, 18 GS base) take these values. Completes the instruction, whose length is `ilen`,
    /// when `ilen` is not 0.
    Regs {
        mask: u32,
        ilen: u8,
        values: [u64; 19],
    },
    /// The string instruction at this position completes this many iterations before what follows.
    RepChunk { iterations: u64 },
    /// A signal is delivered (a [`Event::SetState`] follows) before the instruction, or in place
    /// of a system call that is open: the handler returns to the call, which is then made anew.
    Signal { signo: u8, code: i32, addr: u64 },
    /// All registers change. Completes a system call (`rt_sigreturn`) if one is open at this position.
    SetState {
        cpu: &'a [u8; CPU_STATE_LEN],
        vec: &'a [u8; VEC_STATE_LEN],
    },
    /// Predictor cells of this address range become zero.
    Zero { addr: u64, len: u64 },
    /// All predictor cells become zero; all registers are these; code is as of `code_epoch`.
    KeyFrame {
        code_epoch: u64,
        cpu: &'a [u8; CPU_STATE_LEN],
        vec: &'a [u8; VEC_STATE_LEN],
    },
    /// Digests of all registers before the instruction. `vec` is 0 when not taken.
    Digest { cpu: u64, vec: u64 },
    /// From here on the thread executes code as of this epoch.
    CodeEpoch { epoch: u64 },
    /// A sequencing event: the thread stands at this place of the order of all threads and
    /// processes. Numbers are unique in a recording and grow along each stream.
    Seq { number: u64 },
    /// From here on the thread runs unrecorded. Its registers are known, its memory is not.
    GapBegin { reason: GapReason },
    /// It is recorded again. The CPU state's words of `mask` (order as in its serialized form) are
    /// `values` now, and the vector state's parts of `parts` are `vec` (see
    /// [`hindsight_isa::state::change`]); all others are as when the gap began.
    GapEnd {
        mask: u32,
        values: [u64; 20],
        parts: u64,
        vec: &'a [u8],
    },
    /// The program says something: the first `name` of `bytes` are a name, the others what it
    /// belongs to.
    Mark { name: usize, bytes: &'a [u8] },
    /// Nothing follows in this stream.
    End {
        kind: EndKind,
        code: u32,
        message: &'a [u8],
    },
    /// Process stream: code bytes at `addr` as of `epoch`.
    Code {
        epoch: u64,
        addr: u64,
        bytes: &'a [u8],
    },
    /// Process stream: memory was mapped. `prot` and `flags` as for `mmap`. `object` says which memory it
    /// is, of all that processes share: the same number at the same `offset` is the same memory. 0: it is
    /// private, or that is not known. Odd: only processes of this recording can have it.
    Map {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        offset: u64,
        object: u64,
        path: &'a [u8],
    },
    /// Process stream: memory was unmapped.
    Unmap { addr: u64, len: u64 },
    /// Process stream: the code at `addr` as of `epoch` is `len` bytes of the trace's module number
    /// `module` (from 0) from `offset` on, with zeros behind the module's end. Written by the collector
    /// in place of [`Event::Code`].
    CodeOf {
        epoch: u64,
        addr: u64,
        len: u32,
        module: u32,
        offset: u64,
    },
    /// Memory is this from here on: what the kernel, or the recorder in its place, wrote. See
    /// [`Event::Regime`].
    Memory { addr: u64, bytes: &'a [u8] },
    /// Memory is a part of a file from here on, with zeros behind the file's end. `device` to
    /// `modified` (nanoseconds) say which file that was. The collector puts [`Event::FileOf`] in its
    /// place; where it could not, the content is not known.
    File {
        addr: u64,
        len: u64,
        offset: u64,
        device: u64,
        inode: u64,
        size: u64,
        modified: u64,
        path: &'a [u8],
    },
    /// Memory is `len` bytes of the trace's module number `module` (from 0) from `offset` on, with
    /// zeros behind its end.
    FileOf {
        addr: u64,
        len: u64,
        module: u32,
        offset: u64,
    },
    /// What was at `from` is at `to` from here on; `from` is zero.
    Move { from: u64, to: u64, len: u64 },
    /// How reads are recorded from here on: checked against the predictor or, if `quiet`, not at all,
    /// since all changes of memory by others are recorded. `reason` says why that is no longer so.
    Regime { quiet: bool, reason: &'a [u8] },
    /// Digest (see [`digest`]) of the `len` bytes of memory at `addr`, which the program has given to
    /// the kernel.
    Passed { addr: u64, len: u64, digest: u32 },
    /// What the stream says between the event of this kind before (or its beginning) and here happened
    /// from `since` to `until`, in microseconds since the recording was started. Written by the
    /// collector, from when it looked.
    Time { since: u64, until: u64 },
    /// Memory of this address range may not be what it was: something else than the thread's
    /// instructions may have changed it, and the stream does not say to what. Nothing changes in
    /// the predictor.
    Changed { addr: u64, len: u64 },
    /// Process stream of a forked process: what it does not hold of the code is as the parent image
    /// had it as of this epoch, with which the process's own epochs begin.
    CodeFrom { epoch: u64 },
    /// What follows, up to the second event of this kind, is what memory holds at the key frame before, and nobody
    /// has just written it: a quiet thread's stream can be replayed from there on.
    Restate { ends: bool },
}

/// Tag bytes of the wire form.
pub mod tag {
    pub const PATCH: u8 = 0;
    pub const PATCH_BYTES: u8 = 1;
    pub const SYSCALL: u8 = 2;
    pub const SYSCALL_RET: u8 = 3;
    pub const REGS: u8 = 4;
    pub const REP_CHUNK: u8 = 5;
    pub const SIGNAL: u8 = 6;
    pub const SET_STATE: u8 = 7;
    pub const ZERO: u8 = 8;
    pub const KEY_FRAME: u8 = 9;
    pub const DIGEST: u8 = 10;
    pub const CODE_EPOCH: u8 = 11;
    pub const END: u8 = 12;
    pub const CODE: u8 = 13;
    pub const MAP: u8 = 14;
    pub const UNMAP: u8 = 15;
    pub const SEQ: u8 = 16;
    pub const GAP_BEGIN: u8 = 17;
    pub const GAP_END: u8 = 18;
    pub const MARK: u8 = 19;
    pub const CODE_FROM: u8 = 20;
    pub const CODE_OF: u8 = 21;
    pub const MEMORY: u8 = 22;
    pub const FILE: u8 = 23;
    pub const FILE_OF: u8 = 24;
    pub const MOVE: u8 = 25;
    pub const REGIME: u8 = 26;
    pub const PASSED: u8 = 27;
    pub const TIME: u8 = 28;
    pub const CHANGED: u8 = 29;
    pub const RESTATE: u8 = 30;
    /// Number of tags.
    pub const COUNT: usize = 31;
}
