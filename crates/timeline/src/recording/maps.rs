//! What was mapped in a program image, and when.

use crate::scan::{Raw, Scan};
use crate::{Mapping, Module, Position, Result, ThreadId};
use hindsight_events::{Decoder, Event};
use hindsight_trace::{ModuleHash, Trace};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A change of an image's mappings.
#[derive(Clone, Debug)]
pub struct Change {
    /// `None`: it was there from the beginning.
    pub when: Option<Position>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Map(Mapping),
    Unmap(u64, u64),
}

impl What {
    pub fn range(&self) -> (u64, u64) {
        match self {
            What::Map(m) => (m.start, m.end),
            What::Unmap(start, end) => (*start, *end),
        }
    }
}

/// Numbers of system calls that change mappings.
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
    /// The instant after it.
    when: Position,
    start: u64,
    end: u64,
    number: u64,
    args: [u64; 6],
    result: u64,
}

impl Call {
    /// Whether this call may have made a change.
    fn explains(&self, what: &What) -> bool {
        let (start, end, prot) = match what {
            What::Map(m) => (m.start, m.end, Some(m.prot)),
            What::Unmap(start, end) => (*start, *end, None),
        };
        if start < self.start || self.end < end {
            return false;
        }
        // A call does not remove what it has mapped itself.
        match self.number {
            nr::BRK => true,
            // It changes nothing between the old place and the new one. What it removes was at the old one. If the memory
            // moves on later, that is another call.
            nr::MREMAP => {
                let within = |at: u64, len: u64| {
                    at <= start && end <= at.saturating_add(len).saturating_add(4095) & !4095
                };
                match prot {
                    Some(_) => within(self.result, self.args[2]),
                    None => within(self.args[0], self.args[1]),
                }
            }
            nr::MUNMAP | nr::SHMDT => prot.is_none(),
            nr::MMAP => (start, end) == (self.start, self.end) && prot == Some(self.args[2] as u32),
            nr::MPROTECT | nr::PKEY_MPROTECT => prot == Some(self.args[2] as u32 & RWX),
            _ => prot.is_some(),
        }
    }
}

/// `PATIENCE` is how many calls are looked at, for all changes together, to find those that made them. After that,
/// `AHEAD` are looked at for each change.
const PATIENCE: usize = 100_000_000;
const AHEAD: usize = 256;

/// The bits of protection, without the flags that only `mprotect` takes.
const RWX: u32 = 7;

