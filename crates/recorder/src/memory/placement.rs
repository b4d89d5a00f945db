//! Where the program's mappings go.
//!
//! Replay has one cell for all addresses with the same low 32 bits. While memory is quiet (see
//! [`crate::memory::regime`]), no two pages in use may share these bits. For example,
//! 0x5555_1234_5000 and 0x7fff_1234_5000 must not both be in use. In the checked regime they may.
//! But they cost checks that fail, and questions about such memory take longer.
//!
//! Where the program leaves the address open, the recorder chooses it in the kernel's place.
//! Mappings go into a stretch of less than 4 GiB, from the top down. The stretch ends where the low
//! bits of the program's own address would follow. So it meets neither the program nor the heap,
//! which grows up from the program. What the stack may need is left out.
//!
//! All this makes collisions rare, but does not exclude them. Whoever relies on there being none
//! asks [`collides`].

use crate::memory::maps::{Region, SPAN, regions};
use crate::sys::lock::Lock;
use crate::sys::quiet::STACK;
use crate::sys::{self, PAGE};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_NORESERVE, MAP_PRIVATE, RLIMIT_STACK,
};

/// Bytes left for the heap.
const HEAP: u64 = 1 << 30;
/// Bytes kept free for a stack whose limit is raised while the program runs.
const STACK_ROOM: u64 = 256 << 20;
/// Mappings of this many bytes or more begin at a multiple of it, for the kernel's large pages.
const LARGE: u64 = 2 << 20;

/// Where mappings may go.
struct Placement {
    /// The stretch, from here to `top`. If it is empty, the kernel chooses addresses.
    bottom: AtomicU64,
    top: AtomicU64,
    /// The stack's limit at the last look, in bytes. The program can change it, and so can others.
    stack_limit: AtomicU64,
    /// Memory that the program has made inaccessible and that keeps what it holds: start and length.
    held: Lock<Vec<(u64, u64)>>,
}

const UNKNOWN: u64 = u64::MAX - 1;
/// Most entries of [`Placement::held`].
const MAX_HELD: usize = 1000;

static PLACEMENT: Placement = Placement {
    bottom: AtomicU64::new(0),
    top: AtomicU64::new(0),
    stack_limit: AtomicU64::new(UNKNOWN),
    held: Lock::new(Vec::new()),
};

/// Chooses the stretch for a program that begins at `program`. It stays empty if there is no room.
pub fn begin(program: u64) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // A hole is found by mapping it. It can be given back at once, since nothing else runs in the
    // process yet.
    let Ok(hole) = sys::mmap(0, 2 * SPAN, 0, flags, -1, 0) else {
        return;
    };
    let _ = sys::munmap(hole, 2 * SPAN);
    let end = hole + 2 * SPAN;
    let top = end - (end.wrapping_sub(program & !(PAGE - 1)) & (SPAN - 1));
    PLACEMENT.top.store(top, Relaxed);
    PLACEMENT.bottom.store(top - SPAN + HEAP, Relaxed);
}

/// Whether the recorder chooses addresses for a process that is quiet, or is not. In the checked
/// regime it does as long as that takes little time. A collision does no harm there.
pub fn chooses(quiet: bool) -> bool {
    quiet || regions().free_cells(PAGE).is_some()
}

/// Whether the low bits of `a..a+len` and of `b..b+other` meet. If they do: how far the first range
/// has to move down.
fn meets(a: u64, len: u64, b: u64, other: u64) -> Option<u64> {
    let ahead = b.wrapping_sub(a) & (SPAN - 1);
    if ahead < len {
        return Some(len - ahead);
    }
    let behind = SPAN - ahead;
    (behind < other).then(|| behind + len)
}

/// Reads the limit of the stack. Called once in a system call, which may need it often.
pub fn look_at_limit() {
    PLACEMENT
        .stack_limit
        .store(crate::sys::resources::get(RLIMIT_STACK).0, Relaxed);
}

