//! The recorder's allocator: free lists by power-of-two size, larger blocks mapped one by one.
//! Its memory lies in the recorder's own part of the address space; signal handlers do not
//! allocate.

use crate::sys::lock::Lock;
use crate::sys::{self, PROT_READ, PROT_WRITE, arena};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_PRIVATE};

const SMALLEST: u32 = 4;
const LARGEST: u32 = 15;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
const CHUNK: u64 = 1 << 20;

struct Lists {
    free: [*mut u8; CLASSES],
    next: u64,
    end: u64,
    /// End of the memory that pages have been asked for.
    ready: u64,
}

/// Bytes of pages that are asked for at once.
const STEP: u64 = 64 << 10;

// SAFETY: the pointers own unused memory of the process.
unsafe impl Send for Lists {}

/// Each change below can be left off between any two of its stores, and loses a block at most: so there is nothing to mend.
static LISTS: Lock<Lists> = Lock::mended(
    Lists {
        free: [null_mut(); CLASSES],
        next: 0,
        end: 0,
        ready: 0,
    },
    |_| {},
);

/// What was stored before is there before what is stored behind, for whoever finds this left off in between.
fn then() {
    compiler_fence(SeqCst);
}

/// Keeps the allocator from changing while the process is copied.
pub fn hold() -> impl Sized {
    LISTS.lock()
}

impl Lists {
    /// Hands `at..at + size` out, in the present chunk.
    fn cut(&mut self, at: u64, size: u64) -> *mut u8 {
        self.next = at + size;
        then();
        while self.next > self.ready {
            sys::madvise_populate(self.ready, STEP);
            self.ready += STEP;
        }
        at as *mut u8
    }
}

/// The allocator itself.
pub struct Heap;

fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).next_power_of_two();
    let bits = size.trailing_zeros().max(SMALLEST);
    (bits <= LARGEST).then_some((bits - SMALLEST) as usize)
}

fn map(len: u64) -> *mut u8 {
    arena::map(
        len,
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS,
        -1,
        0,
    )
    .map_or(null_mut(), |a| a as *mut u8)
}

// SAFETY: blocks come from fresh mappings, are cut at multiples of their power-of-two size (and
// so aligned to it) and are handed out once until freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(&layout) else {
            // Pages are aligned enough: no type here asks for more.
            return if layout.align() as u64 <= sys::PAGE {
                map(layout.size() as u64)
            } else {
                null_mut()
            };
        };
        let mut l = LISTS.lock();
        let p = l.free[class];
        if !p.is_null() {
            // SAFETY: a free block holds the address of the next one in its first word.
            l.free[class] = unsafe { p.cast::<*mut u8>().read() };
            return p;
        }
        let size = 1u64 << (class as u32 + SMALLEST);
        let at = l.next.next_multiple_of(size);
        if at + size > l.end {
            let chunk = map(CHUNK) as u64;
            if chunk == 0 {
                return null_mut();
            }
            // Without room as long as these do not belong together.
            (l.end, l.ready) = (0, 0);
            then();
            (l.next, l.ready) = (chunk, chunk);
            then();
            l.end = chunk + CHUNK;
            // The arena's mappings are page aligned; larger blocks need their own alignment.
            let at = chunk.next_multiple_of(size);
            return l.cut(at, size);
        }
        l.cut(at, size)
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        let Some(class) = class(&layout) else {
            let _ = sys::munmap(p as u64, (layout.size() as u64).next_multiple_of(sys::PAGE));
            return;
        };
        let mut l = LISTS.lock();
        // SAFETY: the block is unused now and has room for a word.
        unsafe { p.cast::<*mut u8>().write(l.free[class]) };
        then();
        l.free[class] = p;
    }
}