/// All changes of an image's mappings, in order. The image's own stream says what changed. The system calls of its
/// threads (`scans`) tell when. `position` converts an instruction count of a thread.
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
    // Where the last change of the present call ends, if that call changes each mapping once, in ascending order.
    let mut reached = 0;
    let mut looked = 0;
    for (what, initial) in stream(trace, image)? {
        let (start, end) = what.range();
        let done = usize::from(start < reached);
        let rest = calls.get(next + done..).unwrap_or(&[]);
        // Nearly always it is the first one. If none fits, all were looked at in vain; that must not happen each time.
        let ahead = if looked < PATIENCE {
            rest.len()
        } else {
            rest.len().min(AHEAD)
        };
        let mut fits = rest[..ahead].iter().inspect(|_| looked += 1);
        let found = match initial {
            true => None,
            false => fits.position(|c| c.explains(&what)),
        };
        if let Some(i) = found {
            let call = &rest[i];
            when = Some(call.when);
            // Other calls may change several mappings. This one makes one.
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

/// The pages that a successful call may have changed. `heap` is the last known end of the heap.
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

/// The changes that an image's stream tells, in order. The flag says whether it was so when the image began.
fn stream(trace: &Trace, image: u32) -> Result<Vec<(What, bool)>> {
    let mut out = Vec::new();
    // The stream tells what is mapped at the beginning before anything is executed.
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

/// The mappings at a position, in order of address. `None`: at the end.
pub fn at(changes: &[Change], position: Option<Position>) -> Vec<Mapping> {
    let mut layout = Layout::default();
    let until = |c: &&Change| position.is_none_or(|p| c.when.is_none_or(|w| w <= p));
    for c in changes.iter().take_while(until) {
        layout.change(&c.what, ());
    }
    layout.0.into_values().map(|(m, ())| m).collect()
}

/// How many of these changes have been made at a position.
pub fn made(changes: &[Change], position: Position) -> usize {
    changes.partition_point(|c| c.when.is_none_or(|w| w <= position))
}

/// Flag of a mapping that grows downwards.
const GROWS_DOWN: u32 = 0x100;

/// The mapping that has an address at a position, and up to which address that is so. A stack grows downwards without
/// notice, so it may begin above the address.
pub fn covering(changes: &[Change], here: Position, address: u64) -> (Option<&Mapping>, u64) {
    let mut end = u64::MAX;
    let mut stack: Option<&Mapping> = None;
    let before = |c: &&Change| c.when.is_none_or(|w| w <= here);
    let until = changes.partition_point(|c| before(&c));
    for c in changes[..until].iter().rev() {
        let (from, to) = c.what.range();
        if from <= address && address < to {
            end = end.min(to);
            return match &c.what {
                What::Map(m) => (Some(m), end),
                What::Unmap(..) => (None, end),
            };
        }
        if address < from {
            end = end.min(from);
        }
        if let What::Map(m) = &c.what
            && address < from
            && (m.path == "[stack]" || m.flags & GROWS_DOWN != 0)
            && stack.is_none_or(|s| from < s.start)
        {
            stack = Some(m);
        }
    }
    // Nothing else lies in between.
    (stack.filter(|s| s.start == end), end)
}

/// Mappings that do not overlap, by their first addresses. Each has an owner.
struct Layout<T>(BTreeMap<u64, (Mapping, T)>);

impl<T> Default for Layout<T> {
    fn default() -> Self {
        Layout(BTreeMap::new())
    }
}

impl<T: Copy> Layout<T> {
    /// Maps or unmaps a range. Returns the mappings that had something there, as they were.
    fn change(&mut self, what: &What, whose: T) -> Vec<(Mapping, T)> {
        let (start, end) = what.range();
        if start >= end {
            return Vec::new();
        }
        let before = self.0.range(..start).next_back();
        let first = before.filter(|(_, (m, _))| start < m.end);
        let first = first.map_or(start, |(at, _)| *at);
        let hit: Vec<u64> = self.0.range(first..end).map(|(at, _)| *at).collect();
        let hit: Vec<_> = hit.iter().filter_map(|at| self.0.remove(at)).collect();
        for (m, t) in &hit {
            if m.start < start {
                let mut left = m.clone();
                left.end = start;
                self.0.insert(left.start, (left, *t));
            }
            if end < m.end {
                let mut right = m.clone();
                if !m.is_private_anonymous() {
                    right.offset = right.offset.wrapping_add(end - m.start);
                }
                right.start = end;
                self.0.insert(right.start, (right, *t));
            }
        }
        if let What::Map(m) = what {
            self.0.insert(m.start, (m.clone(), whose));
        }
        hit
    }
}

/// To find the module of a mapping, at most this many modules of the same file are looked at. There are seldom two.
const NEIGHBOURS: usize = 16;
/// Two mappings of a file that are this far apart belong to two modules.
const APART: u64 = 1 << 30;

/// The modules that are mapped, while the changes are gone through.
#[derive(Default)]
struct Files<'a> {
    all: Vec<Module>,
    /// How many mappings each module has.
    parts: Vec<usize>,
    layout: Layout<Option<usize>>,
    /// The modules that are mapped, by path and first address.
    live: HashMap<&'a str, BTreeSet<(u64, usize)>>,
    /// Modules of which nothing is mapped just now, but that are not over.
    empty: Vec<usize>,
}

impl<'a> Files<'a> {
    fn change(&mut self, c: &'a Change, hash: &HashMap<&[u8], ModuleHash>) {
        let file = match &c.what {
            What::Map(m) if m.path.starts_with('/') => Some(m),
            _ => None,
        };
        // Which module it is may depend on what is removed.
        let mut touched: Vec<usize> = std::mem::take(&mut self.empty);
        let mut gone: HashMap<usize, Vec<Mapping>> = HashMap::new();
        for (m, whose) in self.layout.change(&c.what, None) {
            let Some(i) = whose else { continue };
            let (start, end) = c.what.range();
            let left = usize::from(m.start < start) + usize::from(end < m.end);
            self.parts[i] = self.parts[i] + left - 1;
            touched.push(i);
            gone.entry(i).or_default().push(m);
        }
        touched.sort_unstable();
        touched.dedup();
        for i in touched.into_iter().filter(|i| self.parts[*i] == 0) {
            let m = &mut self.all[i];
            if matches!(&c.what, What::Map(n) if n.path == m.path) {
                self.empty.push(i);
                continue;
            }
            // The list shows the last mappings that it had.
            m.parts = gone.remove(&i).unwrap_or_default();
            m.unload = c.when;
            let key = (m.start, i);
            if let Some(live) = self.live.get_mut(&*m.path) {
                live.remove(&key);
            }
        }
        let Some(part) = file.filter(|p| p.start < p.end) else {
            return;
        };
        let live = self.live.entry(&part.path).or_default();
        let near = |i: &usize| {
            let m = &self.all[*i];
            part.start <= m.end.saturating_add(APART) && m.start <= part.end.saturating_add(APART)
        };
        let from = (part.end.saturating_add(APART), usize::MAX);
        let below = live.range(..=from).rev().take(NEIGHBOURS);
        let i = match below.map(|(_, i)| *i).filter(near).min() {
            Some(i) => {
                let m = &mut self.all[i];
                live.remove(&(m.start, i));
                m.start = m.start.min(part.start);
                m.end = m.end.max(part.end);
                i
            }
            None => {
                self.all.push(Module {
                    path: part.path.clone(),
                    start: part.start,
                    end: part.end,
                    parts: Vec::new(),
                    load: c.when,
                    unload: None,
                    hash: hash.get(part.path.as_bytes()).copied(),
                });
                self.parts.push(0);
                self.all.len() - 1
            }
        };
        live.insert((self.all[i].start, i));
        self.parts[i] += 1;
        self.empty.retain(|e| *e != i);
        if let Some((_, whose)) = self.layout.0.get_mut(&part.start) {
            *whose = Some(i);
        }
    }
}

/// The files among the mappings, with the times at which they came and went.
pub fn modules(trace: &Trace, changes: &[Change]) -> Vec<Module> {
    // Of several with the same path, the last one counts.
    let named = trace.modules().iter();
    let hash = named.map(|m| (m.path.as_bytes(), m.hash)).collect();
    let mut files = Files::default();
    for c in changes {
        files.change(c, &hash);
    }
    let mut all = files.all;
    for (part, whose) in files.layout.0.into_values() {
        if let Some(m) = whose.and_then(|i| all.get_mut(i)) {
            m.parts.push(part);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_replace_parts_of_others() {
        let map = |start, end, path: &str| {
            What::Map(Mapping {
                start,
                end,
                prot: 3,
                flags: 2,
                offset: start,
                path: path.into(),
            })
        };
        let all = [
            map(0x1000, 0x9000, "/a"),
            map(0x3000, 0x4000, "/b"),
            What::Unmap(0x6000, 0x7000),
            What::Unmap(0x3000, 0x3000),
            map(0x8000, 0xa000, ""),
        ];
        let list: Vec<Change> = all
            .into_iter()
            .map(|what| Change { when: None, what })
            .collect();
        let now: Vec<_> = at(&list, None)
            .into_iter()
            .map(|m| (m.start, m.end, m.offset, m.path))
            .collect();
        let want = [
            (0x1000, 0x3000, 0x1000, "/a"),
            (0x3000, 0x4000, 0x3000, "/b"),
            (0x4000, 0x6000, 0x4000, "/a"),
            (0x7000, 0x8000, 0x7000, "/a"),
            (0x8000, 0xa000, 0x8000, ""),
        ];
        assert_eq!(now, want.map(|(s, e, o, p)| (s, e, o, p.to_string())));
    }

    #[test]
    fn a_call_that_moves_memory_does_not_remove_what_it_moved() {
        let moves = Call {
            when: Position::new(0, 1),
            start: 0x10000,
            end: 0x52000,
            number: nr::MREMAP,
            args: [0x50000, 0x2000, 0x4000, 1, 0, 0],
            result: 0x10000,
        };
        let map = |start, end| {
            What::Map(Mapping {
                start,
                end,
                prot: 3,
                flags: 0x22,
                offset: 0,
                path: String::new(),
            })
        };
        assert!(moves.explains(&What::Unmap(0x50000, 0x52000)));
        assert!(moves.explains(&map(0x10000, 0x14000)));
        // The next one removes that.
        assert!(!moves.explains(&What::Unmap(0x10000, 0x14000)));
        assert!(!moves.explains(&map(0x50000, 0x52000)));
    }

    #[test]
    fn private_memory_without_a_file_has_no_offset() {
        for (flags, offset) in [(0x22, 0), (0x21, 0x2000)] {
            let map = What::Map(Mapping {
                start: 0x1000,
                end: 0x4000,
                prot: 3,
                flags,
                offset: 0,
                path: String::new(),
            });
            let list = [map, What::Unmap(0x2000, 0x3000)];
            let list = list.map(|what| Change { when: None, what });
            let now: Vec<_> = (at(&list, None).iter())
                .map(|m| (m.start, m.offset))
                .collect();
            assert_eq!(now, [(0x1000, 0), (0x3000, offset)]);
        }
    }
}