fn stack_limit() -> u64 {
    if PLACEMENT.stack_limit.load(Relaxed) == UNKNOWN {
        look_at_limit();
    }
    PLACEMENT.stack_limit.load(Relaxed).min(STACK)
}

/// Whether a program of `len` bytes at `at`, with room for its heap, would meet other memory or what the
/// stack may need.
pub fn meets_any(at: u64, len: u64) -> bool {
    let limit = stack_room();
    regions().all().any(|r| {
        let (start, size) = grown(r, || limit);
        meets(at, len + HEAP, start, size).is_some()
    })
}

/// Whether `len` bytes at `at` meet what is kept free for the stack. The stack's limit may still be
/// raised, which [`collides`] does not take into account.
fn meets_stack(at: u64, len: u64) -> bool {
    let stack = regions().stack().map(avoided);
    stack.is_some_and(|(start, size)| meets(at, len, start, size).is_some())
}

/// Start and length of what a region takes. For the stack that is also what it may grow to.
fn taken(r: &Region) -> (u64, u64) {
    grown(r, stack_limit)
}

/// Start and length of what new memory keeps away from. Programs such as compilers raise the limit
/// of their stack after much was mapped, so more is left for the stack.
fn avoided(r: &Region) -> (u64, u64) {
    grown(r, stack_room)
}

/// Bytes that are kept free for the stack.
fn stack_room() -> u64 {
    stack_limit().max(STACK_ROOM)
}

/// Start and length of a region. `stack` says how large the stack may become, and is called for the
/// stack only.
fn grown(r: &Region, stack: impl Fn() -> u64) -> (u64, u64) {
    let start = match r.flags & MAP_GROWSDOWN != 0 {
        true => r.start.min(r.end.saturating_sub(stack())),
        false => r.start,
    };
    (start, r.end - start)
}

/// A free address for `len` bytes of new memory, aligned so that the kernel can use large pages.
pub fn choose_fresh(len: u64) -> Option<u64> {
    choose(len, if len >= LARGE { LARGE } else { PAGE })
}

/// A free address for `len` bytes at a multiple of `align`. Two threads may get the same one. So
/// the caller must map there without replacing anything.
pub fn choose(len: u64, align: u64) -> Option<u64> {
    let (bottom, top) = (PLACEMENT.bottom.load(Relaxed), PLACEMENT.top.load(Relaxed));
    let len = len.checked_next_multiple_of(PAGE)?;
    if top == 0 || len == 0 || len > top - bottom {
        return None;
    }
    let regions = regions();
    let special: Vec<Region> = regions.special().copied().collect();
    let Some(free) = regions.free_cells(len) else {
        let all: Vec<Region> = regions.all().copied().collect();
        return below(&all, bottom, top, len, align);
    };
    // The shortest stretches may be too short when aligned, or lie outside. Then the longest may
    // do.
    let longest = regions.longest_free_cells();
    for (at, size) in free.take(TRIES).chain(longest) {
        // As addresses in the stretch. The circle of low bits is cut at the stretch's top.
        let start = top - SPAN + (at.wrapping_sub(top) & (SPAN - 1));
        let end = start + size;
        let parts = [
            (start, end.min(top)),
            (start - SPAN.min(start), end.saturating_sub(SPAN)),
        ];
        for (from, to) in parts {
            let from = from.max(bottom);
            if from < to
                && to - from >= len
                && let Some(at) = below(&special, from, to, len, align)
            {
                return Some(at);
            }
        }
    }
    None
}

/// Number of free stretches that are tried before the longest one.
const TRIES: usize = 64;

/// The highest multiple of `align` in `bottom..top` where `len` bytes meet none of `others`.
fn below(others: &[Region], bottom: u64, top: u64, len: u64, align: u64) -> Option<u64> {
    let limit = stack_room();
    let mut at = top.checked_sub(len)? & !(align - 1);
    'next: while at >= bottom {
        for r in others {
            let (start, size) = grown(r, || limit);
            if size < SPAN
                && let Some(down) = meets(at, len, start, size)
            {
                at = at.checked_sub(down)? & !(align - 1);
                continue 'next;
            }
            if size >= SPAN && r.start < at + len && at < r.end {
                at = r.start.checked_sub(len)? & !(align - 1);
                continue 'next;
            }
        }
        return Some(at);
    }
    None
}

