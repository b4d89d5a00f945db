//! Writing events.

use crate::event::{Event, LINE, LINES, MAX_BYTES, selected, tag};
use crate::varint::{put, zigzag};
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

/// Writes events of one stream.
#[repr(C)]
#[derive(Clone, Default, Debug)]
pub struct Encoder {
    /// Position of the last event.
    pub pos: u64,
    /// The last order number.
    pub number: u64,
    line: u64,
}

impl Encoder {
    /// Writes `ev` at position `pos` into `out` and returns its length in bytes. `pos` is not before the
    /// previous event's. `out` has at least [`MAX_EVENT`](crate::MAX_EVENT) bytes. Byte strings are cut to
    /// [`MAX_BYTES`].
    // Long: a table, with one arm for each kind of event. Apart, the arms would not be read side by side
    // with those of `decode`.
    pub fn encode(&mut self, pos: u64, ev: &Event, out: &mut [u8]) -> usize {
        let tag = match ev {
            Event::Patch { .. } => tag::PATCH,
            Event::Lines { .. } => tag::LINES,
            Event::Common { .. } => tag::COMMON,
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
            Event::Fresh { .. } => tag::FRESH,
            Event::File { .. } => tag::FILE,
            Event::FileOf { .. } => tag::FILE_OF,
            Event::Move { .. } => tag::MOVE,
            Event::Regime { .. } => tag::REGIME,
            Event::Passed { .. } => tag::PASSED,
            Event::Time { .. } => tag::TIME,
            Event::Changed { .. } => tag::CHANGED,
            Event::Restate { .. } => tag::RESTATE,
            Event::X87 { .. } => tag::X87,
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
            Event::Lines { line, masks, words } => {
                debug_assert!(masks.len() <= LINES && words.len() == selected(masks));
                int(&mut at, line);
                int(&mut at, masks.len() as u64);
                for bytes in [masks, words] {
                    out[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                }
            }
            Event::Common { line, masks } => {
                debug_assert!(masks.len() <= LINES);
                int(&mut at, line);
                int(&mut at, masks.len() as u64);
                out[at..at + masks.len()].copy_from_slice(masks);
                at += masks.len();
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
            Event::Zero { addr, len }
            | Event::Unmap { addr, len }
            | Event::Changed { addr, len } => {
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
            Event::Fresh { addr, len, key } => {
                int(&mut at, addr);
                int(&mut at, len as u64);
                int(&mut at, key);
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
            Event::Restate { ends: true, .. } => int(&mut at, 1),
            Event::Restate { ends: false, back } => {
                int(&mut at, if back == 0 { 0 } else { back.saturating_add(1) });
            }
            Event::X87 {
                ilen,
                status,
                tags,
                registers,
            } => {
                for v in [ilen as u64, status as u64, tags as u64] {
                    int(&mut at, v);
                }
                at = put_bytes(out, at, registers);
            }
            Event::Passed { addr, len, digest } => {
                for v in [addr, len, digest as u64] {
                    int(&mut at, v);
                }
            }
            Event::Time { since, until } => {
                int(&mut at, since);
                int(&mut at, until.saturating_sub(since));
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
                object,
                path,
            } => {
                for v in [addr, len, prot as u64, flags as u64, offset, object] {
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
