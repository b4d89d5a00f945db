//! What the program has mapped: kept current by the loader and by the system calls that change
//! it, and repeated to the process stream.

use crate::lock::{Guard, Lock};
use crate::sys::{self, PAGE, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::{arena, ring};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::*};
use hindsight_events::Event;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_PRIVATE, MAP_SHARED};

/// One mapping, or a part of one with uniform protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// As for `mmap`.
    pub prot: u32,
    /// As for `mmap`.
    pub flags: u32,
    /// Offset in the file or in the shared memory; 0 for private anonymous memory.
    pub offset: u64,
    /// Which shared memory it is; see [`Event::Map`].
    object: u64,
    /// Index for [`Regions::path`].
    path: u32,
}

impl Region {
    fn follows(&self, before: &Region) -> bool {
        before.end == self.start
            && (before.prot, before.flags, before.path) == (self.prot, self.flags, self.path)
            && before.object == self.object
            && (!self.has_offset() || before.offset + (before.end - before.start) == self.offset)
    }

    fn has_offset(&self) -> bool {
        self.flags & MAP_ANONYMOUS == 0 || self.object != 0
    }

    /// Whether other processes can see or make writes.
    pub fn is_shared(&self) -> bool {
        self.flags & MAP_SHARED != 0
    }

    fn cut(&self, start: u64, end: u64) -> Region {
        let offset = match self.has_offset() {
            true => self.offset + (start - self.start),
            false => 0,
        };
        Region {
            start,
            end,
            offset,
            ..*self
        }
    }
}

/// What the kernel maps of a new program's stack below its pointer.
const STACK_START: u64 = 128 << 10;

/// Size of the vDSO's code on all kernels so far.
const VDSO: u64 = 2 * PAGE;

/// All mappings of the program, in order of address.
pub struct Regions {
    list: Vec<Region>,
    paths: Vec<Box<[u8]>>,
}

static REGIONS: Lock<Regions> = Lock::new(Regions {
    list: Vec::new(),
    paths: Vec::new(),
});

/// Increases when what may be executed changes.
static VERSION: AtomicU64 = AtomicU64::new(1);

/// A number that is greater when what may be executed has changed.
pub fn version() -> u64 {
    VERSION.load(Acquire)
}

fn changed(r: &Region) {
    if r.prot & PROT_EXEC != 0 {
        VERSION.fetch_add(1, AcqRel);
    }
}

/// Whether any of these is shared memory of which it is known which it is.
fn shares(list: &[Region]) -> bool {
    list.iter().any(|r| r.object != 0)
}

/// Says when what is told next happened: others can have the memory too.
fn emit_order() {
    ring::emit_process(&Event::Seq {
        number: ring::coming_sequence(),
    });
}

/// The number of new shared memory that only this process and its descendants can have.
pub fn fresh_object() -> u64 {
    let mut b = [0; 8];
    sys::getrandom(&mut b);
    u64::from_le_bytes(b) | 1
}

/// The number of shared memory that has a name of two numbers, as files have: device and inode.
pub fn named_object(a: u64, b: u64) -> u64 {
    // The finalizer of SplitMix64 on both, one after the other.
    let mix = |v: u64| {
        let v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        v ^ v >> 31
    };
    mix(mix(a.wrapping_add(1)) ^ b).max(2) & !1
}

/// The process's mappings.
pub fn regions() -> Guard<'static, Regions> {
    REGIONS.lock()
}