/// Moves the stack out of the way of a program at `start..end` that must be there. That is needed
/// if what the stack may need shares low address bits with the program or its heap. Returns where
/// the stack was, and by how much it has moved, modulo 2^64.
pub fn separate_stack(start: u64, end: u64) -> Option<(Range<u64>, u64)> {
    let stack = *regions().stack()?;
    let (low, len) = avoided(&stack);
    meets(start, end - start + HEAP, low, len)?;
    let at = choose(len, PAGE)? + len - (stack.end - stack.start);
    sys::move_mapping(stack.start, stack.end - stack.start, at).ok()?;
    let size = stack.end - stack.start;
    regions().moved(stack.start, size, at, size, false);
    Some((stack.start..stack.end, at.wrapping_sub(stack.start)))
}

/// Moves the vDSO and its data out of the way. That is needed if they share low address bits with
/// what the stack may need, or with the program at `program..end` and its heap. Returns where the
/// vDSO is after that.
pub fn separate_vdso(program: u64, end: u64) -> Option<u64> {
    let regions = regions();
    let parts: Vec<Region> = regions
        .all()
        .filter(|r| {
            matches!(
                regions.path(r),
                [b'[', b'v', b'v', b'a', b'r', ..] | b"[vdso]"
            )
        })
        .copied()
        .collect();
    let (first, last) = (parts.first()?, parts.last()?);
    let (start, len) = (first.start, last.end - first.start);
    let whole = parts.windows(2).all(|p| p[0].end == p[1].start);
    // The vDSO's code reads its data at fixed distances. So all of it moves, or nothing.
    let data = parts.len() > 1 && regions.path(last) == b"[vdso]";
    drop(regions);
    let free = meets(program, end - program + HEAP, start, len).is_none()
        && !meets_stack(start, len)
        && !collides(start, len);
    if !whole || !data || free {
        return None;
    }
    let at = choose(len, PAGE)?;
    for (i, r) in parts.iter().enumerate() {
        let to = |r: &Region| at + (r.start - start);
        if sys::move_mapping(r.start, r.end - r.start, to(r)).is_err() {
            for r in &parts[..i] {
                let _ = sys::move_mapping(to(r), r.end - r.start, r.start);
            }
            return None;
        }
    }
    let mut regions = crate::memory::maps::regions();
    for r in &parts {
        let len = r.end - r.start;
        regions.moved(r.start, len, at + (r.start - start), len, false);
    }
    Some(at + (last.start - start))
}

/// Notes such memory. False if there is too much of it.
pub fn hold(addr: u64, len: u64) -> bool {
    let mut held = PLACEMENT.held.lock();
    if !held.contains(&(addr, len)) {
        held.push((addr, len));
    }
    held.len() <= MAX_HELD
}

/// Whether pages of `addr..addr+len` share low address bits with anything. That is each other,
/// other memory of the program that may hold something, or what the stack may need.
pub fn collides(addr: u64, len: u64) -> bool {
    if len >= SPAN {
        return true;
    }
    any_other(addr, len, |start, size| {
        meets(addr, len, start, size).is_some()
    })
}

/// The parts of `addr..addr+len` that share low address bits with no other memory that may hold
/// something. `len` is less than [`SPAN`]. Inaccessible mappings may be anywhere, so clearing their
/// cells must leave the cells of others alone.
pub fn apart(addr: u64, len: u64) -> Vec<(u64, u64)> {
    let mut parts = alloc::vec![(addr, len)];
    any_other(addr, len, |start, size| {
        let size = size.min(SPAN);
        let ahead = start.wrapping_sub(addr) & (SPAN - 1);
        // The other range may also begin below this one.
        let below = addr + (ahead + size).saturating_sub(SPAN);
        for (a, b) in [(addr, below), (addr + ahead, addr + ahead + size)] {
            let rest = |&(at, len): &(u64, u64)| {
                [(at, a.min(at + len)), (b.max(at), at + len)]
                    .into_iter()
                    .filter(|(from, to)| from < to)
                    .map(|(from, to)| (from, to - from))
            };
            if a < b {
                parts = parts.iter().flat_map(rest).collect();
            }
        }
        false
    });
    parts
}

