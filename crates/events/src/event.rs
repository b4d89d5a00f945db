//! Events and their wire form.
//!
//! Wire form of one event: tag byte, LEB128 distance of its position from the previous event of
//! the stream, payload. Integers in payloads are LEB128 unless the field says otherwise.
//!
//! A *position* in a thread is the number of instructions it has completed. An event at position
//! `p` takes effect after instruction `p - 1` and before or in place of instruction `p`.

use crate::varint::{get, put, unzigzag, zigzag};
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
    /// Process stream: memory was mapped. `prot` and `flags` as for `mmap`.
    Map {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        offset: u64,
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
    /// Process stream of a forked process: what it does not hold of the code is as the parent image
    /// had it as of this epoch, with which the process's own epochs begin.
    CodeFrom { epoch: u64 },
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
    /// Number of tags.
    pub const COUNT: usize = 27;
}

/// Writes events of one stream.
#[repr(C)]
#[derive(Clone, Default, Debug)]
pub struct Encoder {
    /// Position of the last event.
    pub pos: u64,
    /// The last sequence number.
    pub number: u64,
    line: u64,
}

impl Encoder {
    /// Writes `ev` at position `pos` (not before the previous one) into `out`, which has at
    /// least [`MAX_EVENT`] bytes; returns the length. Byte strings are cut at [`MAX_BYTES`].
    pub fn encode(&mut self, pos: u64, ev: &Event, out: &mut [u8]) -> usize {
        let tag = match ev {
            Event::Patch { .. } => tag::PATCH,
            Event::PatchBytes { .. } => tag::PATCH_BYTES,
            Event::Syscall { .. } => tag::SYSCALL,
            Event::SyscallRet { .. } => tag::SYSCALL_RET,
            Event::Regs { .. } => tag::REGS,
            Event::RepChunk { .. } => tag::REP_CHUNK,
            Event::Signal { .. } => tag::SIGNAL,
            Event::SetState { .. } => tag::SET_STATE,
            Event::Zero { .. } => tag::ZERO,
            Event::KeyFrame { .. } => tag::KEY_FRAME,
            Event::Digest { .. } => tag::DIGEST,
            Event::CodeEpoch { .. } => tag::CODE_EPOCH,
            Event::End { .. } => tag::END,
            Event::Code { .. } => tag::CODE,
            Event::Map { .. } => tag::MAP,
            Event::Unmap { .. } => tag::UNMAP,
            Event::Seq { .. } => tag::SEQ,
            Event::GapBegin { .. } => tag::GAP_BEGIN,
            Event::GapEnd { .. } => tag::GAP_END,
            Event::Mark { .. } => tag::MARK,
            Event::CodeFrom { .. } => tag::CODE_FROM,
            Event::CodeOf { .. } => tag::CODE_OF,
            Event::Memory { .. } => tag::MEMORY,
            Event::File { .. } => tag::FILE,
            Event::FileOf { .. } => tag::FILE_OF,
            Event::Move { .. } => tag::MOVE,
            Event::Regime { .. } => tag::REGIME,
        };
        out[0] = tag;
        let mut at = put(out, 1, pos.wrapping_sub(self.pos));
        self.pos = pos;
        let mut int = |at: &mut usize, v: u64| *at = put(out, *at, v);
        match *ev {
            Event::Patch { line, mask, words } => {
                let delta = (line / LINE).wrapping_sub(self.line / LINE) as i64;
                self.line = line;
                int(&mut at, zigzag(delta));
                out[at] = mask;
                at += 1;
                for (i, w) in words.iter().enumerate() {
                    if mask & (1 << i) != 0 {
                        out[at..at + 8].copy_from_slice(&w.to_le_bytes());
                        at += 8;
                    }
                }
            }
            Event::PatchBytes { addr, len, value } => {
                int(&mut at, addr);
                int(&mut at, len as u64);
                int(&mut at, value);
            }
            Event::Syscall { nr, args } => {
                int(&mut at, nr);
                args.iter().for_each(|a| int(&mut at, *a));
            }
            Event::SyscallRet { ret } => int(&mut at, ret),
            Event::Regs { mask, ilen, values } => {
                int(&mut at, mask as u64);
                int(&mut at, ilen as u64);
                for (i, v) in values.iter().enumerate() {
                    if mask & (1 << i) != 0 {
                        int(&mut at, *v);
                    }
                }
            }
            Event::RepChunk { iterations } => int(&mut at, iterations),
            Event::Signal { signo, code, addr } => {
                int(&mut at, signo as u64);
                int(&mut at, zigzag(code as i64));
                int(&mut at, addr);
            }
            Event::SetState { cpu, vec } => {
                out[at..at + CPU_STATE_LEN].copy_from_slice(cpu);
                at += CPU_STATE_LEN;
                out[at..at + VEC_STATE_LEN].copy_from_slice(vec);
                at += VEC_STATE_LEN;
            }
            Event::KeyFrame {
                code_epoch,
                cpu,
                vec,
            } => {
                int(&mut at, code_epoch);
                out[at..at + CPU_STATE_LEN].copy_from_slice(cpu);
                at += CPU_STATE_LEN;
                out[at..at + VEC_STATE_LEN].copy_from_slice(vec);
                at += VEC_STATE_LEN;
            }
            Event::Zero { addr, len } | Event::Unmap { addr, len } => {
                int(&mut at, addr);
                int(&mut at, len);
            }
            Event::Digest { cpu, vec } => {
                out[at..at + 8].copy_from_slice(&cpu.to_le_bytes());
                out[at + 8..at + 16].copy_from_slice(&vec.to_le_bytes());
                at += 16;
            }
            Event::CodeEpoch { epoch } | Event::CodeFrom { epoch } => int(&mut at, epoch),
            Event::Seq { number } => {
                int(&mut at, number.wrapping_sub(self.number));
                self.number = number;
            }
            Event::GapBegin { reason } => int(&mut at, reason as u64),
            Event::GapEnd {
                mask,
                values,
                parts,
                vec,
            } => {
                int(&mut at, mask as u64);
                for (i, v) in values.iter().enumerate() {
                    if mask & (1 << i) != 0 {
                        int(&mut at, *v);
                    }
                }
                int(&mut at, parts);
                at = put_bytes(out, at, vec);
            }
            Event::Mark { name, bytes } => {
                int(&mut at, name as u64);
                at = put_bytes(out, at, bytes);
            }
            Event::End {
                kind,
                code,
                message,
            } => {
                int(&mut at, kind as u64);
                int(&mut at, code as u64);
                at = put_bytes(out, at, message);
            }
            Event::Memory { addr, bytes } => {
                int(&mut at, addr);
                at = put_bytes(out, at, bytes);
            }
            Event::File {
                addr,
                len,
                offset,
                device,
                inode,
                size,
                modified,
                path,
            } => {
                for v in [addr, len, offset, device, inode, size, modified] {
                    int(&mut at, v);
                }
                at = put_bytes(out, at, path);
            }
            Event::FileOf {
                addr,
                len,
                module,
                offset,
            } => {
                for v in [addr, len, module as u64, offset] {
                    int(&mut at, v);
                }
            }
            Event::Move { from, to, len } => {
                for v in [from, to, len] {
                    int(&mut at, v);
                }
            }
            Event::Regime { quiet, reason } => {
                int(&mut at, quiet as u64);
                at = put_bytes(out, at, reason);
            }
            Event::CodeOf {
                epoch,
                addr,
                len,
                module,
                offset,
            } => {
                for v in [epoch, addr, len as u64, module as u64, offset] {
                    int(&mut at, v);
                }
            }
            Event::Code { epoch, addr, bytes } => {
                int(&mut at, epoch);
                int(&mut at, addr);
                at = put_bytes(out, at, bytes);
            }
            Event::Map {
                addr,
                len,
                prot,
                flags,
                offset,
                path,
            } => {
                for v in [addr, len, prot as u64, flags as u64, offset] {
                    int(&mut at, v);
                }
                at = put_bytes(out, at, path);
            }
        }
        at
    }
}

