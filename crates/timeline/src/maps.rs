//! What was mapped in a program image, and when.

use crate::scan::{Raw, Scan};
use crate::{Mapping, Module, Position, Result, ThreadId};
use hindsight_events::{Decoder, Event};
use hindsight_trace::{ModuleHash, Trace};

/// A change of an image's mappings.
#[derive(Clone, Debug)]
pub struct Change {
    /// `None`: there from the beginning.
    pub when: Option<Position>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Map(Mapping),
    Unmap(u64, u64),
}

/// System calls that change mappings.
mod nr {
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const MREMAP: u64 = 25;
    pub const SHMAT: u64 = 30;
    pub const SHMDT: u64 = 67;
    pub const PKEY_MPROTECT: u64 = 329;
}

/// A system call that changes mappings.
struct Call {
    /// When it was over.
    when: Position,
    start: u64,
    end: u64,
    number: u64,
    args: [u64; 6],
    result: u64,
}

impl Call {
    /// Whether it may have made this change.
    fn explains(&self, what: &What) -> bool {
        let (start, end, prot) = match what {
            What::Map(m) => (m.start, m.end, Some(m.prot)),
            What::Unmap(start, end) => (*start, *end, None),
        };
        if start < self.start || self.end < end {
            return false;
        }
        // What a call has mapped is not removed by the same call.
        match self.number {
            nr::BRK => true,
            // Of what is between the two places it changes nothing.
            nr::MREMAP => {
                let within = |at: u64, len: u64| {
                    at <= start && end <= at.saturating_add(len).saturating_add(4095) & !4095
                };
                within(self.args[0], self.args[1]) || within(self.result, self.args[2])
            }
            nr::MUNMAP | nr::SHMDT => prot.is_none(),
            nr::MMAP => (start, end) == (self.start, self.end) && prot == Some(self.args[2] as u32),
            nr::MPROTECT | nr::PKEY_MPROTECT => prot == Some(self.args[2] as u32 & RWX),
            _ => prot.is_some(),
        }
    }
}

/// What protection consists of, besides flags for `mprotect` itself.
const RWX: u32 = 7;

/// All changes, in order. The image's own stream says what changed; when it did follows from the
/// system calls of its threads (`scans`, with the position of an instruction count).
pub fn changes(
    trace: &Trace,
    image: u32,
    scans: &[(ThreadId, &Scan)],
    position: &dyn Fn(ThreadId, u64) -> Position,
) -> Result<Vec<Change>> {
    let mut calls = Vec::new();
    let mut heap = None;
    for (thread, scan) in scans {
        for (count, raw) in &scan.events {
            if let Raw::Syscall {
                number,
                args,
                result: Some(result),
            } = raw
                && let Some((start, end)) = touched(*number, args, *result, &mut heap)
            {
                calls.push(Call {
                    when: position(*thread, count + 1),
                    start,
                    end,
                    number: *number,
                    args: *args,
                    result: *result,
                });
            }
        }
    }
    calls.sort_by_key(|c| c.when);
    let mut out = Vec::new();
    let mut next = 0;
    let mut when = None;
    // The end of what the call at hand changed last, if it changes each mapping once, ascending.
    let mut reached = 0;
    for (what, initial) in stream(trace, image)? {
        let (start, end) = match &what {
            What::Map(m) => (m.start, m.end),
            What::Unmap(start, end) => (*start, *end),
        };
        let done = usize::from(start < reached);
        let rest = calls.get(next + done..).unwrap_or(&[]);
        let found = match initial {
            true => None,
            false => rest.iter().position(|c| c.explains(&what)),
        };
        if let Some(i) = found {
            let call = &rest[i];
            when = Some(call.when);
            // Others may change several mappings; this one makes one.
            next += done + i + usize::from(call.number == nr::MMAP);
            reached = match call.number {
                nr::MPROTECT | nr::PKEY_MPROTECT => end,
                _ => 0,
            };
        }
        out.push(Change { when, what });
    }
    Ok(out)
}

/// The pages that a successful call may have changed. `heap`: where the heap's end was seen last.
fn touched(
    number: u64,
    args: &[u64; 6],
    result: u64,
    heap: &mut Option<u64>,
) -> Option<(u64, u64)> {
    if result > -4096i64 as u64 {
        return None;
    }
    let up = |a: u64| a.saturating_add(4095) & !4095;
    match number {
        nr::MMAP => Some((result, up(result.saturating_add(args[1])))),
        nr::MUNMAP | nr::MPROTECT | nr::PKEY_MPROTECT => {
            Some((args[0], up(args[0].saturating_add(args[1]))))
        }
        nr::BRK => {
            let before = heap.replace(up(result))?;
            Some((before.min(up(result)), before.max(up(result))))
        }
        nr::MREMAP => Some((
            result.min(args[0]),
            up(result
                .saturating_add(args[2])
                .max(args[0].saturating_add(args[1]))),
        )),
        nr::SHMAT => Some((result, u64::MAX)),
        nr::SHMDT => Some((args[0], u64::MAX)),
        _ => None,
    }
}