/// Whether `is` is true for any memory outside of `addr..addr+len` that may hold something, or that
/// the stack may need. It is called with the memory's start and length.
fn any_other(addr: u64, len: u64, mut is: impl FnMut(u64, u64) -> bool) -> bool {
    let end = addr.saturating_add(len);
    let mut other = |a: u64, b: u64| a < b && is(a, b - a);
    let holds = |r: &Region| r.prot != 0 || r.flags & MAP_ANONYMOUS == 0;
    let near: Vec<Region> = regions().near_cells(addr, len);
    let in_use = near.iter().filter(|r| holds(r)).map(taken);
    in_use
        .chain(PLACEMENT.held.lock().iter().copied())
        .any(|(start, size)| {
            let behind = start.saturating_add(size);
            // Of memory that overlaps the range, only the parts outside count.
            match start < end && addr < behind {
                true => other(start, behind.min(addr)) || other(end.max(start), behind),
                false => other(start, behind),
            }
        })
}

/// Whether what the stack may need meets other memory.
pub fn stack_collides() -> bool {
    look_at_limit();
    let stack = regions().stack().map(taken);
    let limit = PLACEMENT.stack_limit.load(Relaxed);
    limit > STACK || stack.is_some_and(|(start, size)| collides(start, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether two ranges of addresses share low bits, by definition.
    fn share(a: u64, len: u64, b: u64, other: u64) -> bool {
        let (a, b) = (a % SPAN, b % SPAN);
        // The second range as it lies, and one span lower and higher.
        let at = |b: i128| b < a as i128 + len as i128 && (a as i128) < b + other as i128;
        [-1, 0, 1].iter().any(|n| at(b as i128 + n * SPAN as i128))
    }

    fn pages(most: u64) -> impl Strategy<Value = u64> {
        (1..most / PAGE).prop_map(|n| n * PAGE)
    }

    fn region(start: u64, len: u64) -> Region {
        Region::anonymous(start..start + len)
    }

    proptest! {
        /// Two ranges meet exactly if they share low bits. The move that is asked for ends that.
        #[test]
        fn ranges_meet_if_they_share_low_bits(
            a in pages(1 << 40), len in pages(1 << 31), b in pages(1 << 40), other in pages(1 << 31),
        ) {
            let down = meets(a, len, b, other);
            prop_assert_eq!(down.is_some(), share(a, len, b, other));
            if let Some(down) = down {
                prop_assert!(!share(a.wrapping_sub(down), len, b, other));
            }
        }

        /// The chosen address is in the stretch and aligned, and shares low bits with nothing.
        #[test]
        fn chosen_places_keep_away_from_all(
            others in proptest::collection::vec((pages(1 << 40), pages(1 << 29)), 0..8),
            len in pages(1 << 28),
            large in any::<bool>(),
        ) {
            let (bottom, top) = (1 << 41, (1 << 41) + 2 * SPAN);
            let align = if large { LARGE } else { PAGE };
            let list: Vec<Region> = others.iter().map(|(at, len)| region(*at, *len)).collect();
            if let Some(at) = below(&list, bottom, top, len, align) {
                prop_assert!(at >= bottom && at + len <= top && at % align == 0);
                for (start, size) in others {
                    prop_assert!(!share(at, len, start, size), "{at:#x} meets {start:#x}");
                }
            }
        }
    }

    #[test]
    fn a_free_span_is_found_whole() {
        let at = below(&[], 1 << 41, (1 << 41) + SPAN, SPAN / 2, PAGE);
        assert_eq!(at, Some((1 << 41) + SPAN / 2));
    }
}