fn put_bytes(out: &mut [u8], at: usize, b: &[u8]) -> usize {
    let b = &b[..b.len().min(MAX_BYTES)];
    let at = put(out, at, b.len() as u64);
    out[at..at + b.len()].copy_from_slice(b);
    at + b.len()
}

/// Reads events of one stream.
#[derive(Clone, Default, Debug)]
pub struct Decoder {
    pos: u64,
    number: u64,
    line: u64,
}

impl Decoder {
    /// Reads the event at the start of `b`: its position, itself, its length. `None` if the bytes
    /// are no whole event.
    pub fn decode<'a>(&mut self, b: &'a [u8]) -> Option<(u64, Event<'a>, usize)> {
        let tag = *b.first()?;
        let (delta, at) = get(b, 1)?;
        let pos = self.pos.checked_add(delta)?;
        let mut r = Reader { b, at };
        let (mut line, mut last) = (self.line, self.number);
        let ev = match tag {
            tag::PATCH => {
                let d = unzigzag(r.int()?);
                line = ((line / LINE) as i64).wrapping_add(d) as u64;
                line = line.checked_mul(LINE)?;
                let mask = r.take(1)?[0];
                let mut words = [0; 8];
                for (i, w) in words.iter_mut().enumerate() {
                    if mask & (1 << i) != 0 {
                        *w = r.word()?;
                    }
                }
                Event::Patch { line, mask, words }
            }
            tag::PATCH_BYTES => {
                let addr = r.int()?;
                let len = r.int()?;
                if !(1..=8).contains(&len) {
                    return None;
                }
                Event::PatchBytes {
                    addr,
                    len: len as u8,
                    value: r.int()?,
                }
            }
            tag::SYSCALL => {
                let nr = r.int()?;
                let mut args = [0; 6];
                for a in args.iter_mut() {
                    *a = r.int()?;
                }
                Event::Syscall { nr, args }
            }
            tag::SYSCALL_RET => Event::SyscallRet { ret: r.int()? },
            tag::REGS => {
                let mask = r.int()?;
                let ilen = r.int()?;
                if mask >= 1 << 19 || ilen > 15 {
                    return None;
                }
                let mut values = [0; 19];
                for (i, v) in values.iter_mut().enumerate() {
                    if mask & (1 << i) != 0 {
                        *v = r.int()?;
                    }
                }
                Event::Regs {
                    mask: mask as u32,
                    ilen: ilen as u8,
                    values,
                }
            }
            tag::REP_CHUNK => Event::RepChunk {
                iterations: r.int()?,
            },
            tag::SIGNAL => Event::Signal {
                signo: u8::try_from(r.int()?).ok()?,
                code: i32::try_from(unzigzag(r.int()?)).ok()?,
                addr: r.int()?,
            },
            tag::SET_STATE => Event::SetState {
                cpu: r.take(CPU_STATE_LEN)?.try_into().ok()?,
                vec: r.take(VEC_STATE_LEN)?.try_into().ok()?,
            },
            tag::KEY_FRAME => Event::KeyFrame {
                code_epoch: r.int()?,
                cpu: r.take(CPU_STATE_LEN)?.try_into().ok()?,
                vec: r.take(VEC_STATE_LEN)?.try_into().ok()?,
            },
            tag::ZERO => Event::Zero {
                addr: r.int()?,
                len: r.int()?,
            },
            tag::UNMAP => Event::Unmap {
                addr: r.int()?,
                len: r.int()?,
            },
            tag::DIGEST => Event::Digest {
                cpu: r.word()?,
                vec: r.word()?,
            },
            tag::CODE_EPOCH => Event::CodeEpoch { epoch: r.int()? },
            tag::SEQ => {
                last = last.wrapping_add(r.int()?);
                Event::Seq { number: last }
            }
            tag::GAP_BEGIN => Event::GapBegin {
                reason: *GapReason::ALL.get(usize::try_from(r.int()?).ok()?)?,
            },
            tag::GAP_END => {
                let mask = r.int()?;
                if mask >= 1 << 20 {
                    return None;
                }
                let mut values = [0; 20];
                for (i, v) in values.iter_mut().enumerate() {
                    if mask & (1 << i) != 0 {
                        *v = r.int()?;
                    }
                }
                Event::GapEnd {
                    mask: mask as u32,
                    values,
                    parts: r.int()?,
                    vec: r.bytes()?,
                }
            }
            tag::MARK => {
                let name = usize::try_from(r.int()?).ok()?;
                let bytes = r.bytes()?;
                if name > bytes.len() {
                    return None;
                }
                Event::Mark { name, bytes }
            }
            tag::CODE_FROM => Event::CodeFrom { epoch: r.int()? },
            tag::MEMORY => Event::Memory {
                addr: r.int()?,
                bytes: r.bytes()?,
            },
            tag::FILE => Event::File {
                addr: r.int()?,
                len: r.int()?,
                offset: r.int()?,
                device: r.int()?,
                inode: r.int()?,
                size: r.int()?,
                modified: r.int()?,
                path: r.bytes()?,
            },
            tag::FILE_OF => Event::FileOf {
                addr: r.int()?,
                len: r.int()?,
                module: u32::try_from(r.int()?).ok()?,
                offset: r.int()?,
            },
            tag::MOVE => Event::Move {
                from: r.int()?,
                to: r.int()?,
                len: r.int()?,
            },
            tag::REGIME => Event::Regime {
                quiet: r.int()? != 0,
                reason: r.bytes()?,
            },
            tag::CODE_OF => Event::CodeOf {
                epoch: r.int()?,
                addr: r.int()?,
                len: u32::try_from(r.int()?)
                    .ok()
                    .filter(|n| *n as usize <= MAX_BYTES)?,
                module: u32::try_from(r.int()?).ok()?,
                offset: r.int()?,
            },
            tag::END => Event::End {
                kind: match r.int()? {
                    0 => EndKind::Exit,
                    1 => EndKind::Signal,
                    2 => EndKind::Unsupported,
                    3 => EndKind::Exec,
                    4 => EndKind::Detached,
                    _ => return None,
                },
                code: u32::try_from(r.int()?).ok()?,
                message: r.bytes()?,
            },
            tag::CODE => Event::Code {
                epoch: r.int()?,
                addr: r.int()?,
                bytes: r.bytes()?,
            },
            tag::MAP => Event::Map {
                addr: r.int()?,
                len: r.int()?,
                prot: u32::try_from(r.int()?).ok()?,
                flags: u32::try_from(r.int()?).ok()?,
                offset: r.int()?,
                path: r.bytes()?,
            },
            _ => return None,
        };
        self.pos = pos;
        (self.line, self.number) = (line, last);
        Some((pos, ev, r.at))
    }
}

