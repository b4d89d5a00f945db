//! What the program has mapped. The loader, and the system calls that change mappings, keep the
//! list up to date. Each change goes to the process stream, too.

mod cells;
mod kernel;
mod reconcile;
mod table;

use crate::stream::ring;
use crate::sys::lock::{Guard, Lock};
use crate::sys::log::Plain;
use crate::sys::{self, PAGE, PROT_EXEC, PROT_READ, PROT_WRITE};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::*};
use hindsight_events::Event;
pub use kernel::{Kernels, Line, hex, kernel_mappings, parse, read_file, read_maps};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_PRIVATE, MAP_SHARED};
use table::Table;
pub use table::{SPAN, is_data};

/// One mapping, or a part of one with the same protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// As for `mmap`.
    pub prot: u32,
    /// As for `mmap`.
    pub flags: u32,
    /// Offset in the file or in the shared memory, in bytes. 0 for private anonymous memory.
    pub offset: u64,
    /// Which shared memory it is (see [`Event::Map`]). 0: it is none, or not known.
    object: u64,
    /// Number for [`Regions::path`].
    path: u32,
}

impl Region {
    /// Private anonymous memory that the program may read and write.
    #[cfg(test)]
    pub fn anonymous(range: core::ops::Range<u64>) -> Region {
        Region {
            start: range.start,
            end: range.end,
            prot: PROT_READ | PROT_WRITE,
            flags: linux_raw_sys::general::MAP_PRIVATE | MAP_ANONYMOUS,
            offset: 0,
            object: 0,
            path: 0,
        }
    }

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

/// Bytes that the kernel maps of a new program's stack below its stack pointer.
const STACK_START: u64 = 128 << 10;

/// Bytes of the vDSO's code on all kernels so far.
const VDSO: u64 = 2 * PAGE;

/// All mappings of the program, in order of address.
pub struct Regions(Table);

/// What is mapped in this memory. The child of a `fork` has a copy, and goes on with it.
struct Maps {
    /// All mappings of the program.
    regions: Lock<Regions>,
    /// See [`version`]. Changed with the regions locked, read without.
    version: AtomicU64,
}

static MAPS: Maps = Maps {
    regions: Lock::mended(Regions(Table::new()), |r| {
        // The old value cannot be relied on. The kernel knows the mappings, except which shared memory
        // each is.
        core::mem::forget(core::mem::replace(r, Regions(Table::new())));
        MAPS.version.fetch_add(1, AcqRel);
        r.add_existing();
    }),
    version: AtomicU64::new(1),
};

/// A number that grows whenever what may be executed changes.
pub fn version() -> u64 {
    MAPS.version.load(Acquire)
}

fn changed(r: &Region) {
    if r.prot & PROT_EXEC != 0 {
        MAPS.version.fetch_add(1, AcqRel);
    }
}

/// Whether any of these is shared memory of which it is known which one it is.
fn shares<'r>(mut list: impl Iterator<Item = &'r Region>) -> bool {
    list.any(|r| r.object != 0)
}

/// Records the order number of what comes next, since others can have the memory too.
fn emit_order() {
    ring::emit_process(&Event::Seq {
        number: ring::coming_sequence(),
    });
}

/// A number for new shared memory that only this process and its descendants can have. It is odd.
pub fn fresh_object() -> u64 {
    let mut b = [0; 8];
    sys::getrandom(&mut b);
    u64::from_le_bytes(b) | 1
}

/// The number of shared memory that is named by two numbers, as files are by device and inode. It
/// is even.
pub fn named_object(a: u64, b: u64) -> u64 {
    // The finalizer of SplitMix64, applied to both numbers in turn.
    let mix = |v: u64| {
        let v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        v ^ v >> 31
    };
    mix(mix(a.wrapping_add(1)) ^ b).max(2) & !1
}

/// Waits for the list of the process's mappings.
pub fn regions() -> Guard<'static, Regions> {
    MAPS.regions.lock()
}