impl Regions {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.list.iter()
    }

    /// The mapping that contains `addr`.
    pub fn find(&self, addr: u64) -> Option<&Region> {
        let i = self.list.partition_point(|r| r.end <= addr);
        self.list.get(i).filter(|r| r.start <= addr)
    }

    /// Whether `addr` may be executed.
    pub fn is_exec(&self, addr: u64) -> bool {
        self.find(addr).is_some_and(|r| r.prot & PROT_EXEC != 0)
    }

    /// Whether `addr` may be written, now or through another mapping of the same memory.
    pub fn is_writable(&self, addr: u64) -> bool {
        self.find(addr)
            .is_some_and(|r| r.prot & PROT_WRITE != 0 || r.is_shared())
    }

    /// Whether any of `addr..addr+len` may be executed.
    pub fn any_exec(&self, addr: u64, len: u64) -> bool {
        self.overlapping(addr, len).any(|r| r.prot & PROT_EXEC != 0)
    }

    /// The mappings that share bytes with `addr..addr+len`.
    pub fn overlapping(&self, addr: u64, len: u64) -> impl Iterator<Item = &Region> {
        let end = addr.saturating_add(len);
        let i = self.list.partition_point(|r| r.end <= addr);
        self.list[i..].iter().take_while(move |r| r.start < end)
    }

    /// File (or `[stack]` and the like) behind a mapping; empty for anonymous memory.
    pub fn path(&self, r: &Region) -> &[u8] {
        self.paths.get(r.path as usize).map_or(&[], |p| p)
    }

    fn intern(&mut self, path: &[u8]) -> u32 {
        let i = self
            .paths
            .iter()
            .position(|p| **p == *path)
            .unwrap_or_else(|| {
                self.paths.push(path.into());
                self.paths.len() - 1
            });
        i as u32
    }

    /// Notes a new mapping, which replaces whatever was there.
    pub fn add(&mut self, start: u64, len: u64, prot: u32, flags: u32, offset: u64, path: &[u8]) {
        self.add_object(start..start + len, prot, flags, offset, path, 0);
    }

    /// As [`Regions::add`], of the shared memory `object`.
    pub fn add_object(
        &mut self,
        range: Range<u64>,
        prot: u32,
        flags: u32,
        offset: u64,
        path: &[u8],
        object: u64,
    ) {
        let path = self.intern(path);
        let anonymous = flags & MAP_ANONYMOUS != 0;
        let offset = if anonymous { 0 } else { offset };
        let flags = flags & (MAP_SHARED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN);
        let len = (range.end - range.start).next_multiple_of(PAGE);
        self.insert(Region {
            start: range.start,
            end: range.start + len,
            prot,
            flags,
            offset,
            object,
            path,
        });
    }

    fn insert(&mut self, r: Region) {
        let old = self.take(r.start, r.end);
        changed(&r);
        if r.object != 0 || shares(&old) {
            emit_order();
        }
        self.emit(&r);
        if r.flags & MAP_SHARED != 0 && r.prot & PROT_WRITE != 0 {
            crate::order::shares();
        }
        let mut i = self.list.partition_point(|o| o.start < r.start);
        self.list.insert(i, r);
        if self.list.get(i + 1).is_some_and(|n| n.follows(&r)) {
            self.list[i].end = self.list.remove(i + 1).end;
        }
        if i > 0 && self.list[i].follows(&self.list[i - 1]) {
            i -= 1;
            self.list[i].end = self.list.remove(i + 1).end;
        }
    }

    /// Cuts `start..end` out of the list; returns what was there.
    fn take(&mut self, start: u64, end: u64) -> Vec<Region> {
        let mut out = Vec::new();
        let mut i = self.list.partition_point(|r| r.end <= start);
        while let Some(&r) = self.list.get(i).filter(|r| r.start < end) {
            changed(&r);
            out.push(r.cut(r.start.max(start), r.end.min(end)));
            match (r.start < start, r.end > end) {
                (false, false) => drop(self.list.remove(i)),
                (true, false) => {
                    self.list[i].end = start;
                    i += 1;
                }
                (false, true) => self.list[i] = r.cut(end, r.end),
                (true, true) => {
                    self.list[i].end = start;
                    self.list.insert(i + 1, r.cut(end, r.end));
                    i += 2;
                }
            }
        }
        out
    }

    /// Notes that a range is mapped no longer.
    pub fn remove(&mut self, start: u64, len: u64) {
        let len = len.next_multiple_of(PAGE);
        let old = self.take(start, start + len);
        if shares(&old) {
            emit_order();
        }
        if !old.is_empty() {
            ring::emit_process(&Event::Unmap { addr: start, len });
        }
    }

    /// Repeats all mappings to the process stream.
    pub fn tell(&self) {
        if shares(&self.list) {
            emit_order();
        }
        for r in &self.list {
            self.emit(r);
        }
    }

    /// From now on somebody else can have the shared memory that only processes of this recording had.
    pub fn disown(&mut self) {
        if shares(&self.list) {
            emit_order();
        }
        for i in 0..self.list.len() {
            if self.list[i].object & 1 != 0 {
                self.list[i].object &= !1;
                self.emit(&self.list[i]);
            }
        }
    }

    fn emit(&self, r: &Region) {
        ring::emit_process(&Event::Map {
            addr: r.start,
            len: r.end - r.start,
            prot: r.prot,
            flags: r.flags,
            offset: r.offset,
            object: r.object,
            path: self.path(r),
        });
    }

    /// Notes a changed protection.
    pub fn protect(&mut self, start: u64, len: u64, prot: u32) {
        for r in self.take(start, start + len.next_multiple_of(PAGE)) {
            self.insert(Region { prot, ..r });
        }
    }

    /// Notes that `old..old+old_len` moved or changed its size. `keep`: the old place stays mapped.
    pub fn moved(&mut self, old: u64, old_len: u64, new: u64, new_len: u64, keep: bool) {
        let whole = (
            old_len.next_multiple_of(PAGE),
            new_len.next_multiple_of(PAGE),
        );
        let parts = match keep {
            true => self
                .find(old)
                .map(|r| r.cut(old, r.end))
                .into_iter()
                .collect(),
            false => self.take(old, old + whole.0.max(1)),
        };
        let Some(&r) = parts.first() else { return };
        if !keep && old != new {
            if r.object != 0 {
                emit_order();
            }
            ring::emit_process(&Event::Unmap {
                addr: old,
                len: whole.0,
            });
        }
        if parts.len() > 1 && whole.0 == whole.1 {
            // Several mappings; what is free between them stays as it is at the new place.
            for r in parts {
                let (start, end) = (new + (r.start - old), new + (r.end - old));
                self.insert(Region { start, end, ..r });
            }
            return;
        }
        self.insert(Region {
            start: new,
            end: new + whole.1,
            ..r
        });
    }

    /// Notes what the kernel had mapped before the recorder began: stack, vDSO and its data. `stack`
    /// and `vdso` are addresses in them, for where there is no `/proc`.
    pub fn add_initial(&mut self, stack: core::ops::Range<u64>, vdso: Option<u64>) {
        let text = read_maps();
        if text.is_empty() {
            let anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
            let start = (stack.start & !(PAGE - 1)).saturating_sub(STACK_START);
            let len = stack.end.next_multiple_of(PAGE) - start;
            let (rw, rx) = (PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC);
            self.add(start, len, rw, anonymous | MAP_GROWSDOWN, 0, b"[stack]");
            if let Some(at) = vdso {
                self.add(at, VDSO, rx, anonymous, 0, b"[vdso]");
            }
        }
        for line in text.split(|b| *b == b'\n') {
            if let Some(m) = parse(line)
                && !arena::overlaps(m.start, m.end - m.start)
                && m.end < 1 << 63
            {
                let grows = if m.name == b"[stack]" {
                    MAP_GROWSDOWN
                } else {
                    0
                };
                self.add(
                    m.start,
                    m.end - m.start,
                    m.prot,
                    MAP_PRIVATE | MAP_ANONYMOUS | grows,
                    0,
                    m.name,
                );
            }
        }
    }

    /// Notes what a program has mapped that ran before it was recorded.
    pub fn add_existing(&mut self) {
        let text = read_maps();
        for m in text.split(|b| *b == b'\n').filter_map(parse) {
            if arena::overlaps(m.start, m.end - m.start) || m.end >= 1 << 63 {
                continue;
            }
            let sharing = if m.shared { MAP_SHARED } else { MAP_PRIVATE };
            let kind = match m.name {
                b"[stack]" => MAP_ANONYMOUS | MAP_GROWSDOWN,
                [b'/', ..] => 0,
                _ => MAP_ANONYMOUS,
            };
            let len = m.end - m.start;
            self.add(m.start, len, m.prot, sharing | kind, m.offset, m.name);
        }
    }

    /// Whether the kernel has given a part of this mapping another protection than is known.
    pub fn is_protected_otherwise(&self, m: &Kernels) -> bool {
        self.overlapping(m.start, m.end - m.start)
            .any(|r| r.prot != m.prot)
    }

    /// Takes note of how far down the stack has grown, if that may matter for `addr..addr+len`.
    pub fn follow_stack(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let stack = self.list.iter().position(|r| r.flags & MAP_GROWSDOWN != 0);
        if let Some(i) = stack {
            let below = i.checked_sub(1).map_or(0, |i| self.list[i].end);
            if addr < self.list[i].start && below < end {
                self.refresh_stack();
            }
        }
    }

    /// Asks the kernel how far down the stack has grown. Returns whether it has.
    pub fn refresh_stack(&mut self) -> bool {
        let Some(at) = self.list.iter().position(|r| r.flags & MAP_GROWSDOWN != 0) else {
            return false;
        };
        let old = self.list[at];
        let text = read_maps();
        let now = text
            .split(|b| *b == b'\n')
            .filter_map(parse)
            .find(|m| m.start < old.end && m.end > old.start);
        let Some(m) = now.filter(|m| m.start < old.start) else {
            return false;
        };
        self.insert(Region {
            start: m.start,
            end: old.start,
            prot: m.prot,
            ..old
        });
        true
    }
}