struct Reader<'a> {
    b: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn int(&mut self) -> Option<u64> {
        let (v, at) = get(self.b, self.at)?;
        self.at = at;
        Some(v)
    }
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let s = self.b.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(s)
    }
    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.int()?;
        if n > MAX_BYTES as u64 {
            return None;
        }
        self.take(n as usize)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn events_round_trip() {
        let cpu = [3; CPU_STATE_LEN];
        let vec = [4; VEC_STATE_LEN];
        let mut values = [0; 19];
        values[3] = u64::MAX;
        values[18] = 5;
        let mut words = [0; 20];
        (words[16], words[19]) = (u64::MAX, 1);
        let evs = [
            Event::GapBegin {
                reason: GapReason::Stopped,
            },
            Event::GapEnd {
                mask: 1 << 16 | 1 << 19,
                values: words,
                parts: 1 << 50,
                vec: &[7; 9],
            },
            Event::Mark {
                name: 2,
                bytes: b"abc",
            },
            Event::Patch {
                line: 0x7fff_ffff_ffc0,
                mask: 0x81,
                words: [1, 0, 0, 0, 0, 0, 0, 2],
            },
            Event::Patch {
                line: 64,
                mask: 0,
                words: [0; 8],
            },
            Event::PatchBytes {
                addr: 77,
                len: 8,
                value: u64::MAX,
            },
            Event::Syscall {
                nr: 1,
                args: [u64::MAX, 0, 1, 2, 3, 4],
            },
            Event::SyscallRet { ret: -4i64 as u64 },
            Event::Regs {
                mask: 1 << 3 | 1 << 18,
                ilen: 2,
                values,
            },
            Event::RepChunk { iterations: 9 },
            Event::Signal {
                signo: 11,
                code: -6,
                addr: 8,
            },
            Event::SetState {
                cpu: &cpu,
                vec: &vec,
            },
            Event::KeyFrame {
                code_epoch: 3,
                cpu: &cpu,
                vec: &vec,
            },
            Event::Zero {
                addr: 4096,
                len: 4096,
            },
            Event::Digest { cpu: 1, vec: 2 },
            Event::CodeEpoch { epoch: 4 },
            Event::Seq { number: u64::MAX },
            Event::End {
                kind: EndKind::Unsupported,
                code: 3,
                message: b"why",
            },
            Event::Code {
                epoch: 1,
                addr: 2,
                bytes: &[7; 4096],
            },
            Event::Map {
                addr: 1,
                len: 2,
                prot: 3,
                flags: 4,
                offset: 5,
                path: b"/bin/true",
            },
            Event::Unmap { addr: 1, len: 2 },
            Event::Memory {
                addr: 0x7ffe_0000_0001,
                bytes: b"hello",
            },
            Event::File {
                addr: 4096,
                len: 8192,
                offset: 1 << 40,
                device: 1,
                inode: 2,
                size: 3,
                modified: u64::MAX,
                path: b"/lib/x",
            },
            Event::FileOf {
                addr: 4096,
                len: 8192,
                module: 7,
                offset: 12288,
            },
            Event::Move {
                from: 1,
                to: 2,
                len: 3,
            },
            Event::Regime {
                quiet: true,
                reason: b"",
            },
            Event::CodeFrom { epoch: 5 },
            Event::CodeOf {
                epoch: 1,
                addr: 0x7fff_ffff_f000,
                len: 4096,
                module: 3,
                offset: 1 << 33,
            },
        ];
        let mut enc = Encoder::default();
        let mut bytes = Vec::new();
        let mut buf = vec![0; MAX_EVENT];
        for (i, e) in evs.iter().enumerate() {
            let n = enc.encode(i as u64 * 1000, e, &mut buf);
            bytes.extend_from_slice(&buf[..n]);
        }
        let mut dec = Decoder::default();
        let mut at = 0;
        for (i, e) in evs.iter().enumerate() {
            let (pos, got, n) = dec.decode(&bytes[at..]).unwrap();
            assert_eq!((pos, &got), (i as u64 * 1000, e));
            for cut in 0..n {
                assert!(dec.clone().decode(&bytes[at..at + cut]).is_none());
            }
            at += n;
        }
        assert_eq!(at, bytes.len());
    }
}