/// What an image's stream says, in order, and whether it was there when the image began.
fn stream(trace: &Trace, image: u32) -> Result<Vec<(What, bool)>> {
    let mut out = Vec::new();
    // Nothing is executed before what there is has been told.
    let mut initial = true;
    for s in trace.image(image).map_or(&[][..], |i| &i.streams) {
        for c in trace.chunks(*s) {
            let wire = trace.load(c)?;
            let (mut decoder, mut at) = (Decoder::default(), 0);
            while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
                at += n;
                let what = match event {
                    Event::Code { .. } | Event::CodeOf { .. } | Event::CodeFrom { .. } => {
                        initial = false;
                        continue;
                    }
                    Event::Map {
                        addr,
                        len,
                        prot,
                        flags,
                        offset,
                        path,
                        ..
                    } => What::Map(Mapping {
                        start: addr,
                        end: addr.saturating_add(len),
                        prot,
                        flags,
                        offset,
                        path: String::from_utf8_lossy(path).into_owned(),
                    }),
                    Event::Unmap { addr, len } => What::Unmap(addr, addr.saturating_add(len)),
                    _ => continue,
                };
                out.push((what, initial));
            }
        }
    }
    Ok(out)
}

/// The mappings at a position, in order of address; `None`: at the end.
pub fn at(changes: &[Change], position: Option<Position>) -> Vec<Mapping> {
    let mut list = Vec::new();
    let until = |c: &&Change| position.is_none_or(|p| c.when.is_none_or(|w| w <= p));
    for c in changes.iter().take_while(until) {
        match &c.what {
            What::Map(m) => {
                cut(&mut list, m.start, m.end);
                list.push(m.clone());
            }
            What::Unmap(start, end) => cut(&mut list, *start, *end),
        }
    }
    list.sort_by_key(|m| m.start);
    list
}

/// Whether memory that was mapped at any time shares cells of the window with these bytes: its
/// addresses differ by a multiple of 2^32.
pub fn aliased(changes: &[Change], address: u64, len: u64) -> bool {
    changes.iter().any(|c| {
        let What::Map(m) = &c.what else { return false };
        let size = m.end - m.start;
        let ahead = address.wrapping_sub(m.start);
        let cells = ahead as u32 as u64;
        let same = ahead < size || m.start.wrapping_sub(address) < len;
        // What nobody can access has no values.
        let shares = cells < size || (1 << 32) - cells < len;
        m.prot != 0 && shares && (!same || size > 1 << 32)
    })
}

/// Takes a range out of a list of mappings.
fn cut(list: &mut Vec<Mapping>, start: u64, end: u64) {
    let mut rest = Vec::new();
    list.retain_mut(|m| {
        if m.end <= start || end <= m.start {
            return true;
        }
        if end < m.end {
            let mut behind = m.clone();
            behind.offset = behind.offset.wrapping_add(end - m.start);
            behind.start = end;
            rest.push(behind);
        }
        m.end = start;
        m.start < start
    });
    list.append(&mut rest);
}

/// The files among the mappings, with the times at which they came and went.
pub fn modules(trace: &Trace, changes: &[Change]) -> Vec<Module> {
    let mut all: Vec<Module> = Vec::new();
    let hash = |path: &str| -> Option<ModuleHash> {
        let bytes = path.as_bytes();
        let mut found = trace
            .modules()
            .iter()
            .filter(|m| m.path.as_bytes() == bytes);
        found.next_back().map(|m| m.hash)
    };
    // Those that are still there: by number.
    let mut live: Vec<usize> = Vec::new();
    for c in changes {
        let (start, end) = match &c.what {
            What::Map(m) => (m.start, m.end),
            What::Unmap(start, end) => (*start, *end),
        };
        for i in live.clone() {
            let m = &mut all[i];
            let before = m.parts.clone();
            cut(&mut m.parts, start, end);
            let same_file = matches!(&c.what, What::Map(n) if n.path == m.path);
            if m.parts.is_empty() && !same_file {
                // What it had last stays to be seen.
                m.parts = before;
                m.unload = c.when;
                live.retain(|l| *l != i);
            }
        }
        let What::Map(part) = &c.what else { continue };
        if !part.path.starts_with('/') {
            continue;
        }
        let near = |m: &Module| {
            m.path == part.path
                && part.start <= m.end.saturating_add(1 << 30)
                && m.start <= part.end.saturating_add(1 << 30)
        };
        match live.iter().copied().find(|i| near(&all[*i])) {
            Some(i) => {
                let m = &mut all[i];
                m.start = m.start.min(part.start);
                m.end = m.end.max(part.end);
                m.parts.push(part.clone());
                m.parts.sort_by_key(|p| p.start);
            }
            None => {
                live.push(all.len());
                all.push(Module {
                    path: part.path.clone(),
                    start: part.start,
                    end: part.end,
                    parts: vec![part.clone()],
                    load: c.when,
                    unload: None,
                    hash: hash(&part.path),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_shares_cells() {
        let map = |start, end| Change {
            when: None,
            what: What::Map(Mapping {
                start,
                end,
                prot: 3,
                flags: 2,
                offset: 0,
                path: String::new(),
            }),
        };
        let list = [map(0x1_0000_1000, 0x1_0000_3000), map(0x5000, 0x6000)];
        assert!(!aliased(&list, 0x1_0000_1000, 0x2000));
        assert!(!aliased(&list, 0x5000, 8));
        assert!(aliased(&list, 0x1000, 8));
        assert!(aliased(&list, 0xff8, 9));
        assert!(!aliased(&list, 0xff8, 8));
        assert!(aliased(&list, 0x7_0000_5ff8, 8));
        assert!(aliased(&list, 0x4_ffff_ffff, 0x1002));
    }
}
