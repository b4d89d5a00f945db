//! The recorder's allocator: free lists by power-of-two sizes. Larger blocks are mapped one by one.
//! The memory is in the recorder's own part of the address space. Signal handlers do not allocate.

use crate::sys::lock::Lock;
use crate::sys::{self, PROT_READ, PROT_WRITE, arena, headroom};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_PRIVATE};

/// Binary logarithm of the smallest blocks' size in bytes.
const SMALLEST: u32 = 4;
/// The same for the largest blocks that are in lists.
const LARGEST: u32 = 15;
/// Number of lists.
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
/// Bytes that are mapped at a time.
const CHUNK: u64 = 1 << 20;

struct Lists {
    free: [*mut u8; CLASSES],
    next: u64,
    end: u64,
    /// End of the memory whose pages were made present.
    ready: u64,
}

/// Bytes of memory that are made present at a time.
const STEP: u64 = 64 << 10;

// SAFETY: the pointers lead to unused memory that belongs to the lists alone. Any thread may use
// it.
unsafe impl Send for Lists {}

/// Somebody may be killed between any two of the stores below. At most a block is lost then, so
/// nothing has to be mended.
static LISTS: Lock<Lists> = Lock::mended(
    Lists {
        free: [null_mut(); CLASSES],
        next: 0,
        end: 0,
        ready: 0,
    },
    |_| {},
);

/// Keeps stores in order, for whoever goes on after an owner that was killed between two of them.
fn then() {
    compiler_fence(SeqCst);
}

/// Keeps the allocator from changing while the process is copied.
pub fn hold() -> impl Sized {
    LISTS.lock()
}

impl Lists {
    /// Hands out `at..at + size`, which lies in the present chunk.
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

/// The allocator.
pub struct Heap;

fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).next_power_of_two();
    let bits = size.trailing_zeros().max(SMALLEST);
    (bits <= LARGEST).then_some((bits - SMALLEST) as usize)
}

fn map(len: u64) -> *mut u8 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    headroom::needed(|| arena::map(len, PROT_READ | PROT_WRITE, flags, -1, 0))
        .map_or(null_mut(), |a| a as *mut u8)
}

// SAFETY: blocks come from fresh mappings. They are cut at multiples of their size, a power of two,
// and so are aligned to it. Each is handed out once until it is freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(&layout) else {
            // Mappings are aligned to pages. No type here asks for more.
            return if layout.align() as u64 <= sys::PAGE {
                map(layout.size() as u64)
            } else {
                null_mut()
            };
        };
        let mut l = LISTS.lock();
        let p = l.free[class];
        if !p.is_null() {
            // SAFETY: the list is locked, and a free block holds the address of the next one in its
            // first word.
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
            log!(
                Debug,
                "the recorder's own memory grows by {CHUNK} bytes at {chunk:#x}"
            );
            // While these do not belong together, there is no room.
            (l.end, l.ready) = (0, 0);
            then();
            (l.next, l.ready) = (chunk, chunk);
            then();
            l.end = chunk + CHUNK;
            // Mappings are aligned to pages. Larger blocks need their own alignment.
            let at = chunk.next_multiple_of(size);
            return l.cut(at, size);
        }
        l.cut(at, size)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for this function.
        let p = unsafe { self.alloc(layout) };
        // What was mapped just now is zero, and stays untouched.
        if class(&layout).is_some() && !p.is_null() {
            // SAFETY: the block is as long as that.
            unsafe { p.write_bytes(0, layout.size()) };
        }
        p
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        let Some(class) = class(&layout) else {
            let _ = sys::munmap(p as u64, (layout.size() as u64).next_multiple_of(sys::PAGE));
            return;
        };
        let mut l = LISTS.lock();
        // SAFETY: the caller gives the block back, so nobody uses it. It has room for a word.
        unsafe { p.cast::<*mut u8>().write(l.free[class]) };
        then();
        l.free[class] = p;
    }
}