/// A line of `/proc/self/maps`.
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    pub prot: u32,
    pub shared: bool,
    pub offset: u64,
    pub name: &'a [u8],
}

/// Reads a line of `/proc/self/maps`.
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.split(|b| *b == b' ').filter(|f| !f.is_empty());
    let range = fields.next()?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let perms = fields.next()?;
    let prot = [(b'r', PROT_READ), (b'w', PROT_WRITE), (b'x', PROT_EXEC)];
    let prot = prot
        .iter()
        .filter(|(c, _)| perms.contains(c))
        .fold(0, |p, (_, bit)| p | bit);
    Some(Line {
        start: hex(&range[..dash])?,
        end: hex(&range[dash + 1..])?,
        prot,
        shared: perms.contains(&b's'),
        offset: hex(fields.next()?)?,
        // What comes before has neither sign; a name may have spaces.
        name: line
            .iter()
            .position(|b| b"/[".contains(b))
            .map_or(&[], |at| line[at..].trim_ascii_end()),
    })
}

/// A number as the kernel writes addresses.
pub fn hex(s: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(s).ok()?, 16).ok()
}

/// The text of `/proc/self/maps`.
pub fn read_maps() -> Vec<u8> {
    read_file(c"/proc/self/maps")
}

/// The content of a file; empty if it cannot be read.
pub fn read_file(path: &core::ffi::CStr) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(fd) = sys::open_read(path) {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = sys::read(fd, &mut buf) {
            text.extend_from_slice(&buf[..n]);
        }
        sys::close(fd);
    }
    text
}

/// A part of a mapping as the kernel has it.
pub struct Kernels {
    pub start: u64,
    pub end: u64,
    pub prot: u32,
}

/// What the kernel has mapped in `addr..addr+len`, in order.
pub fn kernel_mappings(addr: u64, len: u64) -> Vec<Kernels> {
    let end = addr.saturating_add(len);
    let text = read_maps();
    let lines = text.split(|b| *b == b'\n').filter_map(parse);
    lines
        .filter(|m| m.start < end && addr < m.end)
        .map(|m| Kernels {
            start: m.start.max(addr),
            end: m.end.min(end),
            prot: m.prot,
        })
        .collect()
}
