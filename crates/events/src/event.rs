//! Events and their wire form.
//!
//! Wire form of one event:
//!
//! 1. the tag byte,
//! 2. its distance in positions from the previous event of the stream, in LEB128,
//! 3. the payload. Integers in it are LEB128 unless the field says otherwise.
//!
//! A *position* in a thread is the number of instructions that the thread has completed. An event at position
//! `p` takes effect after instruction `p - 1`, and before or in place of instruction `p`.

use hindsight_isa::regs::recorded;
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

/// Upper bound of the wire form of one event, in bytes.
pub const MAX_EVENT: usize = 8448;

/// Longest byte string in an event, in bytes.
pub const MAX_BYTES: usize = 8192;

/// Bytes of a line: the shadow memory is patched in lines.
pub const LINE: u64 = 64;

/// Lines of a page.
pub const LINES: usize = 4096 / LINE as usize;

/// The bytes of the words that masks of patches select.
pub fn selected(masks: &[u8]) -> usize {
    masks.iter().map(|m| 8 * m.count_ones() as usize).sum()
}

/// The words of [`Event::Lines`], with their addresses.
pub fn words_of(line: u64, masks: &[u8], words: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let lines = masks.iter().enumerate();
    let selected = lines.flat_map(move |(i, m)| {
        let at = line.wrapping_add(i as u64 * LINE);
        (0..8)
            .filter(move |w| m >> w & 1 != 0)
            .map(move |w| at.wrapping_add(8 * w))
    });
    let words = words.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w));
    selected.zip(words)
}

/// How a thread's stream ended.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndKind {
    /// `exit` or `exit_group`; the code is the status.
    Exit = 0,
    /// A signal killed the thread; the code is its number.
    Signal = 1,
    /// The recorder could not continue. The code is 0 and the message says why.
    Unsupported = 2,
    /// `execve` replaced the program.
    Exec = 3,
    /// The recorder left the process, which continues without it.
    Detached = 4,
}

/// Why a thread runs unrecorded.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GapReason {
    /// The thread entered code of a module that is not recorded. A small gap with a known cause.
    Module = 0,
    /// The thread is outside the stretch between the functions that the user named. A big gap.
    Window = 1,
    /// The program asked for the gap, or has not yet asked for recording to begin. A big gap.
    Stopped = 2,
}

impl GapReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [GapReason; 3] = [GapReason::Module, GapReason::Window, GapReason::Stopped];

    /// Whether the gap may be of any length and anything may happen in it. A small gap is one call (or
    /// return) into a module that is not recorded.
    pub fn is_big(self) -> bool {
        self != GapReason::Module
    }
}

