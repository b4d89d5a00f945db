//! Reading events.

use crate::event::{EndKind, Event, GapReason, LINE, LINES, MAX_BYTES, selected, tag};
use crate::varint::{get, unzigzag};
use hindsight_isa::regs::recorded;
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

/// Reads events of one stream.
#[derive(Clone, Default, Debug)]
pub struct Decoder {
    pos: u64,
    number: u64,
    line: u64,
}

impl Decoder {
    /// Reads the event at the start of `b`. Returns its position, the event, and its length in bytes. `None`
    /// if the bytes are not a whole event.
    // Long: a table, with one arm for each kind of event, as in `encode`.
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
            tag::LINES => {
                let (line, masks) = r.lines()?;
                Event::Lines {
                    line,
                    masks,
                    words: r.take(selected(masks))?,
                }
            }
            tag::COMMON => {
                let (line, masks) = r.lines()?;
                Event::Common { line, masks }
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
                if mask >= 1 << recorded::COUNT || ilen > 15 {
                    return None;
                }
                let mut values = [0; recorded::COUNT];
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
            tag::CHANGED => Event::Changed {
                addr: r.int()?,
                len: r.int()?,
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
            tag::RESTATE => {
                let n = r.int()?;
                Event::Restate {
                    ends: n == 1,
                    back: n.saturating_sub(1),
                }
            }
            tag::X87 => Event::X87 {
                ilen: u8::try_from(r.int()?)
                    .ok()
                    .filter(|n| (1..16).contains(n))?,
                status: u16::try_from(r.int()?).ok()?,
                tags: u8::try_from(r.int()?).ok()?,
                registers: r.bytes()?,
            },
            tag::MEMORY => Event::Memory {
                addr: r.int()?,
                bytes: r.bytes()?,
            },
            tag::FRESH => Event::Fresh {
                addr: r.int()?,
                len: u32::try_from(r.int()?)
                    .ok()
                    .filter(|n| *n as usize <= MAX_BYTES)?,
                key: r.int()?,
            },
            tag::PASSED => Event::Passed {
                addr: r.int()?,
                len: r.int()?,
                digest: u32::try_from(r.int()?).ok()?,
            },
            tag::TIME => {
                let since = r.int()?;
                Event::Time {
                    since,
                    until: since.checked_add(r.int()?)?,
                }
            }
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
                object: r.int()?,
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
    /// The first one of some lines of one page, and a mask for each.
    fn lines(&mut self) -> Option<(u64, &'a [u8])> {
        let line = self.int()?;
        let n = usize::try_from(self.int()?).ok()?;
        let first = (line / LINE) as usize % LINES;
        if line % LINE != 0 || n == 0 || n > LINES - first {
            return None;
        }
        Some((line, self.take(n)?))
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
    use crate::{Encoder, MAX_EVENT};
    use std::vec;
    use std::vec::Vec;

    /// Events of memory, code and time.
    const OF_X87: Event = Event::X87 {
        ilen: 2,
        status: 0x3800,
        tags: 0x80,
        registers: &[9; 10],
    };

    const OF_MEMORY: [Event; 20] = [
        Event::Fresh {
            addr: 0x7fff_ffff_fff0,
            len: 8192,
            key: u64::MAX,
        },
        Event::Common {
            line: 0x1fc0,
            masks: &[0xfe],
        },
        Event::Lines {
            line: 0x7fff_ffff_ffc0,
            masks: &[0xff],
            words: &[8; 64],
        },
        Event::Lines {
            line: 0x1000,
            masks: &[0, 1, 0x80],
            words: &[9; 16],
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
            object: u64::MAX,
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
        Event::Passed {
            addr: 1 << 40,
            len: 77,
            digest: u32::MAX,
        },
        Event::Time {
            since: 1_000_000,
            until: 1_001_234,
        },
        Event::Regime {
            quiet: true,
            reason: b"",
        },
        Event::CodeFrom { epoch: 5 },
        Event::Restate {
            ends: false,
            back: 0,
        },
        Event::Restate {
            ends: false,
            back: 1,
        },
        Event::Restate {
            ends: false,
            back: u64::MAX - 1,
        },
        Event::Restate {
            ends: true,
            back: 0,
        },
        Event::CodeOf {
            epoch: 1,
            addr: 0x7fff_ffff_f000,
            len: 4096,
            module: 3,
            offset: 1 << 33,
        },
    ];

    #[test]
    fn events_round_trip() {
        let cpu = [3; CPU_STATE_LEN];
        let vec = [4; VEC_STATE_LEN];
        let mut values = [0; recorded::COUNT];
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
        ];
        let evs: Vec<Event> = evs.into_iter().chain(OF_MEMORY).chain([OF_X87]).collect();
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
            // Miri takes a thousand times as long.
            for cut in (0..n).step_by(if cfg!(miri) { 97 } else { 1 }) {
                assert!(dec.clone().decode(&bytes[at..at + cut]).is_none());
            }
            at += n;
        }
        assert_eq!(at, bytes.len());
    }
}