impl Regions {
    /// All mappings, in order of address.
    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.0.all()
    }

    /// The mapping that contains `addr`.
    pub fn find(&self, addr: u64) -> Option<&Region> {
        self.0.find(addr)
    }

    /// The lowest mapping that grows downwards: the stack.
    pub fn stack(&self) -> Option<&Region> {
        self.0.growing()
    }

    /// Bytes of all mappings, and bytes of those that count as data.
    pub fn bytes(&self) -> (u64, u64) {
        self.0.bytes()
    }

    /// All mappings that may share low address bits with `len` bytes at `addr`, and the stack,
    /// which may grow there. If any two mappings share low bits, all mappings.
    pub fn near_cells(&self, addr: u64, len: u64) -> Vec<Region> {
        if self.0.cells.is_tangled() {
            return self.0.all().copied().collect();
        }
        let meeting = self.0.cells.meeting(addr, len);
        let meeting = meeting.filter_map(|a| self.0.at(a));
        meeting.chain(self.0.special()).copied().collect()
    }

    /// Free stretches of low address bits, of at least `len` bytes, the shortest first: beginning
    /// and length. Mappings in [`Regions::special`] do not count as used. `None`: not known.
    pub fn free_cells(&self, len: u64) -> Option<impl Iterator<Item = (u64, u64)>> {
        let cells = &self.0.cells;
        (!cells.is_tangled()).then(|| cells.free(len))
    }

    /// The longest of these stretches.
    pub fn longest_free_cells(&self) -> Option<(u64, u64)> {
        self.0.cells.longest()
    }

    /// The mappings that grow, and those of 4 GiB or more.
    pub fn special(&self) -> impl Iterator<Item = &Region> {
        self.0.special()
    }

    /// Makes questions for low address bits quick to answer again, if no two mappings share any
    /// now.
    pub fn sort_cells(&mut self) {
        self.0.sort_cells();
    }

    /// Whether code at `addr` may be executed.
    pub fn is_exec(&self, addr: u64) -> bool {
        self.find(addr).is_some_and(|r| r.prot & PROT_EXEC != 0)
    }

    /// Whether `addr` may be written, now or through another mapping of the same memory.
    pub fn is_writable(&self, addr: u64) -> bool {
        self.find(addr)
            .is_some_and(|r| r.prot & PROT_WRITE != 0 || r.is_shared())
    }

    /// Whether any byte of `addr..addr+len` may be executed.
    pub fn any_exec(&self, addr: u64, len: u64) -> bool {
        self.overlapping(addr, len).any(|r| r.prot & PROT_EXEC != 0)
    }

    /// The mappings that share bytes with `addr..addr+len`.
    pub fn overlapping(&self, addr: u64, len: u64) -> impl Iterator<Item = &Region> {
        self.0.overlapping(addr..addr.saturating_add(len))
    }

    /// The file of a mapping, or a name such as `[stack]`. Empty for anonymous memory.
    pub fn path(&self, r: &Region) -> &[u8] {
        self.0.paths.get(r.path)
    }

    /// Whether this file is mapped anywhere.
    pub fn has_path(&self, path: &[u8]) -> bool {
        self.0.paths.is_mapped(path)
    }

    /// Notes a new mapping. It replaces whatever was there.
    pub fn add(&mut self, start: u64, len: u64, prot: u32, flags: u32, offset: u64, path: &[u8]) {
        self.add_object(start..start + len, prot, flags, offset, path, 0);
    }

    /// Notes a new mapping of the shared memory `object`. It replaces whatever was there.
    pub fn add_object(
        &mut self,
        range: Range<u64>,
        prot: u32,
        flags: u32,
        offset: u64,
        path: &[u8],
        object: u64,
    ) {
        let path = self.0.paths.number(path);
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
        log!(
            Debug,
            "mapped {:#x}-{:#x} prot {} flags {:#x} {}",
            r.start,
            r.end,
            r.prot,
            r.flags,
            Plain(self.path(&r))
        );
        let old = self.take(r.start, r.end);
        changed(&r);
        if r.object != 0 || shares(old.iter()) {
            emit_order();
        }
        self.emit(&r);
        if r.flags & MAP_SHARED != 0 && r.prot & PROT_WRITE != 0 {
            crate::sys::many::shares();
        }
        let mut whole = r;
        if let Some(&next) = self.0.from(r.end).filter(|n| n.follows(&r)) {
            self.0.drop(next.start);
            whole.end = next.end;
        }
        if let Some(&before) = self.0.before(r.start).filter(|b| r.follows(b)) {
            self.0.drop(before.start);
            whole = Region {
                end: whole.end,
                ..before
            };
        }
        self.0.put(whole);
    }

    /// Cuts `start..end` out of the list. Returns what was there.
    fn take(&mut self, start: u64, end: u64) -> Vec<Region> {
        let all: Vec<Region> = self.0.overlapping(start..end).copied().collect();
        let mut out = Vec::with_capacity(all.len());
        for r in all {
            changed(&r);
            self.0.drop(r.start);
            out.push(r.cut(r.start.max(start), r.end.min(end)));
            if r.start < start {
                self.0.put(Region { end: start, ..r });
            }
            if r.end > end {
                self.0.put(r.cut(end, r.end));
            }
        }
        out
    }

    /// Notes that a range was unmapped.
    pub fn remove(&mut self, start: u64, len: u64) {
        let len = len.next_multiple_of(PAGE);
        log!(Debug, "unmapped {start:#x}-{:#x}", start + len);
        let old = self.take(start, start + len);
        if shares(old.iter()) {
            emit_order();
        }
        if !old.is_empty() {
            ring::emit_process(&Event::Unmap { addr: start, len });
        }
    }

    /// Writes all mappings to the process stream.
    pub fn tell(&self) {
        if shares(self.0.all()) {
            emit_order();
        }
        for r in self.0.all() {
            self.emit(r);
        }
    }

    /// Notes that from now on somebody outside this recording can have its shared memory.
    pub fn disown(&mut self) {
        if shares(self.0.all()) {
            emit_order();
        }
        let owned = self.0.all().filter(|r| r.object & 1 != 0);
        let owned: Vec<Region> = owned.copied().collect();
        for mut r in owned {
            self.0.drop(r.start);
            r.object &= !1;
            self.emit(&r);
            self.0.put(r);
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

    /// Notes that `old..old+old_len` was moved or resized. `keep`: the old range stays mapped as
    /// well.
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
            // Several mappings were moved. Holes between them move with them.
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

    /// Notes what the kernel had mapped before the recorder began: the stack, the vDSO and its
    /// data. `stack` and `vdso` are addresses in them. They are used where there is no `/proc`.
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
                && m.is_guest()
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

    /// Notes what a program had mapped before it was recorded.
    pub fn add_existing(&mut self) {
        let text = read_maps();
        for m in text.split(|b| *b == b'\n').filter_map(parse) {
            if m.is_guest() {
                let len = m.end - m.start;
                self.add(m.start, len, m.prot, m.flags(), m.offset, m.name);
            }
        }
    }

    /// Whether the kernel has given a part of this mapping another protection than the list says.
    pub fn is_protected_otherwise(&self, m: &Kernels) -> bool {
        self.overlapping(m.start, m.end - m.start)
            .any(|r| r.prot != m.prot)
    }

    /// Notes how far down the stack has grown, if that may matter for `addr..addr+len`.
    pub fn follow_stack(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        if let Some(stack) = self.0.growing() {
            let below = self.0.before(stack.start).map_or(0, |r| r.end);
            if addr < stack.start && below < end {
                self.refresh_stack();
            }
        }
    }

    /// Asks the kernel how far down the stack has grown. Returns whether it has grown.
    pub fn refresh_stack(&mut self) -> bool {
        let Some(&old) = self.0.growing() else {
            return false;
        };
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