/// Digest of the memory of [`Event::Passed`].
pub fn digest(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

/// One event. The module's documentation explains positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Words of the shadow memory that differ from memory. Bit `i` of `mask` stands for word `i` of the
    /// 64-byte line at guest address `line`. Words whose bit is clear are 0 here.
    Patch {
        line: u64,
        mask: u8,
        words: [u64; 8],
    },
    /// As many patches as there are `masks` (1 to [`LINES`]): of the line at guest address `line` and of those that follow it, all
    /// of one page. `words` are the words of all of them, one after the other, as they are in memory.
    Lines {
        line: u64,
        masks: &'a [u8],
        words: &'a [u8],
    },
    /// In rings only: an [`Event::Lines`] whose words the image's [common cells](crate::ring::commons) hold at the cells of these
    /// lines. The collector writes [`Event::Lines`] in its place.
    Common { line: u64, masks: &'a [u8] },
    /// `len` (1 to 8) bytes at guest address `addr` hold the low bytes of `value`.
    PatchBytes { addr: u64, len: u8, value: u64 },
    /// The instruction is a system call with this number and these arguments.
    Syscall { nr: u64, args: [u64; 6] },
    /// The system call returned `ret` in rax. Completes the instruction.
    SyscallRet { ret: u64 },
    /// In place of the instruction, the registers of `mask` take these values. Bits 0 to 15 are the
    /// general-purpose registers by hardware number. [`recorded`] has the numbers of the others. If `ilen` is not 0, the event
    /// completes the instruction, whose length is `ilen` bytes.
    Regs {
        mask: u32,
        ilen: u8,
        values: [u64; recorded::COUNT],
    },
    /// The string instruction at this position completes this many iterations before the next event.
    RepChunk { iterations: u64 },
    /// A signal is delivered; a [`Event::SetState`] follows. This happens before the instruction, or in place
    /// of an open system call. In the second case the handler returns to the call, which is then made again.
    Signal { signo: u8, code: i32, addr: u64 },
    /// All registers change. Completes a system call (`rt_sigreturn`) if one is open at this position.
    SetState {
        cpu: &'a [u8; CPU_STATE_LEN],
        vec: &'a [u8; VEC_STATE_LEN],
    },
    /// The cells of this address range become zero.
    Zero { addr: u64, len: u64 },
    /// All cells become zero. All registers have these values. Code is as of `code_epoch`.
    KeyFrame {
        code_epoch: u64,
        cpu: &'a [u8; CPU_STATE_LEN],
        vec: &'a [u8; VEC_STATE_LEN],
    },
    /// Digests of all registers before the instruction. `vec` is 0 if the vector registers were not hashed.
    Digest { cpu: u64, vec: u64 },
    /// From here on the thread executes the code of this epoch.
    CodeEpoch { epoch: u64 },
    /// The thread's place in the order of all threads and processes. Order numbers are unique in a recording
    /// and grow along each stream.
    Seq { number: u64 },
    /// From here on the thread runs unrecorded. Its registers are known; its memory is not.
    GapBegin { reason: GapReason },
    /// The thread is recorded again. `values` are the CPU state's words that `mask` selects, in the order of
    /// the serialized form. `vec` has the vector state's parts that `parts` selects (see
    /// [`hindsight_isa::state::change`]). Everything else is as it was when the gap began.
    GapEnd {
        mask: u32,
        values: [u64; 20],
        parts: u64,
        vec: &'a [u8],
    },
    /// A mark that the program sets. The first `name` bytes of `bytes` are its name; the rest is its content.
    Mark { name: usize, bytes: &'a [u8] },
    /// The end of this stream.
    End {
        kind: EndKind,
        code: u32,
        message: &'a [u8],
    },
    /// Stream of an image: the code bytes at `addr` as of `epoch`.
    Code {
        epoch: u64,
        addr: u64,
        bytes: &'a [u8],
    },
    /// Stream of an image: memory was mapped. `prot` and `flags` are those of `mmap`. `object` identifies
    /// memory that processes share: the same number and `offset` mean the same memory. 0: the memory is
    /// private, or nothing is known about it. Odd: only processes of this recording can have it.
    Map {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        offset: u64,
        object: u64,
        path: &'a [u8],
    },
    /// Stream of an image: memory was unmapped.
    Unmap { addr: u64, len: u64 },
    /// Stream of an image: the code at `addr` as of `epoch` is in a module of the trace. It is `len` bytes
    /// from `offset` of module number `module` (from 0), with zeros behind the module's end. The collector
    /// writes it in place of [`Event::Code`].
    CodeOf {
        epoch: u64,
        addr: u64,
        len: u32,
        module: u32,
        offset: u64,
    },
    /// From here on memory holds these bytes. The kernel wrote them, or the recorder in its place. See
    /// [`Event::Regime`].
    Memory { addr: u64, bytes: &'a [u8] },
    /// In rings and files only: an [`Event::Memory`] with the `len` bytes (at most [`MAX_BYTES`]) that [`crate::fresh::bytes`] gives
    /// for `key`. The program has got this memory and not written it yet. Who reads a chunk finds [`Event::Memory`] in its place.
    Fresh { addr: u64, len: u32, key: u64 },
    /// From here on memory holds a part of a file, with zeros behind the file's end. `device` to `modified`
    /// (nanoseconds) identify the file. The collector replaces the event by [`Event::FileOf`]. Where the
    /// event remains, the content is unknown.
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
    /// Memory holds `len` bytes from `offset` of the trace's module number `module` (from 0), with zeros
    /// behind the module's end.
    FileOf {
        addr: u64,
        len: u64,
        module: u32,
        offset: u64,
    },
    /// Memory moved from `from` to `to`; `from` is zero now.
    Move { from: u64, to: u64, len: u64 },
    /// How reads are recorded from here on. If `quiet`, they are not checked: the recording has all changes
    /// of memory by others. Otherwise they are compared with the shadow memory, and `reason` says why the
    /// quiet regime ended.
    Regime { quiet: bool, reason: &'a [u8] },
    /// Digest (see [`digest`]) of the `len` bytes of memory at `addr` that the program passed to the kernel.
    Passed { addr: u64, len: u64, digest: u32 },
    /// Times between which the events since the last event of this kind happened. `since` and `until` are in
    /// microseconds since the recording began. The collector writes it; the times are when it looked at the
    /// ring.
    Time { since: u64, until: u64 },
    /// Memory of this address range may have changed. Something other than the thread's instructions may have
    /// written it, and the stream does not have the new content. The shadow memory stays as it is.
    Changed { addr: u64, len: u64 },
    /// Stream of a forked image: code that the stream does not have is the parent image's code as of this
    /// epoch. The new process continues with this epoch.
    CodeFrom { epoch: u64 },
    /// The events from here to the next event of this kind restate what memory holds at the key frame before.
    /// Nobody has just written it. Replay of a quiet thread can begin at that key frame.
    ///
    /// `back` is 0 if all memory is restated. Otherwise only the pages are that have changed since the key
    /// frame that is so many key frames before this one in the stream. That one is called its base. At the
    /// end `back` is 0.
    Restate { ends: bool, back: u64 },
    /// In place of the instruction, which is a transcendental one of the x87 and has `ilen` bytes. It left this status word and
    /// this abridged tag word. `registers` has those that it may have changed, from st(0) on, 10 bytes each.
    X87 {
        ilen: u8,
        status: u16,
        tags: u8,
        registers: &'a [u8],
    },
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
    pub const X87: u8 = 31;
    pub const LINES: u8 = 32;
    /// In rings only.
    pub const COMMON: u8 = 33;
    /// In rings and files only.
    pub const FRESH: u8 = 34;
    /// Number of tags.
    pub const COUNT: usize = 35;
}
